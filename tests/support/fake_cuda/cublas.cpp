// A stand-in for the few functions of cuBLAS that programs call: products by three loops, enqueued on a stream.
#include <cstddef>

#include "elements.hpp"

namespace {
struct Handle {
  void *stream = nullptr;
  char *workspace = nullptr;
  size_t bytes = 0;
  int mode = 0;
};
struct Operand {
  char *data;
  long long lead, stride;
};
// Column by column, as cuBLAS has it: out[m, n] = op(a)[m, k] op(b)[k, n].
struct Product {
  int m, n, k, count, type, type_out;
  bool transpose_a, transpose_b;
  Operand a, b, out;
};

void *last_workspace = nullptr;

double element(const Operand &from, int type, long long batch, long long row, long long column) {
  return load(from.data, type, batch * from.stride + row + column * from.lead);
}
void run(void *data) {
  const Product &p = *static_cast<Product *>(data);  // kept: a graph may run it again
  for (long long batch = 0; batch < p.count; ++batch)
    for (int j = 0; j < p.n; ++j)
      for (int i = 0; i < p.m; ++i) {
        double sum = 0;
        for (int l = 0; l < p.k; ++l)
          sum += (p.transpose_a ? element(p.a, p.type, batch, l, i) : element(p.a, p.type, batch, i, l)) *
                 (p.transpose_b ? element(p.b, p.type, batch, j, l) : element(p.b, p.type, batch, l, j));
        store(p.out.data, p.type_out, batch * p.out.stride + i + j * p.out.lead, sum);
      }
}
}  // namespace

extern "C" {
int cublasCreate_v2(void **handle) { return *handle = new Handle, 0; }
int cublasDestroy_v2(void *handle) { return delete static_cast<Handle *>(handle), 0; }
int cublasSetStream_v2(void *handle, void *stream) {
  Handle &found = *static_cast<Handle *>(handle);
  found.stream = stream;
  found.workspace = nullptr;
  return 0;
}
int cublasSetWorkspace_v2(void *handle, void *workspace, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(workspace) % 256 || bytes < 16384 || !fake_cuda_holds(workspace, bytes)) return 7;
  Handle &found = *static_cast<Handle *>(handle);
  found.workspace = static_cast<char *>(workspace);
  found.bytes = bytes;
  return 0;
}
int cublasSetMathMode(void *handle, int mode) { return static_cast<Handle *>(handle)->mode = mode, 0; }
void *fake_cublas_workspace() { return last_workspace; }
int cublasGemmStridedBatchedEx(void *handle, int transpose_a, int transpose_b, int m, int n, int k, const void *, void *a,
                               int type_a, int lead_a, long long stride_a, void *b, int type_b, int lead_b,
                               long long stride_b, const void *, void *out, int type_out, int lead_out,
                               long long stride_out, int count, int compute, int algorithm) {
  const Handle &found = *static_cast<Handle *>(handle);
  constexpr int kInvalidValue = 7, kNotInitialized = 1;
  if (!found.workspace || !found.stream || found.mode != 16) return kNotInitialized;
  bool widened = (type_a == kHalf || type_a == kBrain) && type_out == kFloat;
  if (type_a != type_b || (type_a != type_out && !widened) || algorithm != -1) return kInvalidValue;
  if (compute != (type_a == kDouble ? 70 : 68) && !(type_a == kFloat && compute == 77)) return kInvalidValue;
  if (lead_a < (transpose_a ? k : m) || lead_b < (transpose_b ? n : k) || lead_out < m) return kInvalidValue;
  auto reach = [&](int lead, int rows, int columns, long long stride, int type) {
    return size_of(type) * ((count - 1) * stride + (columns - 1ll) * lead + rows);
  };
  if (!fake_cuda_holds(a, reach(lead_a, transpose_a ? k : m, transpose_a ? m : k, stride_a, type_a)) ||
      !fake_cuda_holds(b, reach(lead_b, transpose_b ? n : k, transpose_b ? k : n, stride_b, type_b)) ||
      !fake_cuda_holds(out, reach(lead_out, m, n, stride_out, type_out)))
    return kInvalidValue;
  last_workspace = found.workspace;
  auto *product = new Product{m, n, k, count, type_a, type_out, transpose_a != 0, transpose_b != 0,
                              {static_cast<char *>(a), lead_a, stride_a},
                              {static_cast<char *>(b), lead_b, stride_b},
                              {static_cast<char *>(out), lead_out, stride_out}};
  return cuLaunchHostFunc(found.stream, run, product);
}
}
