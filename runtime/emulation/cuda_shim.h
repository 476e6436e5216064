// Runs generated CUDA kernels on the CPU: blocks one after another, each thread of a block a coroutine.
//
// Faults that it shows: threads that wait at different barriers, for lanes that have gone or with masks that differ (an
// error); reads of shared memory before any write (NaN); and, by running blocks and threads in another order, missing
// barriers and races. Built with gcc's sanitizers: accesses out of bounds and misaligned, and what C leaves undefined.
// Every text is compiled with it: headers of C++ that would take longer to read than the rest stay out.
// What it cannot show: faults of memory order, what needs warps in lockstep, and that multiply-adds may be contracted.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#if defined(__SANITIZE_ADDRESS__)
#define __shared__ static  // variables of a named section have no guards
#else
#define __shared__ static __attribute__((section("cuda_shared")))
#endif

struct uint3 { unsigned x, y, z; };
typedef uint3 dim3;
static uint3 threadIdx, blockIdx, blockDim, gridDim;
static const int warpSize = 32;

// Vectors, aligned as CUDA's are.
#define SHIM_VECTORS(T, N, two, four)                             \
  struct N##1 { T x; };                                           \
  struct __align__(two) N##2 { T x, y; };                         \
  struct __align__(four) N##4 { T x, y, z, w; };                  \
  static inline N##2 make_##N##2(T x, T y) { return {x, y}; }     \
  static inline N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
SHIM_VECTORS(signed char, char, 2, 4)
SHIM_VECTORS(unsigned char, uchar, 2, 4)
SHIM_VECTORS(short, short, 4, 8)
SHIM_VECTORS(unsigned short, ushort, 4, 8)
SHIM_VECTORS(int, int, 8, 16)
SHIM_VECTORS(unsigned, uint, 8, 16)
SHIM_VECTORS(long long, longlong, 16, 16)
SHIM_VECTORS(unsigned long long, ulonglong, 16, 16)
SHIM_VECTORS(float, float, 8, 16)
SHIM_VECTORS(double, double, 16, 16)

extern "C" char __start_cuda_shared[] __attribute__((weak, visibility("hidden")));
extern "C" char __stop_cuda_shared[] __attribute__((weak, visibility("hidden")));

namespace shim {
constexpr size_t kStack = 64 << 10;

// A switch from one stack to another. That of ucontext asks the kernel for signal masks: six times slower.
#if defined(__x86_64__)
extern "C" __attribute__((visibility("hidden"))) void shim_switch(void **save, void *load);
asm(".text\n.hidden shim_switch\n.globl shim_switch\n.type shim_switch,@function\nshim_switch:\n"
    " pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n movq %rsp,(%rdi)\n movq %rsi,%rsp\n"
    " popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n.size shim_switch,.-shim_switch\n");
struct Context { void *top = nullptr; };
static inline void change(Context &from, Context &to) { shim_switch(&from.top, to.top); }
static inline void prepare(Context &context, char *stack, void (*entry)()) {
  void **top = reinterpret_cast<void **>(reinterpret_cast<uintptr_t>(stack + kStack) & ~uintptr_t(15));
  *--top = nullptr;
  *--top = reinterpret_cast<void *>(entry);
  for (int k = 0; k < 6; ++k) *--top = nullptr;
  context.top = top;
}
#else
struct Context { ucontext_t state; };
static inline void change(Context &from, Context &to) { swapcontext(&from.state, &to.state); }
static inline void prepare(Context &context, char *stack, void (*entry)()) {
  getcontext(&context.state);
  context.state.uc_stack.ss_sp = stack;
  context.state.uc_stack.ss_size = kStack;
  context.state.uc_link = nullptr;
  makecontext(&context.state, entry, 0);
}
#endif

struct Failure { char text[160]; };

struct Barrier {
  int arrived = 0, line = 0;
  unsigned mask = 0;
  long generation = 0;
};

struct Thread {
  Context context;
  uint3 index;
  bool done;
  uint64_t slot;
};

// The numbers below n, in a way through all of them: 0 upwards, 1 downwards, else by a seed.
struct Order {
  int64_t size, start, step;
  Order(int64_t n, int order, int64_t turn) : size(n), start(order == 1 ? n - 1 : 0), step(order == 1 ? n - 1 : 1) {
    if (order < 2 || n < 3) return;
    uint64_t random = (uint64_t(order) + uint64_t(turn) * 977) * 0x9e3779b97f4a7c15u;
    start = int64_t(random >> 33) % n;
    step = 1 + int64_t((random ^ random >> 29) % uint64_t(n - 1));
    while (divisor(step, n) != 1) step = step % n + 1;
  }
  static int64_t divisor(int64_t a, int64_t b) { return b ? divisor(b, a % b) : a; }
  int64_t operator[](int64_t k) const { return int64_t((start + (__int128)k * step) % size); }
};

struct Copy { void *to; const void *from; bool inside; };

// What a thread has copied and not waited for.
struct Copies {
  Copy *first = nullptr;
  int count = 0, room = 0;
  void add(const Copy &copy) {
    if (count == room) first = static_cast<Copy *>(realloc(first, (room = 2 * room + 4) * sizeof(Copy)));
    first[count++] = copy;
  }
};

static Thread threads[1024];
static Copies copies[1024];
static char *stacks;
static size_t stacked;
static Barrier warps[32 * 32];  // of each warp, by the lowest lane of the mask
static Barrier block;
static Context scheduler;
static int current, size;
static long progress;
static void (*kernel)(void *);
static void *kernel_arguments;
static Failure failure;
static bool failed;
alignas(1024) static char dynamic[227 << 10];

static void leave() {
  Thread &thread = threads[current];
  change(thread.context, scheduler);
  threadIdx = thread.index;
}

static void fail(const char *what, int line) {
  if (!failed) {
    snprintf(failure.text, sizeof failure.text, "block %u, thread %d, line %d: %s", blockIdx.x, current, line, what);
    failed = true;
  }
  for (;;) leave();
}

static void wait(Barrier &barrier, int count, unsigned mask, int line) {
  if (barrier.arrived && barrier.line != line) fail("waits elsewhere than its neighbours", line);
  if (barrier.arrived && barrier.mask != mask) fail("waits with another mask than its neighbours", line);
  long generation = barrier.generation;
  barrier.line = line;
  barrier.mask = mask;
  if (++barrier.arrived == count) {
    barrier.arrived = 0;
    ++barrier.generation;
    ++progress;
  } else {
    while (barrier.generation == generation) leave();
  }
}

static unsigned lanes_of(int warp) {
  int count = size - warp * 32;
  return count < 32 ? (1u << count) - 1 : ~0u;
}

static void wait_in_warp(unsigned mask, int line) {
  int lane = current % 32, warp = current / 32;
  if (!(mask >> lane & 1)) fail("is not in the mask that it names", line);
  mask &= lanes_of(warp);
  wait(warps[warp * 32 + __builtin_ctz(mask)], __builtin_popcount(mask), mask, line);
}

static void entry() {
  threadIdx = threads[current].index;
  kernel(kernel_arguments);
  threads[current].done = true;
  ++progress;
  for (;;) leave();
}

static uint3 index_of(int64_t k, const uint3 &of) {
  return {unsigned(k % of.x), unsigned(k / of.x % of.y), unsigned(k / of.x / of.y)};
}

static void run_block(int order) {
  if (__start_cuda_shared) memset(__start_cuda_shared, 0xff, __stop_cuda_shared - __start_cuda_shared);
  block = Barrier();
  for (int k = 0; k < (size + 31) / 32 * 32; ++k) warps[k] = Barrier();
  for (int k = 0; k < size; ++k) {
    threads[k].done = false;
    copies[k].count = 0;
    threads[k].index = index_of(k, blockDim);
    prepare(threads[k].context, stacks + k * kStack, entry);
  }
  long turn = 0;
  for (bool running = true; running && !failed;) {
    long before = progress;
    running = false;
    Order way(size, order, turn++);
    for (int k = 0; k < size && !failed; ++k) {
      current = int(way[k]);
      if (threads[current].done) continue;
      running = true;
      change(scheduler, threads[current].context);
    }
    if (running && progress == before && !failed) {
      snprintf(failure.text, sizeof failure.text, "block %u: threads wait for others that have gone", blockIdx.x);
      failed = true;
    }
  }
}

static const char *launch(void (*body)(void *), void *arguments, bool waits, int order) {
  kernel = body;
  kernel_arguments = arguments;
  failed = false;
  size = int(blockDim.x * blockDim.y * blockDim.z);
  if (size < 1 || size > 1024) return "the block has too few or too many threads";
  if (gridDim.y > 65535 || gridDim.z > 65535) return "the grid has too many blocks along y or z";
  if (waits && stacked < size_t(size)) {
    free(stacks);
    stacks = static_cast<char *>(malloc(size * kStack));
    stacked = size;
  }
  int64_t blocks = int64_t(gridDim.x) * gridDim.y * gridDim.z;
  Order way(blocks, order, 1), inside(size, order, 2);
  for (int64_t b = 0; b < blocks && !failed; ++b) {
    blockIdx = index_of(way[b], gridDim);
    if (waits) {
      memset(dynamic, 0xff, sizeof dynamic);
      run_block(order);
      continue;
    }
    for (int k = 0; k < size; ++k) {
      threadIdx = index_of(order ? inside[k] : k, blockDim);
      body(arguments);
    }
  }
  return failed ? failure.text : nullptr;
}

// The value of lane `from`; a thread's own where that is outside of its group.
template <class T>
T exchange(unsigned mask, T value, int from, bool outside, int line) {
  int warp = current / 32;
  threads[current].slot = 0;
  memcpy(&threads[current].slot, &value, sizeof value);
  wait_in_warp(mask, line);
  if (!outside && !(mask & lanes_of(warp) & 1u << from)) fail("reads from a lane that does not take part", line);
  if (!outside) memcpy(&value, &threads[warp * 32 + from].slot, sizeof value);
  wait_in_warp(mask, line);
  return value;
}
template <class T>
T shuffle_xor(unsigned mask, T value, int with, int line, int width = 32) {
  int lane = current % 32, from = lane ^ with;
  return exchange(mask, value, from, from >= (lane / width + 1) * width, line);
}
template <class T>
T shuffle_by(unsigned mask, T value, int by, int line, int width = 32) {
  int lane = current % 32, from = lane + by;
  return exchange(mask, value, from, from < 0 || from / width != lane / width, line);
}
template <class T>
T shuffle_from(unsigned mask, T value, int from, int line, int width = 32) {
  int lane = current % 32;
  return exchange(mask, value, lane / width * width + from % width, false, line);
}
static inline unsigned ballot(unsigned mask, bool value, int line) {
  int warp = current / 32;
  threads[current].slot = value;
  wait_in_warp(mask, line);
  unsigned votes = 0;
  for (int lane = 0; lane < 32; ++lane)
    if (mask & lanes_of(warp) & 1u << lane) votes |= unsigned(threads[warp * 32 + lane].slot & 1) << lane;
  wait_in_warp(mask, line);
  return votes;
}
static inline unsigned match(unsigned mask, uint64_t value, int line) {
  int warp = current / 32;
  threads[current].slot = value;
  wait_in_warp(mask, line);
  unsigned same = 0;
  for (int lane = 0; lane < 32; ++lane)
    if (mask & lanes_of(warp) & 1u << lane) same |= unsigned(threads[warp * 32 + lane].slot == value) << lane;
  wait_in_warp(mask, line);
  return same;
}

template <size_t...> struct Numbers {};
template <class... A, size_t... I>
const char *start(void (*function)(A...), char **buffers, bool waits, int order, Numbers<I...>) {
  struct Call {
    void (*function)(A...);
    char **buffers;
  } call{function, buffers};
  auto body = [](void *data) {
    Call &call = *static_cast<Call *>(data);
    call.function((A)(intptr_t)call.buffers[I]...);
  };
  return launch(body, &call, waits, order);
}
template <class... A>
const char *arguments_of(void (*function)(A...), char **buffers, bool waits, int order) {
  return start(function, buffers, waits, order, Numbers<__integer_pack(sizeof...(A))...>{});
}
}  // namespace shim

#define __syncthreads() shim::wait(shim::block, shim::size, 0, __LINE__)
#define __syncwarp(...) shim::wait_in_warp(~0u __VA_OPT__(&(__VA_ARGS__)), __LINE__)
#define __shfl_xor_sync(mask, value, with, ...) shim::shuffle_xor(mask, value, with, __LINE__ __VA_OPT__(, ) __VA_ARGS__)
#define __shfl_down_sync(mask, value, by, ...) shim::shuffle_by(mask, value, int(by), __LINE__ __VA_OPT__(, ) __VA_ARGS__)
#define __shfl_up_sync(mask, value, by, ...) shim::shuffle_by(mask, value, -int(by), __LINE__ __VA_OPT__(, ) __VA_ARGS__)
#define __shfl_sync(mask, value, from, ...) shim::shuffle_from(mask, value, from, __LINE__ __VA_OPT__(, ) __VA_ARGS__)
#define __ballot_sync(mask, value) shim::ballot(mask, (value) != 0, __LINE__)
#define __match_any_sync(mask, value) shim::match(mask, value, __LINE__)
#define __any_sync(mask, value) (__ballot_sync(mask, value) != 0)
#define __all_sync(mask, value) (__ballot_sync(mask, !(value)) == 0)
#define __threadfence()
#define __threadfence_block()
#define __threadfence_system()

// Exports a kernel as a function that gives an error message or null.
#define SHIM_EXPORT(name, waits)                                                                             \
  extern "C" const char *run_##name(char **buffers, const unsigned *grid, const unsigned *block, int order) { \
    gridDim = {grid[0], grid[1], grid[2]};                                                                   \
    blockDim = {block[0], block[1], block[2]};                                                               \
    return shim::arguments_of(name, buffers, waits, order);                                                  \
  }

template <class T> static inline T atomicExch(T *address, T value) {
  T before = *address;
  *address = value;
  return before;
}
template <class T> static inline T atomicAdd(T *address, T value) {
  T before = *address;
  *address = before + value;
  return before;
}
template <class T> static inline T __ldg(const T *address) { return *address; }
template <class T> static inline T __ldcs(const T *address) { return *address; }
template <class T> static inline T __ldcg(const T *address) { return *address; }
template <class T> static inline T __ldca(const T *address) { return *address; }
template <class T> static inline void __stcs(T *address, T value) { *address = value; }
template <class T> static inline void __stcg(T *address, T value) { *address = value; }
template <class T> static inline void __stwb(T *address, T value) { *address = value; }

// Exact here: how far the device's are off is in NVIDIA's documentation.
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
#define __expf(x) expf(x)
#define __exp10f(x) powf(10.0f, x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __fdiv_rn(float x, float y) { return x / y; }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
static inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
static inline float __fadd_rn(float x, float y) { return x + y; }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline unsigned __umulhi(unsigned x, unsigned y) { return unsigned((uint64_t(x) * y) >> 32); }
static inline int __mulhi(int x, int y) { return int((int64_t(x) * y) >> 32); }
static inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return (unsigned long long)(((unsigned __int128)x * y) >> 64);
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }

namespace shim {
template <class To, class From>
static inline To bits(From x) {
  static_assert(sizeof(To) == sizeof(From), "a bit pattern of another size");
  To r;
  memcpy(&r, &x, sizeof r);
  return r;
}
}  // namespace shim
static inline int __float_as_int(float x) { return shim::bits<int>(x); }
static inline unsigned __float_as_uint(float x) { return shim::bits<unsigned>(x); }
static inline float __int_as_float(int x) { return shim::bits<float>(x); }
static inline float __uint_as_float(unsigned x) { return shim::bits<float>(x); }
static inline long long __double_as_longlong(double x) { return shim::bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return shim::bits<double>(x); }

struct __half { _Float16 value; };
struct __align__(4) __half2 { __half x, y; };
typedef __half half;
typedef __half2 half2;
static inline float __half2float(__half x) { return float(x.value); }
static inline __half __float2half_rn(float x) { return {_Float16(x)}; }
static inline __half __float2half(float x) { return __float2half_rn(x); }
static inline __half2 __floats2half2_rn(float x, float y) { return {__float2half_rn(x), __float2half_rn(y)}; }
static inline __half2 __float22half2_rn(float2 v) { return __floats2half2_rn(v.x, v.y); }
static inline float2 __half22float2(__half2 v) { return {__half2float(v.x), __half2float(v.y)}; }
static inline float __low2float(__half2 v) { return __half2float(v.x); }
static inline float __high2float(__half2 v) { return __half2float(v.y); }
static inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
static inline short __half_as_short(__half x) { return shim::bits<short>(x); }
static inline unsigned short __half_as_ushort(__half x) { return shim::bits<unsigned short>(x); }
static inline __half __short_as_half(short x) { return shim::bits<__half>(x); }
static inline __half __ushort_as_half(unsigned short x) { return shim::bits<__half>(x); }

struct __nv_bfloat16 { unsigned short bits; };
struct __align__(4) __nv_bfloat162 { __nv_bfloat16 x, y; };
static inline float __bfloat162float(__nv_bfloat16 x) { return shim::bits<float>((unsigned)x.bits << 16); }
static inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  unsigned u = shim::bits<unsigned>(x);
  return {(unsigned short)(x != x ? 0x7fffu : (u + 0x7fffu + (u >> 16 & 1u)) >> 16)};
}
static inline __nv_bfloat16 __float2bfloat16(float x) { return __float2bfloat16_rn(x); }
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}
static inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return __floats2bfloat162_rn(v.x, v.y); }
static inline float2 __bfloat1622float2(__nv_bfloat162 v) { return {__bfloat162float(v.x), __bfloat162float(v.y)}; }
static inline float __low2float(__nv_bfloat162 v) { return __bfloat162float(v.x); }
static inline float __high2float(__nv_bfloat162 v) { return __bfloat162float(v.y); }
static inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
static inline short __bfloat16_as_short(__nv_bfloat16 x) { return short(x.bits); }
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
static inline __nv_bfloat16 __short_as_bfloat16(short x) { return {(unsigned short)x}; }
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return {x}; }

// What a warp does together, and copies that are there only when they have been waited for.
namespace shim {
struct Parts { float a[8], b[4]; const unsigned short *row; };
static Parts parts[1024];

static inline void widen(bool brain, const int *pairs, int count, float *to) {
  for (int k = 0; k < count; ++k)
    for (int e = 0; e < 2; ++e) {
      unsigned short half = (unsigned short)(unsigned(pairs[k]) >> 16 * e);
      to[2 * k + e] = brain ? __bfloat162float({half}) : __half2float(bits<__half>(half));
    }
}

// Products are summed up in the order of k, which the hardware does not promise.
static inline void multiply(bool brain, float *sums, const int *a, const int *b, int line) {
  int lane = current % 32, first = current - lane, row = lane / 4, column = lane % 4 * 2;
  widen(brain, a, 4, parts[current].a);
  widen(brain, b, 2, parts[current].b);
  wait_in_warp(~0u, line);
  for (int half = 0; half < 2; ++half)
    for (int e = 0; e < 2; ++e) {
      float sum = sums[half * 2 + e];
      for (int k = 0; k < 16; ++k)
        sum += parts[first + row * 4 + k % 8 / 2].a[(half + k / 8 * 2) * 2 + k % 2] *
               parts[first + (column + e) * 4 + k % 8 / 2].b[k / 8 * 2 + k % 2];
      sums[half * 2 + e] = sum;
    }
  wait_in_warp(~0u, line);
}

// As the matrix units of four warps find elements: rows of 128 bytes, of which addresses are mixed with those of rows.
template <class T>
void multiply_group(bool brain, bool turned, float *sums, const int *a, const T *rows, bool adds, int line) {
  uintptr_t start = reinterpret_cast<uintptr_t>(rows);
  int lane = current % 32;
  if (start % 16 || (start >> 7 & 7)) fail("names a matrix that is not aligned", line);
  if (size % 128) fail("multiplies without all four warps of a group", line);
  for (int part = 0; part < 8; ++part) {
    int b[2] = {0, 0};
    for (int k = lane % 4 * 2, at = 0; at < 4; ++at) {
      int n = part * 8 + lane / 4, deep = k + at / 2 * 8 + at % 2;
      uintptr_t place = start + (turned ? deep * 128 + n * 2 : n * 128 + deep * 2);
      place ^= (place >> 7 & 7) << 4;
      b[at / 2] |= int(unsigned(*reinterpret_cast<unsigned short *>(place)) << 16 * (at % 2));
    }
    for (int k = 0; k < 4 && !adds; ++k) sums[part * 4 + k] = 0.0f;
    multiply(brain, sums + part * 4, a, b, line);
  }
}

template <class T>
void load_matrices(int *to, const T *own, bool turned, int line) {
  int lane = current % 32, first = current - lane;
  if (reinterpret_cast<uintptr_t>(own) % 16) fail("names a row of a matrix that is not aligned", line);
  parts[current].row = reinterpret_cast<const unsigned short *>(own);
  wait_in_warp(~0u, line);
  for (int matrix = 0; matrix < 4; ++matrix) {
    unsigned pair = 0;
    for (int e = 0; e < 2; ++e) {
      int row = turned ? lane % 4 * 2 + e : lane / 4, column = turned ? lane / 4 : lane % 4 * 2 + e;
      pair |= unsigned(parts[first + matrix * 8 + row].row[column]) << 16 * e;
    }
    to[matrix] = int(pair);
  }
  wait_in_warp(~0u, line);
}

static inline void copy_later(void *to, const void *from, bool inside, int line) {
  if (reinterpret_cast<uintptr_t>(to) % 16 || (inside && reinterpret_cast<uintptr_t>(from) % 16))
    fail("copies 16 bytes that are not aligned", line);
  copies[current].add({to, from, inside});
}

static inline void finish_copies() {
  Copies &own = copies[current];
  for (const Copy *copy = own.first; copy < own.first + own.count; ++copy)
    if (copy->inside) memcpy(copy->to, copy->from, 16); else memset(copy->to, 0, 16);
  own.count = 0;
}
}  // namespace shim
