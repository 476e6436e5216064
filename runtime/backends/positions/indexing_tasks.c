/* Reads and writes at positions that are data, and running totals along an axis: tasks of the pool for the operations of
 * lowering/reference/kernels/indexing.py and sorting.py. Each element is written by one task, in the order of the updates, so
 * that the result does not depend on the number of threads.
 *
 * All memory is in C order. An index counts from the end where it is negative; for one that is out of range the run fails,
 * and the first such (by axis, then by place) is noted.
 *
 * One of the tasks is compiled at a time, TASK, for elements of the type of the number TYPE. */
#include <stdint.h>
#include <string.h>

#define FUSE_TASK static inline __attribute__((unused)) void

/* Memory of a run: what a cell of its table holds, and bytes from there. */
#define AT(record, name) (*(record)->name + (record)->name##_offset)

#define TYPES(X) \
  X(0, i8, int8_t, uint8_t) X(1, i16, int16_t, uint16_t) X(2, i32, int32_t, uint32_t) X(3, i64, int64_t, uint64_t) \
  X(4, ui8, uint8_t, uint8_t) X(5, ui16, uint16_t, uint16_t) X(6, ui32, uint32_t, uint32_t) X(7, ui64, uint64_t, uint64_t)

/* The first index that was out of range; `failed` says whether there was one. */
struct fuse_fault {
  int64_t lock, index, place, axis, extent, failed;
};

static void note(struct fuse_fault *fault, int64_t index, int64_t place, int64_t axis, int64_t extent) {
  while (__atomic_exchange_n(&fault->lock, 1, __ATOMIC_ACQUIRE)) {}
  if (!fault->failed || axis < fault->axis || (axis == fault->axis && place < fault->place)) {
    fault->index = index, fault->place = place, fault->axis = axis, fault->extent = extent;
    fault->failed = 1;
  }
  __atomic_store_n(&fault->lock, 0, __ATOMIC_RELEASE);
}

/* Integers that name positions of an axis of `extent`, each of which is worth `weight` rows; from the end, too, where they
 * wrap. */
#define MOST_AXES 6
struct indices {
  char *const *from;
  int64_t from_offset, kind, wraps, extent, axis, weight;
  int64_t steps[MOST_AXES]; /* elements, along the axes of all indices together; looked at where these are not plain */
};

static inline int64_t index_at(const char *from, int64_t type, int64_t k) {
  switch (type) {
#define LOAD(number, name, type, wide) \
  case number: return (int64_t)((const type *)from)[k];
    TYPES(LOAD)
#undef LOAD
  }
  return -1;
}

/* The position that an index names; -1 where it names none. */
static inline int64_t position(int64_t index, int64_t place, const struct indices *of, struct fuse_fault *fault) {
  int64_t found = index < 0 && of->wraps ? index + of->extent : index;
  if (__builtin_expect((uint64_t)found < (uint64_t)of->extent, 1)) return found;
  note(fault, index, place, of->axis, of->extent);
  return -1;
}

/* The positions that `count` indices from `first` on name, `step` apart, up to BATCH of them; -1 for those that name none. */
#define BATCH 256
#define RESOLVE(bits) \
  static inline int resolved_##bits(const struct indices *of, int64_t first, int64_t step, int64_t count, int64_t *restrict to) { \
    const int##bits##_t *restrict from = (const int##bits##_t *)AT(of, from) + first; \
    const int64_t extent = of->extent, shift = of->wraps ? extent : 0; \
    int wrong = 0; \
    for (int64_t k = 0; k < count; k++) { \
      int64_t index = from[k * step], found = index + (index < 0 ? shift : 0); \
      wrong |= (uint64_t)found >= (uint64_t)extent; \
      to[k] = found; \
    } \
    return !wrong; \
  } \
  static int resolve_##bits(const struct indices *of, int64_t first, int64_t step, int64_t count, int64_t *restrict to) { \
    return step == 1 ? resolved_##bits(of, first, 1, count, to) : resolved_##bits(of, first, step, count, to); \
  }
RESOLVE(32)
RESOLVE(64)

static void resolve(
    const struct indices *of, int64_t first, int64_t step, int64_t count, int64_t *to, struct fuse_fault *fault) {
  if (of->kind == 3 && resolve_64(of, first, step, count, to)) return;
  if (of->kind == 2 && resolve_32(of, first, step, count, to)) return;
  const char *from = AT(of, from);
  for (int64_t k = 0; k < count; k++)
    to[k] = position(index_at(from, of->kind, first + k * step), first + k * step, of, fault);
}

static inline void move(char *restrict to, const char *restrict from, int64_t bytes) {
  switch (bytes) {
    case 1: *to = *from; return;
    case 2: memcpy(to, from, 2); return;
    case 4: memcpy(to, from, 4); return;
    case 8: memcpy(to, from, 8); return;
    default: memcpy(to, from, (size_t)bytes);
  }
}

/* Rows of a tensor [outer, rows, bytes] at positions that `count` indices of each of several operands name together. */
struct fuse_rows {
  char *const *x, *const *values, *const *out; /* `values` are read where rows are written */
  int64_t x_offset, values_offset, out_offset;
  int64_t outer, rows, bytes, count;
  int64_t chunk;       /* rows read by a task, or places in which a task writes */
  int64_t operands;    /* of indices */
  int64_t plain, axes; /* whether all of these have one element for each place; else the axes that they broadcast along */
  int64_t extents[MOST_AXES];
  int64_t skipped;            /* a position whose update counts for nothing; -1 for none */
  int64_t scalar;             /* whether all places get one row of values */
  int64_t type, join;         /* of elements, where updates are joined with what is there; 0 to put them there */
  int64_t fills;              /* whether the rows begin as zeros in the place of those of x */
  const struct indices *indices;
  struct fuse_fault *fault;
};

static int64_t element_of(const struct fuse_rows *call, const struct indices *of, int64_t place) {
  int64_t element = 0;
  for (int64_t axis = call->axes - 1; axis >= 0; axis--) {
    element += place % call->extents[axis] * of->steps[axis];
    place /= call->extents[axis];
  }
  return element;
}

/* The same along the innermost of the axes that indices broadcast along, a line after the other: one index is for all of a line, or
 * they are equally far apart. */
static void resolve_lines(const struct fuse_rows *call, const struct indices *of, int64_t first, int64_t count, int64_t *to) {
  const int64_t last = call->axes - 1, line = last < 0 ? 1 : call->extents[last], step = last < 0 ? 0 : of->steps[last];
  for (int64_t k = 0, size; k < count; k += size) {
    size = line - (first + k) % line < count - k ? line - (first + k) % line : count - k;
    resolve(of, element_of(call, of, first + k), step, step ? size : 1, to + k, call->fault);
    for (int64_t i = 1; !step && i < size; i++) to[k + i] = to[k];
  }
}

/* The rows that all operands name together for `count` places from `first` on; -1 where one names none. */
static void rows_of(const struct fuse_rows *call, int64_t first, int64_t count, int64_t *restrict to) {
  int64_t found[BATCH];
  for (int64_t number = 0; number < call->operands; number++) {
    const struct indices *of = &call->indices[number];
    if (call->plain) resolve(of, first, 1, count, found, call->fault);
    else resolve_lines(call, of, first, count, found);
    for (int64_t k = 0; k < count; k++) {
      int64_t known = number ? to[k] : 0;
      to[k] = known < 0 || found[k] < 0 ? -1 : known + found[k] * of->weight;
    }
  }
}

#define GATHER(bits) \
  static void gather_##bits(const char *x, char *out, const int64_t *restrict rows, int64_t count) { \
    const uint##bits##_t *restrict from = (const uint##bits##_t *)x; \
    uint##bits##_t *restrict to = (uint##bits##_t *)out; \
    for (int64_t k = 0; k < count; k++) to[k] = from[rows[k] < 0 ? 0 : rows[k]]; \
  }
GATHER(8)
GATHER(16)
GATHER(32)
GATHER(64)

/* Rows of `bytes` bytes from all of x to neighbouring ones. */
static void gather(const char *x, char *out, const int64_t *rows, int64_t count, int64_t bytes) {
  switch (bytes) {
    case 1: gather_8(x, out, rows, count); return;
    case 2: gather_16(x, out, rows, count); return;
    case 4: gather_32(x, out, rows, count); return;
    case 8: gather_64(x, out, rows, count); return;
  }
  for (int64_t k = 0; k < count; k++)
    if (rows[k] >= 0) memcpy(out + k * bytes, x + rows[k] * bytes, (size_t)bytes);
}

#define KEPT 2048 /* places that are resolved once for all outer positions of a task */
FUSE_TASK fuse_gather_rows(void *arg, long begin, long end) {
  struct fuse_rows *call = arg;
  const char *x = AT(call, x);
  char *out = AT(call, out);
  int64_t count = call->count, last = end * call->chunk, all = call->outer * count, bytes = call->bytes, rows[KEPT];
  if (last > all) last = all;
  const int kept = count <= KEPT && last - begin * call->chunk > count;
  for (int64_t k = 0; kept && k < count; k += BATCH) rows_of(call, k, count - k < BATCH ? count - k : BATCH, rows + k);
  for (int64_t k = begin * call->chunk, size; k < last; k += size) {
    int64_t outer = k / count, at = k % count, most = kept ? KEPT : BATCH;
    size = count - at < last - k ? count - at : last - k;
    if (size > most) size = most;
    if (!kept) rows_of(call, at, size, rows);
    gather(x + outer * call->rows * bytes, out + k * bytes, rows + (kept ? at : 0), size, bytes);
  }
}

/* The rows that places name, as integers of `bytes`; 0 for a place that names none, which nobody is to read at. */
FUSE_TASK fuse_check_rows(void *arg, long begin, long end) {
  struct fuse_rows *call = arg;
  char *out = AT(call, out);
  int64_t last = end * call->chunk, rows[BATCH];
  if (last > call->count) last = call->count;
  for (int64_t first = begin * call->chunk, size; first < last; first += size) {
    size = last - first < BATCH ? last - first : BATCH;
    rows_of(call, first, size, rows);
    if (call->bytes == 4)
      for (int64_t k = 0; k < size; k++) ((int32_t *)out)[first + k] = (int32_t)(rows[k] < 0 ? 0 : rows[k]);
    else
      for (int64_t k = 0; k < size; k++) ((int64_t *)out)[first + k] = rows[k] < 0 ? 0 : rows[k];
  }
}

/* Joins: of one element that is there and one update. */
#define ADD(type, wide, a, b) ((type)((wide)(a) + (wide)(b)))
#define MULTIPLY(type, wide, a, b) ((type)((wide)(a) * (wide)(b)))
#define LARGER(type, wide, a, b) ((a) >= (b) || (a) != (a) ? (a) : (b))
#define SMALLER(type, wide, a, b) ((a) <= (b) || (a) != (a) ? (a) : (b))
#define JOIN_LINE(name, type, wide, join, how) \
  case join: \
    for (int64_t k = 0; k < count; k++) ((type *)to)[k] = how(type, wide, ((type *)to)[k], ((const type *)from)[k]); \
    return;
/* uint16_t times uint16_t is an int in C: wide enough types keep it from overflowing. */
#define JOINS(number, name, type, wide) \
  static void join_##name(int64_t join, char *to, const char *from, int64_t count) { \
    switch (join) { \
      JOIN_LINE(name, type, wide, 1, ADD) \
      JOIN_LINE(name, type, wide, 2, MULTIPLY) \
      JOIN_LINE(name, type, wide, 3, LARGER) \
      JOIN_LINE(name, type, wide, 4, SMALLER) \
    } \
  }
/* Updates of rows that are elements, in order: of those from `first` to `last`, but for one that is skipped. */
struct places {
  const int64_t *rows;
  int64_t count, step /* of the updates */, first, last, skipped;
};
#define UPDATE(type, wide, a, b) (b)
#define PUT_ELEMENTS(type, wide, join, how) \
  case join: \
    for (int64_t k = 0; k < at->count; k++) { \
      const int64_t row = at->rows[k]; \
      if (row >= at->first && row < at->last && row != at->skipped) to[row] = how(type, wide, to[row], from[k * at->step]); \
    } \
    return;
#define PUTS(number, name, type, wide) \
  static void put_elements_##name(int64_t join, type *restrict to, const type *restrict from, const struct places *restrict at) { \
    switch (join) { \
      PUT_ELEMENTS(type, wide, 0, UPDATE) \
      PUT_ELEMENTS(type, wide, 1, ADD) \
      PUT_ELEMENTS(type, wide, 2, MULTIPLY) \
      PUT_ELEMENTS(type, wide, 3, LARGER) \
      PUT_ELEMENTS(type, wide, 4, SMALLER) \
    } \
  }
/* Of all types the one that is asked for. */
#define OF_TYPE_0(X) X(0, i8, int8_t, uint32_t)
#define OF_TYPE_1(X) X(1, i16, int16_t, uint32_t)
#define OF_TYPE_2(X) X(2, i32, int32_t, uint32_t)
#define OF_TYPE_3(X) X(3, i64, int64_t, uint64_t)
#define OF_TYPE_4(X) X(4, ui8, uint8_t, uint32_t)
#define OF_TYPE_5(X) X(5, ui16, uint16_t, uint32_t)
#define OF_TYPE_6(X) X(6, ui32, uint32_t, uint32_t)
#define OF_TYPE_7(X) X(7, ui64, uint64_t, uint64_t)
#define OF_TYPE_8(X) X(8, f32, float, float)
#define OF_TYPE_9(X) X(9, f64, double, double)
#define OF_TYPE(X, number) OF_TYPE_##number(X)
#define ONE_TYPE(X, number) OF_TYPE(X, number)
#define ALL_TYPES(X) ONE_TYPE(X, TYPE)
ALL_TYPES(JOINS)
ALL_TYPES(PUTS)

/* Joins `count` elements with as many updates. */
static void join_line(int64_t type, int64_t join, char *to, const char *from, int64_t count) {
  switch (type) {
#define CASE(number, name, type, wide) \
  case number: join_##name(join, to, from, count); return;
    ALL_TYPES(CASE)
#undef CASE
  }
}

static inline int64_t type_bytes(int64_t type) {
  static const int64_t bytes[] = {1, 2, 4, 8, 1, 2, 4, 8, 4, 8};
  return bytes[type];
}

static void put_elements(int64_t type, int64_t join, char *to, const char *from, const struct places *at) {
  switch (type) {
#define CASE(number, name, type, wide) \
  case number: put_elements_##name(join, (type *)to, (const type *)from, at); return;
    ALL_TYPES(CASE)
#undef CASE
  }
}

/* The rows from `begin` on, as many as a task has: first what is there, then all updates that name one of them. */
FUSE_TASK fuse_put_rows(void *arg, long begin, long end) {
  struct fuse_rows *call = arg;
  const char *x = AT(call, x), *values = AT(call, values);
  char *out = AT(call, out);
  int64_t first = begin * call->chunk, last = end * call->chunk, bytes = call->bytes;
  if (last > call->rows) last = call->rows;
  if (call->fills) memset(out + first * bytes, 0, (size_t)((last - first) * bytes));
  else if (out != x) memcpy(out + first * bytes, x + first * bytes, (size_t)((last - first) * bytes));
  int64_t rows[BATCH], width = bytes / type_bytes(call->type);
  for (int64_t some = 0, size; some < call->count; some += size) {
    size = call->count - some < BATCH ? call->count - some : BATCH;
    rows_of(call, some, size, rows);
    if (width == 1) {
      const struct places at = {rows, size, !call->scalar, first, last, call->skipped};
      put_elements(call->type, call->join, out, call->scalar ? values : values + some * bytes, &at);
      continue;
    }
    for (int64_t k = 0; k < size; k++) {
      int64_t row = rows[k];
      if (row < first || row >= last || row == call->skipped) continue;
      const char *update = call->scalar ? values : values + (some + k) * bytes;
      if (call->join) join_line(call->type, call->join, out + row * bytes, update, width);
      else move(out + row * bytes, update, bytes);
    }
  }
}

/* Lines along the middle axis of [outer, extent, inner], and of the indices [outer, count, inner]. */
struct fuse_lines {
  char *const *x, *const *values, *const *out;
  int64_t x_offset, values_offset, out_offset;
  int64_t outer, extent, count, inner;
  int64_t bytes; /* of an element */
  int64_t block; /* of the inner axis, for a task */
  int64_t scalar, type, join;
  int64_t late, backwards; /* of running totals */
  int64_t index_outer, index_inner; /* elements between indices of neighbours along these axes: 0 where they share them */
  const struct indices *indices;
  struct fuse_fault *fault;
};

/* Neighbouring elements of the result that are read from columns `inner` apart; the first is one of column `column`. */
#define COLUMNS(bits) \
  static void gather_columns_##bits( \
      const char *x, char *out, const int64_t *restrict rows, int64_t count, int64_t inner, int64_t column) { \
    const uint##bits##_t *restrict from = (const uint##bits##_t *)x + column; \
    uint##bits##_t *restrict to = (uint##bits##_t *)out; \
    for (int64_t k = 0; k < count; k++) to[k] = from[(rows[k] < 0 ? 0 : rows[k]) * inner + k]; \
  }
COLUMNS(8)
COLUMNS(16)
COLUMNS(32)
COLUMNS(64)

/* Places (outer, count) from `at` on, at each of which the whole inner axis has one index. */
static void gather_whole(const struct fuse_lines *call, int64_t at, int64_t last) {
  int64_t bytes = call->inner * call->bytes, rows[BATCH];
  for (int64_t size; at < last; at += size) {
    int64_t outer = at / call->count, first = at % call->count;
    size = call->count - first < last - at ? call->count - first : last - at;
    if (size > BATCH) size = BATCH;
    resolve(call->indices, outer * call->index_outer + first, 1, size, rows, call->fault);
    const char *x = AT(call, x) + outer * call->extent * bytes;
    char *out = AT(call, out) + at * bytes;
    for (int64_t k = 0; k < size; k++) move(out + k * bytes, x + (rows[k] < 0 ? 0 : rows[k]) * bytes, bytes);
  }
}

/* The tasks are blocks of the places (outer, count), `block` of them each, with all of the inner axis. */
FUSE_TASK fuse_gather_lines(void *arg, long begin, long end) {
  struct fuse_lines *call = arg;
  int64_t inner = call->inner, bytes = call->bytes, rows[BATCH];
  int64_t line = inner > 1 ? inner : call->count; /* elements that are side by side, all of one outer position */
  int64_t last = end * call->block, all = call->outer * call->count;
  last = last < all ? last : all;
  if (!call->index_inner) {
    gather_whole(call, begin * call->block, last);
    return;
  }
  last *= inner;
  for (int64_t at = begin * call->block * inner, size; at < last; at += size) {
    int64_t left = line - at % line, outer = at / (call->count * inner);
    size = left < last - at ? left : last - at;
    if (size > BATCH) size = BATCH;
    resolve(call->indices, outer * call->index_outer + at % (call->count * inner), 1, size, rows, call->fault);
    const char *x = AT(call, x) + outer * call->extent * inner * bytes;
    char *out = AT(call, out) + at * bytes;
    if (inner == 1) gather(x, out, rows, size, bytes);
    else switch (bytes) {
        case 1: gather_columns_8(x, out, rows, size, inner, at % inner); break;
        case 2: gather_columns_16(x, out, rows, size, inner, at % inner); break;
        case 4: gather_columns_32(x, out, rows, size, inner, at % inner); break;
        case 8: gather_columns_64(x, out, rows, size, inner, at % inner); break;
      }
  }
}

/* Updates in order: of columns side by side (`apart` is 1), or of one column (0); `step` is 0 for one update of all. */
#define PUT_LINE(name, type, wide, join, how) \
  case join: \
    for (int64_t k = 0; k < count; k++) { \
      if (rows[k] < 0) continue; \
      type *at = (type *)to + rows[k] * inner + k * apart; \
      *at = how(type, wide, *at, ((const type *)values)[k * step]); \
    } \
    return;
#define MOVED(type, wide, a, b) (b)
#define PUT_LINES(number, name, type, wide) \
  static void put_##name(int64_t join, char *to, const char *values, const int64_t *rows, int64_t count, int64_t inner, \
                         int64_t apart, int64_t step) { \
    switch (join) { \
      PUT_LINE(name, type, wide, 0, MOVED) \
      PUT_LINE(name, type, wide, 1, ADD) \
      PUT_LINE(name, type, wide, 2, MULTIPLY) \
      PUT_LINE(name, type, wide, 3, LARGER) \
      PUT_LINE(name, type, wide, 4, SMALLER) \
    } \
  }
ALL_TYPES(PUT_LINES)

/* A block of the inner axis of one outer position: what is there, then the updates. */
static void put_block(struct fuse_lines *call, int64_t outer, int64_t low, int64_t high) {
  int64_t bytes = call->bytes, inner = call->inner, start = outer * call->count * inner;
  const char *x = AT(call, x) + outer * call->extent * inner * bytes;
  char *out = AT(call, out) + outer * call->extent * inner * bytes;
  if (out != x && low == 0 && high == inner) memcpy(out, x, (size_t)(call->extent * inner * bytes));
  else if (out != x)
    for (int64_t k = 0; k < call->extent; k++)
      memcpy(out + (k * inner + low) * bytes, x + (k * inner + low) * bytes, (size_t)((high - low) * bytes));
  int64_t rows[BATCH], apart = inner > 1, step = !call->scalar, run = apart ? high - low : call->count;
  for (int64_t j = 0; j < call->count; j += apart ? 1 : call->count)
    for (int64_t k = 0; k < run; k += BATCH) {
      int64_t at = start + j * inner + low + k, size = run - k < BATCH ? run - k : BATCH;
      const char *values = AT(call, values) + at * step * bytes;
      char *to = out + (low + k * apart) * bytes;
      resolve(call->indices, at, 1, size, rows, call->fault);
      switch (call->type) {
#define CASE(number, name, type, wide) \
  case number: put_##name(call->join, to, values, rows, size, inner, apart, step); break;
        ALL_TYPES(CASE)
#undef CASE
      }
    }
}

FUSE_TASK fuse_put_lines(void *arg, long begin, long end) {
  struct fuse_lines *call = arg;
  int64_t blocks = (call->inner + call->block - 1) / call->block;
  for (int64_t task = begin; task < end; task++) {
    int64_t low = task % blocks * call->block, high = low + call->block;
    put_block(call, task / blocks, low, high < call->inner ? high : call->inner);
  }
}
