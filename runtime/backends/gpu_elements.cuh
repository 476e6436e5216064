/* Ops on a device that no generated kernel has: what their kernels share. Each gets a record of sizes in the memory of the device and
 * addresses; all texts beside this one are one source, with this one first. Types have the numbers of `library.py`. */
#include <cuda_fp16.h>

typedef unsigned long long u64;
#define NONE (~0ull)

/* The first index of a call that was out of range, by operand, then by place; `failed` says whether there was one. */
struct fault {
  long long lock, failed, number, index, place;
};

__device__ static void note(struct fault *to, long long number, long long index, long long place) {
  for (bool done = false; !done;) {  // a thread that has the lock lets go of it in the same turn
    if (atomicExch((u64 *)&to->lock, 1ull)) continue;
    __threadfence();
    volatile struct fault *seen = to;
    if (!seen->failed || number < seen->number || (number == seen->number && place < seen->place)) {
      seen->number = number, seen->index = index, seen->place = place;
      seen->failed = 1;
    }
    __threadfence_system();
    atomicExch((u64 *)&to->lock, 0ull);
    done = true;
  }
}

struct brain {  /* bf16 */
  unsigned short bits;
};

__device__ inline float wide(float x) { return x; }
__device__ inline double wide(double x) { return x; }
__device__ inline float wide(__half x) { return __half2float(x); }
__device__ inline float wide(struct brain x) { return __uint_as_float((unsigned)x.bits << 16); }
__device__ inline long long wide(signed char x) { return x; }
__device__ inline long long wide(short x) { return x; }
__device__ inline long long wide(int x) { return x; }
__device__ inline long long wide(long long x) { return x; }
__device__ inline u64 wide(unsigned char x) { return x; }
__device__ inline u64 wide(unsigned short x) { return x; }
__device__ inline u64 wide(unsigned x) { return x; }
__device__ inline u64 wide(u64 x) { return x; }

/* Rounds to nearest, ties to even; integers wrap. */
template <class T, class A> __device__ inline void narrow(T &to, A from) { to = (T)from; }
template <class A> __device__ inline void narrow(__half &to, A from) { to = __float2half_rn((float)from); }
template <class A> __device__ inline void narrow(struct brain &to, A from) {
  unsigned bits = __float_as_uint((float)from);
  bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  to.bits = (unsigned short)(nan ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* Sums and products of integers wrap. */
template <class A> __device__ inline A sum_of(A a, A b) { return a + b; }
template <class A> __device__ inline A product_of(A a, A b) { return a * b; }
__device__ inline long long sum_of(long long a, long long b) { return (long long)((u64)a + (u64)b); }
__device__ inline long long product_of(long long a, long long b) { return (long long)((u64)a * (u64)b); }

template <class A> __device__ inline A joined(long long how, A a, A b) {
  switch (how) {
    case 1: return sum_of(a, b);
    case 2: return product_of(a, b);
    case 3: return a >= b || a != a ? a : b;
    case 4: return a <= b || a != a ? a : b;
  }
  return b;
}

/* Numbers in the order of the elements: NaN last, zeros equal. */
__device__ inline u64 key_of(long long x) { return (u64)x ^ 1ull << 63; }
__device__ inline u64 key_of(u64 x) { return x; }
__device__ inline u64 key_of(float x) {
  if (x != x) return NONE;
  unsigned bits = __float_as_uint(x == 0 ? 0.0f : x);
  return bits >> 31 ? ~bits : bits | 1u << 31;
}
__device__ inline u64 key_of(double x) {
  if (x != x) return NONE;
  u64 bits = (u64)__double_as_longlong(x == 0 ? 0.0 : x);
  return bits >> 63 ? ~bits : bits | 1ull << 63;
}

/* A use of BODY for an element type by its number. */
#define BY_TYPE(type, BODY) \
  switch (type) { \
    case 0: BODY(signed char); break; \
    case 1: BODY(short); break; \
    case 2: BODY(int); break; \
    case 3: BODY(long long); break; \
    case 4: BODY(unsigned char); break; \
    case 5: BODY(unsigned short); break; \
    case 6: BODY(unsigned); break; \
    case 7: BODY(u64); break; \
    case 8: BODY(float); break; \
    case 9: BODY(double); break; \
    case 10: BODY(__half); break; \
    case 11: BODY(struct brain); break; \
  }

__device__ inline u64 first_thread() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline u64 all_threads() { return (u64)gridDim.x * blockDim.x; }

#define PIECES 4 /* elements of a thread that are read before any is needed */
#define HALF(x, k) ((unsigned)((x) >> 32 * (k)))
