/* Orders: elements become keys of 64 bits in the order that is wanted; keys are sorted together with where they come from, which makes
 * every order stable. Short lines are sorted in shared memory, longer ones merged from such runs. */
#define CHUNK 1024

/* Lines along the middle axis of [outer, extent, inner]. */
struct lines {
  long long outer, extent, inner, type;
  long long descending, count;   /* the elements of each line that are wanted; of a merge 0 where keys are */
  long long chunk, run;          /* elements that a block sorts; of the runs that are merged */
  long long packed;              /* whether keys of 64 bits have an order in their lower halves; 2: they are given */
  long long values, indices;     /* what is asked for */
  long long right, wanted;       /* of a search: whether behind equal elements, and how many */
};

__device__ inline u64 key_at(long long type, const char *x, u64 at) {
#define KEY(T) return key_of(wide(((const T *)x)[at]))
  BY_TYPE(type, KEY)
  return NONE;
}

__device__ inline u64 element_of(const struct lines *p, u64 line, u64 at, u64 extent) {
  return (line / p->inner * extent + at) * p->inner + line % p->inner;
}

extern "C" __global__ void __launch_bounds__(256) gpu_keys(const struct lines *p, const char *x, u64 *keys, unsigned *order) {
  u64 all = (u64)(p->outer * p->inner * p->extent);
  for (u64 k = first_thread(); k < all; k += all_threads()) {
    u64 line = k / (u64)p->extent, at = k % (u64)p->extent;
    u64 key = key_at(p->type, x, element_of(p, line, at, (u64)p->extent));
    keys[k] = p->descending ? ~key : key;
    order[k] = (unsigned)at;
  }
}

__device__ inline bool is_behind(u64 a, unsigned first, u64 b, unsigned second) { return a > b || (a == b && first > second); }

/* Sorts runs of `chunk` elements, a power of two, by a network (Batcher 1968); a block has one of them. */
extern "C" __global__ void __launch_bounds__(512) gpu_sort_runs(const struct lines *p, u64 *keys, unsigned *order) {
  __shared__ u64 some_keys[CHUNK];
  __shared__ unsigned some_order[CHUNK];
  u64 chunk = (u64)p->chunk, runs = ((u64)p->extent + chunk - 1) / chunk;
  u64 line = blockIdx.x / runs, first = blockIdx.x % runs * chunk, left = (u64)p->extent - first;
  u64 start = line * (u64)p->extent + first;
  for (unsigned k = threadIdx.x; k < chunk; k += blockDim.x) {
    some_keys[k] = k < left ? keys[start + k] : NONE;
    some_order[k] = k < left ? order[start + k] : ~0u;
  }
  for (unsigned size = 2; size <= chunk; size *= 2)
    for (unsigned apart = size / 2; apart; apart /= 2) {
      __syncthreads();
      for (unsigned k = threadIdx.x; k < chunk / 2; k += blockDim.x) {
        unsigned low = 2 * k - (k & (apart - 1)), high = low + apart;
        bool swaps = is_behind(some_keys[low], some_order[low], some_keys[high], some_order[high]) == !(low & size);
        if (!swaps) continue;
        u64 key = some_keys[low];
        unsigned from = some_order[low];
        some_keys[low] = some_keys[high], some_order[low] = some_order[high];
        some_keys[high] = key, some_order[high] = from;
      }
    }
  __syncthreads();
  for (unsigned k = threadIdx.x; k < chunk && k < left; k += blockDim.x) {
    keys[start + k] = some_keys[k];
    order[start + k] = some_order[k];
  }
}

/* Merges neighbouring runs: the place of an element is its own in its run and how many of the other run come before it. */
extern "C" __global__ void __launch_bounds__(256) gpu_merge_runs(const struct lines *p, const u64 *keys, const unsigned *order, u64 *to_keys, unsigned *to_order) {
  u64 all = (u64)(p->outer * p->inner * p->extent), extent = (u64)p->extent, run = (u64)p->run;
  for (u64 k = first_thread(); k < all; k += all_threads()) {
    u64 start = k / extent * extent, at = k - start, pair = at / (2 * run) * (2 * run);
    bool in_first = at < pair + run;
    u64 low = in_first ? pair + run : pair, high = in_first ? pair + 2 * run : pair + run;
    if (low > extent) low = extent;
    if (high > extent) high = extent;
    u64 other = low, key = keys[k];
    while (low < high) {
      u64 middle = (low + high) / 2, there = keys[start + middle];
      if (there < key || (!in_first && there == key)) low = middle + 1;
      else high = middle;
    }
    u64 target = start + (in_first ? at : pair + (at - pair - run)) + (low - other);
    to_keys[target] = key;
    to_order[target] = order[k];
  }
}

extern "C" __global__ void __launch_bounds__(256) gpu_ordered(const struct lines *p, const char *x, const unsigned *order, char *values, long long *indices) {
  u64 all = (u64)(p->outer * p->inner * p->count);
  for (u64 k = first_thread(); k < all; k += all_threads()) {
    u64 inner = (u64)p->inner, line = k / (inner * (u64)p->count) * inner + k % inner, at = k / inner % (u64)p->count;
    unsigned from = order[line * (u64)p->extent + at];
    u64 source = element_of(p, line, from, (u64)p->extent);
    if (p->indices) indices[k] = from;
    if (!p->values) continue;
#define VALUE(T) ((T *)values)[k] = ((const T *)x)[source]
    BY_TYPE(p->type, VALUE)
  }
}

#define SHORT_EACH 4 /* elements of a thread */

/* Numbers of 32 bits in the order of elements of at most 32. */
template <class T> __device__ inline unsigned short_key(T x) { return (unsigned)key_of(wide(x)); }
__device__ inline unsigned short_key(signed char x) { return (unsigned)x ^ 1u << 31; }
__device__ inline unsigned short_key(short x) { return (unsigned)x ^ 1u << 31; }
__device__ inline unsigned short_key(int x) { return (unsigned)x ^ 1u << 31; }

__device__ inline u64 one_of(u64 own, u64 other, bool least) { return (other < own) == least ? other : own; }

/* Puts the element of a line that comes `at`, where it is wanted. */
__device__ inline void put_ordered(
    const struct lines *p, const char *x, char *values, long long *indices, u64 line, unsigned at, unsigned from) {
  if (at >= p->count) return;
  u64 to = element_of(p, line, at, (u64)p->count), source = element_of(p, line, from, (u64)p->extent);
  if (p->indices) indices[to] = from;
#define SHORT_VALUE(T) ((T *)values)[to] = ((const T *)x)[source]
  if (p->values) BY_TYPE(p->type, SHORT_VALUE)
}

/* A block for each short line of elements of at most 32 bits, or, `packed`, of keys, which are the result:
 * keys with where they come from, no two of which are equal, in registers. Element k of a thread is at 4 times its number and k; a network (Batcher 1968) sorts within threads, warps, then the block. */
extern "C" __global__ void __launch_bounds__(256, 6) gpu_sort_lines(const struct lines *__restrict__ p, const char *__restrict__ x, char *__restrict__ values, long long *__restrict__ indices, u64 *__restrict__ keys) {
  __shared__ u64 all[SHORT_EACH * 256];
  unsigned extent = (unsigned)p->extent, thread = threadIdx.x, threads = blockDim.x;
  unsigned runs = (extent - 1) / (SHORT_EACH * threads) + 1, start = blockIdx.x % runs * (SHORT_EACH * threads);
  u64 own[SHORT_EACH], line = blockIdx.x / runs;
#pragma unroll
  for (unsigned k = 0; k < SHORT_EACH; ++k) {
    unsigned at = start + k * threads + thread, key = 0;
#define SHORT_KEY(T) key = short_key(((const T *)x)[element_of(p, line, at, extent)])
    if (at < extent && p->packed < 2) BY_TYPE(p->type, SHORT_KEY)
    own[k] = at < extent && p->packed == 2 ? keys[line * extent + at] : at < extent ? (u64)(p->descending ? ~key : key) << 32 | at : NONE;
  }
  for (unsigned size = 2; size <= SHORT_EACH * threads; size *= 2)
    for (unsigned apart = size / 2; apart; apart /= 2) {
      bool up = !(thread * SHORT_EACH & size), least = !(thread * SHORT_EACH & apart) == up;
      if (apart >= 32 * SHORT_EACH) {
        __syncthreads();  // then everybody has read what was there
#pragma unroll
        for (unsigned k = 0; k < SHORT_EACH; ++k) all[k * threads + thread] = own[k];
        __syncthreads();
#pragma unroll
        for (unsigned k = 0; k < SHORT_EACH; ++k) own[k] = one_of(own[k], all[k * threads + (thread ^ apart / SHORT_EACH)], least);
      } else if (apart >= SHORT_EACH) {
#pragma unroll
        for (unsigned k = 0; k < SHORT_EACH; ++k)
          own[k] = one_of(own[k], __shfl_xor_sync(0xffffffffu, own[k], apart / SHORT_EACH), least);
      } else {
#pragma unroll
        for (unsigned k = 0; k < SHORT_EACH / 2; ++k) {  // pairs 0 and 2, 1 and 3; or 0 and 1, 2 and 3
          bool near = apart == 1, rises = near && size == 2 ? k == 0 : up;
          u64 first = near ? own[2 * k] : own[k], second = near ? own[2 * k + 1] : own[k + 2];
          u64 low = first < second == rises ? first : second, high = first < second == rises ? second : first;
          if (near) own[2 * k] = low, own[2 * k + 1] = high;
          else own[k] = low, own[k + 2] = high;
        }
      }
    }
  __syncthreads();
#pragma unroll
  for (unsigned k = 0; k < SHORT_EACH; ++k) all[thread * SHORT_EACH + k] = own[k];
  __syncthreads();
#pragma unroll
  for (unsigned k = 0; k < SHORT_EACH; ++k) {  // neighbours write neighbours
    unsigned at = start + k * threads + thread;
    u64 key = all[k * threads + thread];
    if (!p->packed) put_ordered(p, x, values, indices, line, at, HALF(key, 0));
    else if (at < extent) keys[line * extent + at] = key;
  }
}

#define MERGED_EACH 9 /* odd, so that neighbours write different banks */
#define MERGED (MERGED_EACH * 256) /* keys that a block merges */
#define SORTED_EACH 9
#define SORTED_THREADS 512
#define SORTED (SORTED_EACH * SORTED_THREADS) /* keys that a block sorts */

/* How many of the first `upto` keys of two sorted runs, no two of which are equal, are of the first run. */
__device__ inline unsigned of_first(const u64 *a, unsigned in_a, const u64 *b, unsigned in_b, unsigned upto) {
  unsigned low = upto > in_b ? upto - in_b : 0, high = upto < in_a ? upto : in_a;
  while (low < high) {
    unsigned middle = (low + high) / 2;
    if (a[middle] < b[upto - 1 - middle]) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* The same, by a warp: 32 of the places that it may be are looked at at once. */
__device__ inline unsigned of_first_by_warp(const u64 *a, unsigned in_a, const u64 *b, unsigned in_b, unsigned upto) {
  unsigned low = upto > in_b ? upto - in_b : 0, high = upto < in_a ? upto : in_a;
  while (low < high) {
    unsigned step = (high - low + 31) / 32, place = low + (threadIdx.x % 32 + 1) * step - 1;
    bool before = place < high && a[place] < b[upto - 1 - place];
    unsigned found = (unsigned)__popc(__ballot_sync(0xffffffffu, before)), end = low + (found + 1) * step - 1;
    low += found * step;
    if (end < high) high = end;
  }
  return low;
}

/* A block for each run of a line, of at most SORTED elements: keys as of `gpu_sort_lines`, those of a thread sorted by exchanges of
 * neighbours, then merged in shared memory. */
extern "C" __global__ void __launch_bounds__(512) gpu_sort_blocks(const struct lines *__restrict__ p, const char *__restrict__ x, char *__restrict__ values, long long *__restrict__ indices, u64 *__restrict__ keys) {
  __shared__ u64 all[SORTED];
  unsigned extent = (unsigned)p->extent, run = (unsigned)p->run, runs = (extent - 1) / run + 1, start = blockIdx.x % runs * run;
  unsigned some = extent - start < run ? extent - start : run, place = threadIdx.x * SORTED_EACH;
  u64 line = blockIdx.x / runs, own[SORTED_EACH];
#pragma unroll
  for (unsigned k = 0; k < SORTED_EACH; ++k) {
    unsigned within = k * SORTED_THREADS + threadIdx.x, at = start + within, key = 0;
    if (within < some && p->packed < 2) BY_TYPE(p->type, SHORT_KEY)
    u64 packed = p->packed == 2 && within < some ? keys[line * extent + at] : (u64)(p->descending ? ~key : key) << 32 | at;
    all[within] = within < some ? packed : NONE;
  }
  __syncthreads();
#pragma unroll
  for (unsigned k = 0; k < SORTED_EACH; ++k) own[k] = all[place + k];
#pragma unroll
  for (unsigned turn = 0; turn < SORTED_EACH; ++turn)
#pragma unroll
    for (unsigned k = turn % 2; k + 1 < SORTED_EACH; k += 2) {
      u64 low = own[k] < own[k + 1] ? own[k] : own[k + 1], high = own[k] < own[k + 1] ? own[k + 1] : own[k];
      own[k] = low, own[k + 1] = high;
    }
  for (unsigned width = SORTED_EACH;; width *= 2) {
    __syncthreads();  // then everybody has read what was there
#pragma unroll
    for (unsigned k = 0; k < SORTED_EACH; ++k) all[place + k] = own[k];
    __syncthreads();
    if (width >= some) break;
    unsigned pair = place / (2 * width) * (2 * width), in = place - pair;
    const u64 *a = all + pair, *b = a + width;
    unsigned next_a = of_first(a, width, b, width, in), next_b = in - next_a;
    u64 first = next_a < width ? a[next_a] : NONE, second = next_b < width ? b[next_b] : NONE;
#pragma unroll
    for (unsigned k = 0; k < SORTED_EACH; ++k) {
      bool is_a = first < second;
      own[k] = is_a ? first : second;
      if (is_a) first = ++next_a < width ? a[next_a] : NONE;
      else second = ++next_b < width ? b[next_b] : NONE;
    }
  }
  for (unsigned k = threadIdx.x; k < some; k += SORTED_THREADS) {  // neighbours write neighbours
    if (p->packed) keys[line * extent + start + k] = all[k];
    else put_ordered(p, x, values, indices, line, start + k, HALF(all[k], 0));
  }
}

/* Merges neighbouring runs of keys of each line (merge path: Green, McColl, Bader 2012): a block makes MERGED of them. The last such
 * launch, that makes a single run, puts what is wanted of it in place of keys. */
extern "C" __global__ void __launch_bounds__(256, 5) gpu_merge_keys(const struct lines *__restrict__ p, const u64 *__restrict__ keys, u64 *__restrict__ to, const char *__restrict__ x, char *__restrict__ values, long long *__restrict__ indices) {
  __shared__ u64 both[MERGED];
  __shared__ unsigned ends[2];
  unsigned extent = (unsigned)p->extent, run = (unsigned)p->run, tiles = (2 * run - 1) / MERGED + 1;
  unsigned all_tiles = ((extent - 1) / (2 * run) + 1) * tiles, tile = blockIdx.x % all_tiles, pair = tile / tiles * (2 * run);
  unsigned left = extent - pair, in_a = left < run ? left : run, in_b = left - in_a < run ? left - in_a : run;
  u64 line = blockIdx.x / all_tiles;
  const u64 *a = keys + line * extent + pair, *b = a + in_a;
  unsigned begin = tile % tiles * MERGED, first = pair + begin;
  if (begin >= in_a + in_b) return;
  unsigned end = in_a + in_b - begin < MERGED ? in_a + in_b : begin + MERGED;
  if (threadIdx.x < 64) {
    unsigned found = of_first_by_warp(a, in_a, b, in_b, threadIdx.x < 32 ? begin : end);
    if (threadIdx.x % 32 == 0) ends[threadIdx.x / 32] = found;
  }
  __syncthreads();
  unsigned from_a = ends[0], some_a = ends[1] - from_a, some = end - begin, from_b = begin - from_a, some_b = some - some_a;
  for (unsigned k = threadIdx.x; k < some; k += blockDim.x) both[k] = k < some_a ? a[from_a + k] : b[from_b + (k - some_a)];
  __syncthreads();
  unsigned at = threadIdx.x * MERGED_EACH;
  u64 own[MERGED_EACH];
  unsigned next_a = at < some ? of_first(both, some_a, both + some_a, some_b, at) : some_a, next_b = at - next_a;
  u64 first_a = next_a < some_a ? both[next_a] : NONE, first_b = next_b < some_b ? both[some_a + next_b] : NONE;
#pragma unroll
  for (unsigned k = 0; k < MERGED_EACH; ++k) {
    bool is_a = first_a < first_b;
    own[k] = is_a ? first_a : first_b;
    if (is_a) first_a = ++next_a < some_a ? both[next_a] : NONE;
    else first_b = ++next_b < some_b ? both[some_a + next_b] : NONE;
  }
  __syncthreads();  // then everybody has read what was there
#pragma unroll
  for (unsigned k = 0; k < MERGED_EACH; ++k)
    if (at + k < some) both[at + k] = own[k];
  __syncthreads();
  for (unsigned k = threadIdx.x; k < some; k += blockDim.x) {  // neighbours write neighbours
    if (p->count) put_ordered(p, x, values, indices, line, first + k, HALF(both[k], 0));
    else to[line * extent + first + k] = both[k];
  }
}

extern "C" __global__ void __launch_bounds__(256) gpu_search(const struct lines *p, const char *x, const char *wanted, long long *out) {
  for (u64 k = first_thread(); k < (u64)p->wanted; k += all_threads()) {
    u64 low = 0, high = (u64)p->extent, key = key_at(p->type, wanted, k);
    while (low < high) {
      u64 middle = (low + high) / 2, there = key_at(p->type, x, middle);
      if (there < key || (p->right && there == key)) low = middle + 1;
      else high = middle;
    }
    out[k] = (long long)low;
  }
}
