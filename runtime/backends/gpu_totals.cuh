/* Running totals along the middle axis of [outer, extent, inner]; those of f32 are kept in f64, and all are rounded for each element. */
#define SCANNED 256

struct totals {
  long long outer, extent, inner, type, join;
  long long reverse, behind;   /* whether from the end; results that come before the first total */
  long long results;           /* the extent of the result */
};

template <class A> struct running { typedef A type; };
template <> struct running<float> { typedef double type; };

/* Where the total of the first `at` + 1 elements goes, in a line of the result; -1 for none. */
__device__ inline long long result_of(const struct totals *p, long long at) {
  long long to = at + p->behind;
  if (to >= p->results) return -1;
  return p->reverse ? p->results - 1 - to : to;
}

/* A thread for each line. */
template <class T> __device__ inline void total_lines(const struct totals *p, const T *x, T *out) {
  typedef typename running<decltype(wide(T{}))>::type A;
  for (u64 line = first_thread(); line < (u64)(p->outer * p->inner); line += all_threads()) {
    const T *from = x + line / p->inner * p->extent * p->inner + line % p->inner;
    T *to = out + line / p->inner * p->results * p->inner + line % p->inner;
    A total = A(p->join == 1 ? 0 : 1);
    if (p->behind) narrow(to[(p->reverse ? p->results - 1 : 0) * p->inner], total);
    for (long long at = 0; at < p->extent; ++at) {
      total = joined(p->join, total, A(wide(from[(p->reverse ? p->extent - 1 - at : at) * p->inner])));
      long long place = result_of(p, at);
      if (place >= 0) narrow(to[place * p->inner], total);
    }
  }
}

/* A block for each line: totals of SCANNED elements at a time (Hillis and Steele 1986), and what came before them. */
template <class T> __device__ inline void total_line(const struct totals *p, const T *x, T *out, u64 (*memory)[SCANNED]) {
  typedef typename running<decltype(wide(T{}))>::type A;
  A(*totals)[SCANNED] = (A(*)[SCANNED])memory;
  long long line = blockIdx.x;
  const T *from = x + line / p->inner * p->extent * p->inner + line % p->inner;
  T *to = out + line / p->inner * p->results * p->inner + line % p->inner;
  A none = A(p->join == 1 ? 0 : 1), before = none;
  if (p->behind && threadIdx.x == 0) narrow(to[(p->reverse ? p->results - 1 : 0) * p->inner], none);
  for (long long first = 0; first < p->extent; first += SCANNED) {
    long long at = first + threadIdx.x;
    A total = none;
    if (at < p->extent) total = A(wide(from[(p->reverse ? p->extent - 1 - at : at) * p->inner]));
    int side = 0;
    totals[0][threadIdx.x] = total;
    __syncthreads();
    for (int apart = 1; apart < SCANNED; apart *= 2) {
      if ((int)threadIdx.x >= apart) total = joined(p->join, totals[side][threadIdx.x - apart], total);
      side = 1 - side;
      totals[side][threadIdx.x] = total;
      __syncthreads();
    }
    long long place = at < p->extent ? result_of(p, at) : -1;
    if (place >= 0) narrow(to[place * p->inner], joined(p->join, before, total));
    before = joined(p->join, before, totals[side][SCANNED - 1]);
    __syncthreads();
  }
}

extern "C" __global__ void __launch_bounds__(256) gpu_total_lines(const struct totals *p, const char *x, char *out) {
#define LINES(T) total_lines(p, (const T *)x, (T *)out)
  BY_TYPE(p->type, LINES)
}

extern "C" __global__ void __launch_bounds__(256) gpu_total_line(const struct totals *p, const char *x, char *out) {
  __shared__ u64 memory[2][SCANNED];
#define LINE(T) total_line(p, (const T *)x, (T *)out, memory)
  BY_TYPE(p->type, LINE)
}
