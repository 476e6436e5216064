/* Reads and writes at positions that are data. Nothing is atomic but what an index out of range notes: updates that meet in one element
 * are sorted by where they go, and one thread takes them in their order. */
#define MOST_AXES 8
#define MOST_INDICES 6
#define MOST_STEPS 48

/* Places (of a result that is read, or of updates), and for each the position in x: elements along the axes, and from there what each
 * operand of indices names, times its weight. */
struct places {
  long long count, axes, operands, small;
  long long extents[MOST_AXES], x_steps[MOST_AXES], value_steps[MOST_AXES];
  long long kinds[MOST_INDICES], wraps[MOST_INDICES], limits[MOST_INDICES], weights[MOST_INDICES], shifts[MOST_INDICES];
  long long steps[MOST_STEPS];     /* of each operand, MOST_AXES of them */
  long long width, value_step;     /* of updates: elements side by side that a place has, and those of values between them */
  long long skipped;               /* a position whose updates count for nothing; -1 for none */
  long long type, join, fills;     /* of updates; `fills`: x is zeros */
  long long size;                  /* of x, in units that are copied */
  long long packed;                /* whether keys of updates have where these go in their upper halves, and their numbers in the lower */
};

__device__ inline long long index_at(long long kind, const char *from, long long at) {
  switch (kind) {
    case 0: return ((const signed char *)from)[at];
    case 1: return ((const short *)from)[at];
    case 2: return ((const int *)from)[at];
    case 3: return ((const long long *)from)[at];
    case 4: return ((const unsigned char *)from)[at];
    case 5: return ((const unsigned short *)from)[at];
    case 6: return ((const unsigned *)from)[at];
  }
  return ((const long long *)from)[at];
}

/* The position in x of a place; false where an index names none. */
template <class I>
__device__ inline bool locate(const struct places *p, I place, const char *const *from, struct fault *fault, long long &x) {
  long long at[MOST_INDICES] = {0};
  I rest = place;
  for (int axis = (int)p->axes - 1; axis >= 0; --axis) {
    I extent = (I)p->extents[axis], whole = axis ? rest / extent : 0;
    long long along = (long long)(rest - whole * extent);
    rest = whole;
    x += along * p->x_steps[axis];
#pragma unroll
    for (int k = 0; k < MOST_INDICES; ++k)
      if (k < p->operands) at[k] += along * p->steps[k * MOST_AXES + axis];
  }
  bool inside = true;
#pragma unroll
  for (int k = 0; k < MOST_INDICES; ++k) {
    if (k >= p->operands) continue;
    long long index = index_at(p->kinds[k], from[k], at[k] + p->shifts[k]);
    long long found = index < 0 && p->wraps[k] ? index + p->limits[k] : index;
    if ((u64)found >= (u64)p->limits[k]) {
      note(fault, k, index, at[k] + p->shifts[k]);
      inside = false;
    } else {
      if (k == 0 && found == p->skipped) inside = false;
      x += found * p->weights[k];
    }
  }
  return inside;
}

template <class I, class T>
__device__ inline void read_places(const struct places *p, const T *x, T *out, const char *const *from, struct fault *fault) {
  for (u64 place = first_thread(); place < (u64)p->count; place += all_threads()) {
    long long at = 0;
    bool inside = locate<I>(p, (I)place, from, fault, at);
    out[place] = inside ? x[at] : T{};
  }
}

/* The positions themselves; 0 where an index names none. */
template <class T>
__device__ inline void check_places(const struct places *p, T *out, const char *const *from, struct fault *fault) {
  for (u64 place = first_thread(); place < (u64)p->count; place += all_threads()) {
    long long at = 0;
    bool inside = p->small ? locate<unsigned>(p, (unsigned)place, from, fault, at) : locate<u64>(p, place, from, fault, at);
    out[place] = inside ? (T)at : (T)0;
  }
}
#define CHECK(T) \
  const char *from[MOST_INDICES] = {a, b, c, d, e, f}; \
  check_places<T>(p, (T *)out, from, fault);

extern "C" __global__ void __launch_bounds__(256) gpu_check_4(const struct places *p, char *out, const char *a, const char *b, const char *c, const char *d, const char *e, const char *f, struct fault *fault) { CHECK(int) }
extern "C" __global__ void __launch_bounds__(256) gpu_check_8(const struct places *p, char *out, const char *a, const char *b, const char *c, const char *d, const char *e, const char *f, struct fault *fault) { CHECK(long long) }

struct alignas(16) sixteen {
  unsigned words[4];
};

#define READ(T) \
  const char *from[MOST_INDICES] = {a, b, c, d, e, f}; \
  if (p->small) read_places<unsigned>(p, (const T *)x, (T *)out, from, fault); \
  else read_places<u64>(p, (const T *)x, (T *)out, from, fault);

extern "C" __global__ void __launch_bounds__(256) gpu_read_1(const struct places *p, const char *x, char *out, const char *a, const char *b, const char *c, const char *d, const char *e, const char *f, struct fault *fault) { READ(unsigned char) }
extern "C" __global__ void __launch_bounds__(256) gpu_read_2(const struct places *p, const char *x, char *out, const char *a, const char *b, const char *c, const char *d, const char *e, const char *f, struct fault *fault) { READ(unsigned short) }
extern "C" __global__ void __launch_bounds__(256) gpu_read_4(const struct places *p, const char *x, char *out, const char *a, const char *b, const char *c, const char *d, const char *e, const char *f, struct fault *fault) { READ(unsigned) }
extern "C" __global__ void __launch_bounds__(256) gpu_read_8(const struct places *p, const char *x, char *out, const char *a, const char *b, const char *c, const char *d, const char *e, const char *f, struct fault *fault) { READ(u64) }
extern "C" __global__ void __launch_bounds__(256) gpu_read_16(const struct places *p, const char *x, char *out, const char *a, const char *b, const char *c, const char *d, const char *e, const char *f, struct fault *fault) { READ(struct sixteen) }

/* For each place where its update goes, as a key to sort by; NONE, which is behind all others, for one that goes nowhere. */
extern "C" __global__ void __launch_bounds__(256) gpu_targets(const struct places *p, u64 *keys, unsigned *order, const char *a, const char *b, const char *c, const char *d, const char *e, const char *f, struct fault *fault) {
  const char *from[MOST_INDICES] = {a, b, c, d, e, f};
  for (u64 place = first_thread(); place < (u64)p->count; place += all_threads()) {
    long long at = 0;
    bool inside = p->small ? locate<unsigned>(p, (unsigned)place, from, fault, at) : locate<u64>(p, place, from, fault, at);
    keys[place] = inside ? (u64)at << 32 * p->packed : p->packed ? NONE << 32 : NONE;
    if (p->packed) keys[place] |= place;
    else order[place] = (unsigned)place;
  }
}

/* Where a sorted update goes, and its number. */
__device__ inline u64 target_at(const struct places *p, const u64 *keys, u64 at) {
  u64 key = keys[at], upper = key >> 32;
  return !p->packed ? key : upper == NONE >> 32 ? NONE : upper;
}
__device__ inline unsigned update_at(const struct places *p, const u64 *keys, const unsigned *order, u64 at) {
  return p->packed ? HALF(keys[at], 0) : order[at];
}

/* What updates are put into: x, or zeros. */
extern "C" __global__ void __launch_bounds__(256) gpu_begin(const struct places *p, const char *x, char *out) {
  if (x == out && !p->fills) return;
  for (u64 k = first_thread(); k < (u64)p->size; k += all_threads()) out[k] = p->fills ? 0 : x[k];
}
extern "C" __global__ void __launch_bounds__(256) gpu_begin_16(const struct places *p, const char *x, char *out) {
  if (x == out && !p->fills) return;
  for (u64 k = first_thread(); k < (u64)p->size; k += all_threads())
    ((struct sixteen *)out)[k] = p->fills ? sixteen{} : ((const struct sixteen *)x)[k];
}

__device__ inline long long value_at(const struct places *p, unsigned place) {
  long long at = 0;
  for (int axis = (int)p->axes - 1; axis >= 0; --axis) {
    unsigned extent = (unsigned)p->extents[axis], whole = axis ? place / extent : 0;
    at += (long long)(place - whole * extent) * p->value_steps[axis];
    place = whole;
  }
  return at;
}

/* The thread of the last update of an element puts it there. */
template <class T>
__device__ inline void put_last(const struct places *p, const T *values, T *out, const u64 *keys, const unsigned *order) {
  for (u64 k = first_thread(); k < (u64)(p->count * p->width); k += all_threads()) {
    u64 number = k / (u64)p->width, column = k % (u64)p->width, key = target_at(p, keys, number);
    if (key == NONE || (number + 1 < (u64)p->count && target_at(p, keys, number + 1) == key)) continue;
    out[key + column] = values[value_at(p, update_at(p, keys, order, number)) + (long long)column * p->value_step];
  }
}

/* The thread of the first update of an element takes all of them, in order, and rounds once. */
template <class T>
__device__ inline void put_joined(
    const struct places *p, const T *x, const T *values, T *out, const u64 *keys, const unsigned *order) {
  for (u64 k = first_thread(); k < (u64)(p->count * p->width); k += all_threads()) {
    u64 number = k / (u64)p->width, column = k % (u64)p->width, key = target_at(p, keys, number);
    if (key == NONE || (number && target_at(p, keys, number - 1) == key)) continue;
    auto total = p->fills ? decltype(wide(T{}))(0) : wide(x[key + column]);
    for (u64 next = number; next < (u64)p->count && target_at(p, keys, next) == key; ++next)
      total = joined(p->join, total, wide(values[value_at(p, update_at(p, keys, order, next)) + (long long)column * p->value_step]));
    narrow(out[key + column], total);
  }
}

extern "C" __global__ void __launch_bounds__(256) gpu_put(const struct places *p, const char *x, const char *values, char *out, const u64 *keys, const unsigned *order) {
#define LAST(T) put_last(p, (const T *)values, (T *)out, keys, order)
#define JOINED(T) put_joined(p, (const T *)x, (const T *)values, (T *)out, keys, order)
  if (p->join == 0) BY_TYPE(p->type, LAST)
  else BY_TYPE(p->type, JOINED)
}
