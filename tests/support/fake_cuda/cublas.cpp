// A stand-in for the few functions of cuBLAS that programs call: products by three loops, enqueued on a stream.
#include <cstdint>
#include <cstring>

extern "C" int cuLaunchHostFunc(void *stream, void (*function)(void *), void *data);

namespace {
enum Type { kFloat = 0, kDouble = 1, kHalf = 2, kBrain = 14 };

struct Handle {
  void *stream = nullptr;
  void *workspace = nullptr;
};
struct Operand {
  char *data;
  long long lead, stride;
};
// Column by column, as cuBLAS has it: out[m, n] = op(a)[m, k] op(b)[k, n].
struct Product {
  int m, n, k, count, type;
  bool transpose_a, transpose_b;
  Operand a, b, out;
};

double load(const Operand &from, int type, long long batch, long long row, long long column) {
  long long at = batch * from.stride + row + column * from.lead;
  if (type == kFloat) return reinterpret_cast<float *>(from.data)[at];
  if (type == kDouble) return reinterpret_cast<double *>(from.data)[at];
  if (type == kHalf) return double(reinterpret_cast<_Float16 *>(from.data)[at]);
  uint32_t bits = uint32_t(reinterpret_cast<uint16_t *>(from.data)[at]) << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
void store(const Operand &to, int type, long long at, double value) {
  if (type == kFloat) reinterpret_cast<float *>(to.data)[at] = float(value);
  if (type == kDouble) reinterpret_cast<double *>(to.data)[at] = value;
  if (type == kHalf) reinterpret_cast<_Float16 *>(to.data)[at] = _Float16(float(value));
  if (type == kBrain) {
    float narrow = float(value);
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    reinterpret_cast<uint16_t *>(to.data)[at] = uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
}
void run(void *data) {
  const Product &p = *static_cast<Product *>(data);  // kept: a graph may run it again
  for (long long batch = 0; batch < p.count; ++batch)
    for (int j = 0; j < p.n; ++j)
      for (int i = 0; i < p.m; ++i) {
        double sum = 0;
        for (int l = 0; l < p.k; ++l)
          sum += (p.transpose_a ? load(p.a, p.type, batch, l, i) : load(p.a, p.type, batch, i, l)) *
                 (p.transpose_b ? load(p.b, p.type, batch, j, l) : load(p.b, p.type, batch, l, j));
        store(p.out, p.type, batch * p.out.stride + i + j * p.out.lead, sum);
      }
}
}  // namespace

extern "C" {
int cublasCreate_v2(void **handle) { return *handle = new Handle, 0; }
int cublasDestroy_v2(void *handle) { return delete static_cast<Handle *>(handle), 0; }
int cublasSetStream_v2(void *handle, void *stream) {
  *static_cast<Handle *>(handle) = {stream, nullptr};
  return 0;
}
int cublasSetWorkspace_v2(void *handle, void *workspace, size_t) {
  static_cast<Handle *>(handle)->workspace = workspace;
  return 0;
}
int cublasSetMathMode(void *, int) { return 0; }
int cublasGemmStridedBatchedEx(void *handle, int transpose_a, int transpose_b, int m, int n, int k, const void *, void *a,
                               int type_a, int lead_a, long long stride_a, void *b, int type_b, int lead_b,
                               long long stride_b, const void *, void *out, int type_out, int lead_out,
                               long long stride_out, int count, int, int) {
  const Handle &found = *static_cast<Handle *>(handle);
  constexpr int kInvalidValue = 7, kNotInitialized = 1;
  if (!found.workspace) return kNotInitialized;
  if (type_a != type_b || type_a != type_out || lead_a < (transpose_a ? k : m) || lead_b < (transpose_b ? n : k) ||
      lead_out < m)
    return kInvalidValue;
  auto *product = new Product{m, n, k, count, type_a, transpose_a != 0, transpose_b != 0,
                              {static_cast<char *>(a), lead_a, stride_a},
                              {static_cast<char *>(b), lead_b, stride_b},
                              {static_cast<char *>(out), lead_out, stride_out}};
  return cuLaunchHostFunc(found.stream, run, product);
}
}
