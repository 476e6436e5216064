/* Whether a pattern that a caller gives is one: rows that follow each other, columns in range that ascend in each row. What is
 * wrong is said by Python, which looks again. Follows python_objects.c in one text. */

/* `falls` of all neighbours must be those where a row begins: neither pass has branches that depend on columns. Rows that begin
 * before the first entry or behind the last one are empty, so the second pass reads what is there. */
#define CHECK(name, T, U, P, FALLS) \
  static int64_t name(const P *indptr, int64_t rows, const T *indices, int64_t count, int64_t columns) { \
    if (indptr[0] != 0 || indptr[rows] != count) return 0; \
    P sinks = 0; \
    for (int64_t row = 0; row < rows; row++) sinks |= indptr[row + 1] < indptr[row]; \
    if (sinks) return 0; \
    if (!count) return 1; \
    U worst = (U)indices[0]; \
    T falls = 0; \
    for (int64_t p = 1; p < count; p++) { \
      worst = (U)indices[p] > worst ? (U)indices[p] : worst; \
      falls += indices[p] <= indices[p - 1]; \
    } \
    if (worst >= (U)columns) return 0; \
    int64_t row = 1, last = rows, before = 0; \
    while (row < last && !indptr[row]) row++; \
    while (row < last && indptr[last - 1] == count) last--; \
    FALLS; \
    before = row > 1 ? indptr[row - 1] : 0; \
    for (; row < last; row++) { \
      int64_t at = indptr[row]; \
      __asm__("" : "+r"(at)); /* else the compiler gathers, which takes longer */ \
      falls -= (at != before) & (indices[at] <= indices[at - 1]); \
      before = at; \
    } \
    return falls == 0; \
  }

/* Of as many rows as whole vectors have: the first entry of each that has one beside the entry before. Processors with arithmetic
 * of 16 bits came after those whose gathers take longer than as many loads. */
#ifdef __AVX512FP16__
#include <immintrin.h>
static int64_t falls_of_rows(const int32_t *indptr, int64_t *row, int64_t last, const int32_t *indices) {
  int64_t found = 0;
  for (; *row + 16 <= last; *row += 16) {
    __m512i at = _mm512_loadu_si512(indptr + *row), zero = _mm512_setzero_si512();
    __mmask16 some = _mm512_cmpneq_epi32_mask(at, _mm512_loadu_si512(indptr + *row - 1));
    __m512i first = _mm512_mask_i32gather_epi32(zero, some, at, indices, 4);
    __m512i before = _mm512_mask_i32gather_epi32(zero, some, at, indices - 1, 4);
    found += __builtin_popcount(_mm512_mask_cmple_epi32_mask(some, first, before));
  }
  return found;
}
#else
static int64_t falls_of_rows(const int32_t *indptr, int64_t *row, int64_t last, const int32_t *indices) { return 0; }
#endif
CHECK(narrow, int32_t, uint32_t, int32_t, falls -= (int32_t)falls_of_rows(indptr, &row, last, indices))
CHECK(wide, int64_t, uint64_t, int64_t, )
CHECK(of_rows, int64_t, uint64_t, int32_t, )

/* `bytes` of an element: those of indptr times 16 and those of indices. */
int64_t fuse_csr_check(const void *indptr, const void *indices, int64_t rows, int64_t count, int64_t columns, int64_t bytes) {
  switch (bytes) {
    case 0x44: return narrow(indptr, rows, indices, count, columns);
    case 0x48: return of_rows(indptr, rows, indices, count, columns);
    case 0x88: return wide(indptr, rows, indices, count, columns);
  }
  return -1;
}

/* What a sparse value is made of if a program takes it as it is. */
struct fuse_stored {
  const struct interface *python;
  int64_t rows, capacity, columns;
  void *positions, *element; /* the element types' objects */
  int64_t dimensions;        /* of the values, with their shape */
  const int64_t *shape;
};

#define C_ORDER_ALIGNED 0x101
static int is_list(const struct array *array, const void *type, const void *descr, int64_t length) {
  return array->head.type == type && array->descr == descr && array->dimensions == 1 && array->shape[0] == length &&
         (array->flags & C_ORDER_ALIGNED) == C_ORDER_ALIGNED;
}

static int are_ready(const struct fuse_stored *stored, const struct array *const *parts) {
  const void *type = stored->python->array_type;
  const struct array *values = parts[2];
  if (!is_list(parts[0], type, stored->positions, stored->rows + 1)) return 0;
  if (!is_list(parts[1], type, stored->positions, stored->capacity)) return 0;
  if (values->head.type != type || values->descr != stored->element || values->dimensions != stored->dimensions) return 0;
  if ((values->flags & C_ORDER_ALIGNED) != C_ORDER_ALIGNED) return 0;
  for (int64_t axis = 0; axis < stored->dimensions; axis++)
    if (values->shape[axis] != stored->shape[axis]) return 0;
  return narrow(
      (const int32_t *)parts[0]->data, stored->rows, (const int32_t *)parts[1]->data, stored->capacity, stored->columns);
}

/* As a method of CPython (METH_FASTCALL) on an array whose elements are a fuse_stored, with indptr, indices and values: None
 * where these are arrays of the right types and a pattern that fills the capacity, else NotImplemented. */
void *fuse_stored_ready(const struct array *self, const struct array *const *given, intptr_t count) {
  const struct fuse_stored *stored = (const struct fuse_stored *)self->data;
  const struct interface *python = stored->python;
  void *found = count == 3 && are_ready(stored, given) ? python->none : python->not_implemented;
  python->increment(found);
  return found;
}
