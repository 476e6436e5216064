// Runs generated CUDA kernels on the CPU, for tests: blocks one after another, each thread of a block a coroutine.
//
// Faults that it shows: threads that wait at different barriers or for lanes that have gone (an error), reads of shared
// memory before any write (NaN), and, by running the threads of a block in another order, missing barriers.
// What it cannot show: races between blocks, and what needs warps in lockstep.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <utility>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static __attribute__((section("cuda_shared")))

struct uint3 { unsigned x, y, z; };
static uint3 threadIdx, blockIdx, blockDim, gridDim;

extern "C" char __start_cuda_shared[] __attribute__((weak, visibility("hidden")));
extern "C" char __stop_cuda_shared[] __attribute__((weak, visibility("hidden")));

namespace shim {
struct Failure { char text[160]; };

struct Barrier {
  int arrived = 0, line = 0;
  long generation = 0;
};

struct Thread {
  ucontext_t context;
  std::vector<char> stack;
  uint3 index;
  bool done;
  uint64_t slot;
};

static std::vector<Thread> threads;
static std::vector<Barrier> warps;
static Barrier block;
static ucontext_t scheduler;
static int current, size;
static long progress;
static void (*kernel)(void *);
static void *kernel_arguments;
static Failure failure;
static bool failed;

static void leave() {
  uint3 index = threads[current].index;
  swapcontext(&threads[current].context, &scheduler);
  threadIdx = index;
}

static void fail(const char *what, int line) {
  if (!failed) {
    snprintf(failure.text, sizeof failure.text, "block %u, thread %d, line %d: %s", blockIdx.x, current, line, what);
    failed = true;
  }
  for (;;) leave();
}

static void wait(Barrier &barrier, int count, int line) {
  if (barrier.arrived && barrier.line != line) fail("waits elsewhere than its neighbours", line);
  long generation = barrier.generation;
  barrier.line = line;
  if (++barrier.arrived == count) {
    barrier.arrived = 0;
    ++barrier.generation;
    ++progress;
  } else {
    while (barrier.generation == generation) leave();
  }
}

static void entry() {
  threadIdx = threads[current].index;
  kernel(kernel_arguments);
  threads[current].done = true;
  ++progress;
  for (;;) leave();
}

static void run_block(bool backwards) {
  if (__start_cuda_shared) memset(__start_cuda_shared, 0xff, __stop_cuda_shared - __start_cuda_shared);
  block = Barrier();
  warps.assign((size + 31) / 32, Barrier());
  for (int k = 0; k < size; ++k) {
    Thread &t = threads[k];
    t.done = false;
    t.index = {k % blockDim.x, k / blockDim.x % blockDim.y, k / blockDim.x / blockDim.y};
    getcontext(&t.context);
    t.context.uc_stack.ss_sp = t.stack.data();
    t.context.uc_stack.ss_size = t.stack.size();
    t.context.uc_link = nullptr;
    makecontext(&t.context, entry, 0);
  }
  for (bool running = true; running && !failed;) {
    long before = progress;
    running = false;
    for (int k = 0; k < size && !failed; ++k) {
      current = backwards ? size - 1 - k : k;
      if (threads[current].done) continue;
      running = true;
      swapcontext(&scheduler, &threads[current].context);
    }
    if (running && progress == before && !failed) {
      snprintf(failure.text, sizeof failure.text, "block %u: threads wait for others that have gone", blockIdx.x);
      failed = true;
    }
  }
}

static const char *launch(void (*body)(void *), void *arguments, bool waits, bool backwards) {
  kernel = body;
  kernel_arguments = arguments;
  failed = false;
  size = int(blockDim.x * blockDim.y * blockDim.z);
  if (size < 1 || size > 1024) return "the block has too few or too many threads";
  if (waits && int(threads.size()) < size) threads.resize(size);
  for (int k = 0; waits && k < size; ++k) threads[k].stack.resize(64 << 10);
  for (blockIdx = {0, 0, 0}; blockIdx.x < gridDim.x && !failed; ++blockIdx.x) {
    if (waits) {
      run_block(backwards);
      continue;
    }
    for (unsigned y = 0; y < blockDim.y; ++y)
      for (unsigned x = 0; x < blockDim.x; ++x) {
        threadIdx = {x, y, 0};
        body(arguments);
      }
  }
  return failed ? failure.text : nullptr;
}

template <class T>
T shuffle_xor(T value, int mask, int line) {
  int lane = current % 32, warp = current / 32;
  int lanes = size - warp * 32 < 32 ? size - warp * 32 : 32;
  threads[current].slot = 0;
  memcpy(&threads[current].slot, &value, sizeof value);
  wait(warps[warp], lanes, line);
  memcpy(&value, &threads[warp * 32 + (lane ^ mask)].slot, sizeof value);
  wait(warps[warp], lanes, line);
  return value;
}

template <class... A, size_t... I>
const char *start(void (*function)(A...), char **buffers, bool waits, bool backwards, std::index_sequence<I...>) {
  struct Call {
    void (*function)(A...);
    char **buffers;
  } call{function, buffers};
  auto body = [](void *data) {
    Call &call = *static_cast<Call *>(data);
    call.function(reinterpret_cast<A>(call.buffers[I])...);
  };
  return launch(body, &call, waits, backwards);
}
}  // namespace shim

#define __syncthreads() shim::wait(shim::block, shim::size, __LINE__)
#define __shfl_xor_sync(lanes, value, mask, width) shim::shuffle_xor(value, mask, __LINE__)

// Exports a kernel as a function that gives an error message or null.
#define SHIM_EXPORT(name, waits)                                                                               \
  extern "C" const char *run_##name(char **buffers, const unsigned *grid, const unsigned *block, int backwards) { \
    gridDim = {grid[0], grid[1], grid[2]};                                                                     \
    blockDim = {block[0], block[1], block[2]};                                                                 \
    return shim::arguments_of(name, buffers, waits, backwards);                                                \
  }

namespace shim {
template <class... A>
const char *arguments_of(void (*function)(A...), char **buffers, bool waits, bool backwards) {
  return start(function, buffers, waits, backwards, std::index_sequence_for<A...>{});
}
}  // namespace shim

static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline int __float_as_int(float x) { int r; memcpy(&r, &x, 4); return r; }
static inline float __int_as_float(int x) { float r; memcpy(&r, &x, 4); return r; }
static inline long long __double_as_longlong(double x) { long long r; memcpy(&r, &x, 8); return r; }
static inline double __longlong_as_double(long long x) { double r; memcpy(&r, &x, 8); return r; }

struct __half { _Float16 value; };
static inline float __half2float(__half x) { return float(x.value); }
static inline __half __float2half_rn(float x) { return {_Float16(x)}; }

struct __nv_bfloat16 { unsigned short bits; };
static inline float __bfloat162float(__nv_bfloat16 x) {
  unsigned u = (unsigned)x.bits << 16;
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}
static inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  unsigned u;
  memcpy(&u, &x, sizeof u);
  return {(unsigned short)(x != x ? 0x7fffu : (u + 0x7fffu + (u >> 16 & 1u)) >> 16)};
}
