// A stand-in for the functions of cuSPARSE that programs call: every argument is checked, and a pattern's rows and columns when it runs.
#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include "elements.hpp"
#include "objects.hpp"

namespace {
constexpr int kInvalid = 3, kNotSupported = 10;
constexpr int kRowMajor = 2, kIndex32 = 2, kByRows = 6;
constexpr size_t kBuffer = 4096;

struct Object {
  int kind;  // 1 handle, 2 csr, 3 dense
  int64_t rows = 0, columns = 0, count = 0;
  char *parts[3] = {};
  int type = 0;
  void *stream = nullptr;
};
struct Product {
  Object a, x, out;
  char *buffer;
};
Objects<Object> objects;
size_t buffer_bytes = kBuffer;
char *last_buffer = nullptr;
long products = 0;

Object *of(const void *handle, int kind) { return objects.of(handle, kind); }
int made(void **where, const Object &object) {
  if (!where || fake_cuda_capturing()) return kInvalid;
  *where = objects.made(object);
  return 0;
}
int destroyed(void *handle, int kind) { return objects.destroyed(handle, kind) ? 0 : kInvalid; }
// The objects of a product that fit each other; false where one is none, or what is asked for is not what the stand-in knows.
bool described(Product &p, void *handle, int op_a, int op_b, const void *alpha, void *a, void *x, const void *beta, void *out,
               int type, int algorithm) {
  Object *m = of(a, 2), *b = of(x, 3), *c = of(out, 3);
  if (!of(handle, 1) || !m || !b || !c || op_a || op_b || algorithm != kByRows) return false;
  if ((type != kFloat && type != kDouble) || m->type != type || b->type != type || c->type != type) return false;
  bool wide = type == kDouble;
  if ((wide ? *static_cast<const double *>(alpha) : *static_cast<const float *>(alpha)) != 1) return false;
  if ((wide ? *static_cast<const double *>(beta) : *static_cast<const float *>(beta)) != 0) return false;
  if (m->columns != b->rows || m->rows != c->rows || b->columns != c->columns || b->columns < 2) return false;
  p.a = *m, p.x = *b, p.out = *c;
  return true;
}
void wrong(const char *what) {
  fprintf(stderr, "cuSPARSE's stand-in: %s\n", what);
  abort();
}
void run(void *data) {
  const Product &p = *static_cast<Product *>(data);  // kept: a graph may run it again
  const int *ends = reinterpret_cast<const int *>(p.a.parts[0]), *columns = reinterpret_cast<const int *>(p.a.parts[1]);
  if (ends[0] != 0 || ends[p.a.rows] != p.a.count) wrong("rows do not end where entries do");
  memset(p.buffer, 0x5a, buffer_bytes);
  static long runs = 0;  // as on a device, entries of a row are added in another order in another run
  bool backwards = ++runs % 2 == 0;
  for (int64_t row = 0; row < p.a.rows; ++row) {
    if (ends[row] > ends[row + 1]) wrong("a row does not follow the row before");
    for (int64_t column = 0; column < p.x.columns; ++column) {
      double sum = 0;
      for (int64_t k = ends[row]; k < ends[row + 1]; ++k) {
        int64_t at = backwards ? ends[row] + ends[row + 1] - 1 - k : k;
        if (columns[at] < 0 || columns[at] >= p.a.columns) wrong("a column is out of range");
        sum += load(p.a.parts[2], p.a.type, at) * load(p.x.parts[0], p.x.type, columns[at] * p.x.columns + column);
      }
      store(p.out.parts[0], p.out.type, row * p.out.columns + column, sum);
    }
  }
}
}  // namespace

extern "C" {
int cusparseCreate(void **handle) { return made(handle, {1}); }
int cusparseDestroy(void *handle) { return destroyed(handle, 1); }
int cusparseSetStream(void *handle, void *stream) {
  if (!of(handle, 1) || !stream) return kInvalid;
  of(handle, 1)->stream = stream;
  return 0;
}
int cusparseCreateCsr(void **where, int64_t rows, int64_t columns, int64_t count, void *ends, void *indices, void *values,
                      int ends_type, int indices_type, int base, int type) {
  if (rows < 1 || columns < 1 || count < 1 || count > rows * columns || !ends || !indices || !values) return kInvalid;
  if (ends_type != kIndex32 || indices_type != kIndex32 || base) return kInvalid;
  return made(where, {2, rows, columns, count, {}, type});
}
int cusparseCsrSetPointers(void *handle, char *ends, char *indices, char *values) {
  Object *m = of(handle, 2);
  if (!m || !fake_cuda_holds(ends, 4 * (m->rows + 1)) || !fake_cuda_holds(indices, 4 * m->count)) return kInvalid;
  if (!fake_cuda_holds(values, size_of(m->type) * m->count)) return kInvalid;
  m->parts[0] = ends, m->parts[1] = indices, m->parts[2] = values;
  return 0;
}
int cusparseDestroySpMat(void *handle) { return destroyed(handle, 2); }
int cusparseCreateDnMat(void **where, int64_t rows, int64_t columns, int64_t lead, void *values, int type, int order) {
  if (rows < 1 || columns < 1 || lead != columns || !values || order != kRowMajor) return kInvalid;
  return made(where, {3, rows, columns, rows * columns, {}, type});
}
int cusparseDnMatSetValues(void *handle, char *values) {
  Object *m = of(handle, 3);
  if (!m || !fake_cuda_holds(values, size_of(m->type) * m->count)) return kInvalid;
  m->parts[0] = values;
  return 0;
}
int cusparseDestroyDnMat(void *handle) { return destroyed(handle, 3); }
void fake_cusparse_buffer_bytes(size_t bytes) { buffer_bytes = bytes; }
void *fake_cusparse_buffer() { return last_buffer; }
long fake_cusparse_products() { return products; }

int cusparseSpMM_bufferSize(void *handle, int op_a, int op_b, const void *alpha, void *a, void *x, const void *beta, void *out,
                            int type, int algorithm, size_t *bytes) {
  Product p;
  if (!bytes || fake_cuda_capturing()) return kInvalid;
  if (!described(p, handle, op_a, op_b, alpha, a, x, beta, out, type, algorithm)) return kNotSupported;
  *bytes = buffer_bytes;
  return 0;
}
int cusparseSpMM(void *handle, int op_a, int op_b, const void *alpha, void *a, void *x, const void *beta, void *out, int type,
                 int algorithm, char *buffer) {
  Product p;
  if (!described(p, handle, op_a, op_b, alpha, a, x, beta, out, type, algorithm)) return kNotSupported;
  if (!p.a.parts[0] || !p.x.parts[0] || !p.out.parts[0] || !of(handle, 1)->stream) return kInvalid;
  if (reinterpret_cast<uintptr_t>(buffer) % 256 || !fake_cuda_holds(buffer, buffer_bytes)) return kInvalid;
  p.buffer = last_buffer = buffer;
  ++products;
  return cuLaunchHostFunc(of(handle, 1)->stream, run, new Product(p));
}
}
