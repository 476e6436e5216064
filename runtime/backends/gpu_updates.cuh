/* Updates that are joined where they go: of lines that fit in shared memory, and of wide rows. */
#define ROOM 4096 /* words of 8 bytes of shared memory */

/* Updates along the last axis of lines that are apart: a warp for each line, whose totals are in shared memory until all updates are
 * taken, 32 at a time and in their order; those of them that meet go one after another. */
template <class T>
__device__ inline void put_line(
    const struct places *p, const T *x, const T *values, T *out, const char *from, struct fault *fault, u64 *memory) {
  typedef decltype(wide(T{})) A;
  long long lane = threadIdx.x % 32, size = p->limits[0], count = p->extents[1];
  long long line = (long long)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (line >= p->extents[0]) return;
  A *totals = (A *)memory + threadIdx.x / 32 * size;
  for (long long k = lane; k < size; k += 32) totals[k] = wide(x[line * size + k]);
  __syncwarp();
  for (long long first = line * count; first < (line + 1) * count; first += 32 * PIECES) {
    long long index[PIECES];
    T value[PIECES];
#pragma unroll
    for (int k = 0; k < PIECES; ++k) {
      long long at = first + 32 * k + lane;
      bool some = at < (line + 1) * count;
      index[k] = some ? p->kinds[0] == 3 ? ((const long long *)from)[at] : ((const int *)from)[at] : 0;
      value[k] = some ? values[at] : T{};
    }
#pragma unroll
    for (int k = 0; k < PIECES; ++k) {
      long long at = first + 32 * k + lane, found = index[k] < 0 && p->wraps[0] ? index[k] + size : index[k];
      bool inside = at < (line + 1) * count;
      if (inside && (u64)found >= (u64)size) {
        note(fault, 0, index[k], at);
        inside = false;
      }
      __syncwarp();
      unsigned target = inside ? (unsigned)found : (unsigned)(size + lane);
      unsigned turn = (unsigned)__popc(__match_any_sync(0xffffffffu, target) & ((1u << lane) - 1u));
      for (unsigned now = 0;; ++now) {
        if (inside && turn == now) totals[target] = joined(p->join, totals[target], A(wide(value[k])));
        __syncwarp();
        if (!__any_sync(0xffffffffu, turn > now)) break;
      }
    }
  }
  for (long long k = lane; k < size; k += 32) narrow(out[line * size + k], totals[k]);
}

extern "C" __global__ void __launch_bounds__(256) gpu_put_lines(const struct places *p, const char *x, const char *values, char *out, const char *from, struct fault *fault) {
  __shared__ u64 memory[ROOM];
#define PUT_LINE(T) put_line(p, (const T *)x, (const T *)values, (T *)out, from, fault, memory)
  BY_TYPE(p->type, PUT_LINE)
}

/* As `gpu_put`, of rows that are wide: a warp has 32 times PIECES elements of a row, and finds the updates of it once. */
template <class T>
__device__ inline void put_row(const struct places *p, const T *x, const T *values, T *out, const u64 *keys, const unsigned *order) {
  unsigned groups = (unsigned)((p->width + 32 * PIECES - 1) / (32 * PIECES));
  u64 task = first_thread() / 32, number = task / groups;
  if (number >= (u64)p->count) return;
  unsigned first = (unsigned)(task - number * groups) * (32 * PIECES) + threadIdx.x % 32, width = (unsigned)p->width;
  u64 key = target_at(p, keys, number);
  if (key == NONE || (number && target_at(p, keys, number - 1) == key)) return;
  decltype(wide(T{})) totals[PIECES];
#pragma unroll
  for (int k = 0; k < PIECES; ++k) totals[k] = !p->fills && first + 32 * k < width ? wide(x[key + first + 32 * k]) : 0;
  for (u64 next = number; next < (u64)p->count && target_at(p, keys, next) == key; ++next) {
    const T *from = values + value_at(p, update_at(p, keys, order, next));
    T read[PIECES];
#pragma unroll
    for (int k = 0; k < PIECES; ++k)
      if (first + 32 * k < width) read[k] = from[(first + 32 * k) * p->value_step];
#pragma unroll
    for (int k = 0; k < PIECES; ++k)
      if (first + 32 * k < width) totals[k] = joined(p->join, totals[k], wide(read[k]));
  }
#pragma unroll
  for (int k = 0; k < PIECES; ++k)
    if (first + 32 * k < width) narrow(out[key + first + 32 * k], totals[k]);
}

extern "C" __global__ void __launch_bounds__(256) gpu_put_rows(const struct places *p, const char *x, const char *values, char *out, const u64 *keys, const unsigned *order) {
#define PUT_ROW(T) put_row(p, (const T *)x, (const T *)values, (T *)out, keys, order)
  BY_TYPE(p->type, PUT_ROW)
}

#define SUM_PIECES 3  /* vectors that a thread has of a row */
#define SUM_UPDATES 1 /* updates that are read before any is added */
#define SUM_BESIDE 4  /* elements of a vector */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
#define SUM_BLOCKS 5 /* of a processor at a time: elsewhere nvcc needs more registers than that leaves */
#else
#define SUM_BLOCKS 4
#endif

/* How many of sorted keys come before one, by a warp: 32 of the places that it may be are looked at at once. */
__device__ inline unsigned keys_before(const u64 *keys, unsigned count, u64 wanted) {
  unsigned low = 0, high = count;
  while (low < high) {
    unsigned step = (high - low + 31) / 32, place = low + (threadIdx.x % 32 + 1) * step - 1;
    bool before = place < high && keys[place] < wanted;
    unsigned found = (unsigned)__popc(__ballot_sync(0xffffffffu, before)), end = low + (found + 1) * step - 1;
    low += found * step;
    if (end < high) high = end;
  }
  return low;
}

/* Sums of the updates of each row in their order, zeros where there are none: a warp has a part of a row, whose updates are side by side
 * in their order among packed keys. */
template <class T> __device__ inline void sum_row(const struct places *p, const T *values, T *out, const u64 *keys) {
  struct alignas(SUM_BESIDE * sizeof(T)) vector {
    T each[SUM_BESIDE];
  };
  unsigned vectors = (unsigned)p->width / SUM_BESIDE, groups = (vectors + 32 * SUM_PIECES - 1) / (32 * SUM_PIECES);
  unsigned share = ((vectors + groups - 1) / groups + 31) / 32 * 32, lane = threadIdx.x % 32, count = (unsigned)p->count;
  unsigned task = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, row = task / groups;
  if (row >= (u64)p->limits[0]) return;
  unsigned first = (task - row * groups) * share, end = first + share < vectors ? first + share : vectors;
  u64 target = row * (u64)p->width;
  decltype(wide(T{})) totals[SUM_PIECES][SUM_BESIDE] = {};
  bool more = true;
  for (unsigned at = keys_before(keys, count, target << 32); more; at += 32) {
    u64 key = at + lane < count ? keys[at + lane] : NONE;
    unsigned some = (unsigned)__popc(__ballot_sync(0xffffffffu, HALF(key, 1) == (unsigned)target));
    more = some == 32;
    for (unsigned next = 0; next < some; next += SUM_UPDATES) {
      struct vector read[SUM_UPDATES][SUM_PIECES];
#pragma unroll
      for (int j = 0; j < SUM_UPDATES; ++j) {
        unsigned number = __shfl_sync(0xffffffffu, HALF(key, 0), next + j < some ? next + j : next);
        const struct vector *from = (const struct vector *)(values + (long long)number * p->value_steps[0]) + first + lane;
#pragma unroll
        for (int k = 0; k < SUM_PIECES; ++k)
          if (next + j < some && first + lane + 32 * k < end) read[j][k] = from[32 * k];
      }
#pragma unroll
      for (int j = 0; j < SUM_UPDATES; ++j) {
        if (next + j >= some) continue;
#pragma unroll
        for (int k = 0; k < SUM_PIECES; ++k)
#pragma unroll
          for (int e = 0; e < SUM_BESIDE; ++e) totals[k][e] += wide(read[j][k].each[e]);
      }
    }
  }
  struct vector *to = (struct vector *)(out + target) + first + lane;
#pragma unroll
  for (int k = 0; k < SUM_PIECES; ++k) {
    struct vector rounded;
#pragma unroll
    for (int e = 0; e < SUM_BESIDE; ++e) narrow(rounded.each[e], totals[k][e]);
    if (first + lane + 32 * k < end) to[32 * k] = rounded;
  }
}

extern "C" __global__ void __launch_bounds__(256, SUM_BLOCKS) gpu_sum_rows(const struct places *__restrict__ p, const char *__restrict__ values, char *__restrict__ out, const u64 *__restrict__ keys) {
  __syncwarp();  // whoever runs this on a CPU sees by it that threads wait for each other
  if (p->type == 8) sum_row(p, (const float *)values, (float *)out, keys);
  else if (p->type == 10) sum_row(p, (const __half *)values, (__half *)out, keys);
  else sum_row(p, (const struct brain *)values, (struct brain *)out, keys);
}
