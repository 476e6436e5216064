// A stand-in for the functions of cuDNN that programs call: every argument is checked, convolutions are plain loops.
//
// The heuristics name algorithms that must not be taken before the one that may be: one that is not deterministic or a
// transform, one that takes too much memory, one with a status.
#include <cstddef>
#include <vector>

#include "elements.hpp"
#include "objects.hpp"

namespace {
constexpr int kBadParameter = 2000, kWorkspace = 4096;
enum Direction { kForward, kData, kWeight };

struct Object {
  int kind;  // 1 handle, 2 tensor, 3 filter, 4 convolution, 5 activation
  void *stream = nullptr;
  int type = -1, groups = 1, math = 0, compute = -1, mode = -1;
  std::vector<int> extents, pads, steps, gaps;
  bool last = false;  // of tensors and filters: channels innermost
};
struct Found {
  int algorithm, status;
  float time;
  size_t memory;
  int determinism, math, reserved[3];
};
static_assert(sizeof(Found) == 48, "as in cudnn_cnn.h");
struct Call {
  Direction direction;
  Object x, w, y, c;
  char *px, *pw, *py;
  char *bias = nullptr, *more = nullptr;  // of steps behind it
  bool relu = false;
};
Objects<Object> objects;
int asked = 0, in_place = 0;
int last_math = -1;
void *last_workspace = nullptr;

Object *of(const void *handle, int kind) { return objects.of(handle, kind); }
int made(void **where, int kind) {
  *where = objects.made({kind});
  return 0;
}
int destroyed(void *handle, int kind) { return objects.destroyed(handle, kind) ? 0 : kBadParameter; }
long long size(const Object &tensor) {
  long long found = 1;
  for (int extent : tensor.extents) found *= extent;
  return found;
}
// cuDNN's number of an element type as CUDA's.
int cuda_type(int type) { return type == 9 ? kBrain : type; }

// Whether the descriptors are of one convolution.
bool fit(const Object *x, const Object *w, const Object *y, const Object *c) {
  if (!x || !w || !y || !c || x->type != w->type || x->type != y->type) return false;
  size_t rank = x->extents.size();
  if (rank < 4 || rank > 5 || w->extents.size() != rank || y->extents.size() != rank || c->pads.size() != rank - 2)
    return false;
  if (c->compute != (x->type == 1 ? 1 : 0) || c->groups < 1) return false;
  if (x->last != w->last || x->last != y->last) return false;  // the library mixes some; programs do not
  if (x->extents[0] != y->extents[0] || w->extents[0] != y->extents[1]) return false;
  if (x->extents[1] != w->extents[1] * c->groups || w->extents[0] % c->groups) return false;
  for (size_t k = 2; k < rank; ++k) {
    int reach = c->gaps[k - 2] * (w->extents[k] - 1) + 1;
    if ((x->extents[k] + 2 * c->pads[k - 2] - reach) / c->steps[k - 2] + 1 != y->extents[k]) return false;
  }
  return true;
}
// An array with three spatial axes: those that are missing have one element.
struct View {
  char *data;
  int type, e[5];
  bool last;
  View(char *p, const Object &o) : data(p), type(cuda_type(o.type)), last(o.last) {
    int missing = 5 - int(o.extents.size());
    for (int k = 0; k < 5; ++k) e[k] = k < 2 ? o.extents[k] : k - 2 < missing ? 1 : o.extents[k - missing];
  }
  long long at(int n, int c, int i, int j, int k) const {
    if (last) return (((n * (long long)e[2] + i) * e[3] + j) * e[4] + k) * e[1] + c;
    return (((n * (long long)e[1] + c) * e[2] + i) * e[3] + j) * e[4] + k;
  }
};
void run(void *data) {
  const Call &call = *static_cast<Call *>(data);  // kept: a graph may run it again
  View x(call.px, call.x), w(call.pw, call.w), y(call.py, call.y);
  const View &out = call.direction == kForward ? y : call.direction == kData ? x : w;
  int missing = 3 - int(call.c.pads.size());
  int pad[3], step[3], gap[3];
  for (int k = 0; k < 3; ++k) {
    pad[k] = k < missing ? 0 : call.c.pads[k - missing];
    step[k] = k < missing ? 1 : call.c.steps[k - missing];
    gap[k] = k < missing ? 1 : call.c.gaps[k - missing];
  }
  long long count = 1;
  for (int extent : out.e) count *= extent;
  std::vector<double> sums(count, 0.0);
  int filters = w.e[0] / call.c.groups;
  for (int n = 0; n < y.e[0]; ++n)
    for (int o = 0; o < y.e[1]; ++o)
      for (int i = 0; i < y.e[2]; ++i)
        for (int j = 0; j < y.e[3]; ++j)
          for (int k = 0; k < y.e[4]; ++k)
            for (int c = 0; c < w.e[1]; ++c)
              for (int p = 0; p < w.e[2]; ++p)
                for (int q = 0; q < w.e[3]; ++q)
                  for (int r = 0; r < w.e[4]; ++r) {
                    int a = i * step[0] + p * gap[0] - pad[0], b = j * step[1] + q * gap[1] - pad[1],
                        d = k * step[2] + r * gap[2] - pad[2];
                    if (a < 0 || b < 0 || d < 0 || a >= x.e[2] || b >= x.e[3] || d >= x.e[4]) continue;
                    long long of_x = x.at(n, o / filters * w.e[1] + c, a, b, d), of_w = w.at(o, c, p, q, r),
                              of_y = y.at(n, o, i, j, k);
                    if (call.direction == kForward)
                      sums[of_y] += load(x.data, x.type, of_x) * load(w.data, w.type, of_w);
                    else if (call.direction == kData)
                      sums[of_x] += load(y.data, y.type, of_y) * load(w.data, w.type, of_w);
                    else
                      sums[of_w] += load(y.data, y.type, of_y) * load(x.data, x.type, of_x);
                  }
  long long inner = (long long)out.e[2] * out.e[3] * out.e[4];
  for (long long at = 0; at < count; ++at) {
    double value = sums[at];
    if (call.more) value += load(call.more, out.type, at);  // which may lie in the same place
    if (call.bias) value += load(call.bias, out.type, (out.last ? at : at / inner) % out.e[1]);
    store(out.data, out.type, at, call.relu && value < 0 ? 0 : value);
  }
}
// The only algorithm that may be taken in strict mode.
int plain(Direction) { return 1; }

int ask(Direction direction, void *handle, Object *x, Object *w, Object *y, Object *c, int requested, int *count,
        Found *found) {
  if (!of(handle, 1) || !fit(x, w, y, c) || requested != 8 || fake_cuda_capturing()) return kBadParameter;
  ++asked;
  int fast = direction == kForward ? 7 : direction == kData ? 0 : 3;
  bool transform = direction == kForward;
  found[0] = {fast, 0, 0.1f, 0, transform, c->math, {}};
  found[1] = {plain(direction), 3000, 0.2f, 0, 1, c->math, {}};
  found[2] = {2, 0, 0.3f, size_t(1) << 40, 1, c->math, {}};
  found[3] = {plain(direction), 0, 0.4f, kWorkspace, 1, c->math, {}};
  *count = 4;
  return 0;
}
struct Steps {
  char *bias = nullptr, *more = nullptr;
  bool relu = false;
};
int enqueue(Direction direction, void *handle, const void *alpha, const void *beta, Object *x, char *px, Object *w,
            char *pw, Object *y, char *py, Object *c, int algorithm, char *workspace, size_t bytes, Steps steps = {}) {
  Object *found = of(handle, 1);
  if (!found || !found->stream || !fit(x, w, y, c)) return kBadParameter;
  bool wide = x->type == 1;
  if ((wide ? *static_cast<const double *>(alpha) : *static_cast<const float *>(alpha)) != 1) return kBadParameter;
  if ((wide ? *static_cast<const double *>(beta) : *static_cast<const float *>(beta)) != 0) return kBadParameter;
  bool strict = algorithm == plain(direction) && c->math == (x->type == 0 ? 3 : x->type == 1 ? 0 : 1);
  bool fast = algorithm == 7 && direction == kForward && c->math != 3;
  bool mixed = algorithm == plain(direction) && c->math == 0;
  if (!strict && !fast && !mixed) return kBadParameter;
  if (bytes < kWorkspace || reinterpret_cast<uintptr_t>(workspace) % 256 || !fake_cuda_holds(workspace, bytes))
    return kBadParameter;
  long long item = size_of(cuda_type(x->type));
  if (!fake_cuda_holds(px, item * size(*x)) || !fake_cuda_holds(pw, item * size(*w)) ||
      !fake_cuda_holds(py, item * size(*y)))
    return kBadParameter;
  last_workspace = workspace;
  last_math = c->math;
  return cuLaunchHostFunc(found->stream, run, new Call{direction, *x, *w, *y, *c, px, pw, py, steps.bias, steps.more, steps.relu});
}
}  // namespace

extern "C" {
int cudnnCreate(void **handle) { return made(handle, 1); }
int cudnnDestroy(void *handle) { return destroyed(handle, 1); }
int cudnnSetStream(void *handle, void *stream) {
  Object *found = of(handle, 1);
  return found ? (found->stream = stream, 0) : kBadParameter;
}
int cudnnCreateTensorDescriptor(void **where) { return made(where, 2); }
int cudnnDestroyTensorDescriptor(void *handle) { return destroyed(handle, 2); }
int cudnnSetTensorNdDescriptor(void *handle, int type, int rank, const int *extents, const int *strides) {
  Object *found = of(handle, 2);
  if (!found || (type != 0 && type != 1 && type != 2 && type != 9)) return kBadParameter;
  found->type = type;
  found->extents.assign(extents, extents + rank);
  // Programs hold rows of rows, or channels innermost.
  for (bool last : {false, true}) {
    bool right = true;
    int stride = 1;
    auto next = [&](int k) { right &= extents[k] >= 1 && strides[k] == stride, stride *= extents[k]; };
    if (last) next(1);
    for (int k = rank - 1; k >= 0; --k)
      if (!last || k != 1) next(k);
    found->last = last;
    if (right) return 0;
  }
  return kBadParameter;
}
int cudnnCreateFilterDescriptor(void **where) { return made(where, 3); }
int cudnnDestroyFilterDescriptor(void *handle) { return destroyed(handle, 3); }
int cudnnSetFilterNdDescriptor(void *handle, int type, int format, int rank, const int *extents) {
  Object *found = of(handle, 3);
  if (!found || (format != 0 && format != 1)) return kBadParameter;
  found->last = format == 1;
  found->type = type;
  found->extents.assign(extents, extents + rank);
  return 0;
}
int cudnnCreateConvolutionDescriptor(void **where) { return made(where, 4); }
int cudnnDestroyConvolutionDescriptor(void *handle) { return destroyed(handle, 4); }
int cudnnSetConvolutionNdDescriptor(void *handle, int axes, const int *pads, const int *steps, const int *gaps, int mode,
                                    int compute) {
  Object *found = of(handle, 4);
  if (!found || mode != 1 || axes < 2) return kBadParameter;
  found->pads.assign(pads, pads + axes);
  found->steps.assign(steps, steps + axes);
  found->gaps.assign(gaps, gaps + axes);
  found->compute = compute;
  return 0;
}
int cudnnSetConvolutionGroupCount(void *handle, int groups) {
  Object *found = of(handle, 4);
  return found ? (found->groups = groups, 0) : kBadParameter;
}
int cudnnSetConvolutionMathType(void *handle, int math) {
  Object *found = of(handle, 4);
  return found && math >= 0 && math <= 3 ? (found->math = math, 0) : kBadParameter;
}
int cudnnCreateActivationDescriptor(void **where) { return made(where, 5); }
int cudnnDestroyActivationDescriptor(void *handle) { return destroyed(handle, 5); }
int cudnnSetActivationDescriptor(void *handle, int mode, int nan, double) {
  Object *found = of(handle, 5);
  if (!found || (mode != 1 && mode != 5) || nan != 1) return kBadParameter;  // ReLU or nothing
  return found->mode = mode, 0;
}
int fake_cudnn_asked() { return asked; }
int fake_cudnn_in_place() { return in_place; }
int fake_cudnn_math() { return last_math; }
void *fake_cudnn_workspace() { return last_workspace; }

int cudnnGetConvolutionForwardAlgorithm_v7(void *handle, void *x, void *w, void *c, void *y, int requested, int *count,
                                           Found *found) {
  return ask(kForward, handle, of(x, 2), of(w, 3), of(y, 2), of(c, 4), requested, count, found);
}
int cudnnGetConvolutionBackwardDataAlgorithm_v7(void *handle, void *w, void *dy, void *c, void *dx, int requested,
                                                int *count, Found *found) {
  return ask(kData, handle, of(dx, 2), of(w, 3), of(dy, 2), of(c, 4), requested, count, found);
}
int cudnnGetConvolutionBackwardFilterAlgorithm_v7(void *handle, void *x, void *dy, void *c, void *dw, int requested,
                                                  int *count, Found *found) {
  return ask(kWeight, handle, of(x, 2), of(dw, 3), of(dy, 2), of(c, 4), requested, count, found);
}
int cudnnConvolutionForward(void *handle, const void *alpha, void *x, char *px, void *w, char *pw, void *c, int algorithm,
                            char *workspace, size_t bytes, const void *beta, void *y, char *py) {
  return enqueue(kForward, handle, alpha, beta, of(x, 2), px, of(w, 3), pw, of(y, 2), py, of(c, 4), algorithm, workspace,
                 bytes);
}
int cudnnConvolutionBackwardData(void *handle, const void *alpha, void *w, char *pw, void *dy, char *py, void *c,
                                 int algorithm, char *workspace, size_t bytes, const void *beta, void *dx, char *px) {
  return enqueue(kData, handle, alpha, beta, of(dx, 2), px, of(w, 3), pw, of(dy, 2), py, of(c, 4), algorithm, workspace,
                 bytes);
}
int cudnnConvolutionBackwardFilter(void *handle, const void *alpha, void *x, char *px, void *dy, char *py, void *c,
                                   int algorithm, char *workspace, size_t bytes, const void *beta, void *dw, char *pw) {
  return enqueue(kWeight, handle, alpha, beta, of(x, 2), px, of(dw, 3), pw, of(dy, 2), py, of(c, 4), algorithm, workspace,
                 bytes);
}
int cudnnConvolutionBiasActivationForward(void *handle, const void *alpha, void *x, char *px, void *w, char *pw, void *c,
                                          int algorithm, char *workspace, size_t bytes, const void *beta, void *z, char *pz,
                                          void *b, char *pb, void *a, void *y, char *py) {
  Object *tensor = of(y, 2), *bias = of(b, 2), *function = of(a, 5);
  if (!tensor || z != y || !bias || !function || bias->type != tensor->type) return kBadParameter;
  if (bias->extents.size() != tensor->extents.size()) return kBadParameter;
  for (size_t k = 0; k < bias->extents.size(); ++k)
    if (bias->extents[k] != (k == 1 ? tensor->extents[1] : 1)) return kBadParameter;
  if (function->mode == 5 && algorithm != 1) return kBadParameter;
  bool wide = tensor->type == 1;
  double scale = wide ? *static_cast<const double *>(beta) : *static_cast<const float *>(beta);
  if (scale != 0 && scale != 1) return kBadParameter;
  long long item = size_of(cuda_type(tensor->type));
  if (!fake_cuda_holds(pb, item * size(*bias)) || !fake_cuda_holds(pz, item * size(*tensor)) || px == py || px == pz)
    return kBadParameter;
  in_place += scale == 1 && pz == py;
  static const double kZero = 0;  // of any type
  Steps steps{pb, scale == 1 ? pz : nullptr, function->mode == 1};
  return enqueue(kForward, handle, alpha, &kZero, of(x, 2), px, of(w, 3), pw, tensor, py, of(c, 4), algorithm, workspace,
                 bytes, steps);
}
}
#include "cudnn_graph.hpp"
