// Elements of device memory as numbers, for the stand-ins of libraries. Types are numbered as in CUDA (cudaDataType).
#pragma once
#include <cstdint>
#include <cstring>

extern "C" int cuLaunchHostFunc(void *stream, void (*function)(void *), void *data);
extern "C" int fake_cuda_holds(const void *address, unsigned long long bytes);
extern "C" int fake_cuda_capturing();

namespace {
enum Type { kFloat = 0, kDouble = 1, kHalf = 2, kBrain = 14 };

long long size_of(int type) { return type == kDouble ? 8 : type == kFloat ? 4 : 2; }

double load(const char *data, int type, long long at) {
  if (type == kFloat) return reinterpret_cast<const float *>(data)[at];
  if (type == kDouble) return reinterpret_cast<const double *>(data)[at];
  if (type == kHalf) return double(reinterpret_cast<const _Float16 *>(data)[at]);
  uint32_t bits = uint32_t(reinterpret_cast<const uint16_t *>(data)[at]) << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
void store(char *data, int type, long long at, double value) {
  if (type == kFloat) reinterpret_cast<float *>(data)[at] = float(value);
  if (type == kDouble) reinterpret_cast<double *>(data)[at] = value;
  if (type == kHalf) reinterpret_cast<_Float16 *>(data)[at] = _Float16(float(value));
  if (type == kBrain) {
    float narrow = float(value);
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    reinterpret_cast<uint16_t *>(data)[at] = uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
}
}  // namespace
