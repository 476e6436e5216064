/* The first k elements of lines along an axis, in order, as tasks of the pool. NaN is the greatest; of equal elements those of smaller
 * positions come first.
 *
 * An element and its position are one integer, so that one comparison orders both: what is larger comes first. A heap keeps the first k
 * of those that were seen, the last of them at its root; most elements are compared with that one alone, in vectors. */
#include <stdint.h>

#define AT(record, name) (*(record)->name + (record)->name##_offset)
#define INLINE static inline __attribute__((always_inline))

/* Lines along the middle axis of [outer, extent, inner]; a task has `lines` of them, of one outer position where inner is not 1. */
struct fuse_top_k {
  char *const *x, *const *values, *const *positions;
  int64_t x_offset, values_offset, positions_offset;
  int64_t outer, extent, inner, k;
  int64_t lines, type;
  int64_t flip; /* 0 for the largest elements, -1 for the smallest */
};

/* Integers in the order of the elements: of floats all bits but the sign are turned where that is set. */
#define KEY_OF_FLOAT(bits, infinity) \
  INLINE int##bits##_t float_key_##bits##_##infinity(uint##bits##_t x) { \
    const uint##bits##_t rest = (uint##bits##_t)(x << 1) >> 1; \
    const int##bits##_t turned = (int##bits##_t)((int##bits##_t)x < 0 ? 0 - rest : rest); \
    return rest > (uint##bits##_t)infinity ? INT##bits##_MAX : turned; \
  }
KEY_OF_FLOAT(16, 0x7c00)
KEY_OF_FLOAT(16, 0x7f80)
KEY_OF_FLOAT(32, 0x7f800000)
KEY_OF_FLOAT(64, 0x7ff0000000000000)
#define KEY_i8(x) ((int8_t)(x))
#define KEY_i16(x) ((int16_t)(x))
#define KEY_i32(x) ((int32_t)(x))
#define KEY_i64(x) ((int64_t)(x))
#define KEY_ui8(x) ((int8_t)((x) ^ 0x80u))
#define KEY_ui16(x) ((int16_t)((x) ^ 0x8000u))
#define KEY_ui32(x) ((int32_t)((x) ^ 0x80000000u))
#define KEY_ui64(x) ((int64_t)((x) ^ 0x8000000000000000u))
#define KEY_f16(x) float_key_16_0x7c00(x)
#define KEY_bf16(x) float_key_16_0x7f80(x)
#define KEY_f32(x) float_key_32_0x7f800000(x)
#define KEY_f64(x) float_key_64_0x7ff0000000000000(x)

/* Entries: a key above the position, which is turned as the first one is to be the largest. */
typedef uint64_t entry_32;
typedef unsigned __int128 entry_64;
#define ENTRIES(half) \
  INLINE entry_##half entry_of_##half(int##half##_t key, int64_t position) { \
    const uint##half##_t high = (uint##half##_t)key ^ ((uint##half##_t)1 << (half - 1)); \
    return (entry_##half)high << half | (uint##half##_t)~position; \
  } \
  INLINE int##half##_t key_of_##half(entry_##half entry) { \
    return (int##half##_t)((uint##half##_t)(entry >> half) ^ ((uint##half##_t)1 << (half - 1))); \
  } \
  INLINE int64_t position_of_##half(entry_##half entry) { return (int64_t)(uint##half##_t)~entry; } \
  /* Puts an entry where the least of those from `at` down was, so that again none is above a lesser one. */ \
  static void sink_##half(entry_##half *heap, int64_t count, int64_t at, entry_##half entry) { \
    for (int64_t child; (child = 2 * at + 1) < count; at = child) { \
      child += child + 1 < count && heap[child + 1] < heap[child]; \
      if (entry <= heap[child]) break; \
      heap[at] = heap[child]; \
    } \
    heap[at] = entry; \
  } \
  static void order_##half(entry_##half *heap, int64_t count) { \
    for (int64_t last = count - 1; last > 0; last--) { \
      const entry_##half entry = heap[last]; \
      heap[last] = heap[0]; \
      sink_##half(heap, last, 0, entry); \
    } \
  } \
  static void heap_##half(entry_##half *heap, int64_t count) { \
    for (int64_t at = count / 2 - 1; at >= 0; at--) sink_##half(heap, count, at, heap[at]); \
  }
ENTRIES(32)
ENTRIES(64)

#define MOST 1024 /* entries of the heaps of a task */
#define RUN 32    /* elements that are looked at together */

/* Lines of neighbouring elements, one after another; and lines side by side, of which a row is looked at together. */
#define TOP_K(number, name, bits, half) \
  INLINE int##bits##_t key_##name(uint##bits##_t x, int64_t flip) { return (int##bits##_t)(KEY_##name(x) ^ (int##bits##_t)flip); } \
  INLINE void offer_##name(entry_##half *heap, int64_t k, int##bits##_t key, int64_t position, int##bits##_t *least) { \
    sink_##half(heap, k, 0, entry_of_##half(key, position)); \
    *least = (int##bits##_t)key_of_##half(heap[0]); \
  } \
  static void line_##name(const struct fuse_top_k *call, int64_t line) { \
    const uint##bits##_t *x = (const uint##bits##_t *)AT(call, x) + line * call->extent; \
    uint##bits##_t *values = (uint##bits##_t *)AT(call, values) + line * call->k; \
    int64_t *positions = (int64_t *)AT(call, positions) + line * call->k, k = call->k, flip = call->flip, at = k; \
    entry_##half heap[MOST]; \
    for (int64_t i = 0; i < k; i++) heap[i] = entry_of_##half(key_##name(x[i], flip), i); \
    heap_##half(heap, k); \
    int##bits##_t least = (int##bits##_t)key_of_##half(heap[0]); \
    for (; at + RUN <= call->extent; at += RUN) { \
      int##bits##_t any = 0; \
      for (int64_t i = 0; i < RUN; i++) any |= (int##bits##_t)-(key_##name(x[at + i], flip) > least); \
      if (!any) continue; \
      for (int64_t i = at; i < at + RUN; i++) { \
        const int##bits##_t key = key_##name(x[i], flip); \
        if (key > least) offer_##name(heap, k, key, i, &least); \
      } \
    } \
    for (; at < call->extent; at++) { \
      const int##bits##_t key = key_##name(x[at], flip); \
      if (key > least) offer_##name(heap, k, key, at, &least); \
    } \
    order_##half(heap, k); \
    for (int64_t i = 0; i < k; i++) positions[i] = position_of_##half(heap[i]), values[i] = x[positions[i]]; \
  } \
  static void columns_##name(const struct fuse_top_k *call, int64_t outer, int64_t low, int64_t width) { \
    const int64_t inner = call->inner, k = call->k, flip = call->flip; \
    const uint##bits##_t *x = (const uint##bits##_t *)AT(call, x) + outer * call->extent * inner + low; \
    uint##bits##_t *values = (uint##bits##_t *)AT(call, values) + outer * k * inner + low; \
    int64_t *positions = (int64_t *)AT(call, positions) + outer * k * inner + low; \
    entry_##half heaps[MOST]; \
    int##bits##_t least[RUN]; \
    for (int64_t i = 0; i < width; i++) { \
      entry_##half *heap = heaps + i * k; \
      for (int64_t j = 0; j < k; j++) heap[j] = entry_of_##half(key_##name(x[j * inner + i], flip), j); \
      heap_##half(heap, k); \
      least[i] = (int##bits##_t)key_of_##half(heap[0]); \
    } \
    for (int64_t at = k; at < call->extent; at++) { \
      int##bits##_t any = 0, keys[RUN]; \
      for (int64_t i = 0; i < width; i++) { \
        keys[i] = key_##name(x[at * inner + i], flip); \
        any |= (int##bits##_t)-(keys[i] > least[i]); \
      } \
      for (int64_t i = 0; any && i < width; i++) \
        if (keys[i] > least[i]) offer_##name(heaps + i * k, k, keys[i], at, &least[i]); \
    } \
    for (int64_t i = 0; i < width; i++) { \
      order_##half(heaps + i * k, k); \
      for (int64_t j = 0; j < k; j++) { \
        positions[j * inner + i] = position_of_##half(heaps[i * k + j]); \
        values[j * inner + i] = x[positions[j * inner + i] * inner + i]; \
      } \
    } \
  } \
  static void top_k_##name(const struct fuse_top_k *call, int64_t task) { \
    const int64_t lines = call->lines, inner = call->inner, blocks = (inner + lines - 1) / lines; \
    if (inner > 1) { \
      const int64_t low = task % blocks * lines; \
      columns_##name(call, task / blocks, low, low + lines < inner ? lines : inner - low); \
      return; \
    } \
    for (int64_t line = task * lines; line < (task + 1) * lines && line < call->outer; line++) line_##name(call, line); \
  }
#define ALL_TYPES(X) \
  X(0, i8, 8, 32) X(1, i16, 16, 32) X(2, i32, 32, 32) X(3, i64, 64, 64) X(4, ui8, 8, 32) X(5, ui16, 16, 32) X(6, ui32, 32, 32) \
  X(7, ui64, 64, 64) X(8, f16, 16, 32) X(9, bf16, 16, 32) X(10, f32, 32, 32) X(11, f64, 64, 64)
ALL_TYPES(TOP_K)

void fuse_top_k(void *arg, long begin, long end) {
  const struct fuse_top_k *call = arg;
  for (int64_t task = begin; task < end; task++) switch (call->type) {
#define CASE(number, name, bits, half) \
  case number: top_k_##name(call, task); break;
      ALL_TYPES(CASE)
#undef CASE
    }
}
