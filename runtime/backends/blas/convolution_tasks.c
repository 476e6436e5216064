/* Convolutions as products of the filters with windows; follows tile_products.c in one text.
 *
 * A task is a block of output positions of one sample and group. It copies what they read of the input, once, with zeros
 * around it and by phases of the strides, so that each place of the window is an offset into the copy: products read
 * windows there, and nothing is unfolded. Positions in between two lines are computed and dropped. Or, where a line has few
 * positions, it unfolds a few of the window's elements at a time for all its positions, for a product of the BLAS. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Shapes are those of three spatial axes; runtime/backends/blas/convolution.py fills it, field by field. */
struct convolution {
  int64_t item, samples, groups, channels, filters; /* channels and filters of one group */
  int64_t extent[3], result[3], window[3], stride[3], pad[3], dilation[3];
  int64_t position_block, filter_block, depth; /* of a task; `depth` elements of the window are unfolded at a time */
  int64_t pointwise;                           /* whether the unfolded input is the input */
  int64_t tasks, grain;
  /* Where no window is unfolded, `lines` not being 0: blocks of rows and columns of the result, `channels_block` at a time.
   * A task copies what its block needs of a channel into planes of `lines` rows of `pitch`, zeros around it, and products
   * read it from there, each place of the window at an offset. A plane holds what is met by some of the places. */
  int64_t rows_block, columns_block, channels_block, lines, pitch, planes, places;
  int64_t table[]; /* by plane: shift, phase of rows, phase of columns; then, by channel of a block, offsets of the places */
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

#define DEFINE_ADD_EVERY(NAME, T)                                                         \
  static void NAME(T *restrict to, const T *restrict from, int64_t count, int64_t step) { \
    if (step == 1)                                                                        \
      for (int64_t i = 0; i < count; i++) to[i] += from[i];                               \
    else                                                                                  \
      for (int64_t i = 0; i < count; i++) to[i * step] += from[i];                        \
  }
DEFINE_ADD_EVERY(add_every_4, float)
DEFINE_ADD_EVERY(add_every_8, double)

static void add_every(char *to, const char *from, int64_t count, int64_t step, int64_t item) {
  if (item == 4) add_every_4((float *)to, (const float *)from, count, step);
  else add_every_8((double *)to, (const double *)from, count, step);
}

/* What place number `p` of the window meets at the positions [begin, end), parts of a plane's rows: copied to `column`, with
 * zeros for what is outside, or, where they are folded, added to what is there; elements outside are dropped. */
static inline void move_place(const struct convolution *v, char *plane, int64_t p, int64_t begin, int64_t end, char *column,
                              int folded) {
  int64_t places[3] = {p / (v->window[1] * v->window[2]), p / v->window[2] % v->window[1], p % v->window[2]};
  int64_t width = v->result[2], step = v->stride[2], shift = places[2] * v->dilation[2] - v->pad[2];
  int64_t first = ceiling(-shift, step), last = ceiling(v->extent[2] - shift, step); /* inside: [first, last) */
  for (int64_t position = begin; position < end;) {
    int64_t row = position / width, from = position % width, until = smaller(width, from + end - position);
    int64_t d = row / v->result[1] * v->stride[0] + places[0] * v->dilation[0] - v->pad[0];
    int64_t h = row % v->result[1] * v->stride[1] + places[1] * v->dilation[1] - v->pad[1];
    int inside = d >= 0 && d < v->extent[0] && h >= 0 && h < v->extent[1];
    int64_t low = inside ? smaller(larger(first, from), until) : until;
    int64_t high = inside ? larger(smaller(last, until), low) : until;
    if (high > low) {
      char *met = plane + ((d * v->extent[1] + h) * v->extent[2] + low * step + shift) * v->item;
      char *own = column + (low - from) * v->item;
      if (folded) add_every(met, own, high - low, step, v->item);
      else copy_every(own, met, high - low, step, v->item);
    }
    if (!folded && low > from) memset(column, 0, (size_t)((low - from) * v->item));
    if (!folded && until > high) memset(column + (high - from) * v->item, 0, (size_t)((until - high) * v->item));
    column += (until - from) * v->item;
    position += until - from;
  }
}

/* Elements [first, last) of the window, which counts channels before places, at the positions [begin, end). */
static void unfold(const struct convolution *v, const char *x, int64_t first, int64_t last, int64_t begin, int64_t end,
                   char *to) {
  int64_t plane = v->extent[0] * v->extent[1] * v->extent[2];
  int64_t places = v->window[0] * v->window[1] * v->window[2];
  for (int64_t k = first; k < last; k++, to += (end - begin) * v->item)
    move_place(v, (char *)x + k / places * plane * v->item, k % places, begin, end, to, 0);
}

static void run_direct(struct fuse_convolution *call, long begin, long end);

void fuse_run_convolution(void *arg, long begin, long end) {
  struct fuse_convolution *call = arg;
  const struct convolution *v = call->v;
  if (v->lines) {
    run_direct(call, begin, end);
    return;
  }
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

/* What a block reads of an input: for each channel the planes, with zeros outside the input. */
static void copy_block(const struct convolution *v, const char *x, int64_t channels, const int64_t at[3], char *to) {
  const int64_t *e = v->extent, *step = v->stride, *pad = v->pad;
  memset(to, 0, (size_t)(channels * v->planes * v->lines * v->pitch * v->item));
  for (int64_t c = 0; c < channels; c++, x += e[0] * e[1] * e[2] * v->item)
    for (const int64_t *plane = v->table; plane < v->table + 3 * v->planes; plane += 3) {
      int64_t d = at[0] * step[0] + plane[0] - pad[0], h = at[1] * step[1] + plane[1] - pad[1];
      int64_t w = at[2] * step[2] + plane[2] - pad[2];
      int64_t first = ceiling(-h, step[1]), last = smaller(ceiling(e[1] - h, step[1]), v->lines);
      int64_t begin = ceiling(-w, step[2]), count = smaller(ceiling(e[2] - w, step[2]), v->pitch) - begin;
      char *line = to + (first * v->pitch + begin) * v->item;
      to += v->lines * v->pitch * v->item;
      if (d < 0 || d >= e[0] || count <= 0) continue;
      const char *from = x + ((d * e[1] + h + first * step[1]) * e[2] + w + begin * step[2]) * v->item;
      for (int64_t k = first; k < last; k++, line += v->pitch * v->item, from += step[1] * e[2] * v->item)
        if (step[2] == 1) copy_line(line, from, count * v->item);
        else copy_every(line, from, count, step[2], v->item);
    }
}

/* A part of a row of the result that a tile has, or the end of them when nothing is in it. */
struct piece {
  int64_t from, to, count;
};

/* Of a tile of `count` places from `first` on, in rows of `pitch`, those that are among the first `columns`. */
static void find_pieces(const struct convolution *v, int64_t first, int64_t count, int64_t columns, struct piece *piece) {
  for (int64_t p = first; p < first + count;) {
    int64_t row = p / v->pitch, column = p % v->pitch, until = smaller(v->pitch - column, first + count - p);
    int64_t some = smaller(columns - column, until);
    if (some > 0) *piece++ = (struct piece){p - first, row * v->result[2] + column, some};
    p += until;
  }
  piece->count = 0;
}

static void put(const struct convolution *v, const char *sums, const struct piece *piece, char *out, int add) {
  for (; piece->count; piece++)
    put_line(v->item, out + piece->to * v->item, sums + piece->from * v->item, piece->count, add);
}

static void run_block(const struct convolution *v, const char *copied, int64_t channels, const char *weight,
                      int64_t filters, int64_t rows, int64_t columns, char *out, int add) {
  int64_t lanes = VECTOR_BYTES / v->item;
  int64_t positions = v->result[0] * v->result[1] * v->result[2], total = (rows - 1) * v->pitch + columns;
  _Alignas(64) char sums[TILE_ROWS * TILE_VECTORS * VECTOR_BYTES];
  struct piece pieces[TILE_VECTORS * VECTOR_BYTES / 4 + 1];
  for (int64_t p = 0; p < total; p += TILE_VECTORS * lanes) {
    int64_t count = smaller(TILE_VECTORS * lanes, total - p), vectors = (count - 1) / lanes + 1;
    find_pieces(v, p, count, columns, pieces);
    for (int64_t f = 0; f < filters; f += TILE_ROWS) {
      const char *left[TILE_ROWS];
      for (int64_t i = 0; i < TILE_ROWS; i++)
        left[i] = weight + smaller(f + i, filters - 1) * v->channels * v->places * v->item;
      tile(v->item, filters, vectors, channels * v->places, v->table + 3 * v->planes, left, copied + p * v->item, sums);
      for (int64_t i = 0; i < TILE_ROWS && f + i < filters; i++)
        put(v, sums + i * vectors * VECTOR_BYTES, pieces, out + (f + i) * positions * v->item, add);
    }
  }
}

static void run_direct(struct fuse_convolution *call, long begin, long end) {
  const struct convolution *v = call->v;
  const int64_t *n = v->result;
  int64_t plane = v->extent[0] * v->extent[1] * v->extent[2], window = v->channels * v->places;
  int64_t row_blocks = (n[1] - 1) / v->rows_block + 1, column_blocks = (n[2] - 1) / v->columns_block + 1;
  int64_t filter_blocks = (v->filters - 1) / v->filter_block + 1;
  int64_t copied_size = v->channels_block * v->planes * v->lines * v->pitch * v->item + TILE_VECTORS * VECTOR_BYTES;
  char *copied = scratch((size_t)copied_size);
  if (!copied) {
    atomic_store(&call->failed, 1);
    return;
  }
  for (long task = begin; task < end; task++) {
    int64_t filter = task % filter_blocks * v->filter_block, filters = smaller(v->filter_block, v->filters - filter);
    int64_t rest = task / filter_blocks, part = rest / (column_blocks * row_blocks * n[0]), group = part % v->groups;
    int64_t at[3] = {rest / (column_blocks * row_blocks) % n[0], rest / column_blocks % row_blocks * v->rows_block,
                     rest % column_blocks * v->columns_block};
    int64_t rows = smaller(v->rows_block, n[1] - at[1]), columns = smaller(v->columns_block, n[2] - at[2]);
    const char *x = address(call->x) + part * v->channels * plane * v->item;
    const char *weight = address(call->weight) + (group * v->filters + filter) * window * v->item;
    char *out = address(call->out) +
                (((part * v->filters + filter) * n[0] + at[0]) * n[1] * n[2] + at[1] * n[2] + at[2]) * v->item;
    for (int64_t c = 0; c < v->channels; c += v->channels_block) {
      int64_t channels = smaller(v->channels_block, v->channels - c);
      copy_block(v, x + c * plane * v->item, channels, at, copied);
      run_block(v, copied, channels, weight + c * v->places * v->item, filters, rows, columns, out, c > 0);
    }
  }
}
