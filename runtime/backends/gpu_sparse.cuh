/* Products and sums over the entries of a csr pattern, and rows at positions that are data. A thread has elements of the result and
 * takes entries in their order, those of long rows by parts, so that sums do not depend on how threads run. A row that reaches beyond the capacity is cut there. */
struct stored {
  long long rows, columns, capacity, width, type;
  long long size;        /* of what is copied, in elements */
  long long subtracts;   /* whether rows are subtracted, not put */
  long long join;        /* how a row is reduced */
  long long part, parts; /* entries of a part of a long row, and how many of them there are; 0 where no row can be long */
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

#define ENTRIES 4 /* entries of a row that are read before any is needed: of short floats, one column */
#define FEW_ENTRIES 4

template <class T, int V> struct alignas(V * sizeof(T)) some_columns {
  T each[V];
};

/* Adds the products of some entries to V totals, in their order; `wrong` becomes the first whose column is none. */
template <class T, int V, int entries, class A>
__device__ inline void add_entries(
    const struct stored *p, const int *indices, const T *values, const T *x, u64 column, int first, int last, int &wrong,
    A *totals) {
  unsigned columns = p->columns >> 31 ? 1u << 31 : (unsigned)p->columns;
  for (int at = first; at < last; at += entries) {
    int index[entries];
    bool there[entries];
    T factor[entries];
    struct some_columns<T, V> other[entries];
#pragma unroll
    for (int j = 0; j < entries; ++j) index[j] = at + j < last ? indices[at + j] : -1;
#pragma unroll
    for (int j = 0; j < entries; ++j)
      if ((there[j] = (unsigned)index[j] < columns)) {
        factor[j] = values[at + j];
        other[j] = *(const struct some_columns<T, V> *)(x + (u64)index[j] * (u64)p->width + column);
      }
#pragma unroll
    for (int j = 0; j < entries; ++j) {
      if (!there[j]) {
        if (at + j < last && wrong < 0) wrong = at + j;
        continue;
      }
#pragma unroll
      for (int k = 0; k < V; ++k) totals[k] = sum_of(totals[k], product_of(wide(factor[j]), wide(other[j].each[k])));
    }
  }
}

/* The last row that begins at or before an entry. */
__device__ inline long long row_of(const struct stored *p, const int *indptr, long long entry) {
  long long low = 0, high = p->rows;
  while (low + 1 < high) {
    long long middle = (low + high) / 2;
    if (indptr[middle] <= entry) low = middle;
    else high = middle;
  }
  return low;
}

/* A row of more entries than a part has: the sums of those in each part are added in the order of parts. A part has at most two of such
 * rows: one that has its first entry, and one that begins in it and has its last. */
__device__ inline bool is_long(const struct stored *p, long long first, long long last) { return p->parts && last - first > p->part; }

/* A thread has V columns: of a part of long rows, or of a row that is not long. */
template <class T, int V, int entries>
__device__ inline void csr_product(
    const struct stored *p, const int *indptr, const int *indices, const T *values, const T *x, T *out, char *memory, struct fault *fault) {
  typedef decltype(wide(T{})) A;
  u64 groups = (u64)p->width / V, tasks = (u64)(p->parts + p->rows) * groups;
  for (u64 k = first_thread(); k < tasks; k += all_threads()) {
    u64 task = tasks >> 32 ? k / groups : (unsigned)k / (unsigned)groups, column = (k - task * groups) * V;
    long long first, last;
    int wrong = -1;
    if (task >= (u64)p->parts) {
      long long row = (long long)task - p->parts;
      row_bounds(p, indptr, row, first, last);
      if (is_long(p, first, last)) continue;
      A totals[V] = {};
      add_entries<T, V, entries, A>(p, indices, values, x, column, (int)first, (int)last, wrong, totals);
      struct some_columns<T, V> rounded;
#pragma unroll
      for (int j = 0; j < V; ++j) narrow(rounded.each[j], totals[j]);
      *(struct some_columns<T, V> *)(out + (u64)row * (u64)p->width + column) = rounded;
    } else {
      long long begin = (long long)task * p->part, end = begin + p->part;
      int *starts = column ? (int *)0 : (int *)((A *)memory + 2 * (u64)p->parts * (u64)p->width) + task;
      if (starts) *starts = -1;
#pragma unroll 1
      for (int side = 0; side < 2; ++side) {
        long long row = row_of(p, indptr, side ? end - 1 : begin);
        row_bounds(p, indptr, row, first, last);
        if (!is_long(p, first, last) || last <= begin || (side ? first <= begin : first > begin)) continue;
        if (first >= begin && starts) *starts = (int)row;
        A totals[V] = {};
        int from = (int)(first > begin ? first : begin), to = (int)(last < end ? last : end);
        add_entries<T, V, entries, A>(p, indices, values, x, column, from, to, wrong, totals);
        A *sums = (A *)memory + (2 * task + side) * (u64)p->width + column;
#pragma unroll
        for (int j = 0; j < V; ++j) sums[j] = totals[j];
      }
    }
    if (wrong >= 0) note(fault, 0, indices[wrong], wrong);
  }
}
#define PRODUCT(T, V, E) csr_product<T, V, E>(p, indptr, indices, (const T *)values, (const T *)x, (T *)out, memory, fault)
#define ANY_PRODUCT(T) PRODUCT(T, 1, FEW_ENTRIES)
#define FLOAT_PRODUCT(V, E) \
  if (p->type == 8) PRODUCT(float, V, E); \
  else if (p->type == 10) PRODUCT(__half, V, E); \
  else PRODUCT(struct brain, V, E);
extern "C" __global__ void __launch_bounds__(256, 3) gpu_csr_matmul(const struct stored *__restrict__ p, const int *__restrict__ indptr, const int *__restrict__ indices, const char *__restrict__ values, const char *__restrict__ x, char *__restrict__ out, char *__restrict__ memory, struct fault *fault) { BY_TYPE(p->type, ANY_PRODUCT) }
/* Short floats: one column, or four side by side. */
extern "C" __global__ void __launch_bounds__(256, 4) gpu_csr_matmul_1(const struct stored *__restrict__ p, const int *__restrict__ indptr, const int *__restrict__ indices, const char *__restrict__ values, const char *__restrict__ x, char *__restrict__ out, char *__restrict__ memory, struct fault *fault) { FLOAT_PRODUCT(1, ENTRIES) }
extern "C" __global__ void __launch_bounds__(256, 3) gpu_csr_matmul_4(const struct stored *__restrict__ p, const int *__restrict__ indptr, const int *__restrict__ indices, const char *__restrict__ values, const char *__restrict__ x, char *__restrict__ out, char *__restrict__ memory, struct fault *fault) { FLOAT_PRODUCT(4, FEW_ENTRIES) }

/* Long rows: a thread has a column of the row that begins in a part, and adds what the parts from there on have, in order. */
template <class T> __device__ inline void join_rows(const struct stored *p, const int *indptr, T *out, const char *memory) {
  typedef decltype(wide(T{})) A;
  u64 width = (u64)p->width;
  for (u64 k = first_thread(); k < (u64)p->parts * width; k += all_threads()) {
    long long part = (long long)(k / width), row = ((const int *)((const A *)memory + 2 * (u64)p->parts * width))[part], first, last;
    if (row < 0) continue;
    u64 column = k - (u64)part * width;
    row_bounds(p, indptr, row, first, last);
    u64 side = first > part * p->part, parts = (u64)((last - 1) / p->part - part);
    const A *from = (const A *)memory + 2 * (u64)part * width + column;
    A total = from[side * width];
    for (u64 next = 1; next <= parts; next += ENTRIES) {
      A read[ENTRIES];
#pragma unroll
      for (int j = 0; j < ENTRIES; ++j)
        if (next + j <= parts) read[j] = from[2 * (next + j) * width];
#pragma unroll
      for (int j = 0; j < ENTRIES; ++j)
        if (next + j <= parts) total = sum_of(total, read[j]);
    }
    narrow(out[(u64)row * width + column], total);
  }
}
#define JOIN_ROWS(T) join_rows<T>(p, indptr, (T *)out, memory)
extern "C" __global__ void __launch_bounds__(256) gpu_csr_join(const struct stored *__restrict__ p, const int *__restrict__ indptr, char *__restrict__ out, const char *__restrict__ memory) { BY_TYPE(p->type, JOIN_ROWS) }

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
 * part of the last row, zeros at column 0. A pattern that is none is noted as `SHAPE`, and the library gets one that is. */
#define SHAPE 2
extern "C" __global__ void __launch_bounds__(256) gpu_csr_begin(const struct stored *p, int *broken) {
  if (!first_thread()) *broken = 0;
}

extern "C" __global__ void __launch_bounds__(256) gpu_csr_checked(const struct stored *p, const int *indptr, const int *indices, const char *values, int *columns, char *entries, int *broken, struct fault *fault) {
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
    if (at >= p->capacity) continue;
    columns[at] = at < count && is_index(p, indices, at, fault) ? indices[at] : 0;
    if (p->type == 9) ((double *)entries)[at] = at < count ? ((const double *)values)[at] : 0;
    else ((float *)entries)[at] = at < count ? ((const float *)values)[at] : 0;
  }
}

extern "C" __global__ void __launch_bounds__(256) gpu_csr_padded(const struct stored *p, const int *indptr, const int *broken, int *ends) {
  for (u64 k = first_thread(); k <= (u64)p->rows; k += all_threads()) ends[k] = k == (u64)p->rows ? (int)p->capacity : *broken ? 0 : indptr[k];
}
