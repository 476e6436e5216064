// cuDNN's graph interface, for operations that programs make: descriptors are checked when they are finished, their values when they run.
#pragma once
#include <cmath>
#include <limits>
#include <map>

namespace {
enum Kind { kEngine = 2, kConfiguration, kHeuristics, kPlan, kGraph = 15, kPack, kTensor, kNorm = 29, kAttention = 41 };
constexpr int kNotSupported = 3000, kNotFinished = 2000, kGraphWorkspace = 8192;
// Types of attributes, and the bytes of a value.
const std::map<int, int> kBytes = {{0, 8}, {1, 4}, {2, 1}, {3, 8}, {6, 8}, {8, 4}, {11, 4}, {15, 8}, {27, 4}, {28, 4}};
const std::map<int, int> kTypes = {
    {201, 15}, {200, 8},  {400, 0},  {401, 15},  {800, 0},   {801, 15},  {900, 3},   {901, 1},   {902, 3},   {903, 3},
    {906, 3},  {908, 2},  {1000, 3}, {1001, 6},  {1003, 6},  {2000, 27}, {2001, 28}, {2002, 15}, {2005, 15}, {2006, 15},
    {2007, 15}, {2013, 15}, {2800, 15}, {2801, 15}, {2802, 15}, {2803, 15}, {2805, 15}};

struct Descriptor {
  int kind;
  bool finished = false;
  std::map<int, std::vector<int64_t>> values;
  int number = 0;  // of configurations and engines: which one of the heuristics'
  const Descriptor *of = nullptr;  // of configurations, the graph
};
std::set<Descriptor *> descriptors;
int graph_calls = 0, live_packs = 0;

Descriptor *described(int64_t address, int kind) {
  auto *found = reinterpret_cast<Descriptor *>(address);
  return descriptors.count(found) && found->finished && found->kind == kind ? found : nullptr;
}
const std::vector<int64_t> *value(const Descriptor *d, int name, size_t count = 1) {
  auto found = d->values.find(name);
  return found == d->values.end() || (count && found->second.size() != count) ? nullptr : &found->second;
}
struct Array {
  int64_t number;
  int type;
  std::vector<int64_t> extents, strides;
  bool by_value;
  char *data = nullptr;
  double at(int64_t a, int64_t b, int64_t c, int64_t d) const {
    int64_t place[] = {a, b, c, d}, found = 0;
    for (int k = 0; k < 4; ++k) found += extents[k] == 1 ? 0 : place[k] * strides[k];
    return load(data, cuda_type(type), found);
  }
  int64_t last() const {
    int64_t found = 0;
    for (int k = 0; k < 4; ++k) found += (extents[k] - 1) * strides[k];
    return found;
  }
};
bool array(const Descriptor *operation, int name, Array &to) {
  auto *tensor = value(operation, name);
  Descriptor *d = tensor ? described((*tensor)[0], kTensor) : nullptr;
  if (!d) return false;
  to = {(*value(d, 906))[0], int((*value(d, 901))[0]), *value(d, 902, 4), *value(d, 903, 4), d->values.count(908) > 0};
  return to.by_value == (name == 2007 || name == 2805);
}
struct Whole {
  int kind, mode = -1;
  Array x, scale, bias, y, k, v, number;
  bool has_bias = false;
};
// The operation of a graph; false where its tensors do not fit each other.
bool whole(const Descriptor *operation, Whole &w) {
  w.kind = operation->kind;
  if (w.kind == kAttention) {
    if (!array(operation, 2800, w.x) || !array(operation, 2801, w.k) || !array(operation, 2802, w.v)) return false;
    if (!array(operation, 2803, w.y) || !array(operation, 2805, w.number)) return false;
    auto &q = w.x.extents, &k = w.k.extents, &v = w.v.extents, &y = w.y.extents;
    if (q[0] != k[0] || k[0] != v[0] || q[1] % k[1] || k[1] != v[1] || q[3] != k[3] || k[2] != v[2]) return false;
    if (y[0] != q[0] || y[1] != q[1] || y[2] != q[2] || y[3] != v[3] || q[3] % 8 || v[3] % 8 || q[3] > 128 || v[3] > 128)
      return false;
    bool narrow = w.x.type == 2 || w.x.type == 9;
    return narrow && w.k.type == w.x.type && w.v.type == w.x.type && w.y.type == w.x.type && w.number.type == 0;
  }
  auto *mode = value(operation, 2000), *phase = value(operation, 2001);
  if (!mode || !phase || (*phase)[0] != 0 || !array(operation, 2002, w.x) || !array(operation, 2005, w.scale)) return false;
  if (!array(operation, 2013, w.y) || !array(operation, 2007, w.number)) return false;
  w.mode = int((*mode)[0]), w.has_bias = array(operation, 2006, w.bias);
  if (w.mode != (w.has_bias ? 0 : 4) || w.y.extents != w.x.extents || w.y.type != w.x.type) return false;
  std::vector<int64_t> row = w.x.extents;
  row[0] = 1;
  return row[2] == 1 && row[3] == 1 && w.scale.extents == row && (!w.has_bias || w.bias.extents == row);
}
void attend(const Whole &w) {
  double scale = *reinterpret_cast<float *>(w.number.data);
  auto &q = w.x.extents;
  int64_t keys = w.k.extents[2], width = w.v.extents[3], group = q[1] / w.k.extents[1];
  std::vector<double> weights(keys);
  for (int64_t b = 0; b < q[0]; ++b)
    for (int64_t h = 0; h < q[1]; ++h)
      for (int64_t i = 0; i < q[2]; ++i) {
        double largest = -std::numeric_limits<double>::infinity(), total = 0;
        for (int64_t j = 0; j < keys; ++j) {
          double sum = 0;
          for (int64_t e = 0; e < q[3]; ++e) sum += w.x.at(b, h, i, e) * w.k.at(b, h / group, j, e);
          weights[j] = sum * scale, largest = std::max(largest, weights[j]);
        }
        for (auto &weight : weights) total += weight = std::exp(weight - largest);
        for (int64_t e = 0; e < width; ++e) {
          double sum = 0;
          for (int64_t j = 0; j < keys; ++j) sum += weights[j] / total * w.v.at(b, h / group, j, e);
          auto &s = w.y.strides;
          store(w.y.data, cuda_type(w.y.type), b * s[0] + h * s[1] + i * s[2] + e * s[3], sum);
        }
      }
}
void normalize(const Whole &w) {
  double epsilon = *reinterpret_cast<float *>(w.number.data);
  int64_t rows = w.x.extents[0], columns = w.x.extents[1];
  for (int64_t r = 0; r < rows; ++r) {
    double mean = 0, square = 0;
    for (int64_t c = 0; w.mode == 0 && c < columns; ++c) mean += w.x.at(r, c, 0, 0) / columns;
    for (int64_t c = 0; c < columns; ++c) square += std::pow(w.x.at(r, c, 0, 0) - mean, 2) / columns;
    for (int64_t c = 0; c < columns; ++c) {
      double found = (w.x.at(r, c, 0, 0) - mean) / std::sqrt(square + epsilon) * w.scale.at(0, c, 0, 0);
      if (w.has_bias) found += w.bias.at(0, c, 0, 0);
      store(w.y.data, cuda_type(w.y.type), r * w.y.strides[0] + c * w.y.strides[1], found);
    }
  }
}
void run_whole(void *data) {
  const Whole &w = *static_cast<Whole *>(data);  // kept: a graph may run it again
  w.kind == kAttention ? attend(w) : normalize(w);
}
bool finished(const Descriptor *d) {
  switch (d->kind) {
    case kTensor: {
      auto *extents = value(d, 902, 4), *strides = value(d, 903, 4), *aligned = value(d, 900);
      if (!extents || !strides || !aligned || !value(d, 901) || !value(d, 906)) return false;
      for (int k = 0; k < 4; ++k)
        if ((*extents)[k] < 1 || (*strides)[k] < 1) return false;
      return d->values.count(908) ? (*aligned)[0] == 4 : (*aligned)[0] == 16;
    }
    case kAttention:
    case kNorm: {
      Whole w;
      return whole(d, w);
    }
    case kGraph: {
      auto *handle = value(d, 800), *operations = value(d, 801);
      if (!handle || !of(reinterpret_cast<void *>((*handle)[0]), 1) || !operations) return false;
      return described((*operations)[0], kAttention) || described((*operations)[0], kNorm);
    }
    case kPlan: return value(d, 400) && value(d, 401) && described((*value(d, 401))[0], kConfiguration);
    case kPack: return value(d, 1000, 0) && value(d, 1001, value(d, 1000, 0)->size()) && value(d, 1003);
    default: return false;
  }
}
}  // namespace

extern "C" {
size_t cudnnGetVersion() { return 91400; }
int fake_cudnn_graph_calls() { return graph_calls; }
int fake_cudnn_live_packs() { return live_packs; }
int cudnnBackendCreateDescriptor(int kind, void **where) {
  if (fake_cuda_capturing() && kind != kPack) return kBadParameter;
  live_packs += kind == kPack;
  *where = *descriptors.insert(new Descriptor{kind}).first;
  return 0;
}
int cudnnBackendDestroyDescriptor(void *handle) {
  auto *d = static_cast<Descriptor *>(handle);
  if (!descriptors.erase(d)) return kBadParameter;
  live_packs -= d->kind == kPack;
  delete d;
  return 0;
}
int cudnnBackendSetAttribute(void *handle, int name, int type, int64_t count, const char *data) {
  auto *d = static_cast<Descriptor *>(handle);
  auto known = kTypes.find(name);
  if (!descriptors.count(d) || d->finished || known == kTypes.end() || known->second != type || count < 1 || !data)
    return kBadParameter;
  std::vector<int64_t> found(count, 0);
  for (int64_t k = 0; k < count; ++k) memcpy(&found[k], data + k * kBytes.at(type), kBytes.at(type));
  d->values[name] = found;
  return 0;
}
int cudnnBackendFinalize(void *handle) {
  auto *d = static_cast<Descriptor *>(handle);
  if (!descriptors.count(d) || d->finished) return kBadParameter;
  if (d->kind == kHeuristics) {
    auto *graph = value(d, 201), *mode = value(d, 200);
    if (!graph || !mode || !described((*graph)[0], kGraph)) return kBadParameter;
    if ((*mode)[0] != 3) return kNotSupported;
    d->of = described((*graph)[0], kGraph);
  } else if (!finished(d)) {
    return kBadParameter;
  } else if (d->kind == kPlan && described((*value(d, 401))[0], kConfiguration)->number == 1) {
    return kNotSupported;  // the heuristics name what an engine then does not support
  }
  d->finished = true;
  return 0;
}
// Three configurations: one whose results differ between runs, one that is not supported, and one that may be taken.
int cudnnBackendGetAttribute(void *handle, int name, int type, int64_t room, int64_t *count, void *to) {
  auto *d = static_cast<Descriptor *>(handle);
  if (!descriptors.count(d) || !d->finished || !count || room < 1) return kBadParameter;
  if (d->kind == kHeuristics && name == 202 && type == 15 && room >= 3) {
    auto **made = static_cast<Descriptor **>(to);
    for (int k = 0; k < 3; ++k) {
      if (!descriptors.count(made[k]) || made[k]->kind != kConfiguration) return kBadParameter;
      made[k]->number = k, made[k]->of = d->of, made[k]->finished = true;
    }
    return *count = 3, 0;
  }
  if (d->kind == kConfiguration && name == 300 && type == 15) {
    auto *engine = *static_cast<Descriptor **>(to);
    if (!descriptors.count(engine) || engine->kind != kEngine) return kBadParameter;
    engine->number = d->number, engine->finished = true;
    return *count = 1, 0;
  }
  if (d->kind == kEngine && name == 1303 && type == 11) {
    *static_cast<int *>(to) = d->number == 0 ? 4 : 0;  // not deterministic, or tensor cores
    return *count = 1, 0;
  }
  if (d->kind == kPlan && name == 402 && type == 3) return *static_cast<int64_t *>(to) = kGraphWorkspace, *count = 1, 0;
  return kBadParameter;
}
int cudnnBackendExecute(void *handle, void *plan, void *pack) {
  Object *own = of(handle, 1);
  Descriptor *p = described(reinterpret_cast<int64_t>(plan), kPlan), *v = described(reinterpret_cast<int64_t>(pack), kPack);
  if (!own || !own->stream || !p || !v) return kBadParameter;
  const Descriptor *chosen = described((*value(p, 401))[0], kConfiguration);
  if (!chosen || chosen->number != 2) return kBadParameter;
  auto operation = (*value(chosen->of, 801))[0];
  auto *w = new Whole;
  if (!whole(reinterpret_cast<Descriptor *>(operation), *w)) return kBadParameter;
  auto &numbers = *value(v, 1000, 0), &pointers = *value(v, 1001, 0);
  size_t bound = 0;
  for (Array *each : {&w->x, &w->scale, &w->bias, &w->y, &w->k, &w->v, &w->number})
    for (size_t k = 0; k < numbers.size() && !each->extents.empty(); ++k)
      if (numbers[k] == each->number) {
        each->data = reinterpret_cast<char *>(pointers[k]), ++bound;
        bool there = each->by_value || fake_cuda_holds(each->data, size_of(cuda_type(each->type)) * (each->last() + 1));
        if (!there || (!each->by_value && pointers[k] % 16)) return kBadParameter;
      }
  char *workspace = reinterpret_cast<char *>((*value(v, 1003))[0]);
  if (bound != numbers.size() || (*value(v, 1003))[0] % 256 || !fake_cuda_holds(workspace, kGraphWorkspace))
    return kBadParameter;
  last_workspace = workspace, ++graph_calls;
  return cuLaunchHostFunc(own->stream, run_whole, w);
}
// The first interface's batch norm with given statistics, of channels on the second axis.
int cudnnBatchNormalizationForwardInference(void *handle, int mode, const void *alpha, const void *beta, void *x, char *px,
                                            void *y, char *py, void *parameters, char *scale, char *bias, char *mean,
                                            char *variance, double epsilon) {
  Object *own = of(handle, 1), *tensor = of(x, 2), *channels = of(parameters, 2);
  if (!own || !own->stream || mode != 1 || !tensor || x != y || !channels || epsilon < 0) return kBadParameter;
  bool wide = tensor->type == 1;
  if ((wide ? *static_cast<const double *>(alpha) : *static_cast<const float *>(alpha)) != 1) return kBadParameter;
  if ((wide ? *static_cast<const double *>(beta) : *static_cast<const float *>(beta)) != 0) return kBadParameter;
  if (channels->type != tensor->type || tensor->type > 1 || channels->extents.size() != tensor->extents.size())
    return kBadParameter;
  for (size_t k = 0; k < channels->extents.size(); ++k)
    if (channels->extents[k] != (k == 1 ? tensor->extents[1] : 1)) return kBadParameter;
  long long item = size_of(cuda_type(tensor->type)), whole = size(*tensor);
  for (char *each : {scale, bias, mean, variance})
    if (!fake_cuda_holds(each, item * tensor->extents[1])) return kBadParameter;
  if (!fake_cuda_holds(px, item * whole) || !fake_cuda_holds(py, item * whole)) return kBadParameter;
  struct Norm {
    int type;
    long long outer, channels, inner;
    char *x, *y, *scale, *bias, *mean, *variance;
    double epsilon;
  };
  long long n = tensor->extents[0], c = tensor->extents[1];
  auto run = [](void *data) {
    const Norm &b = *static_cast<Norm *>(data);
    for (long long k = 0; k < b.outer * b.channels * b.inner; ++k) {
      long long channel = k / b.inner % b.channels;
      double found = (load(b.x, b.type, k) - load(b.mean, b.type, channel)) / std::sqrt(load(b.variance, b.type, channel) + b.epsilon);
      store(b.y, b.type, k, found * load(b.scale, b.type, channel) + load(b.bias, b.type, channel));
    }
  };
  auto *norm = new Norm{cuda_type(tensor->type), n, c, whole / (n * c), px, py, scale, bias, mean, variance, epsilon};
  return cuLaunchHostFunc(own->stream, run, norm);
}
}
