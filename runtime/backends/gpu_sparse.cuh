/* Products and sums over the entries of a csr pattern, and rows at positions that are data. A thread has an element of the result and
 * takes entries in their order, so that sums do not depend on how threads run. A row that reaches beyond the capacity is cut there. */
struct stored {
  long long rows, columns, capacity, width, type;
  long long size;        /* of what is copied, in elements */
  long long subtracts;   /* whether rows are subtracted, not put */
  long long join;        /* how a row is reduced */
};

__device__ inline void row_bounds(const struct stored *p, const int *indptr, long long row, long long &first, long long &last) {
  first = indptr[row] < 0 ? 0 : indptr[row];
  last = indptr[row + 1] < p->capacity ? indptr[row + 1] : p->capacity;
}

/* Whether an index is one; noted if not. */
__device__ inline bool is_index(const struct stored *p, const int *indices, long long at, struct fault *fault) {
  if ((u64)(long long)indices[at] < (u64)p->columns) return true;
  note(fault, 0, indices[at], at);
  return false;
}

template <class T>
__device__ inline void csr_product(const struct stored *p, const int *indptr, const int *indices, const T *values, const T *x, T *out, struct fault *fault) {
  for (u64 k = first_thread(); k < (u64)(p->rows * p->width); k += all_threads()) {
    long long row = (long long)k / p->width, column = (long long)k - row * p->width, first, last;
    row_bounds(p, indptr, row, first, last);
    auto total = wide(T{});
    total = 0;
    for (long long at = first; at < last; at += PIECES) {  /* reads of several entries are under way at a time */
      int index[PIECES];
      bool there[PIECES];
      T factor[PIECES], other[PIECES];
#pragma unroll
      for (int j = 0; j < PIECES; ++j) index[j] = at + j < last ? indices[at + j] : -1;
#pragma unroll
      for (int j = 0; j < PIECES; ++j)
        if ((there[j] = (u64)(long long)index[j] < (u64)p->columns)) factor[j] = values[at + j], other[j] = x[index[j] * p->width + column];
#pragma unroll
      for (int j = 0; j < PIECES; ++j) {
        if (there[j]) total = sum_of(total, product_of(wide(factor[j]), wide(other[j])));
        else if (at + j < last) note(fault, 0, index[j], at + j);
      }
    }
    narrow(out[k], total);
  }
}
#define PRODUCT(T) csr_product<T>(p, indptr, indices, (const T *)values, (const T *)x, (T *)out, fault)
extern "C" __global__ void __launch_bounds__(256) gpu_csr_matmul(const struct stored *p, const int *indptr, const int *indices, const char *values, const char *x, char *out, struct fault *fault) { BY_TYPE(p->type, PRODUCT) }

template <class T> __device__ inline void reduce_rows(const struct stored *p, const int *indptr, const T *values, T *out) {
  for (u64 row = first_thread(); row < (u64)p->rows; row += all_threads()) {
    long long first, last;
    row_bounds(p, indptr, (long long)row, first, last);
    auto total = wide(T{});
    if (p->join == 1) total = 0;
    else narrow(total, __uint_as_float(0xff800000u));  /* of floats alone */
    for (long long at = first; at < last; ++at) total = joined(p->join, total, wide(values[at]));
    narrow(out[row], total);
  }
}
#define REDUCE(T) reduce_rows<T>(p, indptr, (const T *)values, (T *)out)
extern "C" __global__ void __launch_bounds__(256) gpu_csr_reduce(const struct stored *p, const int *indptr, const char *values, char *out) { BY_TYPE(p->type, REDUCE) }

template <class T> __device__ inline void copy_rows(const struct stored *p, const T *x, T *out) {
  if (x == out) return;
  for (u64 k = first_thread(); k < (u64)p->size; k += all_threads()) out[k] = x[k];
}
#define COPY(T) copy_rows<T>(p, (const T *)x, (T *)out)
extern "C" __global__ void __launch_bounds__(256) gpu_rows_copy(const struct stored *p, const char *x, char *out) { BY_TYPE(p->type, COPY) }

template <class T>
__device__ inline void put_rows(const struct stored *p, const int *indptr, const int *indices, const T *values, T *out, struct fault *fault) {
  long long count = indptr[1] < p->capacity ? indptr[1] : p->capacity;
  for (u64 k = first_thread(); (long long)k < count * p->width; k += all_threads()) {
    long long at = (long long)k / p->width;
    if (!is_index(p, indices, at, fault)) continue;
    T &to = out[indices[at] * p->width + ((long long)k - at * p->width)];
    if (p->subtracts) narrow(to, wide(to) - wide(values[k]));
    else to = values[k];
  }
}
#define PUT(T) put_rows<T>(p, indptr, indices, (const T *)values, (T *)out, fault)
extern "C" __global__ void __launch_bounds__(256) gpu_rows_put(const struct stored *p, const int *indptr, const int *indices, const char *values, char *out, struct fault *fault) { BY_TYPE(p->type, PUT) }

/* For a library that takes a pattern without a capacity, whose entries end where its arrays do: what is behind the last entry becomes
 * part of the last row, at column 0, and that row is computed here, over its own entries. A pattern that is none is noted as `SHAPE`,
 * and the library gets one that is. */
#define SHAPE 2
extern "C" __global__ void __launch_bounds__(256) gpu_csr_begin(const struct stored *p, int *broken) {
  if (!first_thread()) *broken = 0;
}

extern "C" __global__ void __launch_bounds__(256) gpu_csr_checked(const struct stored *p, const int *indptr, const int *indices, int *columns, int *broken, struct fault *fault) {
  long long count = indptr[p->rows];
  for (u64 k = first_thread(); k < (u64)p->capacity || k < (u64)p->rows; k += all_threads()) {
    long long at = (long long)k;
    if (at < p->rows) {
      int next = indptr[at + 1];
      if (indptr[at] > next || next > p->capacity || (!at && indptr[0])) {
        *broken = 1;
        note(fault, SHAPE, at, at);
      }
    }
    if (at < p->capacity) columns[at] = at < count && is_index(p, indices, at, fault) ? indices[at] : 0;
  }
}

extern "C" __global__ void __launch_bounds__(256) gpu_csr_padded(const struct stored *p, const int *indptr, const int *broken, int *ends) {
  for (u64 k = first_thread(); k <= (u64)p->rows; k += all_threads()) ends[k] = k == (u64)p->rows ? (int)p->capacity : *broken ? 0 : indptr[k];
}

/* 32 columns a block; a warp takes every eighth entry, and what they have is added in their order. */
template <class T>
__device__ inline void last_row(const struct stored *p, const int *indptr, const int *indices, const T *values, const T *x, T *out, T *parts) {
  long long column = (long long)blockIdx.x * 32 + threadIdx.x % 32, warp = threadIdx.x / 32, first, last;
  row_bounds(p, indptr, p->rows - 1, first, last);
  T total = 0;
  if (column < p->width)
    for (long long at = first + warp; at < last; at += 8) total += values[at] * x[indices[at] * p->width + column];
  parts[threadIdx.x] = total;
  __syncthreads();
  if (warp || column >= p->width) return;
  for (int other = 1; other < 8; ++other) total += parts[32 * other + threadIdx.x];
  out[(p->rows - 1) * p->width + column] = total;
}

extern "C" __global__ void __launch_bounds__(256) gpu_csr_last_row(const struct stored *p, const int *indptr, const int *indices, const char *values, const char *x, char *out) {
  __shared__ double parts[256];
  if (p->type == 9) last_row<double>(p, indptr, indices, (const double *)values, (const double *)x, (double *)out, parts);
  else last_row<float>(p, indptr, indices, (const float *)values, (const float *)x, (float *)out, (float *)parts);
}
