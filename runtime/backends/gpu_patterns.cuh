/* Patterns of csr matrices and of rows: made of dense ones, joined, turned, taken apart by rows, and what is computed at their places.
 * Where a thread has a row or an entry, it writes what no other does, in an order that does not depend on how threads run. */
struct pattern {
  long long rows, columns, capacity; /* of the operand's; columns are what its indices are below */
  long long count, room;             /* ids, or the capacity of a second operand; of the result */
  long long width, type;             /* elements of a row that is read */
  long long kind, wraps, skipped;    /* of ids, by the numbers of types */
  long long crowded;                 /* what is noted, in the place of an operand's number, where there is too little room */
};
#define GONE 0xffffffffull /* the upper half of a key that is nowhere */
#define SHARES 256

__device__ inline long long entries(const struct pattern *p, const int *indptr) {
  long long last = indptr[p->rows];
  return last < 0 ? 0 : last < p->capacity ? last : p->capacity;
}

/* A row as far as the capacity goes. */
__device__ inline void bounds(const int *indptr, long long row, long long capacity, long long &first, long long &last) {
  first = indptr[row] < 0 ? 0 : indptr[row];
  last = indptr[row + 1] < capacity ? indptr[row + 1] : capacity;
  if (last < first) last = first;
}

/* The row that has an entry. */
__device__ inline long long row_at(const int *indptr, long long rows, long long at) {
  long long low = 0, high = rows - 1;
  while (low < high) {
    long long middle = (low + high) / 2;
    if (indptr[middle + 1] <= at) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* How many of sorted keys are below one. */
__device__ inline long long keys_below(const u64 *keys, long long count, u64 key) {
  long long low = 0, high = count;
  while (low < high) {
    long long middle = (low + high) / 2;
    if (keys[middle] < key) low = middle + 1;
    else high = middle;
  }
  return low;
}

__device__ inline bool is_column(const struct pattern *p, const int *indices, long long at, struct fault *fault) {
  if ((u64)(long long)indices[at] < (u64)p->columns) return true;
  note(fault, 0, indices[at], at);
  return false;
}

/* The id with a number below `limit`; -1, and a note, for none. */
__device__ inline long long id_at(const struct pattern *p, const char *ids, long long k, long long limit, struct fault *fault) {
  long long given = 0;
#define READ_ID(T) given = (long long)wide(((const T *)ids)[k])
  switch (p->kind) {
    case 0: READ_ID(signed char); break;
    case 1: READ_ID(short); break;
    case 2: READ_ID(int); break;
    case 3: READ_ID(long long); break;
    case 4: READ_ID(unsigned char); break;
    case 5: READ_ID(unsigned short); break;
    case 6: READ_ID(unsigned); break;
    case 7: READ_ID(u64); break;
  }
  long long id = given < 0 && p->wraps ? given + limit : given;
  if ((u64)id < (u64)limit) return id;
  note(fault, 0, given, k);
  return -1;
}

/* What the threads before have, together; `all`: what all have. Every thread of a block of SHARES calls it. */
__device__ inline long long before(long long own, long long *shares, long long &all) {
  unsigned thread = threadIdx.x;
  shares[thread] = own;
  for (unsigned apart = 1; apart < SHARES; apart *= 2) {
    __syncthreads();
    long long other = thread >= apart ? shares[thread - apart] : 0;
    __syncthreads();
    shares[thread] += other;
  }
  __syncthreads();
  all = shares[SHARES - 1];
  return shares[thread] - own;
}

/* Counts behind the first element become ends; one block. */
extern "C" __global__ void __launch_bounds__(256) gpu_csr_ends(const struct pattern *p, int *indptr, struct fault *fault) {
  __shared__ long long shares[SHARES];
  long long each = (p->rows + SHARES - 1) / SHARES, first = threadIdx.x * each, own = 0, all;
  long long last = first + each < p->rows ? first + each : p->rows;
  for (long long k = first; k < last; ++k) own += indptr[k + 1];
  long long total = before(own, shares, all);
  for (long long k = first; k < last; ++k) {
    total += indptr[k + 1];
    indptr[k + 1] = (int)(total < p->room ? total : p->room);
  }
  if (threadIdx.x) return;
  indptr[0] = 0;
  if (all > p->room) note(fault, p->crowded, all, p->room);
}

extern "C" __global__ void __launch_bounds__(256) gpu_csr_rows(const struct pattern *p, const int *indptr, int *out) {
  long long stored = entries(p, indptr);
  for (long long k = (long long)first_thread(); k < p->capacity; k += (long long)all_threads())
    out[k] = k < stored ? (int)row_at(indptr, p->rows, k) : 0;
}

template <class T>
__device__ inline void sampled(const struct pattern *p, const int *indptr, const int *indices, const T *x, const T *y, T *out, struct fault *fault) {
  long long stored = entries(p, indptr);
  for (long long k = (long long)first_thread(); k < p->capacity; k += (long long)all_threads()) {
    auto total = wide(T{});
    total = 0;
    if (k < stored && is_column(p, indices, k, fault)) {
      const T *a = x + row_at(indptr, p->rows, k) * p->width, *b = y + indices[k] * p->width;
      for (long long j = 0; j < p->width; ++j) total = sum_of(total, product_of(wide(a[j]), wide(b[j])));
    }
    narrow(out[k], total);
  }
}
#define SAMPLED(T) sampled<T>(p, indptr, indices, (const T *)x, (const T *)y, (T *)out, fault)
extern "C" __global__ void __launch_bounds__(256) gpu_csr_sampled(const struct pattern *p, const int *indptr, const int *indices, const char *x, const char *y, char *out, struct fault *fault) { BY_TYPE(p->type, SAMPLED) }

template <class T> __device__ inline void clear(T *out, long long size) {
  for (long long k = (long long)first_thread(); k < size; k += (long long)all_threads()) out[k] = T{};
}
#define CLEAR(T) clear((T *)out, p->rows * p->columns)
extern "C" __global__ void __launch_bounds__(256) gpu_csr_clear(const struct pattern *p, char *out) { BY_TYPE(p->type, CLEAR) }

template <class T>
__device__ inline void scattered(const struct pattern *p, const int *indptr, const int *indices, const T *values, T *out, struct fault *fault) {
  long long stored = entries(p, indptr);
  for (long long k = (long long)first_thread(); k < stored; k += (long long)all_threads())
    if (is_column(p, indices, k, fault)) out[row_at(indptr, p->rows, k) * p->columns + indices[k]] = values[k];
}
#define SCATTERED(T) scattered<T>(p, indptr, indices, (const T *)values, (T *)out, fault)
extern "C" __global__ void __launch_bounds__(256) gpu_csr_scatter(const struct pattern *p, const int *indptr, const int *indices, const char *values, char *out, struct fault *fault) { BY_TYPE(p->type, SCATTERED) }

/* Of a dense matrix what is not 0; a thread has a row, first to count, then to write. */
template <class T> __device__ inline void dense_counts(const struct pattern *p, const T *x, int *indptr) {
  for (long long row = (long long)first_thread(); row < p->rows; row += (long long)all_threads()) {
    int found = 0;
    for (long long k = 0; k < p->columns; ++k) found += wide(x[row * p->columns + k]) != 0;
    indptr[row + 1] = found;
  }
}
#define DENSE_COUNTS(T) dense_counts<T>(p, (const T *)x, indptr)
extern "C" __global__ void __launch_bounds__(256) gpu_csr_count(const struct pattern *p, const char *x, int *indptr) { BY_TYPE(p->type, DENSE_COUNTS) }

template <class T>
__device__ inline void dense_entries(const struct pattern *p, const T *x, const int *indptr, int *indices, T *values) {
  for (long long row = (long long)first_thread(); row < p->rows; row += (long long)all_threads()) {
    long long at = indptr[row], last = indptr[row + 1];
    for (long long k = 0; k < p->columns && at < last; ++k)
      if (wide(x[row * p->columns + k]) != 0) indices[at] = (int)k, values[at++] = x[row * p->columns + k];
  }
  for (long long k = indptr[p->rows] + (long long)first_thread(); k < p->room; k += (long long)all_threads())
    indices[k] = 0, values[k] = T{};
}
#define DENSE_ENTRIES(T) dense_entries<T>(p, (const T *)x, indptr, indices, (T *)values)
extern "C" __global__ void __launch_bounds__(256) gpu_csr_fill(const struct pattern *p, const char *x, const int *indptr, int *indices, char *values) { BY_TYPE(p->type, DENSE_ENTRIES) }

/* A merge of two patterns; a thread has a row, first to count, then, with `indices`, to write. */
__device__ inline long long merged(
    const struct pattern *p, const int *ap, const int *ai, const int *bp, const int *bi, long long row, long long at, long long end, int *indices, int *in_a, int *in_b) {
  long long a, b, last_a, last_b, found = 0;
  bounds(ap, row, p->capacity, a, last_a);
  bounds(bp, row, p->count, b, last_b);
  for (; a < last_a || b < last_b; ++found) {
    bool from_a = a < last_a && (b == last_b || ai[a] <= bi[b]), from_b = b < last_b && (a == last_a || bi[b] <= ai[a]);
    if (at + found < end) {
      indices[at + found] = from_a ? ai[a] : bi[b];
      in_a[at + found] = from_a ? (int)a : -1, in_b[at + found] = from_b ? (int)b : -1;
    }
    a += from_a, b += from_b;
  }
  return found;
}
extern "C" __global__ void __launch_bounds__(256) gpu_union_count(const struct pattern *p, const int *ap, const int *ai, const int *bp, const int *bi, int *indptr) {
  for (long long row = (long long)first_thread(); row < p->rows; row += (long long)all_threads())
    indptr[row + 1] = (int)merged(p, ap, ai, bp, bi, row, 0, 0, 0, 0, 0);
}
extern "C" __global__ void __launch_bounds__(256) gpu_union_fill(const struct pattern *p, const int *ap, const int *ai, const int *bp, const int *bi, const int *indptr, int *indices, int *in_a, int *in_b) {
  for (long long row = (long long)first_thread(); row < p->rows; row += (long long)all_threads())
    merged(p, ap, ai, bp, bi, row, indptr[row], indptr[row + 1], indices, in_a, in_b);
  for (long long k = indptr[p->rows] + (long long)first_thread(); k < p->room; k += (long long)all_threads())
    indices[k] = 0, in_a[k] = in_b[k] = -1;
}

/* Rows by ids: a thread has an id to count, then an entry. The record's rows are those of the result, `columns` of the operand. */
extern "C" __global__ void __launch_bounds__(256) gpu_take_count(const struct pattern *p, const int *indptr, const char *ids, int *counts, struct fault *fault) {
  for (long long k = (long long)first_thread(); k < p->rows; k += (long long)all_threads()) {
    long long row = id_at(p, ids, k, p->columns, fault), first = 0, last = 0;
    if (row >= 0) bounds(indptr, row, p->capacity, first, last);
    counts[k + 1] = (int)(last - first);
  }
}
extern "C" __global__ void __launch_bounds__(256) gpu_take_fill(const struct pattern *p, const int *indptr, const int *indices, const char *ids, const int *ends, int *columns, int *places, struct fault *fault) {
  for (long long k = (long long)first_thread(); k < p->room; k += (long long)all_threads()) {
    columns[k] = places[k] = 0;
    if (k >= ends[p->rows]) continue;
    long long taken = row_at(ends, p->rows, k), row = id_at(p, ids, taken, p->columns, fault), first = 0, last = 0;
    if (row >= 0) bounds(indptr, row, p->capacity, first, last);
    long long from = first + k - ends[taken];
    if (from < last) columns[k] = indices[from], places[k] = (int)from;
  }
}

/* Keys that are sorted by column, then by place. */
extern "C" __global__ void __launch_bounds__(256) gpu_turn_keys(const struct pattern *p, const int *indptr, const int *indices, u64 *keys, struct fault *fault) {
  long long stored = entries(p, indptr);
  for (long long k = (long long)first_thread(); k < p->capacity; k += (long long)all_threads())
    keys[k] = (k < stored && is_column(p, indices, k, fault) ? (u64)indices[k] : GONE) << 32 | (u64)k;
}
extern "C" __global__ void __launch_bounds__(256) gpu_turn_fill(const struct pattern *p, const int *indptr, const u64 *keys, int *new_indptr, int *rows, int *places) {
  for (long long k = (long long)first_thread(); k < p->capacity; k += (long long)all_threads()) {
    bool is_there = HALF(keys[k], 1) != GONE;
    places[k] = is_there ? (int)HALF(keys[k], 0) : 0;
    rows[k] = is_there ? (int)row_at(indptr, p->rows, HALF(keys[k], 0)) : 0;
  }
  for (long long k = (long long)first_thread(); k <= p->columns; k += (long long)all_threads())
    new_indptr[k] = (int)keys_below(keys, p->capacity, (u64)k << 32);
}

/* Ids in order, each once: keys by id, then by place; where each id's begin, by one block; and a thread for each element of a sum. */
extern "C" __global__ void __launch_bounds__(256) gpu_id_keys(const struct pattern *p, const char *ids, u64 *keys, struct fault *fault) {
  for (long long k = (long long)first_thread(); k < p->count; k += (long long)all_threads()) {
    long long id = id_at(p, ids, k, p->columns, fault);
    keys[k] = (id >= 0 && id != p->skipped ? (u64)id : GONE) << 32 | (u64)k;
  }
}
extern "C" __global__ void __launch_bounds__(256) gpu_id_ends(const struct pattern *p, const u64 *keys, int *indptr, int *indices, int *starts, struct fault *fault) {
  __shared__ long long shares[SHARES];
  long long kept = keys_below(keys, p->count, GONE << 32), each = (kept + SHARES - 1) / SHARES, own = 0, all;
  long long first = threadIdx.x * each, last = first + each < kept ? first + each : kept;
  for (long long k = first; k < last; ++k) own += !k || HALF(keys[k], 1) != HALF(keys[k - 1], 1);
  long long slot = before(own, shares, all);
  for (long long k = first; k < last; ++k)
    if (!k || HALF(keys[k], 1) != HALF(keys[k - 1], 1)) {
      if (slot < p->room) indices[slot] = (int)HALF(keys[k], 1);
      if (slot <= p->room) starts[slot] = (int)k;
      ++slot;
    }
  for (long long k = all + threadIdx.x; k <= p->room; k += SHARES) {
    if (k < p->room) indices[k] = 0;
    starts[k] = (int)kept;
  }
  if (threadIdx.x) return;
  indptr[0] = 0, indptr[1] = (int)(all < p->room ? all : p->room);
  if (all > p->room) note(fault, p->crowded, all, p->room);
}
template <class T>
__device__ inline void id_sums(const struct pattern *p, const u64 *keys, const int *starts, const T *grad, T *out) {
  for (long long k = (long long)first_thread(); k < p->room * p->width; k += (long long)all_threads()) {
    long long slot = k / p->width, column = k - slot * p->width;
    auto total = wide(T{});
    total = 0;
    for (long long at = starts[slot]; at < starts[slot + 1]; ++at)
      total = sum_of(total, wide(grad[(long long)HALF(keys[at], 0) * p->width + column]));
    narrow(out[k], total);
  }
}
#define ID_SUMS(T) id_sums<T>(p, keys, starts, (const T *)grad, (T *)out)
extern "C" __global__ void __launch_bounds__(256) gpu_id_sums(const struct pattern *p, const u64 *keys, const int *starts, const char *grad, char *out) { BY_TYPE(p->type, ID_SUMS) }
