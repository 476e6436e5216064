/* Whether a pattern that a caller gives is one: rows that follow each other, columns in range that ascend in each row. What is
 * wrong is said by Python, which looks again. */
#include <stdint.h>

/* `falls` of all neighbours must be those where a row begins: both passes have no branches that depend on columns. */
#define CHECK(name, T, U, P) \
  static int64_t name(const P *indptr, int64_t rows, const T *indices, int64_t count, int64_t columns) { \
    if (indptr[0] != 0 || indptr[rows] != count) return 0; \
    P sinks = 0; \
    for (int64_t row = 0; row < rows; row++) sinks |= indptr[row + 1] < indptr[row]; \
    if (sinks) return 0; \
    U worst = 0; \
    for (int64_t p = 0; p < count; p++) worst = (U)indices[p] > worst ? (U)indices[p] : worst; \
    if (count && worst >= (U)columns) return 0; \
    T falls = 0; \
    for (int64_t p = 1; p < count; p++) falls += indices[p] <= indices[p - 1]; \
    for (int64_t row = 1; row < rows; row++) { \
      int64_t first = indptr[row]; \
      if (first > (int64_t)indptr[row - 1] && first < count) falls -= indices[first] <= indices[first - 1]; \
    } \
    return falls == 0; \
  }
CHECK(narrow, int32_t, uint32_t, int32_t)
CHECK(wide, int64_t, uint64_t, int64_t)
CHECK(of_rows, int64_t, uint64_t, int32_t)

/* `bytes` of an element: those of indptr times 16 and those of indices. */
int64_t fuse_csr_check(const void *indptr, const void *indices, int64_t rows, int64_t count, int64_t columns, int64_t bytes) {
  switch (bytes) {
    case 0x44: return narrow(indptr, rows, indices, count, columns);
    case 0x48: return of_rows(indptr, rows, indices, count, columns);
    case 0x88: return wide(indptr, rows, indices, count, columns);
  }
  return -1;
}
