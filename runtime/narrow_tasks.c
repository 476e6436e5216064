/* Floats of 16 bits for products in f32: operands are widened before, results rounded once; follows blas_tasks.c in one
 * text. */

/* `count` numbers, bf16 or else f16 where they are narrow, CONVERTED of them in a task. */
struct fuse_conversion {
  struct place from, to;
  int64_t count, is_bf16;
};
#define CONVERTED 4096

static inline float from_bits(uint32_t bits) {
  union {
    uint32_t bits;
    float value;
  } both = {bits};
  return both.value;
}

static inline uint32_t bits_of(float value) {
  union {
    float value;
    uint32_t bits;
  } both = {value};
  return both.bits;
}

static inline float widen_f16(uint16_t h) {
  uint32_t w = (h & 0x7fffu) << 13, u = bits_of(from_bits(w) * 0x1p112f);
  u |= w >= 0x0f800000u ? 0x7f800000u : 0u;
  return from_bits(u | (h & 0x8000u) << 16);
}

/* To nearest, halves to even; NaN stays NaN. */
static inline uint16_t narrow_f16(float x) {
  uint32_t u = bits_of(x) & 0x7fffffffu, sign = (bits_of(x) >> 16) & 0x8000u;
  uint32_t big = u > 0x7f800000u ? 0x7e00u : 0x7c00u;
  uint32_t small = bits_of(from_bits(u) + 0.5f) - 0x3f000000u;
  uint32_t normal = (u + 0xc8000fffu + ((u >> 13) & 1u)) >> 13;
  return (uint16_t)(sign | (u >= 0x47800000u ? big : u < 0x38800000u ? small : normal));
}

static inline uint16_t narrow_bf16(float x) {
  uint32_t u = bits_of(x);
  return (uint16_t)(x != x ? 0x7fc0u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

/* Numbers from `first` on, as many as a task has of them. */
static void widen(const struct fuse_conversion *c, int64_t first) {
  const uint16_t *restrict from = (const uint16_t *)address(c->from);
  float *restrict to = (float *)address(c->to);
  int64_t last = first + CONVERTED < c->count ? first + CONVERTED : c->count;
  if (c->is_bf16)
    for (int64_t i = first; i < last; i++) to[i] = from_bits((uint32_t)from[i] << 16);
  else
    for (int64_t i = first; i < last; i++) to[i] = widen_f16(from[i]);
}

/* Both operands: the tasks of the first, then those of the second. */
void fuse_run_widen(void *arg, long begin, long end) {
  const struct fuse_conversion *c = arg;
  int64_t own = (c->count - 1) / CONVERTED + 1;
  for (long task = begin; task < end; task++)
    if (task < own) widen(c, task * CONVERTED);
    else widen(c + 1, (task - own) * CONVERTED);
}

void fuse_run_narrow(void *arg, long begin, long end) {
  const struct fuse_conversion *c = arg;
  const float *restrict from = (const float *)address(c->from);
  uint16_t *restrict to = (uint16_t *)address(c->to);
  int64_t first = begin * CONVERTED, last = end * CONVERTED < c->count ? end * CONVERTED : c->count;
  if (c->is_bf16)
    for (int64_t i = first; i < last; i++) to[i] = narrow_bf16(from[i]);
  else
    for (int64_t i = first; i < last; i++) to[i] = narrow_f16(from[i]);
}
