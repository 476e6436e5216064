/* Tasks of indexing_tasks.c, behind which this text stands: running totals along an axis, and places in ascending numbers. */

/* Running totals of columns side by side, a row at a time, and of rows of one column, eight at a time, as each waits for its last one; sums
 * of integers, which may be added in any order, four elements of a row at a time. Totals of f32 are kept in f64 and rounded for each element. A `late` total is without the row where it stands; with `backwards` they begin
 * at the last row. */
#define LINES 8
#define MOST_COLUMNS 2048
#define JOINED(total, element) (joins_sums ? (total) + (element) : (total) * (element))
#define TOTALS(number, name, type, wide) \
  static inline __attribute__((always_inline)) void run_##name( \
      struct fuse_lines *call, int64_t outer, int64_t low, int64_t width, int joins_sums, int late) { \
    const int64_t extent = call->extent, count = call->count, inner = call->inner, step = call->backwards ? -inner : inner; \
    const type *x = (const type *)AT(call, x) + outer * extent * inner + low + (call->backwards ? (extent - 1) * inner : 0); \
    type *out = (type *)AT(call, out) + outer * count * inner + low + (call->backwards ? (count - 1) * inner : 0); \
    wide total = !joins_sums, totals[MOST_COLUMNS]; \
    if (width == 1) { \
      for (int64_t k = 0; k < count; k++, out += step) { \
        const wide before = total; \
        if (k < extent) total = JOINED(total, (wide)x[k * step]); \
        *out = (type)(late ? before : total); \
      } \
      return; \
    } \
    for (int64_t i = 0; i < width; i++) totals[i] = total; \
    for (int64_t k = 0; k < count; k++, out += step) { \
      const type *row = x + (k < extent ? k : extent - 1) * step; \
      _Pragma("GCC ivdep") for (int64_t i = 0; i < width; i++) { \
        const wide before = totals[i], after = JOINED(before, (wide)row[i]); \
        totals[i] = after; \
        out[i] = (type)(late ? before : after); \
      } \
    } \
  } \
  static void run_line_##name(struct fuse_lines *call, int64_t outer) { \
    const int64_t extent = call->extent, count = call->count, step = call->backwards ? -1 : 1, first = call->backwards; \
    const type *restrict x = (const type *)AT(call, x) + outer * extent + first * (extent - 1); \
    type *restrict out = (type *)AT(call, out) + outer * count + first * (count - 1); \
    wide total = 0; \
    int64_t k = 0; \
    for (; k + 4 <= extent; k += 4, x += 4 * step, out += 4 * step) { \
      const wide one = (wide)x[0], two = one + (wide)x[step], three = two + (wide)x[2 * step], all = three + (wide)x[3 * step]; \
      out[0] = (type)(total + one), out[step] = (type)(total + two), out[2 * step] = (type)(total + three); \
      out[3 * step] = (type)(total += all); \
    } \
    for (; k < extent; k++, x += step, out += step) *out = (type)(total += (wide)*x); \
  } \
  static inline __attribute__((always_inline)) void run_lines_##name( \
      struct fuse_lines *call, int64_t outer, int joins_sums, int late) { \
    const int64_t extent = call->extent, count = call->count, step = call->backwards ? -1 : 1, first = call->backwards; \
    const type *restrict x = (const type *)AT(call, x) + outer * extent + first * (extent - 1); \
    type *restrict out = (type *)AT(call, out) + outer * count + first * (count - 1); \
    wide totals[LINES]; \
    for (int64_t i = 0; i < LINES; i++) totals[i] = !joins_sums; \
    for (int64_t k = 0; k < extent; k++) \
      for (int64_t i = 0; i < LINES; i++) { \
        const wide before = totals[i], after = JOINED(before, (wide)x[k * step + i * extent]); \
        totals[i] = after; \
        out[k * step + i * count] = (type)(late ? before : after); \
      } \
    for (int64_t i = 0; count > extent && i < LINES; i++) out[extent * step + i * count] = (type)totals[i]; \
  } \
  static void totals_##name(struct fuse_lines *call, int64_t outer, int64_t low, int64_t width) { \
    const int joins_sums = call->join == 1; \
    if (call->late) run_##name(call, outer, low, width, joins_sums, 1); \
    else if (joins_sums) run_##name(call, outer, low, width, 1, 0); \
    else run_##name(call, outer, low, width, 0, 0); \
  } \
  static void totals_of_lines_##name(struct fuse_lines *call, int64_t outer, int64_t lines) { \
    const int joins_sums = call->join == 1; \
    if ((wide)0.5 == 0 && joins_sums && !call->late) { \
      for (; lines > 0; lines--) run_line_##name(call, outer++); \
      return; \
    } \
    for (; lines < LINES && lines > 0; lines--) totals_##name(call, outer++, 0, 1); \
    if (lines == 0) return; \
    if (call->late) run_lines_##name(call, outer, joins_sums, 1); \
    else if (joins_sums) run_lines_##name(call, outer, 1, 0); \
    else run_lines_##name(call, outer, 0, 0); \
  }
#if TYPE == 8
TOTALS(8, f32, float, double)
#else
ALL_TYPES(TOTALS)
#endif

/* The tasks are blocks of the inner axis of each outer position; where that has one element, of the outer one. */
FUSE_TASK fuse_run_totals(void *arg, long begin, long end) {
  struct fuse_lines *call = arg;
  int64_t of_lines = call->inner == 1, whole = of_lines ? call->outer : call->inner, blocks = (whole + call->block - 1) / call->block;
  for (int64_t task = begin; task < end; task++) {
    int64_t low = task % blocks * call->block, some = whole - low < call->block ? whole - low : call->block;
    switch (call->type) {
#define CASE(number, name, type, wide) \
  case number: \
    if (of_lines) totals_of_lines_##name(call, low, some); \
    else totals_##name(call, task / blocks, low, some); \
    break;
      ALL_TYPES(CASE)
#undef CASE
    }
  }
}

/* Where numbers belong among the `count` of x, in ascending order: before equal ones, or behind them. Each of several looks at the
 * middle of what is left to it, all as often, so that none waits for what another one found; x is no NaN where it is compared. */
#define SEARCHED 8
#define SEARCH(number, name, type, wide) \
  static inline __attribute__((always_inline)) void search_some_##name( \
      const type *restrict x, int64_t count, const type *restrict values, int64_t *restrict out, int64_t some, int64_t behind, \
      int64_t nan_at) { \
    int64_t at[SEARCHED] = {0}; \
    for (int64_t left = count, half; left > 1; left -= half) { \
      half = left / 2; \
      for (int64_t k = 0; k < some; k++) { \
        type there = x[at[k] + half - 1]; \
        at[k] += (behind ? there <= values[k] : there < values[k]) ? half : 0; \
      } \
    } \
    for (int64_t k = 0; k < some; k++) { \
      int64_t found = at[k] + (behind ? x[at[k]] <= values[k] : x[at[k]] < values[k]); \
      out[k] = values[k] == values[k] ? found : nan_at; \
    } \
  } \
  static void search_##name(const type *x, int64_t count, const type *values, int64_t *out, int64_t many, int64_t behind) { \
    int64_t k = 0, nan_at = 0; /* behind the numbers, or behind everything */ \
    for (int64_t left = count, half; left > 0; left -= half) { \
      half = (left + 1) / 2; \
      nan_at += behind || x[nan_at + half - 1] == x[nan_at + half - 1] ? half : 0; \
    } \
    for (; k + SEARCHED <= many; k += SEARCHED) \
      if (behind) search_some_##name(x, count, values + k, out + k, SEARCHED, 1, nan_at); \
      else search_some_##name(x, count, values + k, out + k, SEARCHED, 0, nan_at); \
    search_some_##name(x, count, values + k, out + k, many - k, behind, nan_at); \
  }
ALL_TYPES(SEARCH)

/* The tasks are blocks of the values. */
FUSE_TASK fuse_search_lines(void *arg, long begin, long end) {
  struct fuse_lines *call = arg;
  int64_t first = begin * call->block, last = end * call->block, bytes = call->bytes;
  if (last > call->count) last = call->count;
  const char *values = AT(call, values) + first * bytes;
  int64_t *out = (int64_t *)AT(call, out) + first;
  switch (call->type) {
#define CASE(number, name, type, wide) \
  case number: \
    search_##name((const type *)AT(call, x), call->extent, (const type *)values, out, last - first, call->join); \
    break;
    ALL_TYPES(CASE)
#undef CASE
  }
}

void fuse_task(void *arg, long begin, long end) {
  TASK(arg, begin, end);
}
