// The workloads as one would write them by hand: plain loops, OpenMP, and the compiler's own vector functions (libmvec).
// gcc -O3 -march=native -ffast-math -fopenmp -shared -fPIC plain.c -lmvec -lm
// Each takes its inputs, its results, and the extents of its first two inputs.
#include <math.h>
#include <stddef.h>
#include <string.h>

#define GRAIN 16384
#define ARGUMENTS float **in, float **out, const long *extent
#define FOR_ELEMENTS(count) \
  const long total = (count); \
  _Pragma("omp parallel for simd schedule(static) if (parallel : total > GRAIN)") for (long i = 0; i < total; i++)
#define FOR_ROWS(count) \
  const long rows = (count); \
  _Pragma("omp parallel for schedule(static)") for (long i = 0; i < rows; i++)
#define RESTRICT(name, source) float *restrict name = (source)

static inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

static inline float chain(float x) {
  const float t = x * 0.5f + 0.1f, e = expf(-t), s = sigmoid(t);
  const float a = fminf(fmaxf(tanhf(t), s) * e + x, 4.0f);
  return sqrtf(fabsf(a) + 1e-3f) - s;
}

void W1(ARGUMENTS) {
  RESTRICT(x, in[0]);
  RESTRICT(y, out[0]);
  FOR_ELEMENTS(extent[0]) y[i] = chain(x[i]);
}

void W1m(ARGUMENTS) {
  RESTRICT(x, in[0]);
  RESTRICT(y, out[0]);
  FOR_ELEMENTS(extent[0]) {
    float v = sigmoid(tanhf(x[i] * 1.5f) + 0.25f);
    v = sigmoid(tanhf(v * 1.5f) + 0.25f);
    v = sigmoid(tanhf(v * 1.5f) + 0.25f);
    y[i] = expf(v * -0.5f) + v;
  }
}

void W2(ARGUMENTS) {
  const long n = extent[1];
  FOR_ROWS(extent[0]) {
    RESTRICT(x, in[0] + i * n);
    RESTRICT(b, in[1]);
    RESTRICT(y, out[0] + i * n);
    for (long j = 0; j < n; j++) {
      const float v = x[j] + b[j];
      y[j] = 0.5f * v * (1.0f + erff(v * 0.70710678f));
    }
  }
}

void W2c(ARGUMENTS) {
  const long n = extent[1];
  FOR_ROWS(extent[0]) {
    RESTRICT(x, in[0] + i * n);
    RESTRICT(b, in[1]);
    RESTRICT(y, out[0] + i * n);
    for (long j = 0; j < n; j++) {
      const float v = x[j] + b[j];
      y[j] = 0.5f * v * erfcf(v * -0.70710678f);
    }
  }
}

void W2t(ARGUMENTS) {
  const long n = extent[1];
  FOR_ROWS(extent[0]) {
    RESTRICT(x, in[0] + i * n);
    RESTRICT(b, in[1]);
    RESTRICT(y, out[0] + i * n);
    for (long j = 0; j < n; j++) {
      const float v = x[j] + b[j];
      y[j] = 0.5f * v * (1.0f + tanhf(0.79788456f * (v + 0.044715f * v * v * v)));
    }
  }
}

void W3(ARGUMENTS) {
  const long n = extent[1];
  FOR_ROWS(extent[0]) {
    RESTRICT(x, in[0] + i * n);
    RESTRICT(row, in[1]);
    RESTRICT(y, out[0] + i * n);
    const unsigned char *restrict keep = (const unsigned char *)in[3] + i * n;
    const float column = in[2][i];
    for (long j = 0; j < n; j++) {
      const float v = fminf(fmaxf(x[j] * row[j] + column, -1.0f), 1.0f);
      y[j] = keep[j] ? v : x[j];
    }
  }
}

void W4(ARGUMENTS) {
  const long n = extent[1];
  FOR_ROWS(extent[0]) {
    RESTRICT(x, in[0] + i * n);
    RESTRICT(y, out[0] + i * n);
    float most = x[0], sum = 0.0f;
    for (long j = 0; j < n; j++) most = fmaxf(most, x[j]);
    for (long j = 0; j < n; j++) sum += y[j] = expf(x[j] - most);
    const float scale = 1.0f / sum;
    for (long j = 0; j < n; j++) y[j] *= scale;
  }
}

void W5(ARGUMENTS) {
  const long n = extent[1];
  FOR_ROWS(extent[0]) {
    RESTRICT(x, in[0] + i * n);
    RESTRICT(residual, in[1] + i * n);
    RESTRICT(scale, in[3]);
    RESTRICT(bias, in[4]);
    RESTRICT(total, out[0] + i * n);
    RESTRICT(y, out[1] + i * n);
    const unsigned char *restrict keep = (const unsigned char *)in[2] + i * n;
    float sum = 0.0f, squares = 0.0f;
    for (long j = 0; j < n; j++) sum += total[j] = (keep[j] ? x[j] * 1.1111111f : x[j] * 0.0f) + residual[j];
    const float mean = sum / n;
    for (long j = 0; j < n; j++) squares += (total[j] - mean) * (total[j] - mean);
    const float inverse = 1.0f / sqrtf(squares / n + 1e-5f);
    for (long j = 0; j < n; j++) y[j] = (total[j] - mean) * inverse * scale[j] + bias[j];
  }
}

void W6(ARGUMENTS) {
  const long n = extent[1];
  FOR_ROWS(extent[0]) {
    RESTRICT(x, in[0] + i * n);
    RESTRICT(scale, in[1]);
    RESTRICT(y, out[0] + i * n);
    float squares = 0.0f;
    for (long j = 0; j < n; j++) squares += x[j] * x[j];
    const float inverse = 1.0f / sqrtf(squares / n + 1e-5f);
    for (long j = 0; j < n; j++) y[j] = x[j] * inverse * scale[j];
  }
}

void W6s(ARGUMENTS) {
  RESTRICT(gate, in[0]);
  RESTRICT(up, in[1]);
  RESTRICT(y, out[0]);
  FOR_ELEMENTS(extent[0] * extent[1]) y[i] = gate[i] * sigmoid(gate[i]) * up[i];
}

// Over its first, third and fourth input.
void W7(ARGUMENTS) {
  (void)out;
  RESTRICT(p, in[0]);
  RESTRICT(g, in[1]);
  RESTRICT(m, in[2]);
  RESTRICT(v, in[3]);
  FOR_ELEMENTS(extent[0]) {
    m[i] = m[i] * 0.9f + g[i] * 0.1f;
    v[i] = v[i] * 0.999f + g[i] * g[i] * 0.001f;
    p[i] -= m[i] / 0.6513215599f / (sqrtf(v[i] / 0.009955119790251765f) + 1e-8f) * 0.001f;
  }
}

void W8(ARGUMENTS) {
  const long n = extent[1] / 4;
  FOR_ROWS(extent[0]) {
    RESTRICT(gates, in[0] + 4 * i * n);
    RESTRICT(c, in[1] + i * n);
    RESTRICT(h, out[0] + i * n);
    RESTRICT(next, out[1] + i * n);
#pragma omp simd
    for (long j = 0; j < n; j++) {
      const float v = sigmoid(gates[n + j]) * c[j] + sigmoid(gates[j]) * tanhf(gates[2 * n + j]);
      next[j] = v;
      h[j] = sigmoid(gates[3 * n + j]) * tanhf(v);
    }
  }
}

void W9(ARGUMENTS) {
  const long n = extent[1];
  float *mean = out[0], *var = out[1], *x = in[0];
  memset(mean, 0, n * sizeof(float));
  memset(var, 0, n * sizeof(float));
#pragma omp parallel for schedule(static) reduction(+ : mean[:n], var[:n])
  for (long i = 0; i < extent[0]; i++)
    for (long j = 0; j < n; j++) {
      const float d = x[i * n + j] - x[j];
      mean[j] += d;
      var[j] += d * d;
    }
  for (long j = 0; j < n; j++) {
    mean[j] /= extent[0];
    var[j] = var[j] / extent[0] - mean[j] * mean[j];
    mean[j] += x[j];
  }
}

void W10(ARGUMENTS) {
  const long rows = extent[0], columns = extent[1];
  RESTRICT(x, in[0]);
  RESTRICT(y, in[1]);
  RESTRICT(z, out[0]);
#pragma omp parallel for collapse(2) schedule(static)
  for (long i = 0; i < columns; i += 32)
    for (long j = 0; j < rows; j += 32)
      for (long k = i; k < i + 32 && k < columns; k++)
        for (long l = j; l < j + 32 && l < rows; l++)
          z[k * rows + l] = fmaxf(x[l * columns + k] + y[k * rows + l], 0.0f);
}

void W11(ARGUMENTS) {
  const long channels = extent[1], n = extent[2] * extent[3];
  FOR_ROWS(extent[0] * channels) {
    const long c = i % channels;
    RESTRICT(x, in[0] + i * n);
    RESTRICT(residual, in[1] + i * n);
    RESTRICT(y, out[0] + i * n);
    const float scale = in[2][c] / sqrtf(in[5][c] + 1e-5f), shift = in[3][c] - in[4][c] * scale;
    for (long j = 0; j < n; j++) y[j] = fmaxf(x[j] * scale + shift, 0.0f) + residual[j];
  }
}

void W6l(ARGUMENTS) {
  const long n = extent[1];
  FOR_ROWS(extent[0]) {
    RESTRICT(x, in[0] + i * n);
    RESTRICT(scale, in[1]);
    RESTRICT(bias, in[2]);
    RESTRICT(y, out[0] + i * n);
    float sum = 0.0f, squares = 0.0f;
    for (long j = 0; j < n; j++) sum += x[j];
    const float mean = sum / n;
    for (long j = 0; j < n; j++) squares += (x[j] - mean) * (x[j] - mean);
    const float inverse = 1.0f / sqrtf(squares / n + 1e-5f);
    for (long j = 0; j < n; j++) y[j] = (x[j] - mean) * inverse * scale[j] + bias[j];
  }
}

void W4n(ARGUMENTS) { W4(in, out, extent); }

void W4l(ARGUMENTS) { W4(in, out, extent); }

void P16(ARGUMENTS) {
  const long n = extent[1];
  FOR_ROWS(n) {
    for (long j = 0; j < extent[0]; j++) {
      RESTRICT(x, in[0] + (j * n + i) * 16);
      RESTRICT(y, in[1] + (i * extent[0] + j) * 16);
      RESTRICT(z, out[0] + (i * extent[0] + j) * 16);
      for (long k = 0; k < 16; k++) z[k] = x[k] * 1.5f + y[k];
    }
  }
}

// Its first input is the row that is repeated.
void MOD(ARGUMENTS) {
  const long n = extent[0];
  FOR_ROWS(extent[1] / n) {
    RESTRICT(x, in[0]);
    RESTRICT(y, in[1] + i * n);
    RESTRICT(z, out[0] + i * n);
    for (long j = 0; j < n; j++) z[j] = x[j] * 1.5f + y[j];
  }
}

void ROPE(ARGUMENTS) {
  const long n = extent[1] / 2;
  FOR_ROWS(extent[0]) {
    RESTRICT(x, in[0] + 2 * i * n);
    RESTRICT(s, in[1] + i * n);
    RESTRICT(c, in[2] + i * n);
    RESTRICT(y, out[0] + 2 * i * n);
    for (long j = 0; j < n; j++) {
      y[j] = x[j] * c[j] - x[n + j] * s[j];
      y[n + j] = x[n + j] * c[j] + x[j] * s[j];
    }
  }
}

void SIN(ARGUMENTS) {
  RESTRICT(x, in[0]);
  RESTRICT(y, out[0]);
  FOR_ELEMENTS(extent[0]) y[i] = sinf(x[i] * 30.0f) * cosf(x[i]);
}

void SUM1(ARGUMENTS) {
  const long n = extent[1];
  FOR_ROWS(extent[0]) {
    RESTRICT(x, in[0] + i * n);
    RESTRICT(y, in[1] + i * n);
    float sum = 0.0f;
    for (long j = 0; j < n; j++) sum += x[j] * y[j];
    out[0][i] = sum;
  }
}

void SUM0(ARGUMENTS) {
  const long n = extent[1];
  float *sum = out[0], *x = in[0];
  memset(sum, 0, n * sizeof(float));
#pragma omp parallel for schedule(static) reduction(+ : sum[:n])
  for (long i = 0; i < extent[0]; i++)
    for (long j = 0; j < n; j++) sum[j] += x[i * n + j];
}

void W12(ARGUMENTS) { W1(in, out, extent); }

void W13(ARGUMENTS) {
#pragma omp parallel for schedule(static)
  for (int k = 0; k < 32; k++) {
    RESTRICT(x, in[k]);
    RESTRICT(y, out[k]);
    for (long i = 0; i < extent[0]; i++) y[i] = tanhf(x[i] * 1.5f) + 0.25f;
  }
}
