/* A stand-in for oneDNN 3: the entry points that runtime/backends/onednn calls, by plain loops, which end the process where an
 * argument is not what the library's manual asks for. The environment says what it pretends: FAKE_ONEDNN_IMPL the name of
 * implementations, FAKE_ONEDNN_SCRATCH bytes of scratchpad for each row, FAKE_ONEDNN_STATUS a status of executions,
 * FAKE_ONEDNN_VERSION and FAKE_ONEDNN_RUNTIME what it says of itself, FAKE_ONEDNN_WRONG that it multiplies wrongly,
 * FAKE_ONEDNN_PANEL the width of the panels in which it would read weights, FAKE_ONEDNN_SUMS bytes that it keeps behind them. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(x)                                                                \
  do {                                                                          \
    if (!(x)) {                                                                 \
      fprintf(stderr, "fake oneDNN, line %d: %s\n", __LINE__, #x);              \
      abort();                                                                  \
    }                                                                           \
  } while (0)
enum { AXES = 12, F16 = 1, BF16, F32, S32, S8, U8 };

static int number(const char *name, int otherwise) { return getenv(name) ? atoi(getenv(name)) : otherwise; }

static _Thread_local int threads = 4;
int omp_get_max_threads(void) { return threads; }
void omp_set_num_threads(int n) { threads = n; }

static int alive; /* handles */
int fake_onednn_alive(void) { return alive; }
static int primitives; /* made since the process began */
int fake_onednn_primitives(void) { return primitives; }
static int executions;
int fake_onednn_executions(void) { return executions; }

static void *fresh(size_t size) {
  __atomic_add_fetch(&alive, 1, __ATOMIC_RELAXED);
  return calloc(1, size);
}
static int destroy(void *handle) {
  CHECK(handle);
  __atomic_sub_fetch(&alive, 1, __ATOMIC_RELAXED);
  free(handle);
  return 0;
}

struct version { int major, minor, patch; const char *hash; unsigned cpu_runtime, gpu_runtime; };
const struct version *dnnl_version(void) {
  static struct version found = {3, 2, 0, "fake", 2, 0};
  found.major = number("FAKE_ONEDNN_VERSION", 3);
  found.cpu_runtime = (unsigned)number("FAKE_ONEDNN_RUNTIME", 2);
  return &found;
}

static int the_engine;
int dnnl_engine_create(void **engine, int kind, size_t index) {
  CHECK(kind == 1 && index == 0);
  *engine = &the_engine;
  return 0;
}
int dnnl_stream_create(void **stream, void *engine, unsigned flags) {
  CHECK(engine == &the_engine && flags == 1);
  *stream = fresh(8);
  return 0;
}
int dnnl_stream_destroy(void *stream) { return destroy(stream); }

struct desc { int axes, dtype, any, inner; int64_t shape[AXES], strides[AXES], padded[AXES], axis[3], size[3], bytes; };
int dnnl_memory_desc_create_with_strides(struct desc **desc, int axes, const int64_t *shape, int dtype, const int64_t *strides) {
  CHECK(axes >= 1 && axes <= AXES && dtype >= F16 && dtype <= U8);
  *desc = fresh(sizeof **desc);
  (*desc)->axes = axes, (*desc)->dtype = dtype;
  for (int k = 0; k < axes; k++) {
    CHECK(shape[k] >= 1 && strides[k] >= 1);
    (*desc)->shape[k] = (*desc)->padded[k] = shape[k], (*desc)->strides[k] = strides[k];
  }
  return 0;
}
int dnnl_memory_desc_create_with_tag(struct desc **desc, int axes, const int64_t *shape, int dtype, int tag) {
  int64_t strides[AXES];
  CHECK(tag == 1);
  for (int k = 0; k < AXES; k++) strides[k] = 1;
  int status = dnnl_memory_desc_create_with_strides(desc, axes, shape, dtype, strides);
  (*desc)->any = 1;
  return status;
}
int dnnl_memory_desc_query(struct desc *desc, int what, void *result) {
  CHECK(desc && !desc->any);
  if (what == 263) return *(int *)result = desc->inner, 0;
  int64_t *found = what == 14 ? desc->strides : what == 260 ? desc->padded : what == 264 ? desc->size : desc->axis;
  CHECK(what == 14 || what == 260 || what == 264 || what == 265);
  *(int64_t **)result = found;
  return 0;
}
int dnnl_memory_desc_destroy(struct desc *desc) { return destroy(desc); }
static int64_t item_bytes(int dtype) { return dtype >= S8 ? 1 : dtype >= F32 ? 4 : 2; }
size_t dnnl_memory_desc_get_size(const struct desc *desc) {
  int64_t found = item_bytes(desc->dtype);
  if (desc->bytes || !desc->dtype) return (size_t)desc->bytes;
  for (int k = 0; k < desc->axes; k++) found *= desc->padded[k];
  return (size_t)(found + number("FAKE_ONEDNN_SUMS", 0)); /* that the library keeps behind weights */
}

struct memory { struct desc desc; char *handle; };
int dnnl_memory_create(struct memory **memory, const struct desc *desc, void *engine, void *handle) {
  CHECK(desc && engine == &the_engine && !handle); /* nothing is allocated */
  *memory = fresh(sizeof **memory);
  (*memory)->desc = *desc;
  return 0;
}
int dnnl_memory_destroy(struct memory *memory) { return destroy(memory); }
int dnnl_memory_set_data_handle(struct memory *memory, void *handle) {
  CHECK(memory && handle);
  memory->handle = handle;
  return 0;
}

struct post { int kind, algorithm; float alpha, beta; struct desc operand; };
struct posts { int count; struct post at[32]; };
int dnnl_post_ops_create(struct posts **posts) { return *posts = fresh(sizeof **posts), 0; }
int dnnl_post_ops_destroy(struct posts *posts) { return destroy(posts); }
static struct post *append(struct posts *posts, int kind, int algorithm) {
  CHECK(posts && posts->count < 32);
  struct post *post = &posts->at[posts->count++];
  post->kind = kind, post->algorithm = algorithm;
  return post;
}
int dnnl_post_ops_append_eltwise(struct posts *posts, int algorithm, float alpha, float beta) {
  struct post *post = append(posts, 'e', algorithm);
  post->alpha = alpha, post->beta = beta;
  return algorithm < 0x20 || algorithm > 0x34 ? 2 : 0;
}
int dnnl_post_ops_append_binary(struct posts *posts, int algorithm, const struct desc *operand) {
  append(posts, 'b', algorithm)->operand = *operand;
  return algorithm < 0x1fff0 || algorithm > 0x1fff5 ? 2 : 0;
}
int dnnl_post_ops_append_sum(struct posts *posts, float scale, int32_t zero, int dtype) {
  CHECK(scale == 1 && zero == 0 && dtype == 0);
  append(posts, 's', 0);
  return 0;
}

struct attr { int user_scratchpad; struct posts posts; };
int dnnl_primitive_attr_create(struct attr **attr) { return *attr = fresh(sizeof **attr), 0; }
int dnnl_primitive_attr_destroy(struct attr *attr) { return destroy(attr); }
int dnnl_primitive_attr_set_scratchpad_mode(struct attr *attr, int mode) {
  CHECK(mode == 1);
  attr->user_scratchpad = 1;
  return 0;
}
int dnnl_primitive_attr_set_post_ops(struct attr *attr, const struct posts *posts) { return attr->posts = *posts, 0; }

struct primitive {
  struct desc src, weights, dst, scratchpad;
  struct posts posts;
  int windows, rows; /* 's' a softmax, 'n' a normalization with as many `parameters` */
  int64_t space[4][AXES];
  int parameters, statistics;
  float epsilon;
};
/* Filters as the library would have them: [o/width][taps][channels][width] of ungrouped ones, in whole panels; of bytes
 * [o/width][taps][channels/4][width][4]. */
static struct desc chosen(const struct desc *weights, int grouped) {
  struct desc found = *weights;
  if (!found.any) return found;
  int width = number("FAKE_ONEDNN_PANEL", 0), side = found.dtype == S8 && width ? 4 : 1;
  found.any = 0;
  CHECK(!grouped);
  int64_t step = (width ? width : found.shape[0]) * side;
  found.strides[1] = step, step *= (found.shape[1] + side - 1) / side;
  for (int k = found.axes - 1; k >= 2; k--) found.strides[k] = step, step *= found.shape[k];
  found.strides[0] = width ? step : 1;
  if (!width) return found;
  found.inner = side > 1 ? 2 : 1;
  found.size[0] = width, found.padded[0] = (found.shape[0] + width - 1) / width * width;
  found.axis[1] = 1, found.size[1] = side, found.padded[1] = (found.shape[1] + side - 1) / side * side;
  return found;
}
/* Right operands: [columns/width][rows/16][16][width], in whole blocks; of bytes [columns/width][rows/64][16][width][4]. */
static struct desc chosen_columns(const struct desc *weights) {
  struct desc found = *weights;
  if (!found.any) return found;
  int64_t width = number("FAKE_ONEDNN_PANEL", 0), side = found.dtype == S8 ? 4 : 1;
  CHECK(found.axes == 2);
  found.any = 0, found.strides[0] = found.shape[1];
  if (!width) return found;
  for (int k = 0; k < 2; k++) {
    int64_t block = k ? width : 16;
    found.axis[k] = k, found.size[k] = block, block *= k ? 1 : side;
    found.padded[k] = (found.shape[k] + block - 1) / block * block;
  }
  found.axis[2] = 0, found.size[2] = side;
  found.inner = side > 1 ? 3 : 2, found.strides[0] = 16 * width * side, found.strides[1] = found.padded[0] * width;
  return found;
}
static int described(struct primitive **made, const struct desc *src, const struct desc *weights, const struct desc *bias,
                     const struct desc *dst, const struct attr *attr) {
  CHECK(threads == 1); /* what is made for several threads may use them */
  CHECK(src && weights && dst && !bias && attr && attr->user_scratchpad && src->axes == dst->axes);
  CHECK(!src->any && !weights->any && !dst->any);
  if (src->dtype == BF16) return 3;
  *made = fresh(sizeof **made);
  (*made)->src = *src, (*made)->weights = *weights, (*made)->dst = *dst, (*made)->posts = attr->posts;
  int64_t rows = dst->shape[dst->axes - 2];
  (*made)->scratchpad.axes = 1;
  (*made)->scratchpad.bytes = number("FAKE_ONEDNN_SCRATCH", 0) * rows;
  return 0;
}
int dnnl_matmul_primitive_desc_create(struct primitive **made, void *engine, const struct desc *src, const struct desc *weights,
                                      const struct desc *bias, const struct desc *dst, const struct attr *attr) {
  CHECK(engine == &the_engine && src && weights && dst && weights->axes == dst->axes);
  int last = dst->axes - 1;
  CHECK(src->shape[last - 1] == dst->shape[last - 1] && weights->shape[last] == dst->shape[last]);
  CHECK(src->shape[last] == weights->shape[last - 1]);
  for (int k = 0; k < last - 1; k++) {
    CHECK(src->shape[k] == dst->shape[k] || src->shape[k] == 1);
    CHECK(weights->shape[k] == dst->shape[k] || weights->shape[k] == 1);
  }
  for (int p = 0; attr && p < attr->posts.count; p++) {
    const struct post *post = &attr->posts.at[p];
    if (post->kind != 'b') continue;
    CHECK(post->operand.axes == dst->axes);
    for (int k = 0; k < dst->axes; k++) CHECK(post->operand.shape[k] == dst->shape[k] || post->operand.shape[k] == 1);
  }
  struct desc read = chosen_columns(weights);
  return described(made, src, &read, bias, dst, attr);
}
int dnnl_convolution_forward_primitive_desc_create(struct primitive **made, void *engine, int kind, int algorithm,
                                                   const struct desc *src, const struct desc *weights, const struct desc *bias,
                                                   const struct desc *dst, const int64_t *strides, const int64_t *dilations,
                                                   const int64_t *before, const int64_t *after, const struct attr *attr) {
  CHECK(engine == &the_engine && kind == 96 && algorithm == 1 && src && weights && dst);
  int grouped = weights->axes - src->axes, axes = src->axes - 2;
  CHECK(grouped == 0 || grouped == 1);
  CHECK(src->shape[0] == dst->shape[0]);
  int64_t groups = grouped ? weights->shape[0] : 1;
  CHECK(src->shape[1] == groups * weights->shape[grouped + 1] && dst->shape[1] == groups * weights->shape[grouped]);
  for (int k = 0; k < axes; k++) {
    int64_t window = (weights->shape[grouped + 2 + k] - 1) * (dilations[k] + 1) + 1;
    CHECK(strides[k] >= 1 && dilations[k] >= 0);
    CHECK((src->shape[2 + k] + before[k] + after[k] - window) / strides[k] + 1 == dst->shape[2 + k]);
  }
  struct desc read = chosen(weights, grouped);
  int status = described(made, src, &read, bias, dst, attr);
  if (status) return status;
  (*made)->windows = 1 + grouped;
  memcpy((*made)->space[0], strides, sizeof(int64_t) * axes), memcpy((*made)->space[1], dilations, sizeof(int64_t) * axes);
  memcpy((*made)->space[2], before, sizeof(int64_t) * axes), memcpy((*made)->space[3], after, sizeof(int64_t) * axes);
  return 0;
}
static int described_rows(struct primitive **made, void *engine, const struct desc *src, const struct desc *dst,
                          const struct attr *attr) {
  CHECK(engine == &the_engine && src && dst && src->axes == 2 && src->dtype == F32 && dst->dtype == F32);
  CHECK(src->shape[0] == dst->shape[0] && src->shape[1] == dst->shape[1] && attr && attr->posts.count == 0);
  return described(made, src, src, 0, dst, attr);
}
int dnnl_softmax_forward_primitive_desc_create(struct primitive **made, void *engine, int kind, int algorithm,
                                               const struct desc *src, const struct desc *dst, int axis,
                                               const struct attr *attr) {
  CHECK(kind == 96 && algorithm == 0x30000 && axis == 1);
  int status = described_rows(made, engine, src, dst, attr);
  if (!status) (*made)->rows = 's';
  return status;
}
int dnnl_layer_normalization_forward_primitive_desc_create(struct primitive **made, void *engine, int kind,
                                                           const struct desc *src, const struct desc *dst,
                                                           const struct desc *statistics, float epsilon, unsigned flags,
                                                           const struct attr *attr) {
  CHECK(kind == (statistics ? 64 : 96) && epsilon > 0 && (flags == 0 || flags == 2 || flags == 6)); /* training leaves them */
  CHECK(!statistics || (statistics->axes == 1 && statistics->dtype == F32 && statistics->shape[0] == src->shape[0]));
  int status = described_rows(made, engine, src, dst, attr);
  if (status) return status;
  (*made)->rows = 'n', (*made)->epsilon = epsilon, (*made)->parameters = (flags >> 1 & 1) + (flags >> 2 & 1);
  (*made)->statistics = statistics ? 2 : 0;
  return 0;
}
int dnnl_primitive_desc_query(const struct primitive *made, int what, int index, void *result) {
  CHECK(made && what == 8 && index == 0);
  *(const char **)result = getenv("FAKE_ONEDNN_IMPL") ? getenv("FAKE_ONEDNN_IMPL") : "brg:fake";
  return 0;
}
const struct desc *dnnl_primitive_desc_query_md(const struct primitive *made, int what, int index) {
  CHECK(made && (what == 136 || what == 131) && index == 0);
  return what == 131 ? &made->weights : &made->scratchpad;
}
int dnnl_primitive_desc_destroy(struct primitive *made) { return destroy(made); }
int dnnl_primitive_create(struct primitive **primitive, const struct primitive *made) {
  CHECK(threads == 1 && made);
  __atomic_add_fetch(&primitives, 1, __ATOMIC_RELAXED);
  *primitive = fresh(sizeof **primitive);
  **primitive = *made;
  return 0;
}
int dnnl_primitive_destroy(struct primitive *primitive) { return destroy(primitive); }

static double element(const char *at, int dtype, int64_t index) {
  switch (dtype) {
  case F32: return ((const float *)at)[index];
  case S32: return ((const int32_t *)at)[index];
  case S8: return ((const int8_t *)at)[index];
  default: CHECK(dtype == U8); return ((const uint8_t *)at)[index];
  }
}
/* The element of a tensor at a place of the result; axes of extent 1 are broadcast. */
static int64_t offset_at(const struct desc *desc, const int64_t *place) {
  int64_t found = 0;
  for (int k = 0; k < desc->axes; k++) found += (desc->shape[k] == 1 ? 0 : place[k]) * desc->strides[k];
  return found;
}
static double eltwise(const struct post *post, double x) {
  switch (post->algorithm) {
  case 0x20: return x > 0 ? x : post->alpha == 0 ? 0 : post->alpha * x;
  case 0x21: return tanh(x);
  case 0x24: return fabs(x);
  case 0x25: return sqrt(x);
  case 0x23: return x * x;
  case 0x26: return post->alpha * x + post->beta;
  case 0x29: return 1 / (1 + exp(-x));
  case 0x2a: return exp(x);
  case 0x2b: return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
  case 0x2c: return x / (1 + exp(-post->alpha * x));
  case 0x31: return 0.5 * x * (1 + erf(x * 0.7071067811865476));
  default: CHECK(!"a known eltwise algorithm");
  }
}
static double binary(int algorithm, double x, double y) {
  switch (algorithm) {
  case 0x1fff0: return x + y;
  case 0x1fff1: return x * y;
  case 0x1fff2: return x > y ? x : y;
  case 0x1fff3: return x < y ? x : y;
  case 0x1fff4: return x / y;
  default: CHECK(algorithm == 0x1fff5); return x - y;
  }
}

struct exec { int argument; struct memory *memory; };
static struct memory *find(const struct exec *arguments, int count, int number) {
  for (int k = 0; k < count; k++)
    if (arguments[k].argument == number) return arguments[k].memory;
  return 0;
}
static void same(const struct memory *memory, const struct desc *desc) {
  CHECK(memory && memory->handle && !memcmp(&memory->desc, desc, sizeof *desc));
}

static double product(const struct primitive *p, const char *a, const char *b, const int64_t *place) {
  int last = p->dst.axes - 1;
  int64_t left[AXES], right[AXES];
  memcpy(left, place, sizeof left), memcpy(right, place, sizeof right);
  double sum = 0;
  for (int64_t k = 0; k < p->src.shape[last]; k++) {
    left[last] = right[last - 1] = k;
    int64_t at = offset_at(&p->weights, right), width = p->weights.size[1], column = place[last];
    int64_t side = p->weights.inner == 3 ? p->weights.size[2] : 1;
    if (p->weights.inner)
      at = column / width * p->weights.strides[1] + k / side * width * side + column % width * side + k % side;
    sum += element(a, p->src.dtype, offset_at(&p->src, left)) * element(b, p->weights.dtype, at);
  }
  return sum;
}

static double window(const struct primitive *p, const char *x, const char *w, const int64_t *place) {
  int axes = p->src.axes - 2, grouped = p->windows - 1;
  int64_t groups = grouped ? p->weights.shape[0] : 1, each = p->dst.shape[1] / groups, channels = p->src.shape[1] / groups;
  int64_t group = place[1] / each, taps = 1;
  for (int k = 0; k < axes; k++) taps *= p->weights.shape[grouped + 2 + k];
  double sum = 0;
  for (int64_t c = 0; c < channels; c++)
    for (int64_t tap = 0; tap < taps; tap++) {
      int64_t rest = tap, inside = 1;
      int64_t from = place[0] * p->src.strides[0] + (group * channels + c) * p->src.strides[1];
      int64_t width = p->weights.inner ? p->weights.size[0] : 1, filter = place[1] % each;
      int64_t side = p->weights.inner == 2 ? p->weights.size[1] : 1;
      int64_t of = (grouped ? group * p->weights.strides[0] : 0) + filter / width * p->weights.strides[grouped] + filter % width * side;
      of += c / side * p->weights.strides[grouped + 1] + c % side;
      for (int k = axes - 1; k >= 0; k--) {
        int64_t extent = p->weights.shape[grouped + 2 + k], t = rest % extent;
        rest /= extent;
        int64_t at = place[2 + k] * p->space[0][k] + t * (p->space[1][k] + 1) - p->space[2][k];
        inside &= at >= 0 && at < p->src.shape[2 + k];
        from += at * p->src.strides[2 + k];
        of += t * p->weights.strides[grouped + 2 + k];
      }
      if (inside) sum += element(x, p->src.dtype, from) * element(w, p->weights.dtype, of);
    }
  return sum;
}

static double row(const struct primitive *p, const char *x, const struct memory *const *parameters,
                  struct memory *const *statistics, const int64_t *place) {
  int64_t first[AXES] = {place[0]}, n = p->src.shape[1];
  const float *at = (const float *)x + offset_at(&p->src, first);
  double most = -INFINITY, sum = 0, mean = 0, variance = 0, value = at[place[1]];
  for (int64_t k = 0; k < n; k++) most = fmax(most, at[k]), mean += (double)at[k] / n;
  for (int64_t k = 0; k < n; k++) sum += exp(at[k] - most), variance += (at[k] - mean) * (at[k] - mean) / n;
  if (p->rows == 's') return exp(value - most) / sum;
  if (p->statistics) ((float *)statistics[0]->handle)[place[0]] = (float)mean, ((float *)statistics[1]->handle)[place[0]] = (float)variance;
  value = (value - mean) / sqrt(variance + p->epsilon);
  if (parameters[0]) value *= ((const float *)parameters[0]->handle)[place[1]];
  return parameters[1] ? value + ((const float *)parameters[1]->handle)[place[1]] : value;
}

int dnnl_primitive_execute(const struct primitive *p, void *stream, int count, const struct exec *arguments) {
  CHECK(p && stream && threads == 1);
  __atomic_add_fetch(&executions, 1, __ATOMIC_RELAXED);
  struct memory *src = find(arguments, count, 1), *weights = find(arguments, count, 33), *dst = find(arguments, count, 17);
  struct memory *scratchpad = find(arguments, count, 80), *operands[32] = {0};
  const struct memory *parameters[2] = {find(arguments, count, 51), find(arguments, count, 52)};
  same(src, &p->src), same(dst, &p->dst);
  if (!p->rows) same(weights, &p->weights);
  for (int k = 0; k < 2; k++)
    CHECK(k < p->parameters ? parameters[k] && parameters[k]->handle && parameters[k]->desc.shape[0] == p->dst.shape[1]
                            : !parameters[k]);
  struct memory *statistics[2] = {find(arguments, count, 49), find(arguments, count, 50)};
  for (int k = 0; k < 2; k++)
    CHECK(p->statistics ? statistics[k] && statistics[k]->handle && statistics[k]->desc.shape[0] == p->dst.shape[0] : !statistics[k]);
  int expected = p->rows ? 2 + p->parameters + p->statistics : 3;
  for (int k = 0; k < p->posts.count; k++)
    if (p->posts.at[k].kind == 'b') {
      same(operands[k] = find(arguments, count, 32768 * (k + 1) | 2), &p->posts.at[k].operand);
      expected++;
    }
  if (p->scratchpad.bytes) {
    CHECK(scratchpad && scratchpad->handle && (uintptr_t)scratchpad->handle % 64 == 0);
    memset(scratchpad->handle, 0xff, (size_t)p->scratchpad.bytes);
    expected++;
  } else CHECK(!scratchpad);
  CHECK(count == expected);
  if (number("FAKE_ONEDNN_STATUS", 0)) return number("FAKE_ONEDNN_STATUS", 0);
  int64_t total = 1, place[AXES] = {0};
  for (int k = 0; k < p->dst.axes; k++) total *= p->dst.shape[k];
  for (int64_t n = 0; n < total; n++) {
    int64_t rest = n;
    for (int k = p->dst.axes - 1; k >= 0; k--) place[k] = rest % p->dst.shape[k], rest /= p->dst.shape[k];
    int64_t at = offset_at(&p->dst, place);
    double value = p->rows      ? row(p, src->handle, parameters, statistics, place)
                   : p->windows ? window(p, src->handle, weights->handle, place)
                                : product(p, src->handle, weights->handle, place);
    if (number("FAKE_ONEDNN_WRONG", 0)) value += 1;
    for (int k = 0; k < p->posts.count; k++) {
      const struct post *post = &p->posts.at[k];
      if (post->kind == 'e') value = eltwise(post, value);
      else if (post->kind == 's') value += element(dst->handle, p->dst.dtype, at);
      else value = binary(post->algorithm, value, element(operands[k]->handle, F32, offset_at(&post->operand, place)));
    }
    if (p->dst.dtype == F32) ((float *)dst->handle)[at] = (float)value;
    else ((int32_t *)dst->handle)[at] = (int32_t)value;
  }
  return 0;
}
