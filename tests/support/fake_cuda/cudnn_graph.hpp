// cuDNN's graph interface, for operations that programs make: descriptors are checked when they are finished, their values when they run.
#pragma once
#include <cmath>
#include <limits>
#include <map>

namespace {
enum Kind {
  kPointwise, kEngine = 2, kConfiguration, kHeuristics, kPlan, kPointwiseOperation = 13, kGraph = 15, kPack, kTensor, kMatmul,
  kMatmulOperation, kReduction = 21, kReductionOperation, kNorm = 29, kAttention = 41
};
constexpr int kNotSupported = 3000, kNotFinished = 2000, kGraphWorkspace = 8192;
// Types of attributes, and the bytes of a value.
const std::map<int, int> kBytes = {{0, 8}, {1, 4}, {2, 1}, {3, 8}, {4, 4}, {6, 8}, {8, 4}, {11, 4}, {14, 4}, {15, 8}, {18, 4}, {27, 4}, {28, 4}};
const std::map<int, int> kTypes = {
    {201, 15}, {200, 8},  {400, 0},  {401, 15},  {800, 0},   {801, 15},  {900, 3},   {901, 1},   {902, 3},   {903, 3},
    {906, 3},  {908, 2},  {1000, 3}, {1001, 6},  {1003, 6},  {2000, 27}, {2001, 28}, {2002, 15}, {2005, 15}, {2006, 15},
    {2007, 15}, {2013, 15}, {2800, 15}, {2801, 15}, {2802, 15}, {2803, 15}, {2805, 15}, {0, 14},    {1, 1},     {9, 3},
    {750, 15}, {751, 15}, {752, 15}, {753, 15}, {754, 4},  {755, 4},  {758, 15}, {907, 2}, {1500, 1}, {1520, 15}, {1521, 15}, {1522, 15},
    {1523, 15}, {1600, 18}, {1601, 1}, {1610, 15}, {1611, 15}, {1612, 15}};

struct Descriptor {
  int kind;
  bool finished = false;
  std::map<int, std::vector<int64_t>> values;
  int number = 0;  // of configurations and engines: which one of the heuristics'
  const Descriptor *of = nullptr;  // of configurations, the graph
};
std::set<Descriptor *> descriptors;
int graph_calls = 0, live_packs = 0, lost_logs = 0;

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
  bool by_value, is_virtual;
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
bool tensor(const Descriptor *operation, int name, Array &to) {
  auto *tensor = value(operation, name);
  Descriptor *d = tensor ? described((*tensor)[0], kTensor) : nullptr;
  if (!d) return false;
  to = {(*value(d, 906))[0], int((*value(d, 901))[0]), *value(d, 902, 4), *value(d, 903, 4), d->values.count(908) > 0,
        d->values.count(907) > 0};
  return true;
}
bool array(const Descriptor *operation, int name, Array &to) {
  return tensor(operation, name, to) && to.by_value == (name == 2007 || name == 2805);
}
struct Whole {
  int kind, mode = -1;
  Array x, scale, bias, y, k, v, number, lowest, logs;
  bool has_bias = false, causal = false;
  char *workspace = nullptr;
};
// The function of an operation that refers to a descriptor of its own, and with which precision; -1 for another one.
int64_t function(const Descriptor *operation, int64_t precision) {
  bool reduces = operation->kind == kReductionOperation;
  auto *how = value(operation, reduces ? 1612 : operation->kind == kMatmulOperation ? 1523 : 750);
  const Descriptor *d = how ? described((*how)[0], reduces ? kReduction : operation->kind == kMatmulOperation ? kMatmul : kPointwise) : nullptr;
  auto *with = d ? value(d, reduces ? 1601 : operation->kind == kMatmulOperation ? 1500 : 1) : nullptr;
  if (!with || (*with)[0] != precision) return -1;
  if (operation->kind == kMatmulOperation) return 0;
  auto *found = value(d, reduces ? 1600 : 0), *axis = value(d, 9);
  return !found ? -1 : (*found)[0] == 501 ? (axis ? 5010 + (*axis)[0] : -1) : (*found)[0];
}
// Attention with a mask of later keys, as the operations that the library knows it by, in their order: with logarithms of sums
// in memory, without which it has no plan.
bool causal(const std::vector<int64_t> &operations, Whole &w) {
  struct Step {
    int kind;
    int64_t function, precision;
    std::vector<int> reads;  // which step's result, or -1 for what the steps do not make
  };
  const std::vector<Step> steps = {
      {kMatmulOperation, 0, 0, {-1, -1}}, {kPointwiseOperation, 1, 0, {0, -1}}, {kPointwiseOperation, 5012, 0, {1}},
      {kPointwiseOperation, 5013, 0, {1}}, {kPointwiseOperation, 303, 11, {2, 3}}, {kPointwiseOperation, 601, 0, {1, -1, 4}},
      {kReductionOperation, 3, 0, {5}}, {kPointwiseOperation, 9, 0, {5, 6}}, {kPointwiseOperation, 13, 0, {7}},
      {kReductionOperation, 0, 0, {8}}, {kPointwiseOperation, 15, 0, {9}}, {kPointwiseOperation, 0, 0, {6, 10}},
      {kPointwiseOperation, 6, 0, {8, 9}}, {kMatmulOperation, 0, 0, {12, -1}}};
  const std::vector<int> types = {0, 0, 4, 4, 11, 0, 0, 0, 0, 0, 0, 0};
  if (operations.size() != steps.size()) return false;
  std::vector<Array> made(steps.size());
  std::vector<std::vector<Array>> read(steps.size());
  for (size_t n = 0; n < steps.size(); ++n) {
    const Step &step = steps[n];
    const Descriptor *d = described(operations[n], step.kind);
    if (!d || function(d, step.precision) != step.function) return false;
    std::vector<int> names = {751, 752, 758};
    if (step.kind == kMatmulOperation) names = {1520, 1521};
    if (step.kind == kReductionOperation) names = {1610};
    int result = step.kind == kMatmulOperation ? 1522 : step.kind == kReductionOperation ? 1611 : 753;
    for (size_t k = 0; k < names.size(); ++k) {
      Array found;
      if (tensor(d, names[k], found) != (k < step.reads.size())) return false;
      if (k >= step.reads.size()) continue;
      if (step.reads[k] >= 0 && (found.number != made[step.reads[k]].number || !found.is_virtual)) return false;
      if (step.reads[k] < 0 && found.is_virtual) return false;
      read[n].push_back(found);
    }
    if (!tensor(d, result, made[n]) || made[n].is_virtual != (n != 11 && n != 13) || made[n].by_value) return false;
    for (int factor : {754, 755}) {
      auto *by = value(d, factor);
      float one = 1;
      if (step.kind == kPointwiseOperation && (!by || memcmp(&(*by)[0], &one, sizeof one))) return false;
    }
    if (n < types.size() && made[n].type != types[n]) return false;
  }
  w.kind = kAttention, w.causal = true;
  w.x = read[0][0], w.k = read[0][1], w.v = read[13][1], w.y = made[13], w.logs = made[11], w.number = read[1][1], w.lowest = read[5][1];
  std::swap(w.k.extents[2], w.k.extents[3]), std::swap(w.k.strides[2], w.k.strides[3]);
  if (made[12].type != w.x.type || !w.number.by_value || !w.lowest.by_value) return false;
  std::vector<int64_t> scores = {w.x.extents[0], w.x.extents[1], w.x.extents[2], w.k.extents[2]}, row = scores;
  row[3] = 1;
  for (int n = 0; n < 13; ++n)
    if (made[n].extents != (n == 6 || (n >= 9 && n <= 11) ? row : scores)) return false;
  return true;
}
bool fits(const Whole &w) {
  auto &q = w.x.extents, &k = w.k.extents, &v = w.v.extents, &y = w.y.extents;
  if (q[0] != k[0] || k[0] != v[0] || q[1] % k[1] || k[1] != v[1] || q[3] != k[3] || k[2] != v[2]) return false;
  if (y[0] != q[0] || y[1] != q[1] || y[2] != q[2] || y[3] != v[3] || q[3] % 8 || v[3] % 8 || q[3] > 128 || v[3] > 128)
    return false;
  bool narrow = w.x.type == 2 || w.x.type == 9;
  return narrow && w.k.type == w.x.type && w.v.type == w.x.type && w.y.type == w.x.type && w.number.type == 0;
}
// The operation of a graph; false where its tensors do not fit each other.
bool whole(const Descriptor *operation, Whole &w) {
  w.kind = operation->kind;
  if (w.kind == kAttention) {
    if (!array(operation, 2800, w.x) || !array(operation, 2801, w.k) || !array(operation, 2802, w.v)) return false;
    if (!array(operation, 2803, w.y) || !array(operation, 2805, w.number)) return false;
    return fits(w);
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
        double largest = w.causal ? *reinterpret_cast<float *>(w.lowest.data) : -std::numeric_limits<double>::infinity();
        double total = 0;
        int64_t seen = w.causal ? std::min(i + 1, keys) : keys;
        weights.resize(seen);
        for (int64_t j = 0; j < seen; ++j) {
          double sum = 0;
          for (int64_t e = 0; e < q[3]; ++e) sum += w.x.at(b, h, i, e) * w.k.at(b, h / group, j, e);
          weights[j] = sum * scale, largest = std::max(largest, weights[j]);
        }
        for (auto &weight : weights) total += weight = std::exp(weight - largest);
        auto &l = w.logs.strides;
        if (w.causal) store(w.logs.data, cuda_type(0), b * l[0] + h * l[1] + i * l[2], std::log(total) + largest);
        for (int64_t e = 0; e < width; ++e) {
          double sum = 0;
          for (int64_t j = 0; j < seen; ++j) sum += weights[j] / total * w.v.at(b, h / group, j, e);
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
  memset(w.workspace, -1, kGraphWorkspace);  // NaNs, also where something else should not have been
  w.kind == kAttention ? attend(w) : normalize(w);
  memset(w.workspace, -1, kGraphWorkspace);
  for (int64_t k = 0; w.causal && k <= w.logs.last(); ++k) lost_logs += std::isnan(load(w.logs.data, cuda_type(0), k));
}
bool finished(const Descriptor *d) {
  switch (d->kind) {
    case kTensor: {
      auto *extents = value(d, 902, 4), *strides = value(d, 903, 4), *aligned = value(d, 900);
      if (!extents || !strides || !aligned || !value(d, 901) || !value(d, 906)) return false;
      for (int k = 0; k < 4; ++k)
        if ((*extents)[k] < 1 || (*strides)[k] < 1) return false;
      return (*aligned)[0] == 16 || (d->values.count(908) && (*aligned)[0] == 4);
    }
    case kAttention:
    case kNorm: {
      Whole w;
      return whole(d, w);
    }
    case kGraph: {
      auto *handle = value(d, 800), *operations = value(d, 801, 0);
      if (!handle || !of(reinterpret_cast<void *>((*handle)[0]), 1) || !operations || operations->empty()) return false;
      Whole w;
      if (operations->size() > 1) return causal(*operations, w) && fits(w);
      return described((*operations)[0], kAttention) || described((*operations)[0], kNorm);
    }
    case kPointwise: return value(d, 0) && value(d, 1);
    case kMatmul: return value(d, 1500);
    case kReduction: return value(d, 1600) && value(d, 1601);
    case kPointwiseOperation: return value(d, 750) && value(d, 751) && value(d, 753);
    case kMatmulOperation: return value(d, 1520) && value(d, 1521) && value(d, 1522) && value(d, 1523);
    case kReductionOperation: return value(d, 1610) && value(d, 1611) && value(d, 1612);
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
int fake_cudnn_lost_logs() { return lost_logs; }
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
    d->of = described((*graph)[0], kGraph);
    if ((*mode)[0] != (value(d->of, 801) ? 3 : 0)) return kNotSupported;  // of several operations an H200 was asked by 0
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
  auto &operations = *value(chosen->of, 801, 0);
  auto *w = new Whole;
  bool several = operations.size() > 1;
  if (several ? !causal(operations, *w) : !whole(reinterpret_cast<Descriptor *>(operations[0]), *w)) return kBadParameter;
  auto &numbers = *value(v, 1000, 0), &pointers = *value(v, 1001, 0);
  size_t bound = 0;
  for (Array *each : {&w->x, &w->scale, &w->bias, &w->y, &w->k, &w->v, &w->number, &w->lowest, &w->logs})
    for (size_t k = 0; k < numbers.size() && !each->extents.empty(); ++k)
      if (numbers[k] == each->number) {
        each->data = reinterpret_cast<char *>(pointers[k]), ++bound;
        bool there = each->by_value || fake_cuda_holds(each->data, size_of(cuda_type(each->type)) * (each->last() + 1));
        if (!there || (!each->by_value && pointers[k] % 16)) return kBadParameter;
      }
  char *workspace = reinterpret_cast<char *>((*value(v, 1003))[0]);
  if (bound != numbers.size() || (*value(v, 1003))[0] % 256 || !fake_cuda_holds(workspace, kGraphWorkspace))
    return kBadParameter;
  if (several) {
    char *end = w->logs.data + sizeof(float) * (w->logs.last() + 1);
    if (w->logs.data < workspace + kGraphWorkspace && workspace < end) return kBadParameter;
  }
  last_workspace = w->workspace = workspace, ++graph_calls;
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
