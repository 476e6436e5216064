/* Convolutions as products of the filters with unfolded windows; follows blas_tasks.c in one text.
 *
 * A task is a block of output positions of one sample and group. It unfolds a few of the window's elements at a time for
 * all its positions, so that what it unfolds stays in the cache until the product has read it. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Shapes are those of three spatial axes; runtime/convolution.py fills it, field by field. */
struct convolution {
  int64_t item, groups, channels, filters; /* channels and filters of one group */
  int64_t extent[3], result[3], window[3], stride[3], pad[3], dilation[3];
  int64_t position_block, filter_block, depth; /* of a task; `depth` elements of the window are unfolded at a time */
  int64_t pointwise;                           /* whether the unfolded input is the input */
  int64_t tasks, grain;
};

/* The convolution as a loop of a program. */
struct fuse_convolution {
  const struct convolution *v;
  struct place x, weight, out;
  _Atomic int64_t failed; /* whether there was no memory for it */
};

/* Memory that a thread keeps for its next task. */
static pthread_key_t scratch_key;
static int scratch_key_failed;

struct scratch {
  size_t size;
  _Alignas(64) char data[];
};

__attribute__((constructor)) static void make_scratch_key(void) {
  scratch_key_failed = pthread_key_create(&scratch_key, free);
}

static char *scratch(size_t size) {
  if (scratch_key_failed) return 0;
  struct scratch *own = pthread_getspecific(scratch_key);
  if (own && own->size >= size) return own->data;
  free(own);
  void *fresh = 0;
  if (posix_memalign(&fresh, 64, sizeof(struct scratch) + size)) fresh = 0;
  if (pthread_setspecific(scratch_key, fresh)) free(fresh), fresh = 0;
  if (!(own = fresh)) return 0;
  own->size = size;
  return own->data;
}

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t ceiling(int64_t a, int64_t b) { return a > 0 ? (a - 1) / b + 1 : 0; }

#define DEFINE_COPY_EVERY(NAME, T)                                                        \
  static void NAME(T *restrict to, const T *restrict from, int64_t count, int64_t step) { \
    for (int64_t i = 0; i < count; i++) to[i] = from[i * step];                           \
  }
DEFINE_COPY_EVERY(copy_every_4, uint32_t)
DEFINE_COPY_EVERY(copy_every_8, uint64_t)

static void copy_every(char *to, const char *from, int64_t count, int64_t step, int64_t item) {
  if (step == 1) memcpy(to, from, (size_t)(count * item));
  else if (item == 4) copy_every_4((uint32_t *)to, (const uint32_t *)from, count, step);
  else copy_every_8((uint64_t *)to, (const uint64_t *)from, count, step);
}

/* What one place of the window meets at the positions [begin, end): parts of input rows, zeros outside the input. */
static void unfold_place(const struct convolution *v, const char *plane, const int64_t place[3], int64_t begin,
                         int64_t end, char *to) {
  int64_t width = v->result[2], step = v->stride[2], shift = place[2] * v->dilation[2] - v->pad[2];
  int64_t first = ceiling(-shift, step), last = ceiling(v->extent[2] - shift, step); /* inside: [first, last) */
  for (int64_t position = begin; position < end;) {
    int64_t row = position / width, from = position % width, until = smaller(width, from + end - position);
    int64_t d = row / v->result[1] * v->stride[0] + place[0] * v->dilation[0] - v->pad[0];
    int64_t h = row % v->result[1] * v->stride[1] + place[1] * v->dilation[1] - v->pad[1];
    int inside = d >= 0 && d < v->extent[0] && h >= 0 && h < v->extent[1];
    int64_t low = inside ? smaller(larger(first, from), until) : until;
    int64_t high = inside ? larger(smaller(last, until), low) : until;
    if (low > from) memset(to, 0, (size_t)((low - from) * v->item));
    if (high > low) {
      int64_t source = (d * v->extent[1] + h) * v->extent[2] + low * step + shift;
      copy_every(to + (low - from) * v->item, plane + source * v->item, high - low, step, v->item);
    }
    if (until > high) memset(to + (high - from) * v->item, 0, (size_t)((until - high) * v->item));
    to += (until - from) * v->item;
    position += until - from;
  }
}

/* Elements [first, last) of the window, which counts channels before places, at the positions [begin, end). */
static void unfold(const struct convolution *v, const char *x, int64_t first, int64_t last, int64_t begin, int64_t end,
                   char *to) {
  int64_t plane = v->extent[0] * v->extent[1] * v->extent[2];
  int64_t places = v->window[0] * v->window[1] * v->window[2];
  for (int64_t k = first; k < last; k++, to += (end - begin) * v->item) {
    int64_t p = k % places;
    int64_t place[3] = {p / (v->window[1] * v->window[2]), p / v->window[2] % v->window[1], p % v->window[2]};
    unfold_place(v, x + k / places * plane * v->item, place, begin, end, to);
  }
}

void fuse_run_convolution(void *arg, long begin, long end) {
  struct fuse_convolution *call = arg;
  const struct convolution *v = call->v;
  int64_t positions = v->result[0] * v->result[1] * v->result[2];
  int64_t plane = v->extent[0] * v->extent[1] * v->extent[2];
  int64_t window = v->channels * v->window[0] * v->window[1] * v->window[2];
  int64_t position_blocks = (positions - 1) / v->position_block + 1, filter_blocks = (v->filters - 1) / v->filter_block + 1;
  char *unfolded = v->pointwise ? 0 : scratch((size_t)(v->depth * v->position_block * v->item));
  if (!v->pointwise && !unfolded) {
    atomic_store(&call->failed, 1);
    return;
  }
  for (long task = begin; task < end; task++) {
    int64_t filter = task % filter_blocks * v->filter_block, filters = smaller(v->filter_block, v->filters - filter);
    int64_t position = task / filter_blocks % position_blocks * v->position_block;
    int64_t count = smaller(v->position_block, positions - position);
    int64_t part = task / (filter_blocks * position_blocks), group = part % v->groups; /* a sample's group */
    const char *x = address(call->x) + part * v->channels * plane * v->item;
    const char *weight = address(call->weight) + (group * v->filters + filter) * window * v->item;
    char *out = address(call->out) + ((part * v->filters + filter) * positions + position) * v->item;
    if (v->pointwise) {
      struct matrix there = {x + position * v->item, 0, positions};
      gemm(v->item, filters, count, window, (struct matrix){weight, 0, window}, there, 0.0, out, positions);
      continue;
    }
    for (int64_t k = 0; k < window; k += v->depth) {
      int64_t last = smaller(k + v->depth, window);
      unfold(v, x, k, last, position, position + count, unfolded);
      gemm(v->item, filters, count, last - k, (struct matrix){weight + k * v->item, 0, window},
           (struct matrix){unfolded, 0, count}, k > 0, out, positions);
    }
  }
}

/* No extent may be zero. Returns whether there was memory for it. */
int fuse_convolve(const struct convolution *v, char *x, char *weight, char *out) {
  struct fuse_convolution call = {v, {&x, 0}, {&weight, 0}, {&out, 0}, 0};
  fuse_enter_blas();
  blas.parallel_for(fuse_run_convolution, &call, v->tasks, v->grain);
  fuse_leave_blas();
  return !atomic_load(&call.failed);
}
