/* Ops over parts of sparse values: tasks of the pool for the operations of lowering/reference/kernels/sparse.py. Each element is
 * written by one task, in an order that depends on shapes and on what is stored alone, so that the result does not depend on
 * the number of threads.
 *
 * Patterns are looked at before anything is read by them: a run with a row that does not follow the one before, with a column
 * out of range or with more entries than there is room for fails, and the first such that is met is noted. Products do not look
 * where the pattern is an argument, which was looked at before the run. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PLACES 9
struct fuse_sparse_fault {
  int64_t lock, failed, kind, index, place;
};
enum { OUT_OF_RANGE = 1, NO_ROWS = 2, TOO_MANY = 3 };

struct fuse_sparse {
  char *const *cells[MOST_PLACES]; /* of operands, results and the workspace, in order: a cell of the run's table each */
  int64_t offsets[MOST_PLACES];    /* bytes from what the cell holds */
  int64_t rows, columns, capacity; /* of the pattern; columns are what its indices are below */
  int64_t width;                   /* elements of a row that is read or written */
  int64_t count;                   /* of what is told apart further: ids, the capacity of a second pattern, of a result */
  int64_t tasks, type, bytes;      /* bytes: of an element */
  int64_t option, wraps, skipped, kind; /* kind: of ids */
  int64_t known;                        /* whether the pattern was looked at before the run */
  int64_t panel;                        /* of products with panels: which one a loop is of, the count of them for what is left */
  int64_t start, lanes;                 /* the first panel of whoever packs, and how many do beside each other */
  struct fuse_sparse_fault *fault;
};

#define PLACE(call, k) (*(call)->cells[k] + (call)->offsets[k])

static void note(struct fuse_sparse_fault *fault, int64_t kind, int64_t index, int64_t place) {
  while (__atomic_exchange_n(&fault->lock, 1, __ATOMIC_ACQUIRE)) {}
  if (!fault->failed || place < fault->place) fault->kind = kind, fault->index = index, fault->place = place;
  fault->failed = 1;
  __atomic_store_n(&fault->lock, 0, __ATOMIC_RELEASE);
}

/* The entries of a row, from `*first` on: none, and a note, for a row of no pattern. */
static int64_t row_of(const struct fuse_sparse *call, const int32_t *indptr, int64_t row, int64_t capacity, int64_t *first) {
  int64_t begin = indptr[row], end = indptr[row + 1];
  *first = begin;
  if (__builtin_expect(begin >= 0 && begin <= end && end <= capacity && (row || !begin), 1)) return end - begin;
  note(call->fault, NO_ROWS, row, 0);
  return *first = 0;
}

/* Whether all columns of a row are in range. */
static int in_range(const struct fuse_sparse *call, const int32_t *columns, int64_t first, int64_t count, int64_t limit) {
  uint32_t worst = 0;
  for (int64_t p = 0; p < count; p++) worst = (uint32_t)columns[p] > worst ? (uint32_t)columns[p] : worst;
  if (__builtin_expect(!count || worst < limit, 1)) return 1;
  for (int64_t p = 0; p < count; p++)
    if ((uint32_t)columns[p] >= limit) {
      note(call->fault, OUT_OF_RANGE, columns[p], first + p);
      break;
    }
  return 0;
}

/* The first row of a task: tasks have equal numbers of rows and entries together. Rows that do not rise are found later. */
static int64_t first_row(const int32_t *indptr, int64_t rows, int64_t task, int64_t tasks) {
  if (task >= tasks) return rows;
  int64_t wanted = (indptr[rows] + rows) * task / tasks, low = 0, high = rows;
  while (low < high) {
    int64_t middle = (low + high) / 2;
    if (indptr[middle] + middle < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* Whether rows follow each other and all their columns are in range: what lies beside each other is looked at together. */
static int rows_hold(const struct fuse_sparse *call, const int32_t *indptr, const int32_t *indices, int64_t begin, int64_t end) {
  int32_t sinks = 0;
  int64_t first = indptr[begin], last = indptr[end];
  for (int64_t row = begin; row < end; row++) sinks |= indptr[row + 1] < indptr[row];
  if (__builtin_expect(!sinks && first >= 0 && last <= call->capacity && (begin || !first), 1))
    return in_range(call, indices + first, first, last - first, call->columns);
  for (int64_t row = begin; row < end; row++) row_of(call, indptr, row, call->capacity, &first);
  return 0;
}

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Bytes of a vector register, and how many of them hold running sums while others hold what is added. Vectors of more bytes would
 * be taken apart by the compiler, and kept in memory. */
#if defined __AVX512F__
#define REGISTER 64
#define MOST_SUMS 16
#elif defined __AVX__
#define REGISTER 32
#define MOST_SUMS 8
#else
#define REGISTER 16
#define MOST_SUMS 8
#endif

/* Products: a row of the result in blocks of NV times L columns, in CH running sums each. Its registers (`part`, PL elements) are
 * those of passes over the row's entries, as many at a time as there are sums: that does not change what is added to what. Where
 * they are FAR, rows that are read soon are fetched before, also for the next rows of the result: `readable` entries follow. */
#define AHEAD 3
#define PANEL 128 /* bytes of a row of x in a panel */
#define PACKED 2  /* panels that are packed at once */
#define LINE 64   /* bytes of a line of a cache */
typedef int32_t line __attribute__((vector_size(LINE), aligned(4), may_alias));
#define BLOCK(name, T, L) \
  enum { name##_PL = L * sizeof(T) < REGISTER ? L : REGISTER / sizeof(T), name##_PARTS = L / name##_PL }; \
  typedef T name##_part __attribute__((vector_size(name##_PL * sizeof(T)), aligned(sizeof(T)), may_alias)); \
  static inline __attribute__((always_inline)) void name##_pass( \
      const T *values, const int32_t *columns, int64_t count, int64_t readable, const T *x, int64_t n, T *out, const int NV, \
      const int CH, const int FAR) { \
    const int PL = name##_PL; \
    name##_part sum[16] = {{0}}; \
    int64_t p = 0; \
    for (; p + CH <= count; p += CH) \
      _Pragma("GCC unroll 8") for (int c = 0; c < CH; c++) { \
        const T *row = x + (int64_t)columns[p + c] * n; \
        if (FAR && p + c + AHEAD < readable) { \
          const char *later = (const char *)x + (int64_t)columns[p + c + AHEAD] * n * (int64_t)sizeof(T); \
          _Pragma("GCC unroll 16") for (int k = 0; k < NV * PL * (int)sizeof(T); k += LINE) __builtin_prefetch(later + k); \
        } \
        _Pragma("GCC unroll 16") for (int j = 0; j < NV; j++) \
          sum[c * NV + j] += values[p + c] * *(const name##_part *)(row + j * PL); \
      } \
    for (; p < count; p++) { \
      const T *row = x + (int64_t)columns[p] * n; \
      _Pragma("GCC unroll 16") for (int j = 0; j < NV; j++) sum[j] += values[p] * *(const name##_part *)(row + j * PL); \
    } \
    if (CH == 4) \
      _Pragma("GCC unroll 8") for (int k = 0; k < 2 * NV; k++) sum[k] += sum[2 * NV + k]; \
    if (CH > 1) \
      _Pragma("GCC unroll 8") for (int k = 0; k < NV; k++) sum[k] += sum[NV + k]; \
    _Pragma("GCC unroll 16") for (int j = 0; j < NV; j++) *(name##_part *)(out + j * PL) = sum[j]; \
  } \
  static inline __attribute__((always_inline)) void name##_block( \
      const T *values, const int32_t *columns, int64_t count, int64_t readable, const T *x, int64_t n, T *out, const int NV, \
      const int CH, const int FAR) { \
    const int all = NV * name##_PARTS, most = MOST_SUMS / CH; \
    if (all <= most) name##_pass(values, columns, count, readable, x, n, out, all, CH, FAR); \
    else \
      for (int j = 0; j < NV * L; j += most * name##_PL) \
        name##_pass(values, columns, count, readable, x + j, n, out + j, most, CH, FAR); \
  } \
  static inline __attribute__((always_inline)) void name##_alone( \
      const T *values, const int32_t *columns, int64_t count, const T *x, int64_t n, T *out) { \
    name##_block(values, columns, count, 0, x, n, out, 1, 4, 0); \
  }

/* The sum of the elements of L lanes: halves are added to each other. */
#ifdef __AVX512F__
#define TOTAL(name, T) \
  static inline T name##_total(const name##_part *v) { \
    T part[name##_PL]; \
    memcpy(part, v, sizeof part); \
    for (int half = name##_PL / 2; half; half /= 2) \
      for (int l = 0; l < half; l++) part[l] += part[l + half]; \
    return part[0]; \
  }
#else
#define TOTAL(name, T) \
  typedef T name##_last __attribute__((vector_size(16), aligned(sizeof(T)), may_alias)); \
  static inline T name##_total(name##_part *v) { \
    _Pragma("GCC unroll 4") for (int half = name##_PARTS / 2; half; half /= 2) \
      _Pragma("GCC unroll 4") for (int k = 0; k < half; k++) v[k] += v[k + half]; \
    name##_last part = *(const name##_last *)v; \
    if (REGISTER > 16) part += *((const name##_last *)v + 1); \
    _Pragma("GCC unroll 4") for (int half = 8 / sizeof(T); half; half /= 2) \
      _Pragma("GCC unroll 4") for (int l = 0; l < half; l++) part[l] += part[l + half]; \
    return part[0]; \
  }
#endif

/* A register of elements of x, beside each other (`gather`) or n apart. Processors with arithmetic of 16 bits came after those
 * whose gathers take longer than as many loads. MANY: of how many entries on a vector of sums is worth its sum. */
#ifdef __AVX512FP16__
#include <immintrin.h>
#define GATHER(wide, T) \
  static inline void wide##_gather(const T *x, const int32_t *at, wide##_part *found) { \
    if (sizeof(T) == 4) *found = (wide##_part)_mm512_i32gather_epi32(_mm512_loadu_si512(at), x, 4); \
    else *found = (wide##_part)_mm512_i32gather_epi64(_mm256_loadu_si256((const __m256i_u *)at), x, 8); \
  } \
  GATHER_APART(wide, T)
#elif defined __AVX512F__
#define GATHER(wide, T) \
  static inline void wide##_gather(const T *x, const int32_t *at, wide##_part *found) { \
    T each[wide##_PL]; \
    for (int l = 0; l < wide##_PL; l++) each[l] = x[at[l]]; \
    *found = *(const wide##_part *)each; \
  } \
  GATHER_APART(wide, T)
#else
#define GATHER(wide, T) \
  static inline void wide##_apart(const T *x, const int32_t *at, int64_t n, wide##_part *found) { \
    wide##_part each = {x[*at * n]}; \
    _Pragma("GCC unroll 16") for (int l = 1; l < wide##_PL; l++) each[l] = x[at[l] * n]; /* inserted, not stored */ \
    *found = each; \
  } \
  static inline void wide##_gather(const T *x, const int32_t *at, wide##_part *found) { wide##_apart(x, at, 1, found); }
#endif
#ifdef __AVX512F__
#define MANY(L) (4 * L)
#define GATHER_APART(wide, T) \
  static inline void wide##_apart(const T *x, const int32_t *at, int64_t n, wide##_part *found) { \
    T each[wide##_PL]; \
    for (int l = 0; l < wide##_PL; l++) each[l] = x[at[l] * n]; \
    *found = *(const wide##_part *)each; \
  }
#else
#define MANY(L) L
#endif

/* One column: four running sums over entries; over many, a vector of them first. */
#define COLUMN(wide, T, L) \
  static __attribute__((noinline)) T wide##_many( \
      const T *values, const int32_t *columns, int64_t count, const T *x, int64_t n) { \
    wide##_part sums[wide##_PARTS] = {{0}}; \
    if (n == 1) { \
      for (int64_t p = 0; p < count; p += L) \
        _Pragma("GCC unroll 4") for (int h = 0; h < wide##_PARTS; h++) { \
          wide##_part found; \
          wide##_gather(x, columns + p + h * wide##_PL, &found); \
          sums[h] += *(const wide##_part *)(values + p + h * wide##_PL) * found; \
        } \
      return wide##_total(sums); \
    } \
    for (int64_t p = 0; p < count; p += L) \
      _Pragma("GCC unroll 4") for (int h = 0; h < wide##_PARTS; h++) { \
        wide##_part found; \
        wide##_apart(x, columns + p + h * wide##_PL, n, &found); \
        sums[h] += *(const wide##_part *)(values + p + h * wide##_PL) * found; \
      } \
    return wide##_total(sums); \
  } \
  static inline T wide##_column(const T *values, const int32_t *columns, int64_t count, const T *x, int64_t n) { \
    int64_t p = count < MANY(L) ? 0 : count / L * L; \
    T sum[4] = {p ? wide##_many(values, columns, p, x, n) : 0}; \
    for (; p + 4 <= count; p += 4) \
      _Pragma("GCC unroll 4") for (int l = 0; l < 4; l++) sum[l] += values[p + l] * x[columns[p + l] * n]; \
    for (; p < count; p++) sum[0] += values[p] * x[columns[p] * n]; \
    return (sum[0] + sum[2]) + (sum[1] + sum[3]); \
  }

/* A vector times rows of at most SHORT entries each, at most L of them, from `row` on, and how many: entries times what they meet,
 * then sums in order of entries, so that those of a row do not depend on which rows it is computed with; v, bits, some and half
 * name what intrinsics are of. */
#define SHORT 16
#ifdef __AVX512FP16__
#define SHORT_ROWS(wide, T, L, v, bits, some, half, places) \
  static int64_t wide##_short( \
      const int32_t *indptr, int64_t row, int64_t end, const T *values, const int32_t *columns, const T *x, T *out) { \
    some lanes = (some)(end - row < L ? (1u << (end - row)) - 1 : ~0u); \
    places at = half##_maskz_loadu_epi32(lanes, indptr + row); \
    places counts = half##_sub_epi32(half##_maskz_loadu_epi32(lanes, indptr + row + 1), at); \
    some longer = half##_cmpgt_epi32_mask(counts, half##_set1_epi32(SHORT)); \
    if (longer) lanes &= (some)((longer & -longer) - 1); \
    int64_t first = indptr[row], rows = __builtin_popcount(lanes), last = indptr[row + rows]; \
    T products[(SHORT + 1) * L]; \
    for (int64_t p = first; p < last; p += L) { \
      some those = (some)(last - p < L ? (1u << (last - p)) - 1 : ~0u); \
      wide##_part found = (wide##_part)_mm512_mask_i32gather_##bits( \
          _mm512_setzero_si512(), those, half##_maskz_loadu_epi32(those, columns + p), x, sizeof(T)); \
      *(wide##_part *)(products + p - first) = (wide##_part)_mm512_maskz_loadu_##bits(those, values + p) * found; \
    } \
    wide##_part sums = {0}; \
    at = half##_sub_epi32(at, half##_set1_epi32((int32_t)first)); \
    for (int32_t k = 0;; k++) { \
      some those = half##_cmpgt_epi32_mask(counts, half##_set1_epi32(k)) & lanes; \
      if (!those) break; \
      places from = half##_add_epi32(at, half##_set1_epi32(k)); \
      wide##_part next = (wide##_part)_mm512_mask_i32gather_##bits(_mm512_setzero_si512(), those, from, products, sizeof(T)); \
      sums = _mm512_mask_add_##v(sums, those, sums, next); \
    } \
    _mm512_mask_storeu_##v(out + row, lanes, sums); \
    return rows; \
  }
#else
#define SHORT_ROWS(wide, T, L, v, bits, some, half, places) NO_SHORT_ROWS(wide, T)
#endif
#define NO_SHORT_ROWS(wide, T) \
  static inline int64_t wide##_short( \
      const int32_t *indptr, int64_t row, int64_t end, const T *values, const int32_t *columns, const T *x, T *out) { \
    return 0; \
  }

/* A row of eight columns of f32: two entries in a vector, eight at a time. */
#ifdef __AVX512F__
#include <immintrin.h>
static inline void f32x8_pairs(
    const float *values, const int32_t *columns, int64_t count, const float *x, int64_t n, float *out) {
  __m512 sum[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
  const __m512i first = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
  int64_t p = 0;
  for (; p + 8 <= count; p += 8) {
    __m512 given = _mm512_castps256_ps512(_mm256_loadu_ps(values + p));
    _Pragma("GCC unroll 4") for (int c = 0; c < 4; c++) {
      const float *one = x + columns[p + 2 * c] * n, *other = x + columns[p + 2 * c + 1] * n;
      __m512d both = _mm512_castpd256_pd512(_mm256_loadu_pd((const double *)one));
      both = _mm512_insertf64x4(both, _mm256_loadu_pd((const double *)other), 1);
      __m512 factors = _mm512_permutexvar_ps(_mm512_add_epi32(first, _mm512_set1_epi32(2 * c)), given);
      sum[c] = _mm512_fmadd_ps(factors, _mm512_castpd_ps(both), sum[c]);
    }
  }
  __m512d both = _mm512_castps_pd(_mm512_add_ps(_mm512_add_ps(sum[0], sum[2]), _mm512_add_ps(sum[1], sum[3])));
  __m256 total = _mm256_add_ps(_mm256_castpd_ps(_mm512_castpd512_pd256(both)), _mm256_castpd_ps(_mm512_extractf64x4_pd(both, 1)));
  for (; p < count; p++)
    total = _mm256_fmadd_ps(_mm256_set1_ps(values[p]), _mm256_loadu_ps(x + columns[p] * n), total);
  _mm256_storeu_ps(out, total);
}
#else
#define f32x8_pairs f32x8_alone
#endif
/* Loops of their own keep more in registers, where these are few. */
#ifdef __AVX512F__
#define ROWS_APART inline __attribute__((always_inline))
#else
#define ROWS_APART __attribute__((noinline))
#endif
/* Of rows, in a block of `NV` vectors that begins `back` columns before. */
#define EACH_ROW(condition, vector, back, NV, CH, FAR, step) \
  if (condition) { \
    for (int64_t row = begin; row < end; row++) { \
      int64_t first = indptr[row], count = indptr[row + 1] - first; \
      vector##_block( \
          values + first, columns + first, count, call->capacity - first, x - (back), n, out + row * n - (back), NV, CH, FAR); \
    } \
    return step; \
  }

/* Columns from j on of rows, and how many; there is at least one; wide, half and fourth are vectors of L, L/2 and L/4 elements. */
#define PRODUCT(name, T, L, wide, half, fourth, HALF, SHORT_ROWS) \
  BLOCK(wide, T, L) BLOCK(half, T, (L / 2)) BLOCK(fourth, T, (L / 4)) TOTAL(wide, T) GATHER(wide, T) COLUMN(wide, T, L) SHORT_ROWS \
  static ROWS_APART void name##_halves( \
      const int32_t *indptr, int64_t begin, int64_t end, const T *values, const int32_t *columns, const T *x, int64_t n, T *out) { \
    for (int64_t row = begin; row < end; row++) { \
      int64_t first = indptr[row], count = indptr[row + 1] - first; \
      HALF(values + first, columns + first, count, x, n, out + row * n); \
    } \
  } \
  static int64_t name##_piece( \
      const struct fuse_sparse *call, const int32_t *indptr, int64_t begin, int64_t end, const int64_t j) { \
    const int32_t *columns = (const int32_t *)PLACE(call, 1); \
    const T *values = (const T *)PLACE(call, 2), *x = (const T *)PLACE(call, 3) + j; \
    int64_t n = call->width, left = n - j; \
    T *out = (T *)PLACE(call, 4) + j; \
    EACH_ROW(left >= 16 * L, wide, 0, 16, 1, 1, 16 * L) \
    EACH_ROW(left >= 8 * L, wide, 0, 8, 1, 1, 8 * L) \
    EACH_ROW(left >= 4 * L, wide, 0, 4, 2, 1, 4 * L) \
    EACH_ROW(left >= 2 * L, wide, 0, 2, 4, 0, 2 * L) \
    EACH_ROW(left >= L, wide, 0, 1, 4, 0, L) \
    int64_t back = L - left; /* a last vector overlaps the one before */ \
    EACH_ROW(j >= back, wide, back, 1, 4, 0, left) \
    if (left >= L / 2) { \
      name##_halves(indptr, begin, end, values, columns, x, n, out); \
      return L / 2; \
    } \
    back = L / 2 - left; \
    EACH_ROW(j >= back, half, back, 1, 4, 0, left) \
    EACH_ROW(left >= L / 4, fourth, 0, 1, 4, 0, L / 4) \
    for (int64_t row = begin, done; row < end; row += done) { \
      int64_t first = indptr[row], count = indptr[row + 1] - first; \
      done = n == 1 && count <= SHORT ? wide##_short(indptr, row, end, values, columns, x, out) : 0; \
      if (!done) out[row * n] = wide##_column(values + first, columns + first, count, x, n), done = 1; \
    } \
    return 1; \
  } \
  static void name##_product(const struct fuse_sparse *call, int64_t begin, int64_t end) { \
    const int32_t *indptr = (const int32_t *)PLACE(call, 0), *indices = (const int32_t *)PLACE(call, 1); \
    if (begin >= end || !(call->known || rows_hold(call, indptr, indices, begin, end))) return; \
    for (int64_t j = call->panel * PANEL / (int64_t)sizeof(T); j < call->width;) \
      j += name##_piece(call, indptr, begin, end, j); \
  } \
  static void name##_panel(const struct fuse_sparse *call, int64_t begin, int64_t end) { \
    const int32_t *indptr = (const int32_t *)PLACE(call, 0), *indices = (const int32_t *)PLACE(call, 1); \
    const T *values = (const T *)PLACE(call, 2), *x = (const T *)(PLACE(call, 5) + call->panel % PACKED * call->columns * PANEL); \
    T *out = (T *)(PLACE(call, 4) + call->panel * PANEL); \
    if (begin >= end || !(call->known || rows_hold(call, indptr, indices, begin, end))) return; \
    for (int64_t row = begin; row < end; row++) { \
      int64_t first = indptr[row], count = indptr[row + 1] - first; \
      const char *later = (const char *)(out + least(row + 4, end - 1) * call->width); /* far from what is written now */ \
      _Pragma("GCC unroll 4") for (int k = 0; k < PANEL; k += LINE) __builtin_prefetch(later + k, 1); \
      wide##_block(values + first, indices + first, count, 0, x, 2 * L, out + row * call->width, 2, 2, 0); \
    } \
  } \
  static void name##_sampled(const struct fuse_sparse *call, int64_t begin, int64_t end) { \
    const int32_t *indptr = (const int32_t *)PLACE(call, 0), *indices = (const int32_t *)PLACE(call, 1); \
    const T *x = (const T *)PLACE(call, 2), *y = (const T *)PLACE(call, 3); \
    T *out = (T *)PLACE(call, 4); \
    int64_t n = call->width; \
    for (int64_t row = begin; row < end; row++) { \
      int64_t first, count = row_of(call, indptr, row, call->capacity, &first); \
      if (!in_range(call, indices + first, first, count, call->columns)) return; \
      for (int64_t p = first; p < first + count; p++) { \
        const T *a = x + row * n, *b = y + indices[p] * n; \
        const int PL = wide##_PL, PARTS = wide##_PARTS; \
        wide##_part sum[4 * wide##_PARTS] = {{0}}; \
        T rest = 0; \
        int64_t k = 0; \
        for (; k + 4 * L <= n; k += 4 * L) \
          _Pragma("GCC unroll 16") for (int c = 0; c < 4 * PARTS; c++) \
            sum[c] += *(const wide##_part *)(a + k + c * PL) * *(const wide##_part *)(b + k + c * PL); \
        for (; k + L <= n; k += L) \
          _Pragma("GCC unroll 4") for (int c = 0; c < PARTS; c++) \
            sum[c] += *(const wide##_part *)(a + k + c * PL) * *(const wide##_part *)(b + k + c * PL); \
        if (PARTS > 1) \
          for (; k + PL <= n; k += PL) sum[0] += *(const wide##_part *)(a + k) * *(const wide##_part *)(b + k); \
        for (; k < n; k++) rest += a[k] * b[k]; \
        if (PARTS == 1 || n >= 4 * L) /* else there are zeros */ \
          _Pragma("GCC unroll 4") for (int c = 0; c < PARTS; c++) \
            sum[c] = (sum[c] + sum[2 * PARTS + c]) + (sum[PARTS + c] + sum[3 * PARTS + c]); \
        out[p] = wide##_total(sum) + rest; \
      } \
    } \
    if (end == call->rows && begin < end) \
      for (int64_t p = indptr[call->rows] < 0 ? 0 : indptr[call->rows]; p < call->capacity; p++) out[p] = 0; \
  } \
  static void name##_sums(const struct fuse_sparse *call, int64_t begin, int64_t end) { \
    const int32_t *indptr = (const int32_t *)PLACE(call, 0); \
    const T *values = (const T *)PLACE(call, 1); \
    T *out = (T *)PLACE(call, 2); \
    for (int64_t row = begin; row < end; row++) { \
      int64_t first, count = row_of(call, indptr, row, call->capacity, &first); \
      T sum = 0; \
      for (int64_t p = first; p < first + count; p++) sum += values[p]; \
      out[row] = sum; \
    } \
  } \
  static void name##_gradient(const struct fuse_sparse *call, int64_t begin, int64_t end) { \
    const int32_t *starts = (const int32_t *)PLACE(call, 5), *order = starts + call->capacity + 1; \
    const int32_t *indptr = (const int32_t *)PLACE(call, 2); \
    const T *grad = (const T *)PLACE(call, 0); \
    T *out = (T *)PLACE(call, 4); \
    int64_t n = call->width; \
    for (int64_t slot = begin; slot < end; slot++) { \
      T *restrict to = out + slot * n; \
      int64_t k = slot < indptr[1] ? starts[slot] : 0, last = slot < indptr[1] ? starts[slot + 1] : 0; \
      if (k == last) memset(to, 0, (size_t)n * sizeof(T)); \
      else { \
        const T *restrict from = grad + order[k] * n; \
        for (int64_t j = 0; j < n; j++) to[j] = 0 + from[j]; /* as if added to zeros: -0 becomes 0 */ \
      } \
      for (k++; k < last; k++) { \
        const T *restrict from = grad + order[k] * n; \
        for (int64_t j = 0; j < n; j++) to[j] += from[j]; \
      } \
    } \
  }

PRODUCT(f32, float, 16, f32x16, f32x8, f32x4, f32x8_pairs, SHORT_ROWS(f32x16, float, 16, ps, epi32, __mmask16, _mm512, __m512i))
PRODUCT(f64, double, 8, f64x8, f64x4, f64x2, f64x4_alone, SHORT_ROWS(f64x8, double, 8, pd, epi64, __mmask8, _mm256, __m256i))
PRODUCT(i32, uint32_t, 16, i32x16, i32x8, i32x4, i32x8_alone, NO_SHORT_ROWS(i32x16, uint32_t))
PRODUCT(i64, uint64_t, 8, i64x8, i64x4, i64x2, i64x4_alone, NO_SHORT_ROWS(i64x8, uint64_t))

#define BY_TYPE(what) \
  switch (call->type) { \
    case 0: f32_##what(call, first, last); return; \
    case 1: f64_##what(call, first, last); return; \
    case 2: i32_##what(call, first, last); return; \
    case 3: i64_##what(call, first, last); return; \
  }

#define ROW_TASK(task, what) \
  void task(void *arg, long begin, long end) { \
    const struct fuse_sparse *call = arg; \
    const int32_t *indptr = (const int32_t *)PLACE(call, 0); \
    int64_t first = first_row(indptr, call->rows, begin, call->tasks), last = first_row(indptr, call->rows, end, call->tasks); \
    BY_TYPE(what) \
  }
ROW_TASK(fuse_csr_matmul, product)

ROW_TASK(fuse_csr_panel, panel)

/* Columns of x in PACKED panels, just before the products with them: rows that are so far apart that they share sets of a cache
 * drive each other out of it, and what a panel takes stays in the one next to the core. A line of x that has columns of two packs
 * is read once, where shuffles of two vectors are one instruction: it is kept behind the panels for the next pack. */
void fuse_csr_pack(void *arg, long begin, long end) {
  const struct fuse_sparse *call = arg;
  int64_t first = call->columns * begin / call->count, last = call->columns * end / call->count;
  int64_t distance = call->width * call->bytes, apart = call->columns * PANEL, pack = call->panel * PANEL;
  const char *x = PLACE(call, 3) + pack, *behind = PLACE(call, 3) + call->columns * distance;
  char *packed = PLACE(call, 5), *kept = packed + PACKED * apart;
  for (int64_t row = first; row < last; row++) {
    const char *from = x + row * distance;
    char *to = packed + row * PANEL;
#ifdef __AVX512F__
    int64_t before = (int64_t)((uintptr_t)from % LINE);
    line *shared = (line *)(kept + row * LINE);
    if (before && call->panel != call->start && from - before + PACKED * PANEL + LINE <= behind) {
      line wanted = (line){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} + (int32_t)(before / 4), one = *shared;
      _Pragma("GCC unroll 4") for (int k = 0; k < PACKED * PANEL; k += LINE) {
        line next = *(const line *)(from - before + k + LINE);
        *(line *)(to + k / PANEL * apart + k % PANEL) = __builtin_shuffle(one, next, wanted);
        one = next;
      }
      *shared = one;
      continue;
    }
    if (before && call->panel == call->start) *shared = *(const line *)(from - before + PACKED * PANEL); /* another pack follows */
#endif
    for (int k = 0; k < PACKED; k++) memcpy(to + k * apart, from + k * PANEL, PANEL);
  }
}

/* The same of several threads: each packs columns of its own and multiplies all rows by them. It waits for no other, x is read once,
 * and what a thread has packed, no other reads. */
void fuse_csr_lanes(void *arg, long begin, long end) {
  const struct fuse_sparse *all = arg;
  int64_t packs = all->width * all->bytes / (PACKED * PANEL);
  for (int64_t lane = begin; lane < end; lane++) {
    struct fuse_sparse own = *all;
    own.offsets[5] += lane * all->columns * (PACKED * PANEL + LINE);
    own.start = PACKED * (packs * lane / all->lanes);
    for (own.panel = own.start; own.panel < PACKED * (packs * (lane + 1) / all->lanes);) {
      fuse_csr_pack(&own, 0, own.count);
      for (int k = 0; k < PACKED; k++, own.panel++) fuse_csr_panel(&own, 0, own.tasks);
    }
  }
}
ROW_TASK(fuse_csr_sampled_matmul, sampled)
ROW_TASK(fuse_csr_sums, sums)

/* The largest of each row, a NaN if there is one; f32 and f64. */
#define LARGEST(T) \
  for (int64_t row = first; row < last; row++) { \
    int64_t at, count = row_of(call, indptr, row, call->capacity, &at); \
    T found = -(T)__builtin_inf(); \
    for (int64_t p = at; p < at + count; p++) { \
      T value = ((const T *)PLACE(call, 1))[p]; \
      found = value > found || value != value ? value : found; \
      if (found != found) break; \
    } \
    ((T *)PLACE(call, 2))[row] = found; \
  }
void fuse_csr_largest(void *arg, long begin, long end) {
  const struct fuse_sparse *call = arg;
  const int32_t *indptr = (const int32_t *)PLACE(call, 0);
  int64_t first = first_row(indptr, call->rows, begin, call->tasks), last = first_row(indptr, call->rows, end, call->tasks);
  if (call->type) { LARGEST(double) } else { LARGEST(float) }
}

void fuse_csr_rows(void *arg, long begin, long end) {
  const struct fuse_sparse *call = arg;
  const int32_t *indptr = (const int32_t *)PLACE(call, 0);
  int32_t *out = (int32_t *)PLACE(call, 1);
  int64_t first = first_row(indptr, call->rows, begin, call->tasks), last = first_row(indptr, call->rows, end, call->tasks);
  for (int64_t row = first; row < last; row++) {
    int64_t at, count = row_of(call, indptr, row, call->capacity, &at);
    for (int64_t p = at; p < at + count; p++) out[p] = (int32_t)row;
  }
  if (end == call->tasks)
    for (int64_t p = indptr[call->rows] < 0 ? 0 : indptr[call->rows]; p < call->capacity; p++) out[p] = 0;
}

/* A counting sort by columns; one task. */
void fuse_csr_transpose(void *arg, long begin, long end) {
  const struct fuse_sparse *call = arg;
  const int32_t *indptr = (const int32_t *)PLACE(call, 0), *indices = (const int32_t *)PLACE(call, 1);
  int32_t *starts = (int32_t *)PLACE(call, 2), *columns = (int32_t *)PLACE(call, 3), *places = (int32_t *)PLACE(call, 4);
  int64_t first, total = 0;
  memset(starts, 0, (size_t)(call->columns + 1) * 4);
  for (int64_t row = 0; row < call->rows; row++) {
    int64_t count = row_of(call, indptr, row, call->capacity, &first);
    if (call->fault->failed || !in_range(call, indices + first, first, count, call->columns)) return;
    total = first + count;
  }
  for (int64_t p = 0; p < total; p++) starts[indices[p] + 1]++;
  for (int64_t k = 0; k < call->columns; k++) starts[k + 1] += starts[k];
  for (int64_t row = 0; row < call->rows; row++)
    for (int64_t p = indptr[row]; p < indptr[row + 1]; p++) {
      int32_t to = starts[indices[p]]++;
      columns[to] = (int32_t)row, places[to] = (int32_t)p;
    }
  memmove(starts + 1, starts, (size_t)call->columns * 4);
  starts[0] = 0;
  for (int64_t p = total; p < call->capacity; p++) columns[p] = places[p] = 0;
  (void)begin, (void)end;
}

/* The id with a number: a row, counted from the end where it is negative and that counts; -1, and a note, for none. */
static int64_t id_at(const struct fuse_sparse *call, const char *ids, int64_t k, int64_t rows) {
  int64_t given = 0;
  switch (call->kind) {
    case 0: given = ((const int32_t *)ids)[k]; break;
    case 1: given = ((const int64_t *)ids)[k]; break;
    case 2: given = ((const int16_t *)ids)[k]; break;
    case 3: given = ((const int8_t *)ids)[k]; break;
  }
  int64_t id = given < 0 && call->wraps ? given + rows : given;
  if (__builtin_expect(id >= 0 && id < rows, 1)) return id;
  note(call->fault, OUT_OF_RANGE, given, k);
  return -1;
}

/* Rows by ids: where they begin (one task), then what is in them. */
void fuse_csr_take_rows(void *arg, long begin, long end) {
  const struct fuse_sparse *call = arg;
  const int32_t *indptr = (const int32_t *)PLACE(call, 0);
  int32_t *starts = (int32_t *)PLACE(call, 3);
  int64_t first, total = 0, room = call->option;
  starts[0] = 0;
  for (int64_t k = 0; k < call->count; k++) {
    int64_t row = id_at(call, PLACE(call, 2), k, call->rows);
    total += row < 0 ? 0 : row_of(call, indptr, row, call->capacity, &first);
    starts[k + 1] = (int32_t)least(total, room);
  }
  if (total > room && !call->fault->failed) note(call->fault, TOO_MANY, total, room);
  (void)begin, (void)end;
}

void fuse_csr_take(void *arg, long begin, long end) {
  const struct fuse_sparse *call = arg;
  const int32_t *indptr = (const int32_t *)PLACE(call, 0), *indices = (const int32_t *)PLACE(call, 1);
  const int32_t *starts = (const int32_t *)PLACE(call, 3);
  int32_t *columns = (int32_t *)PLACE(call, 4), *places = (int32_t *)PLACE(call, 5);
  if (call->fault->failed) return;
  for (int64_t k = call->count * begin / call->tasks; k < call->count * end / call->tasks; k++) {
    int64_t from = indptr[id_at(call, PLACE(call, 2), k, call->rows)], to = starts[k], n = starts[k + 1] - to;
    memcpy(columns + to, indices + from, (size_t)n * 4);
    for (int64_t p = 0; p < n; p++) places[to + p] = (int32_t)(from + p);
  }
  if (end == call->tasks)
    for (int64_t p = starts[call->count]; p < call->option; p++) columns[p] = places[p] = 0;
}

/* A merge of rows; one task. Which of two entries comes first is no branch, as none is foreseen. */
void fuse_csr_union(void *arg, long begin, long end) {
  const struct fuse_sparse *call = arg;
  const int32_t *ap = (const int32_t *)PLACE(call, 0), *ai = (const int32_t *)PLACE(call, 1);
  const int32_t *bp = (const int32_t *)PLACE(call, 2), *bi = (const int32_t *)PLACE(call, 3);
  int32_t *indptr = (int32_t *)PLACE(call, 4), *indices = (int32_t *)PLACE(call, 5);
  int32_t *in_a = (int32_t *)PLACE(call, 6), *in_b = (int32_t *)PLACE(call, 7);
  int64_t room = call->option, found = 0;
  indptr[0] = 0;
  for (int64_t row = 0; row < call->rows; row++) {
    int64_t a, b, last_a = row_of(call, ap, row, call->capacity, &a), last_b = row_of(call, bp, row, call->count, &b);
    last_a += a, last_b += b;
    while (a < last_a && b < last_b && found < room) {
      int32_t one = ai[a], other = bi[b], from_a = one <= other, from_b = other <= one;
      indices[found] = one < other ? one : other;
      in_a[found] = (int32_t)a | (from_a - 1), in_b[found] = (int32_t)b | (from_b - 1);
      found++, a += from_a, b += from_b;
    }
    while (a < last_a || b < last_b) {
      int from_a = a < last_a && (b == last_b || ai[a] <= bi[b]), from_b = b < last_b && (a == last_a || bi[b] <= ai[a]);
      if (found < room) {
        indices[found] = from_a ? ai[a] : bi[b];
        in_a[found] = from_a ? (int32_t)a : -1, in_b[found] = from_b ? (int32_t)b : -1;
      }
      found++, a += from_a, b += from_b;
    }
    indptr[row + 1] = (int32_t)least(found, room);
  }
  if (found > room) note(call->fault, TOO_MANY, found, room);
  for (int64_t p = found; p < room; p++) indices[p] = 0, in_a[p] = in_b[p] = -1;
  (void)begin, (void)end;
}

/* Entries of a dense matrix: counted by rows, then added up (one task), then written. */
#define IS_STORED(T) (((const T *)x)[k] != 0)
#define ENTRY_LOOP(action) \
  switch (call->type) { \
    case 0: for (int64_t k = 0; k < n; k++) if (IS_STORED(float)) action; break; \
    case 1: for (int64_t k = 0; k < n; k++) if (IS_STORED(double)) action; break; \
    case 2: for (int64_t k = 0; k < n; k++) if (IS_STORED(int32_t)) action; break; \
    case 3: for (int64_t k = 0; k < n; k++) if (IS_STORED(int64_t)) action; break; \
    case 4: for (int64_t k = 0; k < n; k++) if (IS_STORED(int8_t)) action; break; \
  }
void fuse_csr_count(void *arg, long begin, long end) {
  const struct fuse_sparse *call = arg;
  int32_t *indptr = (int32_t *)PLACE(call, 1);
  int64_t n = call->columns;
  for (int64_t row = call->rows * begin / call->tasks; row < call->rows * end / call->tasks; row++) {
    const char *x = PLACE(call, 0) + row * n * call->bytes;
    int32_t count = 0;
    ENTRY_LOOP(count++)
    indptr[row + 1] = count;
  }
}

void fuse_csr_add_up(void *arg, long begin, long end) {
  const struct fuse_sparse *call = arg;
  int32_t *indptr = (int32_t *)PLACE(call, 1), *indices = (int32_t *)PLACE(call, 2);
  int64_t total = 0, room = call->capacity;
  indptr[0] = 0;
  for (int64_t row = 0; row < call->rows; row++) {
    total += indptr[row + 1];
    indptr[row + 1] = (int32_t)least(total, room);
  }
  if (total > room) note(call->fault, TOO_MANY, total, room);
  for (int64_t p = total; p < room; p++) indices[p] = 0;
  if (total < room) memset(PLACE(call, 3) + total * call->bytes, 0, (size_t)((room - total) * call->bytes));
  (void)begin, (void)end;
}

void fuse_csr_fill(void *arg, long begin, long end) {
  const struct fuse_sparse *call = arg;
  const int32_t *indptr = (const int32_t *)PLACE(call, 1);
  int32_t *indices = (int32_t *)PLACE(call, 2);
  char *values = PLACE(call, 3);
  int64_t n = call->columns, bytes = call->bytes;
  if (call->fault->failed) return;
  for (int64_t row = call->rows * begin / call->tasks; row < call->rows * end / call->tasks; row++) {
    const char *x = PLACE(call, 0) + row * n * bytes;
    int64_t p = indptr[row];
    ENTRY_LOOP((indices[p] = (int32_t)k, memcpy(values + p * bytes, x + k * bytes, (size_t)bytes), p++))
  }
}

#define SCATTER(T) \
  for (int64_t p = at; p < at + count; p++) ((T *)out)[indices[p]] = ((const T *)values)[p]; \
  break;
void fuse_csr_to_dense(void *arg, long begin, long end) {
  const struct fuse_sparse *call = arg;
  const int32_t *indptr = (const int32_t *)PLACE(call, 0), *indices = (const int32_t *)PLACE(call, 1);
  const char *values = PLACE(call, 2);
  int64_t first = first_row(indptr, call->rows, begin, call->tasks), last = first_row(indptr, call->rows, end, call->tasks);
  int64_t n = call->columns, bytes = call->bytes;
  for (int64_t row = first; row < last; row++) {
    int64_t at, count = row_of(call, indptr, row, call->capacity, &at);
    char *out = PLACE(call, 3) + row * n * bytes;
    if (!in_range(call, indices + at, at, count, n)) return;
    memset(out, 0, (size_t)(n * bytes));
    switch (bytes) {
      case 1: SCATTER(uint8_t)
      case 2: SCATTER(uint16_t)
      case 4: SCATTER(uint32_t)
      case 8: SCATTER(uint64_t)
    }
  }
}

/* Whole tensors copied in `tasks` pieces, but onto themselves. */
void fuse_rows_copy(void *arg, long begin, long end) {
  const struct fuse_sparse *call = arg;
  int64_t row = call->width * call->bytes, first = call->columns * begin / call->tasks, last = call->columns * end / call->tasks;
  const char *x = PLACE(call, 0);
  char *out = PLACE(call, 4);
  if (x != out) memcpy(out + first * row, x + first * row, (size_t)((last - first) * row));
}

/* Listed rows, `option` of them a task. */
void fuse_rows_put(void *arg, long begin, long end) {
  const struct fuse_sparse *call = arg;
  const int32_t *indptr = (const int32_t *)PLACE(call, 1), *indices = (const int32_t *)PLACE(call, 2);
  int64_t row = call->width * call->bytes, at, count = row_of(call, indptr, 0, call->capacity, &at);
  int64_t first = begin * call->option, last = least(end * call->option, count);
  if (first >= last || !in_range(call, indices + first, first, last - first, call->columns)) return;
  for (int64_t k = first; k < last; k++) memcpy(PLACE(call, 4) + indices[k] * row, PLACE(call, 3) + k * row, (size_t)row);
}

/* The same of differences; the rows behind the next one are fetched before. */
#define SUBTRACT(T) \
  for (int64_t k = first; k < last; k++) { \
    T *restrict out = (T *)PLACE(call, 4) + indices[k] * n; \
    const T *restrict values = (const T *)PLACE(call, 3) + k * n; \
    if (k + 2 < last) \
      for (int64_t j = 0; j < n; j += 64 / (int64_t)sizeof(T)) \
        __builtin_prefetch((const T *)PLACE(call, 4) + indices[k + 2] * n + j, 1); \
    for (int64_t j = 0; j < n; j++) out[j] -= values[j]; \
  }
void fuse_rows_subtract(void *arg, long begin, long end) {
  const struct fuse_sparse *call = arg;
  const int32_t *indptr = (const int32_t *)PLACE(call, 1), *indices = (const int32_t *)PLACE(call, 2);
  int64_t n = call->width, at, count = row_of(call, indptr, 0, call->capacity, &at);
  int64_t first = begin * call->option, last = least(end * call->option, count);
  if (first >= last || !in_range(call, indices + first, first, last - first, call->columns)) return;
  if (call->type) {
    SUBTRACT(double)
  } else {
    SUBTRACT(float)
  }
}

/* Ids in order, each once, and behind where these begin (`starts`) in what order the ids are; one task. */
static int compare(const void *a, const void *b) {
  uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
  return left < right ? -1 : left > right;
}

/* Keys in ascending order, by bytes from the lowest that differs on; `other` has room for as many. */
static uint64_t *sorted(uint64_t *keys, uint64_t *other, int64_t count, uint64_t differ) {
  if (count < 128) return qsort(keys, (size_t)count, sizeof *keys, compare), keys;
  for (int shift = 32; shift < 64; shift += 8) {
    int64_t starts[257] = {0};
    if (!(differ >> shift & 255)) continue;
    for (int64_t k = 0; k < count; k++) starts[(keys[k] >> shift & 255) + 1]++;
    for (int k = 0; k < 256; k++) starts[k + 1] += starts[k];
    for (int64_t k = 0; k < count; k++) other[starts[keys[k] >> shift & 255]++] = keys[k];
    uint64_t *swap = keys;
    keys = other, other = swap;
  }
  return keys;
}

void fuse_embedding_order(void *arg, long begin, long end) {
  const struct fuse_sparse *call = arg;
  int32_t *indptr = (int32_t *)PLACE(call, 2), *indices = (int32_t *)PLACE(call, 3);
  int32_t *starts = (int32_t *)PLACE(call, 5), *order = starts + call->capacity + 1;
  uint64_t *keys = (uint64_t *)(PLACE(call, 5) + (call->capacity + 1 + call->count + 15) / 16 * 16 * 4), differ = 0;
  int64_t kept = 0, found = 0;
  for (int64_t k = 0; k < call->count; k++) {
    int64_t id = id_at(call, PLACE(call, 1), k, call->columns);
    if (id < 0) break;
    if (id != call->skipped) keys[kept] = (uint64_t)id << 32 | (uint64_t)k, differ |= keys[kept] ^ keys[0], kept++;
  }
  keys = sorted(keys, keys + call->count, kept, differ);
  for (int64_t k = 0; k < kept; k++) {
    if (!k || keys[k] >> 32 != keys[k - 1] >> 32) {
      if (found < call->capacity) indices[found] = (int32_t)(keys[k] >> 32), starts[found] = (int32_t)k;
      found++;
    }
    order[k] = (int32_t)keys[k];
  }
  if (found > call->capacity) note(call->fault, TOO_MANY, found, call->capacity);
  indptr[0] = 0, indptr[1] = (int32_t)(call->fault->failed ? 0 : found);
  for (int64_t k = least(found, call->capacity); k <= call->capacity; k++) starts[k] = (int32_t)kept;
  for (int64_t k = found; k < call->capacity; k++) indices[k] = 0;
  (void)begin, (void)end;
}

void fuse_embedding_sums(void *arg, long begin, long end) {
  const struct fuse_sparse *call = arg;
  int64_t first = begin * call->option, last = least(end * call->option, call->capacity);
  BY_TYPE(gradient)
}
