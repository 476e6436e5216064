/* Running totals along the middle axis of [outer, extent, inner]; those of f32 are kept in f64, and all are rounded for each element. */
#define SCANNED 256
#define EACH 9 /* elements of a thread: odd, so that neighbours read different banks */
#define TILE (SCANNED * EACH)
#define AHEAD 8

struct totals {
  long long outer, extent, inner, type, join;
  long long reverse, behind;   /* whether from the end; results that come before the first total */
  long long results;           /* the extent of the result */
  long long chunks, chunk;     /* parts of a line that are summed apart first, and elements of each */
  long long groups;            /* of tiles, of which `gpu_tile_sums` sums each */
};

template <class A> struct running { typedef A type; };
template <> struct running<float> { typedef double type; };

/* Where the total of the first `at` + 1 elements goes, in a line of the result; -1 for none. */
__device__ inline long long result_of(const struct totals *p, long long at) {
  long long to = at + p->behind;
  if (to >= p->results) return -1;
  return p->reverse ? p->results - 1 - to : to;
}

/* A thread for each line. */
template <class T> __device__ inline void total_lines(const struct totals *p, const T *x, T *out) {
  typedef typename running<decltype(wide(T{}))>::type A;
  for (u64 line = first_thread(); line < (u64)(p->outer * p->inner); line += all_threads()) {
    const T *from = x + line / p->inner * p->extent * p->inner + line % p->inner;
    T *to = out + line / p->inner * p->results * p->inner + line % p->inner;
    A total = A(p->join == 1 ? 0 : 1);
    if (p->behind) narrow(to[(p->reverse ? p->results - 1 : 0) * p->inner], total);
    for (long long at = 0; at < p->extent; ++at) {
      total = joined(p->join, total, A(wide(from[(p->reverse ? p->extent - 1 - at : at) * p->inner])));
      long long place = result_of(p, at);
      if (place >= 0) narrow(to[place * p->inner], total);
    }
  }
}

extern "C" __global__ void __launch_bounds__(256) gpu_total_lines(const struct totals *__restrict__ p, const char *__restrict__ x, char *__restrict__ out) {
#define LINES(T) total_lines(p, (const T *)x, (T *)out)
  BY_TYPE(p->type, LINES)
}

/* What `count` elements, `step` apart, add up to behind a total. */
template <class A, class T> __device__ inline A total_of(long long join, A total, const T *from, long long count, long long step) {
  for (; count >= AHEAD; count -= AHEAD, from += AHEAD * step) {
    T read[AHEAD];
#pragma unroll
    for (int k = 0; k < AHEAD; ++k) read[k] = from[k * step];
#pragma unroll
    for (int k = 0; k < AHEAD; ++k) total = joined(join, total, A(wide(read[k])));
  }
  for (; count > 0; --count, from += step) total = joined(join, total, A(wide(*from)));
  return total;
}

/* A thread for each column of a chunk, and neighbours beside it: first what it adds up to, then its totals behind those before it. */
template <class T, bool SUMS>
__device__ inline void total_columns(const struct totals *p, const T *x, T *out, char *sums) {
  typedef typename running<decltype(wide(T{}))>::type A;
  u64 inner = (u64)p->inner, across = (inner + SCANNED - 1) / SCANNED, part = blockIdx.x / across;
  u64 column = blockIdx.x % across * SCANNED + threadIdx.x, line = part / (u64)p->chunks, number = part % (u64)p->chunks;
  if (column >= inner) return;
  long long first = (long long)number * p->chunk, end = first + p->chunk < p->extent ? first + p->chunk : p->extent;
  const T *from = x + line * p->extent * inner + column;
  T *to = out + line * p->results * inner + column;
  A *own = (A *)sums + line * p->chunks * inner + column, total = A(p->join == 1 ? 0 : 1);
  if (!SUMS) {
    if (p->behind && !number) narrow(to[(p->reverse ? p->results - 1 : 0) * inner], total);
    for (u64 k = 0; k < number; ++k) total = joined(p->join, total, own[k * inner]);
  }
  if (SUMS) {
    total = total_of<A>(p->join, total, from + (p->reverse ? p->extent - 1 - first : first) * inner, end - first, p->reverse ? -p->inner : p->inner);
  } else {
    long long step = p->reverse ? -p->inner : p->inner, at = first;
    const T *next = from + (p->reverse ? p->extent - 1 - first : first) * inner;
    T *put = to + (p->reverse ? p->results - 1 - p->behind - first : p->behind + first) * inner;
    if (end > p->results - p->behind) end = p->results - p->behind;
    for (; at + AHEAD <= end; at += AHEAD, next += AHEAD * step, put += AHEAD * step) {
      T read[AHEAD];
#pragma unroll
      for (int k = 0; k < AHEAD; ++k) read[k] = next[k * step];
#pragma unroll
      for (int k = 0; k < AHEAD; ++k) {
        total = joined(p->join, total, A(wide(read[k])));
        narrow(put[k * step], total);
      }
    }
    for (; at < end; ++at, next += step, put += step) {
      total = joined(p->join, total, A(wide(*next)));
      narrow(*put, total);
    }
  }
  if (SUMS) own[number * inner] = total;
}

extern "C" __global__ void __launch_bounds__(256, 3) gpu_column_sums(const struct totals *__restrict__ p, const char *__restrict__ x, char *__restrict__ sums) {
#define COLUMN_SUMS(T) total_columns<T, true>(p, (const T *)x, (T *)0, sums)
  BY_TYPE(p->type, COLUMN_SUMS)
}

extern "C" __global__ void __launch_bounds__(256, 3) gpu_total_columns(const struct totals *__restrict__ p, const char *__restrict__ x, char *__restrict__ out, char *__restrict__ sums) {
#define COLUMNS(T) total_columns<T, false>(p, (const T *)x, (T *)out, sums)
  BY_TYPE(p->type, COLUMNS)
}

/* The total of what the threads before have, in order; `all`: that of all threads. Every thread of the block calls it. */
template <class A> __device__ inline A total_before(long long join, A own, A none, A *warps, A &all) {
  unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  A upto = own;
  for (unsigned apart = 1; apart < 32; apart *= 2) {
    A other = __shfl_up_sync(0xffffffffu, upto, apart);
    if (lane >= apart) upto = joined(join, other, upto);
  }
  if (lane == 31) warps[warp] = upto;
  A last = __shfl_up_sync(0xffffffffu, upto, 1), before = none;
  __syncthreads();
  all = none;
  for (unsigned k = 0; k < SCANNED / 32; ++k) {
    if (k == warp) before = all;
    all = joined(join, all, warps[k]);
  }
  __syncthreads();  // then `warps` may be written again
  return lane ? joined(join, before, last) : before;
}

/* A block for each chunk of a line: what it adds up to. */
template <class T> __device__ inline void chunk_sum(const struct totals *p, const T *x, u64 *sums, u64 *warps) {
  typedef typename running<decltype(wide(T{}))>::type A;
  long long line = blockIdx.x / p->chunks, number = blockIdx.x % p->chunks, inner = p->inner;
  const T *from = x + line / inner * p->extent * inner + line % inner;
  long long first = number * p->chunk, end = first + p->chunk < p->extent ? first + p->chunk : p->extent;
  A none = A(p->join == 1 ? 0 : 1), total, all;
  long long own = first + threadIdx.x, count = own < end ? (end - own + SCANNED - 1) / SCANNED : 0;
  total = total_of<A>(p->join, none, from + (p->reverse ? p->extent - 1 - own : own) * inner, count, (p->reverse ? -inner : inner) * SCANNED);
  total_before(p->join, total, none, (A *)warps, all);
  if (!threadIdx.x) ((A *)sums)[blockIdx.x] = all;
}

/* Reads this thread's elements of the tile that begins at `first`. */
template <class T>
__device__ inline void read_tile(const struct totals *p, const T *from, long long first, long long end, long long step, T *read) {
  const T *next = from + (p->reverse ? p->extent - 1 - first - threadIdx.x : first + threadIdx.x) * p->inner;
#pragma unroll
  for (int k = 0; k < EACH; ++k)
    if (first + k * SCANNED + (long long)threadIdx.x < end) read[k] = next[k * step];
}

/* A block for each chunk of a line: its totals, a tile at a time, behind those of the chunks before it. Later chunks come first: they are
 * what the caches still have. */
template <class T>
__device__ inline void total_line(const struct totals *p, const T *x, T *out, const u64 *sums, u64 *memory, u64 *warps) {
  typedef typename running<decltype(wide(T{}))>::type A;
  T *tile = (T *)memory;
  long long line = blockIdx.x / p->chunks, number = p->chunks - 1 - blockIdx.x % p->chunks, inner = p->inner;
  const T *from = x + line / inner * p->extent * inner + line % inner;
  T *to = out + line / inner * p->results * inner + line % inner;
  long long begin = number * p->chunk, end = begin + p->chunk < p->extent ? begin + p->chunk : p->extent;
  A none = A(p->join == 1 ? 0 : 1), before = none, all;
  if (number) {
    long long share = (number + SCANNED - 1) / SCANNED;
    A some = none;
    for (long long k = threadIdx.x * share; k < number && k < (threadIdx.x + 1) * share; ++k)
      some = joined(p->join, some, ((const A *)sums)[line * p->chunks + k]);
    total_before(p->join, some, none, (A *)warps, before);
  } else if (p->behind && !threadIdx.x) {
    narrow(to[(p->reverse ? p->results - 1 : 0) * inner], none);
  }
  if (end > p->results - p->behind) end = p->results - p->behind;
  T read[EACH];
  long long step = (p->reverse ? -inner : inner) * SCANNED;
  if (begin < end) read_tile(p, from, begin, end, step, read);
  for (long long first = begin; first < end; first += TILE) {
    int left = end - first < TILE ? (int)(end - first) : TILE;
#pragma unroll
    for (int k = 0; k < EACH; ++k)
      if (k * SCANNED + (int)threadIdx.x < left) tile[k * SCANNED + threadIdx.x] = read[k];
    __syncthreads();
    if (first + TILE < end) read_tile(p, from, first + TILE, end, step, read);  // comes while this tile is gone over
    A total = none;
    int own = (int)threadIdx.x * EACH;
#pragma unroll 3
    for (int k = own; k < own + EACH && k < left; ++k) total = joined(p->join, total, A(wide(tile[k])));
    total = joined(p->join, before, total_before(p->join, total, none, (A *)warps, all));
    before = joined(p->join, before, all);
#pragma unroll 3
    for (int k = own; k < own + EACH && k < left; ++k) {
      total = joined(p->join, total, A(wide(tile[k])));
      narrow(tile[k], total);
    }
    __syncthreads();
    T *put = to + (p->reverse ? p->results - 1 - p->behind - first - threadIdx.x : p->behind + first + threadIdx.x) * inner;
    for (int k = (int)threadIdx.x; k < left; k += SCANNED, put += step) *put = tile[k];
    __syncthreads();  // then the tile may be written again
  }
}

extern "C" __global__ void __launch_bounds__(256, 4) gpu_chunk_sums(const struct totals *__restrict__ p, const char *__restrict__ x, u64 *__restrict__ sums) {
  __shared__ u64 warps[SCANNED / 32];
#define CHUNK_SUM(T) chunk_sum(p, (const T *)x, sums, warps)
  BY_TYPE(p->type, CHUNK_SUM)
}

extern "C" __global__ void __launch_bounds__(256, 3) gpu_total_line(const struct totals *__restrict__ p, const char *__restrict__ x, char *__restrict__ out, const u64 *__restrict__ sums) {
  __shared__ u64 memory[TILE], warps[SCANNED / 32];
#define LINE(T) total_line(p, (const T *)x, (T *)out, sums, memory, warps)
  BY_TYPE(p->type, LINE)
}

#define TILE_PIECES 4 /* vectors of four elements that a thread has */
#define WHOLE_TILE (SCANNED * 4 * TILE_PIECES)
#define GROUP 64 /* tiles whose sum is one number */

struct alignas(16) four {
  float each[4];
};

/* A thread's elements of a tile, zeros behind the end: a warp has its share of the tile, a vector of each thread side by side. */
__device__ inline long long read_whole(const struct totals *p, const float *from, unsigned number, struct four *read) {
  long long first = (long long)number * WHOLE_TILE + threadIdx.x / 32 * (WHOLE_TILE / (SCANNED / 32)) + 4 * (threadIdx.x % 32);
#pragma unroll
  for (int k = 0; k < TILE_PIECES; ++k) {
    long long at = first + 128 * k;
    if (at + 4 <= p->extent) read[k] = *(const struct four *)(from + at);
    else
      for (int e = 0; e < 4; ++e) read[k].each[e] = at + e < p->extent ? from[at + e] : 0.0f;
  }
  return first;
}

extern "C" __global__ void __launch_bounds__(256) gpu_tiles_begin(const struct totals *__restrict__ p, unsigned *__restrict__ counts) {
  for (u64 k = first_thread(); k < (u64)p->groups * p->outer; k += all_threads()) counts[k] = 0;
}

/* Sums of tiles of lines of f32, a block for each, and of groups of tiles: the block that comes last adds those of its group, in order. */
extern "C" __global__ void __launch_bounds__(256) gpu_tile_sums(const struct totals *__restrict__ p, const float *__restrict__ x, double *sums, unsigned *counts) {
  __shared__ u64 warps[SCANNED / 32];
  __shared__ bool is_last;
  unsigned tiles = (unsigned)p->chunks, groups = (unsigned)p->groups, line = blockIdx.x / tiles, number = blockIdx.x - line * tiles;
  double *own_sums = sums + (u64)line * (tiles + groups), some = 0, all;
  struct four read[TILE_PIECES];
  read_whole(p, x + line * p->extent, number, read);
#pragma unroll
  for (int k = 0; k < TILE_PIECES; ++k)
    some += ((double)read[k].each[0] + (double)read[k].each[1]) + ((double)read[k].each[2] + (double)read[k].each[3]);
  total_before(1, some, 0.0, (double *)warps, all);
  unsigned group = number / GROUP, first = group * GROUP, count = tiles - first < GROUP ? tiles - first : GROUP;
  if (!threadIdx.x) {
    own_sums[number] = all;
    __threadfence();
    is_last = atomicAdd(counts + line * groups + group, 1u) == count - 1;
    __threadfence();
  }
  __syncthreads();
  if (!is_last) return;
  some = threadIdx.x < count ? *(const volatile double *)(own_sums + first + threadIdx.x) : 0.0;
  total_before(1, some, 0.0, (double *)warps, all);
  if (!threadIdx.x) own_sums[tiles + group] = all;
}

/* Running sums of a tile behind those of whole groups and of the tiles before it. Last tiles come first: the caches still have them. */
extern "C" __global__ void __launch_bounds__(256, 3) gpu_tile_totals(const struct totals *__restrict__ p, const float *__restrict__ x, float *__restrict__ out, const double *__restrict__ sums) {
  __shared__ u64 warps[SCANNED / 32];
  unsigned tiles = (unsigned)p->chunks, groups = (unsigned)p->groups, block = gridDim.x - 1 - blockIdx.x, line = block / tiles;
  unsigned number = block - line * tiles, group = number / GROUP, lane = threadIdx.x % 32;
  const double *own_sums = sums + (u64)line * (tiles + groups), *group_sums = own_sums + tiles;
  struct four read[TILE_PIECES];
  long long first = read_whole(p, x + line * p->extent, number, read);
  unsigned count = group + number % GROUP, share = (count + SCANNED - 1) / SCANNED;
  double some = 0, of_tiles;
  for (unsigned k = threadIdx.x * share; k < count && k < (threadIdx.x + 1) * share; ++k)
    some += k < group ? group_sums[k] : own_sums[group * GROUP + k - group];
  total_before(1, some, 0.0, (double *)warps, of_tiles);
  double before[TILE_PIECES], of_warp = 0, all;
#pragma unroll
  for (int k = 0; k < TILE_PIECES; ++k) {
    double upto = (double)read[k].each[0];
#pragma unroll
    for (int e = 1; e < 4; ++e) upto += (double)read[k].each[e];
#pragma unroll
    for (unsigned apart = 1; apart < 32; apart *= 2) {
      double other = __shfl_up_sync(0xffffffffu, upto, apart);
      if (lane >= apart) upto = other + upto;
    }
    double previous = __shfl_up_sync(0xffffffffu, upto, 1);
    before[k] = lane ? of_warp + previous : of_warp;
    of_warp += __shfl_sync(0xffffffffu, upto, 31);
  }
  if (!lane) warps[threadIdx.x / 32] = (u64)__double_as_longlong(of_warp);
  __syncthreads();
  all = of_tiles;
  for (unsigned k = 0; k < threadIdx.x / 32; ++k) all += __longlong_as_double((long long)warps[k]);
  float *to = out + line * p->extent;
#pragma unroll
  for (int k = 0; k < TILE_PIECES; ++k) {
    long long at = first + 128 * k;
    double total = all + before[k];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      total += (double)read[k].each[e];
      read[k].each[e] = (float)total;
    }
    if (at + 4 <= p->extent) *(struct four *)(to + at) = read[k];
    else
      for (int e = 0; e < 4; ++e)
        if (at + e < p->extent) to[at + e] = read[k].each[e];
  }
}
