// A stand-in for the CUDA driver, for tests on machines without one: enough of libcuda.so.1 to run PyCUDA.
//
// Memory of the "device" is the host's, filled with 0xFF where nobody has written yet and guarded on both sides. A module is
// a shared library that nvcc.py made of CUDA C by cuda_shim.h. Streams are queues: nothing on them runs before somebody
// waits, so that a missing synchronisation shows as 0xFF, and page-locked memory is read as late as hardware may read it.
// Calls that this file does not define return CUDA_ERROR_NOT_SUPPORTED (build.py adds them).
//
// The order of blocks and threads: FAKE_CUDA_ORDER (0 upwards, 1 downwards, else a seed).
// Faults on request, by environment: FAKE_CUDA_NO_DEVICE=1, FAKE_CUDA_MEMORY=bytes in all, FAKE_CUDA_FAULT=kernel's name,
// FAKE_CUDA_REFUSE=begin|end|instantiate|update|create|set (graphs).
#include <cuda.h>
#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#undef cuDeviceTotalMem
#undef cuCtxPopCurrent

namespace {
constexpr size_t kGuard = 256;
constexpr unsigned char kGuardByte = 0xA5, kUnwritten = 0xFF;

struct Kernel {
  const char *(*run)(char **, const unsigned *, const unsigned *, int);
  int parameters, threads;
  const bool *addresses;  // whether a parameter is one
  std::string name;
  unsigned shared = 48 << 10;  // bytes that a launch may ask for
  int device = 0;
};
struct Module {
  void *library;
  int device;
  std::map<std::string, std::unique_ptr<Kernel>> kernels;
};
struct Op {
  std::function<CUresult()> run;
  const Kernel *kernel = nullptr;
};
using Graph = std::vector<Op>;
struct Executable {
  Graph graph;
  const Graph *made_of;
};
struct Node {
  const Graph *graph;
  size_t place;
};
struct Stream {
  std::deque<Op> queue;
  long started = 0, added = 0;
  bool blocking = true;  // ordered with the default stream
  Graph *capture = nullptr;
  bool capture_failed = false;
  bool own = false;  // of one device: made by cuStreamCreate
  int device = 0;
};
struct Event {
  Stream *stream = nullptr;
  long position = 0;
  const Graph *capture = nullptr;  // it was recorded in
};

std::recursive_mutex lock;
std::map<std::string, long> counts;
std::map<CUdeviceptr, size_t> allocations;
std::map<char *, size_t> page_locked;
std::set<Stream *> streams;
Stream default_stream;
size_t used = 0;
long broken_guards = 0;
CUresult sticky = CUDA_SUCCESS;
thread_local std::vector<CUcontext> contexts;
constexpr int kMostDevices = 4;
char primary_contexts[kMostDevices][64];
std::map<CUdeviceptr, int> devices_of_memory;

int device_count() {
  const char *text = getenv("FAKE_CUDA_DEVICES");
  return text ? std::min(atoi(text), kMostDevices) : 1;
}
int device_of(CUcontext context) { return int((reinterpret_cast<char *>(context) - primary_contexts[0]) / 64); }
int current_device() { return contexts.empty() ? 0 : device_of(contexts.back()); }

int order() {
  const char *text = getenv("FAKE_CUDA_ORDER");
  return text ? atoi(text) : 0;
}
size_t total() {
  const char *text = getenv("FAKE_CUDA_MEMORY");
  return text ? strtoull(text, nullptr, 10) : size_t(4) << 30;
}
bool refuses(const char *what) {
  const char *text = getenv("FAKE_CUDA_REFUSE");
  return text && !strcmp(text, what);
}
thread_local Stream *stream_of_thread = nullptr;

Stream *stream_of(CUstream handle) {
  if (handle == CU_STREAM_PER_THREAD) {
    if (!stream_of_thread) streams.insert(stream_of_thread = new Stream);
    return stream_of_thread;
  }
  return handle == nullptr || handle == CU_STREAM_LEGACY ? &default_stream : reinterpret_cast<Stream *>(handle);
}

// Runs what was added to a stream up to a position.
void drain(Stream *stream, long until) {
  while (stream->started < until && !stream->queue.empty()) {
    Op op = std::move(stream->queue.front());
    stream->queue.pop_front();
    ++stream->started;
    CUresult status = op.run();
    if (status && !sticky) sticky = status;
  }
}
void drain(Stream *stream) { drain(stream, stream->added); }
void drain_all() {
  drain(&default_stream);
  for (Stream *stream : std::set<Stream *>(streams)) drain(stream);
}

CUresult append(Stream *stream, Op op) {
  stream->queue.push_back(std::move(op));
  ++stream->added;
  return sticky;
}
void wait_for(Stream *stream, Stream *other) {
  long position = other->added;
  if (position > other->started) append(stream, {[=] { return drain(other, position), CUDA_SUCCESS; }});
}
// Adds work to a stream, or to the graph that is captured from it; the default stream is ordered with all blocking ones.
CUresult enqueue(CUstream handle, Op op) {
  if (sticky) return sticky;
  Stream *stream = stream_of(handle);
  if (stream->own && stream->device != current_device()) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture) return stream->capture->push_back(std::move(op)), CUDA_SUCCESS;
  if (stream == &default_stream) {
    for (Stream *other : streams) {
      if (other->blocking && other->capture) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
      if (other->blocking) wait_for(stream, other);
    }
  } else if (stream->blocking) {
    wait_for(stream, &default_stream);
  }
  return append(stream, std::move(op));
}
// What may not be done while a stream is captured.
CUresult forbidden(Stream *stream) {
  if (!stream->capture) return CUDA_SUCCESS;
  stream->capture_failed = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

bool is_inside(CUdeviceptr address, size_t size) {
  auto found = allocations.upper_bound(address);
  if (found == allocations.begin()) return false;
  --found;
  return address >= found->first && address + size <= found->first + found->second;
}
bool is_page_locked(const void *address, size_t size) {
  char *first = static_cast<char *>(const_cast<void *>(address));
  auto found = page_locked.upper_bound(first);
  if (found == page_locked.begin()) return false;
  --found;
  return first + size <= found->first + found->second;
}
void check_guards(CUdeviceptr address, size_t size) {
  const unsigned char *start = reinterpret_cast<unsigned char *>(address);
  for (size_t k = 0; k < kGuard; ++k)
    if (start[-1 - long(k)] != kGuardByte || start[size + k] != kGuardByte) {
      ++broken_guards;
      fprintf(stderr, "stand-in driver: written outside of %zu bytes\n", size);
      return;
    }
}
}  // namespace

#define API extern "C" __attribute__((visibility("default")))
#define COUNTED                                        \
  std::lock_guard<std::recursive_mutex> hold(lock);    \
  ++counts[__func__]

API long fake_cuda_count(const char *name) { return counts[name]; }
API long fake_cuda_broken_guards() {
  drain_all();
  for (auto &[address, size] : allocations) check_guards(address, size);
  return broken_guards;
}
API long fake_cuda_waiting() {
  long waiting = default_stream.queue.size();
  for (Stream *stream : streams) waiting += stream->queue.size();
  return waiting;
}

// Device and context.
API CUresult cuInit(unsigned) { return getenv("FAKE_CUDA_NO_DEVICE") ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS; }
API CUresult cuDriverGetVersion(int *version) { return *version = CUDA_VERSION, CUDA_SUCCESS; }
API CUresult cuDeviceGetCount(int *count) { return *count = device_count(), CUDA_SUCCESS; }
API CUresult cuDeviceGet(CUdevice *device, int number) {
  *device = number;
  return number < 0 || number >= device_count() ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}
API CUresult cuDeviceGetName(char *name, int size, CUdevice) {
  snprintf(name, size, "stand-in for a CUDA device");
  return CUDA_SUCCESS;
}
API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice) { return *bytes = total(), CUDA_SUCCESS; }
API CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice) { return *major = 9, *minor = 0, CUDA_SUCCESS; }
API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice) {
  static const std::map<int, int> known = {
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024}, {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},  {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 4},     {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9}, {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 1 << 20},      {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 99 << 10},
      {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 5001000},  {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 256}};
  auto found = known.find(attribute);
  *value = found == known.end() ? 0 : found->second;
  return CUDA_SUCCESS;
}
static CUcontext primary(int device) { return reinterpret_cast<CUcontext>(primary_contexts[device]); }
API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  return *context = primary(device), CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }
API CUresult cuCtxPushCurrent_v2(CUcontext context) { return contexts.push_back(context), CUDA_SUCCESS; }
API CUresult cuCtxPopCurrent_v2(CUcontext *context) {
  if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context) *context = contexts.back();
  contexts.pop_back();
  return CUDA_SUCCESS;
}
API CUresult cuCtxSetCurrent(CUcontext context) {
  if (!contexts.empty()) contexts.pop_back();
  if (context) contexts.push_back(context);
  return CUDA_SUCCESS;
}
API CUresult cuCtxGetCurrent(CUcontext *context) {
  *context = contexts.empty() ? nullptr : contexts.back();
  return CUDA_SUCCESS;
}
API CUresult cuCtxGetDevice(CUdevice *device) {
  *device = current_device();
  return contexts.empty() ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}
API CUresult cuCtxAttach(CUcontext *context, unsigned) { return *context = primary(current_device()), CUDA_SUCCESS; }
API CUresult cuCtxDetach(CUcontext) { return CUDA_SUCCESS; }
API CUresult cuCtxDestroy_v2(CUcontext) { return CUDA_SUCCESS; }
API CUresult cuCtxSynchronize() {
  COUNTED;
  drain_all();
  return sticky;
}
API CUresult cuGetErrorString(CUresult status, const char **text) {
  switch (status) {
    case CUDA_ERROR_OUT_OF_MEMORY: *text = "out of memory"; break;
    case CUDA_ERROR_NO_DEVICE: *text = "no CUDA-capable device is detected"; break;
    case CUDA_ERROR_LAUNCH_FAILED: *text = "unspecified launch failure"; break;
    case CUDA_ERROR_INVALID_VALUE: *text = "invalid argument"; break;
    case CUDA_ERROR_NOT_SUPPORTED: *text = "operation not supported"; break;
    case CUDA_ERROR_NOT_FOUND: *text = "named symbol not found"; break;
    case CUDA_ERROR_INVALID_CONTEXT: *text = "invalid device context"; break;
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: *text = "operation not permitted when stream is capturing"; break;
    case CUDA_ERROR_STREAM_CAPTURE_ISOLATION: *text = "dependency created on uncaptured work in another stream"; break;
    default: *text = "another error of the stand-in driver";
  }
  return CUDA_SUCCESS;
}

// Memory.
API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *all) {
  return *all = total(), *free_bytes = total() - used, CUDA_SUCCESS;
}
API CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
  COUNTED;
  if (sticky) return sticky;
  if (!size) return CUDA_ERROR_INVALID_VALUE;
  if (used + size > total()) return CUDA_ERROR_OUT_OF_MEMORY;
  size_t whole = (size + 2 * kGuard + 255) / 256 * 256;
  char *block = static_cast<char *>(aligned_alloc(256, whole));
  memset(block, kGuardByte, whole);
  memset(block + kGuard, kUnwritten, size);
  *address = reinterpret_cast<CUdeviceptr>(block + kGuard);
  allocations[*address] = size;
  devices_of_memory[*address] = current_device();
  used += size;
  return CUDA_SUCCESS;
}
static int device_of(CUdeviceptr address) { return std::prev(devices_of_memory.upper_bound(address))->second; }
API CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr address) {
  COUNTED;
  if (attribute != CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL || !is_inside(address, 1)) return CUDA_ERROR_INVALID_VALUE;
  *static_cast<int *>(value) = device_of(address);
  return CUDA_SUCCESS;
}
API CUresult cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *size, CUdeviceptr address) {
  auto found = allocations.upper_bound(address);
  if (found == allocations.begin() || address - (--found)->first >= found->second) return CUDA_ERROR_NOT_FOUND;
  return *start = found->first, *size = found->second, CUDA_SUCCESS;
}
API CUresult cuMemFree_v2(CUdeviceptr address) {
  COUNTED;
  drain_all();
  auto found = allocations.find(address);
  if (found == allocations.end()) return CUDA_ERROR_INVALID_VALUE;
  check_guards(address, found->second);
  used -= found->second;
  memset(reinterpret_cast<void *>(address), kUnwritten, found->second);
  allocations.erase(found);
  devices_of_memory.erase(address);
  free(reinterpret_cast<char *>(address) - kGuard);
  return CUDA_SUCCESS;
}
API CUresult cuMemHostAlloc(void **address, size_t size, unsigned) {
  COUNTED;
  *address = malloc(size);
  page_locked[static_cast<char *>(*address)] = size;
  return CUDA_SUCCESS;
}
API CUresult cuMemFreeHost(void *address) {
  COUNTED;
  drain_all();
  page_locked.erase(static_cast<char *>(address));
  free(address);
  return CUDA_SUCCESS;
}
static Op copying(void *target, const void *source, size_t size) {
  return {[=] { return memmove(target, source, size), CUDA_SUCCESS; }};
}
static void *memory(CUdeviceptr address) { return reinterpret_cast<void *>(address); }

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void *source, size_t size, CUstream stream) {
  COUNTED;
  if (!is_inside(target, size)) return CUDA_ERROR_INVALID_VALUE;
  if (is_page_locked(source, size)) return enqueue(stream, copying(memory(target), source, size));
  auto kept = std::make_shared<std::vector<char>>(size);  // the caller may change pageable memory at once
  memcpy(kept->data(), source, size);
  return enqueue(stream, {[=] { return memcpy(memory(target), kept->data(), size), CUDA_SUCCESS; }});
}
API CUresult cuMemcpyDtoHAsync_v2(void *target, CUdeviceptr source, size_t size, CUstream stream) {
  COUNTED;
  if (!is_inside(source, size)) return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream, copying(target, memory(source), size));
}
API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr target, CUdeviceptr source, size_t size, CUstream stream) {
  COUNTED;
  if (!is_inside(target, size) || !is_inside(source, size)) return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream, copying(memory(target), memory(source), size));
}
template <class T>
static CUresult filling(CUdeviceptr target, T value, size_t count, CUstream stream) {
  if (!is_inside(target, count * sizeof(T))) return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream, {[=] { return std::fill_n(static_cast<T *>(memory(target)), count, value), CUDA_SUCCESS; }});
}
API CUresult cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t count, CUstream stream) {
  COUNTED;
  return filling(target, value, count, stream);
}
API CUresult cuMemsetD32Async(CUdeviceptr target, unsigned value, size_t count, CUstream stream) {
  COUNTED;
  return filling(target, value, count, stream);
}
API CUresult cuMemsetD8_v2(CUdeviceptr target, unsigned char value, size_t count) {
  return cuMemsetD8Async(target, value, count, nullptr);
}
API CUresult cuMemsetD32_v2(CUdeviceptr target, unsigned value, size_t count) {
  return cuMemsetD32Async(target, value, count, nullptr);
}
static CUresult finished(CUresult status) {
  if (status) return status;
  drain(&default_stream);
  return sticky;
}
API CUresult cuMemcpyHtoD_v2(CUdeviceptr target, const void *source, size_t size) {
  COUNTED;
  return finished(cuMemcpyHtoDAsync_v2(target, source, size, nullptr));
}
API CUresult cuMemcpyDtoH_v2(void *target, CUdeviceptr source, size_t size) {
  COUNTED;
  return finished(cuMemcpyDtoHAsync_v2(target, source, size, nullptr));
}
API CUresult cuMemcpyDtoD_v2(CUdeviceptr target, CUdeviceptr source, size_t size) {
  COUNTED;
  return finished(cuMemcpyDtoDAsync_v2(target, source, size, nullptr));
}

// Streams and events.
API CUresult cuStreamCreate(CUstream *handle, unsigned flags) {
  COUNTED;
  Stream *stream = new Stream;
  stream->blocking = !(flags & CU_STREAM_NON_BLOCKING);
  stream->own = true;
  stream->device = current_device();
  streams.insert(stream);
  *handle = reinterpret_cast<CUstream>(stream);
  return CUDA_SUCCESS;
}
API CUresult cuStreamDestroy_v2(CUstream handle) {
  COUNTED;
  drain(stream_of(handle));
  streams.erase(stream_of(handle));  // not deleted: others may still wait for what it has done
  return CUDA_SUCCESS;
}
API CUresult cuStreamSynchronize(CUstream handle) {
  COUNTED;
  if (CUresult status = forbidden(stream_of(handle))) return status;
  drain(stream_of(handle));
  return sticky;
}
API CUresult cuStreamQuery(CUstream handle) {
  Stream *stream = stream_of(handle);
  return stream->queue.empty() ? sticky : CUDA_ERROR_NOT_READY;
}
API CUresult cuEventCreate(CUevent *event, unsigned) {
  return *event = reinterpret_cast<CUevent>(new Event), CUDA_SUCCESS;
}
API CUresult cuEventDestroy_v2(CUevent) { return CUDA_SUCCESS; }
API CUresult cuEventRecord(CUevent handle, CUstream stream) {
  COUNTED;
  Event *event = reinterpret_cast<Event *>(handle);
  event->capture = stream_of(stream)->capture;
  if (event->capture) return CUDA_SUCCESS;
  if (CUresult status = enqueue(stream, {[] { return CUDA_SUCCESS; }})) return status;
  event->stream = stream_of(stream);
  event->position = event->stream->added;
  return CUDA_SUCCESS;
}
API CUresult cuEventSynchronize(CUevent handle) {
  COUNTED;
  Event *event = reinterpret_cast<Event *>(handle);
  if (event->stream) drain(event->stream, event->position);
  return sticky;
}
API CUresult cuEventQuery(CUevent handle) {
  Event *event = reinterpret_cast<Event *>(handle);
  return event->stream && event->stream->started < event->position ? CUDA_ERROR_NOT_READY : sticky;
}
API CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent, CUevent) { return *milliseconds = 1, CUDA_SUCCESS; }
API CUresult cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned) {
  COUNTED;
  Event event = *reinterpret_cast<Event *>(handle);
  Stream *waiting = stream_of(stream);
  if (waiting->capture && event.capture != waiting->capture) {  // the driver refuses what is outside of the capture
    waiting->capture_failed = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (event.capture) return waiting->capture ? CUDA_SUCCESS : CUDA_ERROR_CAPTURED_EVENT;
  if (!event.stream) return CUDA_SUCCESS;
  return enqueue(stream, {[=] { return drain(event.stream, event.position), CUDA_SUCCESS; }});
}
API CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data) {
  COUNTED;
  return enqueue(stream, {[=] { return function(data), CUDA_SUCCESS; }});
}

// Modules and kernels.
API CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  COUNTED;
  const Elf64_Ehdr *header = static_cast<const Elf64_Ehdr *>(image);
  constexpr int kCuda = 190;
  if (memcmp(header->e_ident, ELFMAG, 4) || header->e_machine == kCuda) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  size_t size = header->e_shoff + size_t(header->e_shnum) * header->e_shentsize;
  int file = memfd_create("module", 0);
  if (write(file, image, size) != ssize_t(size)) return CUDA_ERROR_INVALID_IMAGE;
  void *library = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
  // The file stays open: dlopen takes a path that it has seen for the library that it had.
  if (!library) return fprintf(stderr, "stand-in driver: %s\n", dlerror()), CUDA_ERROR_INVALID_IMAGE;
  *module = reinterpret_cast<CUmodule>(new Module{library, current_device(), {}});
  return CUDA_SUCCESS;
}
API CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned, CUjit_option *, void **) {
  return cuModuleLoadData(module, image);
}
API CUresult cuModuleUnload(CUmodule) {
  drain_all();
  return CUDA_SUCCESS;
}
API CUresult cuModuleGetFunction(CUfunction *function, CUmodule handle, const char *name) {
  COUNTED;
  Module *module = reinterpret_cast<Module *>(handle);
  auto symbol = [&](const char *prefix) { return dlsym(module->library, (prefix + std::string(name)).c_str()); };
  void *run = symbol("run_");
  if (!run) return CUDA_ERROR_NOT_FOUND;
  auto &kernel = module->kernels[name];
  if (!kernel)
    kernel.reset(new Kernel{reinterpret_cast<decltype(Kernel::run)>(run), *static_cast<int *>(symbol("parameters_of_")),
                            *static_cast<int *>(symbol("threads_of_")),
                            static_cast<bool *>(symbol("addresses_of_")), name});
  kernel->device = module->device;
  *function = reinterpret_cast<CUfunction>(kernel.get());
  return CUDA_SUCCESS;
}
API CUresult cuFuncGetAttribute(int *value, CUfunction_attribute, CUfunction) { return *value = 0, CUDA_SUCCESS; }
API CUresult cuFuncSetBlockShape(CUfunction, int, int, int) { return CUDA_SUCCESS; }
API CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  COUNTED;
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_SUCCESS;
  if (value < 0 || value > 227 << 10) return CUDA_ERROR_INVALID_VALUE;
  reinterpret_cast<Kernel *>(function)->shared = value;
  return CUDA_SUCCESS;
}
// A launch as work, with the arguments that there are now.
static CUresult launching(const Kernel *kernel, const unsigned (&extents)[6], unsigned shared, void **pointers, void **extra,
                          Op *op) {
  const char *packed = nullptr;
  size_t size = 0;
  for (int k = 0; extra && extra[k] != CU_LAUNCH_PARAM_END; k += 2) {
    if (extra[k] == CU_LAUNCH_PARAM_BUFFER_POINTER) packed = static_cast<char *>(extra[k + 1]);
    if (extra[k] == CU_LAUNCH_PARAM_BUFFER_SIZE) size = *static_cast<size_t *>(extra[k + 1]);
  }
  auto [gx, gy, gz, bx, by, bz] = extents;
  if (!gx || !gy || !gz || gy > 65535 || gz > 65535) return CUDA_ERROR_INVALID_VALUE;
  if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (kernel->device != current_device()) return CUDA_ERROR_INVALID_HANDLE;
  if (shared > kernel->shared) return CUDA_ERROR_INVALID_VALUE;
  if (bx * by * bz > unsigned(kernel->threads) || (!pointers && size != kernel->parameters * sizeof(char *)))
    return CUDA_ERROR_INVALID_VALUE;
  std::vector<char *> arguments(kernel->parameters);  // taken at the launch, as the hardware does
  if (size) memcpy(arguments.data(), packed, size);
  for (size_t k = 0; pointers && k < arguments.size(); ++k) arguments[k] = *static_cast<char **>(pointers[k]);
  for (size_t k = 0; k < arguments.size(); ++k) {
    char *argument = arguments[k];
    CUdeviceptr address = reinterpret_cast<CUdeviceptr>(argument);
    if (!kernel->addresses[k] || (is_inside(address, 1) && device_of(address) == kernel->device)) continue;
    if (!is_page_locked(argument, 1)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  std::array<unsigned, 6> size_of{gx, gy, gz, bx, by, bz};
  op->kernel = kernel;
  op->run = [=]() mutable -> CUresult {
    const char *fault = getenv("FAKE_CUDA_FAULT");
    const char *error = fault && kernel->name == fault ? "a fault on request"
                                                       : kernel->run(arguments.data(), &size_of[0], &size_of[3], 0);
    if (!error) return CUDA_SUCCESS;
    fprintf(stderr, "stand-in driver: %s: %s\n", kernel->name.c_str(), error);
    return CUDA_ERROR_LAUNCH_FAILED;
  };
  return CUDA_SUCCESS;
}
static CUresult launching(const CUDA_KERNEL_NODE_PARAMS &p, Op *op) {
  return launching(reinterpret_cast<Kernel *>(p.func),
                   {p.gridDimX, p.gridDimY, p.gridDimZ, p.blockDimX, p.blockDimY, p.blockDimZ}, p.sharedMemBytes,
                   p.kernelParams, p.extra, op);
}
API CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                            unsigned bz, unsigned shared, CUstream stream, void **pointers, void **extra) {
  COUNTED;
  Op op;
  if (CUresult status = launching(reinterpret_cast<Kernel *>(function), {gx, gy, gz, bx, by, bz}, shared, pointers, extra, &op))
    return status;
  return enqueue(stream, std::move(op));
}
API CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **pointers, void **extra) {
  COUNTED;
  if (!config || !function || config->numAttrs || config->attrs) return CUDA_ERROR_INVALID_VALUE;
  const CUlaunchConfig &c = *config;
  Op op;
  if (CUresult status = launching(reinterpret_cast<Kernel *>(function),
                                  {c.gridDimX, c.gridDimY, c.gridDimZ, c.blockDimX, c.blockDimY, c.blockDimZ},
                                  c.sharedMemBytes, pointers, extra, &op))
    return status;
  return enqueue(c.hStream, std::move(op));
}

// Graphs.
API CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode) {
  COUNTED;
  Stream *stream = stream_of(handle);
  if (refuses("begin") || stream == &default_stream || stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  stream->capture = new Graph;
  stream->capture_failed = false;
  return CUDA_SUCCESS;
}
API CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
  COUNTED;
  *status = stream_of(handle)->capture ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
API CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph) {
  COUNTED;
  Stream *stream = stream_of(handle);
  Graph *captured = stream->capture;
  stream->capture = nullptr;
  if (!captured) return CUDA_ERROR_ILLEGAL_STATE;
  if (stream->capture_failed || refuses("end")) return delete captured, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  *graph = reinterpret_cast<CUgraph>(captured);
  return CUDA_SUCCESS;
}
API CUresult cuGraphCreate(CUgraph *graph, unsigned) {
  COUNTED;
  if (refuses("create")) return CUDA_ERROR_NOT_SUPPORTED;
  *graph = reinterpret_cast<CUgraph>(new Graph);
  return CUDA_SUCCESS;
}
// Nodes are launches one after another: each depends on the one before.
API CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph handle, const CUgraphNode *before, size_t count,
                                     const CUDA_KERNEL_NODE_PARAMS *p) {
  COUNTED;
  Graph *graph = reinterpret_cast<Graph *>(handle);
  Node *last = count ? reinterpret_cast<Node *>(*before) : nullptr;
  if (count > 1 || (last ? last->graph != graph || last->place + 1 != graph->size() : !graph->empty()))
    return CUDA_ERROR_INVALID_VALUE;
  Op op;
  if (CUresult status = launching(*p, &op)) return status;
  *node = reinterpret_cast<CUgraphNode>(new Node{graph, graph->size()});
  graph->push_back(std::move(op));
  return CUDA_SUCCESS;
}
API CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec handle, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p) {
  COUNTED;
  Executable *executable = reinterpret_cast<Executable *>(handle);
  Node *changed = reinterpret_cast<Node *>(node);
  if (refuses("set") || changed->graph != executable->made_of) return CUDA_ERROR_INVALID_VALUE;
  return launching(*p, &executable->graph[changed->place]);  // replays that were enqueued before have a copy
}
API CUresult cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long) {
  COUNTED;
  if (refuses("instantiate")) return CUDA_ERROR_NOT_SUPPORTED;
  *executable = reinterpret_cast<CUgraphExec>(new Executable{*reinterpret_cast<Graph *>(graph), reinterpret_cast<Graph *>(graph)});
  return CUDA_SUCCESS;
}
API CUresult cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph, CUgraphExecUpdateResultInfo *) {
  COUNTED;
  Graph &old = reinterpret_cast<Executable *>(handle)->graph, &changed = *reinterpret_cast<Graph *>(graph);
  auto alike = [](const Op &a, const Op &b) { return a.kernel == b.kernel; };
  if (refuses("update") || !std::equal(old.begin(), old.end(), changed.begin(), changed.end(), alike))
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  drain_all();  // replays that were enqueued before keep their arguments
  old = changed;
  return CUDA_SUCCESS;
}
API CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream) {
  COUNTED;
  Graph graph = reinterpret_cast<Executable *>(handle)->graph;
  if (stream_of(stream)->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return enqueue(stream, {[=] {
    for (const Op &op : graph)
      if (CUresult status = op.run()) return status;
    return CUDA_SUCCESS;
  }});
}
API CUresult cuGraphDestroy(CUgraph graph) {
  COUNTED;
  delete reinterpret_cast<Graph *>(graph);
  return CUDA_SUCCESS;
}
API CUresult cuGraphExecDestroy(CUgraphExec executable) {
  COUNTED;
  delete reinterpret_cast<Executable *>(executable);
  return CUDA_SUCCESS;
}
// For libraries on the stand-in: whether bytes are memory of the device, and whether any stream is captured.
API int fake_cuda_holds(const void *address, unsigned long long bytes) {
  std::lock_guard<std::recursive_mutex> hold(lock);
  return is_inside(reinterpret_cast<CUdeviceptr>(address), bytes);
}
API int fake_cuda_capturing() {
  std::lock_guard<std::recursive_mutex> hold(lock);
  return std::any_of(streams.begin(), streams.end(), [](Stream *stream) { return stream->capture != nullptr; });
}
