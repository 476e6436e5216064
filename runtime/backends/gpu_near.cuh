/* Reads at positions that are data, of fewer than 2**31 places along at most three axes by one or two operands of i32 or i64. What each thread needs of extents
 * and steps comes as arguments: in fast memory, known before anything is read. A thread takes `V` places side by side, several times. */

/* x / n by a product, for x below 2**31: n is the lower half of `by`, and the upper one 2**(31 + shift) / n, rounded up, where n is at
 * most 2**shift (Granlund, Montgomery 1994). */
__device__ inline unsigned quotient(unsigned x, u64 by, unsigned shift) {
  return (unsigned)((u64)(x << 1) * HALF(by, 1) >> 32) >> shift;
}

template <int V, class T> struct alignas(V * sizeof(T)) beside {
  T each[V];
};

/* Notes what is out of range among a thread's places. */
__device__ inline void note_near(
    const struct places *p, const char *a, const char *b, struct fault *fault, unsigned first, unsigned count, unsigned pieces,
    unsigned beside) {
  const char *from[MOST_INDICES] = {a, b};
  for (unsigned k = 0; k < pieces; ++k)
    for (unsigned lane = 0; lane < beside; ++lane) {
      long long at = 0;
      unsigned place = first + k * blockDim.x;
      if (place < count) locate<unsigned>(p, place * beside + lane, from, fault, at);
    }
}

/* `I`: the type of the indices; N operands of them. */
template <class T, int V, class I, int N>
__device__ inline void read_near(
    const struct places *p, const T *x, T *out, const I *a, const I *b, struct fault *fault, unsigned count, u64 middle, u64 last,
    u64 shifts, long long x0, long long x1, long long x2, u64 a01, unsigned a2, u64 b01, unsigned b2) {
  const int pieces = V == 1 ? PIECES : PIECES / 2;
  unsigned first = blockIdx.x * (blockDim.x * pieces) + threadIdx.x;
  long long at[pieces];
  I named[N][pieces][V];
#pragma unroll
  for (int k = 0; k < pieces; ++k) {
    unsigned place = first + k * blockDim.x;
    place = (place < count ? place : count - 1) * V;
    unsigned row = quotient(place, last, HALF(shifts, 0)), column = place - row * (unsigned)last;
    unsigned plane = quotient(row, middle, HALF(shifts, 1)), line = row - plane * (unsigned)middle;
    at[k] = plane * x0 + line * x1 + column * x2;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      u64 steps = n ? b01 : a01;
      unsigned step = n ? b2 : a2, own = plane * HALF(steps, 0) + line * HALF(steps, 1) + column * step;
      const I *from = n ? b : a;
      named[n][k][0] = from[own];
#pragma unroll
      for (int lane = 1; lane < V; ++lane) named[n][k][lane] = step ? from[own + lane * step] : named[n][k][0];
    }
  }
  bool wrong = false;
  struct beside<V, T> values[pieces];
#pragma unroll
  for (int k = 0; k < pieces; ++k)
#pragma unroll
    for (int lane = 0; lane < V; ++lane) {
      long long from = at[k] + lane * x2;
      bool inside = true;
#pragma unroll
      for (int n = 0; n < N; ++n) {
        long long index = named[n][k][lane], found = index < 0 && p->wraps[n] ? index + p->limits[n] : index;
        inside &= (u64)found < (u64)p->limits[n];
        from += found * p->weights[n];
      }
      wrong |= !inside;
      values[k].each[lane] = inside ? x[from] : T{};
    }
#pragma unroll
  for (int k = 0; k < pieces; ++k)
    if (first + k * blockDim.x < count) ((struct beside<V, T> *)out)[first + k * blockDim.x] = values[k];
  if (wrong) note_near(p, (const char *)a, (const char *)b, fault, first, count, pieces, V);
}

#define NEAR_AS(T, V, I, N) \
  read_near<T, V, I, N>( \
      p, (const T *)x, (T *)out, (const I *)a, (const I *)b, fault, (unsigned)count, middle, last, shifts, x0, x1, x2, a01, \
      (unsigned)a2, b01, (unsigned)b2)
#define NEAR(T, V) \
  if (p->operands == 1) { \
    if (p->kinds[0] == 3) NEAR_AS(T, V, long long, 1); \
    else NEAR_AS(T, V, int, 1); \
  } else { \
    if (p->kinds[0] == 3) NEAR_AS(T, V, long long, 2); \
    else NEAR_AS(T, V, int, 2); \
  }

extern "C" __global__ void __launch_bounds__(256, 4) gpu_near_1_1(const struct places *__restrict__ p, const char *__restrict__ x, char *__restrict__ out, const char *__restrict__ a, const char *__restrict__ b, struct fault *fault, u64 count, u64 middle, u64 last, u64 shifts, long long x0, long long x1, long long x2, u64 a01, u64 a2, u64 b01, u64 b2) { NEAR(unsigned char, 1) }
extern "C" __global__ void __launch_bounds__(256, 4) gpu_near_2_1(const struct places *__restrict__ p, const char *__restrict__ x, char *__restrict__ out, const char *__restrict__ a, const char *__restrict__ b, struct fault *fault, u64 count, u64 middle, u64 last, u64 shifts, long long x0, long long x1, long long x2, u64 a01, u64 a2, u64 b01, u64 b2) { NEAR(unsigned short, 1) }
extern "C" __global__ void __launch_bounds__(256, 4) gpu_near_4_1(const struct places *__restrict__ p, const char *__restrict__ x, char *__restrict__ out, const char *__restrict__ a, const char *__restrict__ b, struct fault *fault, u64 count, u64 middle, u64 last, u64 shifts, long long x0, long long x1, long long x2, u64 a01, u64 a2, u64 b01, u64 b2) { NEAR(unsigned, 1) }
extern "C" __global__ void __launch_bounds__(256, 4) gpu_near_8_1(const struct places *__restrict__ p, const char *__restrict__ x, char *__restrict__ out, const char *__restrict__ a, const char *__restrict__ b, struct fault *fault, u64 count, u64 middle, u64 last, u64 shifts, long long x0, long long x1, long long x2, u64 a01, u64 a2, u64 b01, u64 b2) { NEAR(u64, 1) }
extern "C" __global__ void __launch_bounds__(256, 4) gpu_near_16_1(const struct places *__restrict__ p, const char *__restrict__ x, char *__restrict__ out, const char *__restrict__ a, const char *__restrict__ b, struct fault *fault, u64 count, u64 middle, u64 last, u64 shifts, long long x0, long long x1, long long x2, u64 a01, u64 a2, u64 b01, u64 b2) { NEAR(struct sixteen, 1) }
extern "C" __global__ void __launch_bounds__(256, 4) gpu_near_2_4(const struct places *__restrict__ p, const char *__restrict__ x, char *__restrict__ out, const char *__restrict__ a, const char *__restrict__ b, struct fault *fault, u64 count, u64 middle, u64 last, u64 shifts, long long x0, long long x1, long long x2, u64 a01, u64 a2, u64 b01, u64 b2) { NEAR(unsigned short, 4) }
extern "C" __global__ void __launch_bounds__(256, 4) gpu_near_4_4(const struct places *__restrict__ p, const char *__restrict__ x, char *__restrict__ out, const char *__restrict__ a, const char *__restrict__ b, struct fault *fault, u64 count, u64 middle, u64 last, u64 shifts, long long x0, long long x1, long long x2, u64 a01, u64 a2, u64 b01, u64 b2) { NEAR(unsigned, 4) }
extern "C" __global__ void __launch_bounds__(256, 4) gpu_near_8_2(const struct places *__restrict__ p, const char *__restrict__ x, char *__restrict__ out, const char *__restrict__ a, const char *__restrict__ b, struct fault *fault, u64 count, u64 middle, u64 last, u64 shifts, long long x0, long long x1, long long x2, u64 a01, u64 a2, u64 b01, u64 b2) { NEAR(u64, 2) }

#define ROW_PIECES 8 /* elements of a row that a thread has */

/* Rows at an index each: a warp has a part of a row, `share` elements of it at most, a multiple of 32; a row has `groups` parts. */
template <class T, class I>
__device__ inline void read_rows(
    const struct places *p, const T *x, T *out, const I *a, struct fault *fault, unsigned rows, unsigned groups, unsigned share, u64 middle,
    unsigned shift, unsigned width, long long x0, long long x1, u64 a01) {
  unsigned task = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, row = task / groups, group = task - row * groups;
  if (row >= rows) return;
  unsigned plane = quotient(row, middle, shift), line = row - plane * (unsigned)middle;
  unsigned own = plane * HALF(a01, 0) + line * HALF(a01, 1), first = group * share + threadIdx.x % 32;
  unsigned end = (group + 1) * share < width ? (group + 1) * share : width;
  long long index = a[own], found = index < 0 && p->wraps[0] ? index + p->limits[0] : index;
  bool inside = (u64)found < (u64)p->limits[0];
  if (!inside && threadIdx.x % 32 == 0) note(fault, 0, index, own);
  const T *from = x + (plane * x0 + line * x1 + (inside ? found : 0) * p->weights[0]) + first;
  T read[ROW_PIECES];
#pragma unroll
  for (int k = 0; k < ROW_PIECES; ++k)
    if (first + 32 * k < end) read[k] = from[32 * k];
  T *to = out + (u64)row * width + first;
#pragma unroll
  for (int k = 0; k < ROW_PIECES; ++k)
    if (first + 32 * k < end) to[32 * k] = inside ? read[k] : T{};
}

#define ROWS_AS(T, I) \
  read_rows<T, I>( \
      p, (const T *)x, (T *)out, (const I *)a, fault, (unsigned)rows, HALF(parts, 0), HALF(parts, 1), middle, HALF(sizes, 1), HALF(sizes, 0), x0, \
      x1, a01)
#define ROWS(T) \
  if (p->kinds[0] == 3) ROWS_AS(T, long long); \
  else ROWS_AS(T, int);

extern "C" __global__ void __launch_bounds__(256) gpu_rows_2(const struct places *__restrict__ p, const char *__restrict__ x, char *__restrict__ out, const char *__restrict__ a, struct fault *fault, u64 rows, u64 parts, u64 sizes, u64 middle, long long x0, long long x1, u64 a01) { ROWS(unsigned short) }
extern "C" __global__ void __launch_bounds__(256) gpu_rows_4(const struct places *__restrict__ p, const char *__restrict__ x, char *__restrict__ out, const char *__restrict__ a, struct fault *fault, u64 rows, u64 parts, u64 sizes, u64 middle, long long x0, long long x1, u64 a01) { ROWS(unsigned) }
extern "C" __global__ void __launch_bounds__(256) gpu_rows_8(const struct places *__restrict__ p, const char *__restrict__ x, char *__restrict__ out, const char *__restrict__ a, struct fault *fault, u64 rows, u64 parts, u64 sizes, u64 middle, long long x0, long long x1, u64 a01) { ROWS(u64) }
