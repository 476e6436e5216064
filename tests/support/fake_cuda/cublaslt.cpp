// A stand-in for the functions of cuBLASLt that programs call: every argument is checked, products are three loops.
#include <cmath>
#include <cstddef>
#include <map>

#include "elements.hpp"
#include "objects.hpp"

namespace {
constexpr int kInvalid = 7, kNotSupported = 15;
constexpr uint64_t kMagic = 0x6c74616c676f;  // of algorithms that the heuristic gave

struct Object {
  int kind;  // 1 handle, 2 description, 3 layout, 4 preference
  int compute = 0, scale = 0, type = 0;
  uint64_t rows = 0, columns = 0;
  int64_t lead = 0;
  std::map<int, int64_t> values;
};
struct Algorithm {
  uint64_t magic, alignment, workspace, description, unused[4];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Heuristic) == 96, "as in cublasLt.h");
struct Operand {
  char *data;
  int type;
  int64_t lead, stride;
};
struct Product {
  int64_t m, n, k, count;
  bool transpose_a, transpose_b;
  Operand a, b, out;
  int epilogue;
  const char *bias;
};
Objects<Object> objects;

Object *of(const void *handle, int kind) { return objects.of(handle, kind); }
int made(void **where, const Object &object) {
  if (!where) return kInvalid;
  *where = objects.made(object);
  return 0;
}
int destroyed(void *handle, int kind) { return objects.destroyed(handle, kind) ? 0 : kInvalid; }
// Sizes of attributes, as cublasLt.h has them.
int set(void *handle, int kind, int attribute, const void *value, size_t size, const std::map<int, size_t> &sizes) {
  Object *found = of(handle, kind);
  auto known = sizes.find(attribute);
  if (!found || known == sizes.end() || known->second != size) return kInvalid;
  int64_t number = 0;
  memcpy(&number, value, size);
  found->values[attribute] = number;
  return 0;
}
int64_t value(const Object *object, int attribute, int64_t otherwise) {
  auto found = object->values.find(attribute);
  return found == object->values.end() ? otherwise : found->second;
}
bool holds(const Operand &x, const Object *layout, int64_t count) {
  int64_t last = (count - 1) * x.stride + (int64_t(layout->columns) - 1) * layout->lead + int64_t(layout->rows);
  return fake_cuda_holds(x.data, size_of(x.type) * last);
}
// The product that descriptors are of; false where they do not fit each other.
bool described(Product &p, const Object *d, const Object *a, const Object *b, const Object *c, const Object *out) {
  if (!d || !a || !b || !out || c != out) return false;
  p.transpose_a = value(d, 3, 0), p.transpose_b = value(d, 4, 0);
  p.epilogue = value(d, 7, 1);
  p.m = p.transpose_a ? a->columns : a->rows;
  p.k = p.transpose_a ? a->rows : a->columns;
  p.n = p.transpose_b ? b->rows : b->columns;
  p.count = value(out, 5, 1);
  if (p.k != int64_t(p.transpose_b ? b->columns : b->rows)) return false;
  if (int64_t(out->rows) != p.m || int64_t(out->columns) != p.n) return false;
  for (const Object *layout : {a, b, out})
    if (layout->lead < int64_t(layout->rows) || value(layout, 5, 1) != p.count) return false;
  bool widened = (a->type == kHalf || a->type == kBrain) && out->type == kFloat;
  if (a->type != b->type || (a->type != out->type && !widened)) return false;
  if (d->compute != (a->type == kDouble ? 70 : 68) && !(a->type == kFloat && d->compute == 77)) return false;
  if (d->scale != (a->type == kDouble ? kDouble : kFloat)) return false;
  bool known = p.epilogue == 1 || p.epilogue == 2 || p.epilogue == 4 || p.epilogue == 6 || p.epilogue == 32 ||
               p.epilogue == 36;
  if (!known || ((p.epilogue & 4) && p.epilogue != 1 && value(d, 26, -1) != out->type)) return false;
  p.a = {nullptr, a->type, a->lead, value(a, 6, 0)};
  p.b = {nullptr, b->type, b->lead, value(b, 6, 0)};
  p.out = {nullptr, out->type, out->lead, value(out, 6, 0)};
  return true;
}
void run(void *data) {
  const Product &p = *static_cast<Product *>(data);  // kept: a graph may run it again
  for (int64_t batch = 0; batch < p.count; ++batch)
    for (int64_t j = 0; j < p.n; ++j)
      for (int64_t i = 0; i < p.m; ++i) {
        double sum = 0;
        for (int64_t l = 0; l < p.k; ++l) {
          int64_t at = p.transpose_a ? l + i * p.a.lead : i + l * p.a.lead;
          int64_t other = p.transpose_b ? j + l * p.b.lead : l + j * p.b.lead;
          sum += load(p.a.data, p.a.type, batch * p.a.stride + at) * load(p.b.data, p.b.type, batch * p.b.stride + other);
        }
        if (p.bias) sum += load(p.bias, p.out.type, i);
        if (p.epilogue & 2) sum = sum > 0 ? sum : 0;
        if (p.epilogue & 32) sum = 0.5 * sum * (1 + std::tanh(0.7978845608028654 * (sum + 0.044715 * sum * sum * sum)));
        store(p.out.data, p.out.type, batch * p.out.stride + i + j * p.out.lead, sum);
      }
}
int heuristics = 0;
void *last_workspace = nullptr;
}  // namespace

extern "C" {
int cublasLtCreate(void **handle) { return made(handle, {1}); }
int cublasLtDestroy(void *handle) { return destroyed(handle, 1); }
int cublasLtMatmulDescCreate(void **where, int compute, int scale) { return made(where, {2, compute, scale}); }
int cublasLtMatmulDescDestroy(void *handle) { return destroyed(handle, 2); }
int cublasLtMatmulDescSetAttribute(void *handle, int attribute, const void *value, size_t size) {
  return set(handle, 2, attribute, value, size, {{3, 4}, {4, 4}, {7, 4}, {8, 8}, {26, 4}});
}
int cublasLtMatrixLayoutCreate(void **where, int type, uint64_t rows, uint64_t columns, int64_t lead) {
  return made(where, {3, 0, 0, type, rows, columns, lead});
}
int cublasLtMatrixLayoutDestroy(void *handle) { return destroyed(handle, 3); }
int cublasLtMatrixLayoutSetAttribute(void *handle, int attribute, const void *value, size_t size) {
  return set(handle, 3, attribute, value, size, {{5, 4}, {6, 8}});
}
int cublasLtMatmulPreferenceCreate(void **where) { return made(where, {4}); }
int cublasLtMatmulPreferenceDestroy(void *handle) { return destroyed(handle, 4); }
int cublasLtMatmulPreferenceSetAttribute(void *handle, int attribute, const void *value, size_t size) {
  return set(handle, 4, attribute, value, size, {{1, 8}, {3, 4}, {5, 4}, {6, 4}, {7, 4}, {8, 4}});
}
int fake_cublaslt_heuristics() { return heuristics; }
void *fake_cublaslt_workspace() { return last_workspace; }

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *description, void *a, void *b, void *c, void *out,
                                   void *preference, int requested, Heuristic *results, int *count) {
  Product p;
  Object *d = of(description, 2), *wanted = of(preference, 4);
  if (!of(handle, 1) || !wanted || requested != 1 || fake_cuda_capturing()) return kInvalid;
  if (!described(p, d, of(a, 3), of(b, 3), of(c, 3), of(out, 3))) return kInvalid;
  int64_t alignment = value(wanted, 5, 256), room = value(wanted, 1, 0);
  for (int name : {6, 7, 8})
    if (value(wanted, name, 256) != alignment) return kInvalid;
  if (value(wanted, 3, 7) != 2) return kInvalid;  // partial sums in the workspace alone
  if ((p.epilogue & 4) && p.epilogue != 1 && value(d, 8, 0) % alignment) return kInvalid;
  ++heuristics;
  *count = 0;
  if (room < 1024) return kNotSupported;
  auto id = reinterpret_cast<uint64_t>(description);
  *results = {{kMagic, uint64_t(alignment), 1024, id, {}}, 1024, 0, 1.0f, {}};
  *count = 1;
  return 0;
}
int cublasLtMatmul(void *handle, void *description, const void *alpha, char *a, void *layout_a, char *b, void *layout_b,
                   const void *beta, char *c, void *layout_c, char *out, void *layout_out, const Algorithm *algorithm,
                   char *workspace, size_t bytes, void *stream) {
  Product p;
  Object *d = of(description, 2), *x = of(layout_a, 3), *y = of(layout_b, 3), *z = of(layout_out, 3);
  if (!of(handle, 1) || !stream || !described(p, d, x, y, of(layout_c, 3), z) || c != out) return kInvalid;
  bool wide = d->scale == kDouble;
  if ((wide ? *static_cast<const double *>(alpha) : *static_cast<const float *>(alpha)) != 1) return kInvalid;
  if ((wide ? *static_cast<const double *>(beta) : *static_cast<const float *>(beta)) != 0) return kInvalid;
  if (!algorithm || algorithm->magic != kMagic || algorithm->description != reinterpret_cast<uint64_t>(description))
    return kInvalid;
  p.a.data = a, p.b.data = b, p.out.data = out;
  bool has_bias = (p.epilogue & 4) && p.epilogue != 1;
  if (!has_bias && value(d, 8, 0)) return kInvalid;  // as the library on an H200 has it
  p.bias = has_bias ? reinterpret_cast<const char *>(value(d, 8, 0)) : nullptr;
  for (const void *each : {(const void *)a, (const void *)b, (const void *)out, (const void *)p.bias})
    if (reinterpret_cast<uintptr_t>(each) % algorithm->alignment) return kInvalid;
  if (bytes < algorithm->workspace || reinterpret_cast<uintptr_t>(workspace) % 256 || !fake_cuda_holds(workspace, bytes))
    return kInvalid;
  if (!holds(p.a, x, p.count) || !holds(p.b, y, p.count) || !holds(p.out, z, p.count)) return kInvalid;
  if (p.bias && !fake_cuda_holds(p.bias, size_of(p.out.type) * p.m)) return kInvalid;
  last_workspace = workspace;
  return cuLaunchHostFunc(stream, run, new Product(p));
}
}
