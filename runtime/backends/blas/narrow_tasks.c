/* Floats of 16 bits for products in f32: operands are widened before, results rounded once; follows matmul_tasks.c in one
 * text, and the conversions of generated programs. */

/* `count` numbers, bf16 or else f16 where they are narrow, CONVERTED of them in a task. */
struct fuse_conversion {
  struct place from, to;
  int64_t count, is_bf16;
};
#define CONVERTED 4096

/* Numbers from `first` on, as many as a task has of them. */
static void widen(const struct fuse_conversion *c, int64_t first) {
  const uint16_t *restrict from = (const uint16_t *)address(c->from);
  float *restrict to = (float *)address(c->to);
  int64_t last = first + CONVERTED < c->count ? first + CONVERTED : c->count;
  if (c->is_bf16)
    for (int64_t i = first; i < last; i++) to[i] = fo_bf16_to_f32(from[i]);
  else fo_widen_f16(from, first, to, first, last - first);
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
    for (int64_t i = first; i < last; i++) to[i] = fo_f32_to_bf16(from[i]);
  else fo_narrow_f16(from, first, to, first, last - first);
}
