// Moves the bytes of a program and does nothing else: every input is read once, every result written once.
// gcc -O3 -march=native -fopenmp -shared -fPIC limit.c
#include <stdint.h>

#define GRAIN (64 << 10)
#define BLOCK (64 << 10)
#define LEAST_BLOCKS 16
#define SMALL (16 << 10)

typedef uint64_t vector __attribute__((vector_size(64), aligned(1), may_alias));

static volatile uint64_t sink;

// A stream goes from `from` to `to` where both are given (they may be one), else it is only read, or only written.
struct stream {
  const char *from;
  char *to;
  long bytes;
};

static inline void move(struct stream s, long begin, long end, vector *sum, uint64_t key) {
  long i = begin;
  if (s.from && s.to) {
    for (; i + 64 <= end; i += 64) *(vector *)(s.to + i) = *(const vector *)(s.from + i) ^ key;
    for (; i < end; i++) s.to[i] = s.from[i];
  } else if (s.from) {
    vector a = *sum, b = a, c = a, d = a;
    for (; i + 256 <= end; i += 256) {
      const vector *from = (const vector *)(s.from + i);
      a ^= from[0], b ^= from[1], c ^= from[2], d ^= from[3];
    }
    *sum = a ^ b ^ c ^ d;
  } else {
    const vector value = (vector){} + key;
    for (; i + 64 <= end; i += 64) *(vector *)(s.to + i) = value;
    for (; i < end; i++) s.to[i] = (char)key;
  }
}

// Large streams side by side, in blocks of about BLOCK bytes of all of them; small ones each as a whole. `key` is zero.
void limit(const struct stream *streams, long count, uint64_t key) {
  long bytes = 0;
  for (long k = 0; k < count; k++) bytes += streams[k].bytes;
  if (bytes / count < SMALL) {
#pragma omp parallel for schedule(static) if (bytes > GRAIN)
    for (long k = 0; k < count; k++) {
      vector sum = {};
      move(streams[k], 0, streams[k].bytes, &sum, key);
      sink = sum[0] ^ sum[7];
    }
    return;
  }
  const long blocks = bytes / BLOCK < LEAST_BLOCKS ? LEAST_BLOCKS : bytes / BLOCK;
#pragma omp parallel for schedule(static) if (bytes > GRAIN)
  for (long b = 0; b < blocks; b++) {
    vector sum = {};
    for (long k = 0; k < count; k++) {
      const long lines = streams[k].bytes / 64;
      const long begin = lines * b / blocks * 64;
      const long end = b == blocks - 1 ? streams[k].bytes : lines * (b + 1) / blocks * 64;
      move(streams[k], begin, end, &sum, key);
    }
    sink = sum[0] ^ sum[7];
  }
}
