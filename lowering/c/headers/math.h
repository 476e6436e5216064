/* Scalar math: branch-free functions that gcc and clang vectorise inside `#pragma omp simd` loops.

   Compile with -fno-math-errno -fno-trapping-math, never with -ffast-math; round-to-nearest is assumed. libm is called only
   where a comment says so, and for roundings on machines without such instructions. `ULP` bounds are of the result against the
   exact value over the whole range, in units of the type's spacing there. Unless said otherwise NaN gives NaN, denormal
   arguments count in full and results underflow gradually. */

#define FO_FN static inline __attribute__((always_inline, unused))

/* FO_KEPT float c = ...: a constant that gcc does not fold. `c > x ? c : x` is one instruction of x86 then; of a known c gcc
   makes comparisons and blends, as it threads jumps from one such choice to the next. */
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#define FO_KEPT static __attribute__((used))
#else
#define FO_KEPT const
#endif

typedef __INT8_TYPE__ fo_i8;
typedef __INT16_TYPE__ fo_i16;
typedef __INT32_TYPE__ fo_i32;
typedef __INT64_TYPE__ fo_i64;
typedef __UINT8_TYPE__ fo_u8;
typedef __UINT16_TYPE__ fo_u16;
typedef __UINT32_TYPE__ fo_u32;
typedef __UINT64_TYPE__ fo_u64;

/* ---- functions ---- */

/* fo_bits_f32: the bit pattern. */
FO_FN fo_u32 fo_bits_f32(float x) {
  fo_u32 u;
  __builtin_memcpy(&u, &x, sizeof u);
  return u;
}

/* fo_from_bits_f32: the number with that bit pattern. */
FO_FN float fo_from_bits_f32(fo_u32 u) {
  float x;
  __builtin_memcpy(&x, &u, sizeof x);
  return x;
}

/* fo_bits_f64: the bit pattern. */
FO_FN fo_u64 fo_bits_f64(double x) {
  fo_u64 u;
  __builtin_memcpy(&u, &x, sizeof u);
  return u;
}

/* fo_from_bits_f64: the number with that bit pattern. */
FO_FN double fo_from_bits_f64(fo_u64 u) {
  double x;
  __builtin_memcpy(&x, &u, sizeof x);
  return x;
}

/* fo_fma_f32: a * b + c rounded once, on every machine (a slow call where there is no such instruction). */
FO_FN float fo_fma_f32(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}

/* fo_fma_f64: a * b + c rounded once, on every machine (a slow call where there is no such instruction). */
FO_FN double fo_fma_f64(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}

/* fo_mad_f32: a * b + c, rounded once where that is one instruction, else twice. */
FO_FN float fo_mad_f32(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__) || defined(__CUDACC__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

/* fo_mad_f64: a * b + c, rounded once where that is one instruction, else twice. */
FO_FN double fo_mad_f64(double a, double b, double c) {
#if defined(__FMA__) || defined(__aarch64__) || defined(__CUDACC__)
  return __builtin_fma(a, b, c);
#else
  return a * b + c;
#endif
}

/* fo_sqrt_f32: correctly rounded (0.5 ULP); x < 0 is NaN, -0 is -0. */
FO_FN float fo_sqrt_f32(float x) {
  return __builtin_sqrtf(x);
}

/* fo_sqrt_f64: correctly rounded (0.5 ULP); x < 0 is NaN, -0 is -0. */
FO_FN double fo_sqrt_f64(double x) {
  return __builtin_sqrt(x);
}

/* fo_rsqrt_f32: 1 / sqrt(x), 1.5 ULP; +-0 gives +-inf, x < 0 is NaN. */
FO_FN float fo_rsqrt_f32(float x) {
  return 1.0f / __builtin_sqrtf(x);
}

/* fo_rsqrt_f64: 1 / sqrt(x), 1.5 ULP; +-0 gives +-inf, x < 0 is NaN. */
FO_FN double fo_rsqrt_f64(double x) {
  return 1.0 / __builtin_sqrt(x);
}

/* fo_floor_f32: exact; keeps the sign of zero. */
FO_FN float fo_floor_f32(float x) {
  return __builtin_floorf(x);
}

/* fo_floor_f64: exact; keeps the sign of zero. */
FO_FN double fo_floor_f64(double x) {
  return __builtin_floor(x);
}

/* fo_ceil_f32: exact; keeps the sign of zero. */
FO_FN float fo_ceil_f32(float x) {
  return __builtin_ceilf(x);
}

/* fo_ceil_f64: exact; keeps the sign of zero. */
FO_FN double fo_ceil_f64(double x) {
  return __builtin_ceil(x);
}

/* fo_trunc_f32: exact; keeps the sign of zero. */
FO_FN float fo_trunc_f32(float x) {
  return __builtin_truncf(x);
}

/* fo_trunc_f64: exact; keeps the sign of zero. */
FO_FN double fo_trunc_f64(double x) {
  return __builtin_trunc(x);
}

/* fo_round_f32: to the nearest integer, halves to even; exact; keeps the sign of zero. */
FO_FN float fo_round_f32(float x) {
  return __builtin_rintf(x);
}

/* fo_round_f64: to the nearest integer, halves to even; exact; keeps the sign of zero. */
FO_FN double fo_round_f64(double x) {
  return __builtin_rint(x);
}

/* fo_max_f32: the greater; NaN if either is NaN; of two zeros the first. */
FO_FN float fo_max_f32(float a, float b) {
  float r = b > a ? b : a; /* one instruction of x86; apart: gcc does not vectorise nests of one choice by `||` */
  return b != b ? b : r;
}

/* fo_max_f64: the greater; NaN if either is NaN; of two zeros the first. */
FO_FN double fo_max_f64(double a, double b) {
  double r = b > a ? b : a; /* one instruction of x86; apart: gcc does not vectorise nests of one choice by `||` */
  return b != b ? b : r;
}

/* fo_min_f32: the lesser; NaN if either is NaN; of two zeros the first. */
FO_FN float fo_min_f32(float a, float b) {
  float r = b < a ? b : a; /* one instruction of x86; apart: gcc does not vectorise nests of one choice by `||` */
  return b != b ? b : r;
}

/* fo_min_f64: the lesser; NaN if either is NaN; of two zeros the first. */
FO_FN double fo_min_f64(double a, double b) {
  double r = b < a ? b : a; /* one instruction of x86; apart: gcc does not vectorise nests of one choice by `||` */
  return b != b ? b : r;
}

/* fo_rem_f32: remainder of the floored quotient, sign of b (numpy.remainder); b == 0 or infinite a is NaN.
   Calls fmodf: exact, but not vectorised; the one rounding is the addition of b when the signs differ. */
FO_FN float fo_rem_f32(float a, float b) {
  float r = __builtin_fmodf(a, b);
  r = r == 0.0f ? __builtin_copysignf(0.0f, b) : (b < 0.0f) != (r < 0.0f) ? r + b : r;
  return b == b ? r : b;
}

/* fo_rem_f64: remainder of the floored quotient, sign of b (numpy.remainder); b == 0 or infinite a is NaN.
   Calls fmod: exact, but not vectorised; the one rounding is the addition of b when the signs differ. */
FO_FN double fo_rem_f64(double a, double b) {
  double r = __builtin_fmod(a, b);
  r = r == 0.0 ? __builtin_copysign(0.0, b) : (b < 0.0) != (r < 0.0) ? r + b : r;
  return b == b ? r : b;
}

/* fo_scale_f32: p * 2**n for -250 <= n <= 250 and t = n + 254 + 0x1.8p23. By two factors, the fields of whose exponents are
   halves of n + 254: the result overflows and underflows gradually by itself. */
FO_FN float fo_scale_f32(float p, float t) {
  fo_u32 both = fo_bits_f32(t) << 23, half = (fo_bits_f32(t) << 22) & 0xff800000u;
  return p * fo_from_bits_f32(half) * fo_from_bits_f32(both - half);
}

/* fo_scale_f64: p * 2**n for -2000 <= n <= 2000 and t = n + 2046 + 0x1.8p52; as fo_scale_f32. */
FO_FN double fo_scale_f64(double p, double t) {
  fo_u64 both = fo_bits_f64(t) << 52, half = (fo_bits_f64(t) << 51) & 0xfff0000000000000u;
  return p * fo_from_bits_f64(half) * fo_from_bits_f64(both - half);
}

/* fo_expm1_poly_f32: exp(r) - 1 for |r| <= 0.3467. */
FO_FN float fo_expm1_poly_f32(float r) {
  float z = r * r;
  float q = fo_mad_f32(0x1.1228c2p-7f, z, 0x1.5554aep-3f);
  float odd = fo_mad_f32(0x1.6b6514p-10f, z, 0x1.555722p-5f);
  q = fo_mad_f32(odd, r, q);
  q = fo_mad_f32(q, r, 0x1.fffffep-2f);
  return fo_mad_f32(z, q, r);
}

/* fo_expm1_poly_f64: exp(r) - 1 for |r| <= 0.3467. */
FO_FN double fo_expm1_poly_f64(double r) {
  double z = r * r;
  double q = fo_mad_f64(0x1.1f102bb7c77e5p-29, z, 0x1.27e5198469b2ep-22);
  q = fo_mad_f64(q, z, 0x1.a01a018b44f8bp-16);
  q = fo_mad_f64(q, z, 0x1.6c16c16c1b322p-10);
  q = fo_mad_f64(q, z, 0x1.555555555554cp-5);
  q = fo_mad_f64(q, z, 0.5);
  double odd = fo_mad_f64(0x1.af5f172ab98f7p-26, z, 0x1.71ddf819562cbp-19);
  odd = fo_mad_f64(odd, z, 0x1.a01a01b00095fp-13);
  odd = fo_mad_f64(odd, z, 0x1.111111110f659p-7);
  odd = fo_mad_f64(odd, z, 0x1.5555555555559p-3);
  q = fo_mad_f64(odd, r, q);
  return fo_mad_f64(z, q, r);
}

/* fo_exp_poly_f32: exp(r) for |r| <= 0.3467. */
FO_FN float fo_exp_poly_f32(float r) {
  float q = 0x1.0fa356p-7f;
  q = fo_mad_f32(q, r, 0x1.573abcp-5f);
  q = fo_mad_f32(q, r, 0x1.555a7ap-3f);
  q = fo_mad_f32(q, r, 0x1.fffdc4p-2f);
  q = fo_mad_f32(q, r, 0x1.fffff6p-1f);
  return fo_mad_f32(q, r, 1.0f);
}

/* fo_exp_f32: 2.3 ULP. */
FO_FN float fo_exp_f32(float x) {
  FO_KEPT float low = -105.0f, high = 89.0f;
  x = low > x ? low : x;
  x = high < x ? high : x;
  float t = fo_mad_f32(x, 0x1.715476p+0f, 0x1.8p23f + 254.0f);
  float n = t - (0x1.8p23f + 254.0f);
  float r = fo_mad_f32(n, -0x1.7f7d1cp-20f, fo_mad_f32(n, -0x1.62e4p-1f, x));
  /* 2**n in two factors, the fields of their exponents being halves of n + 254: underflow is gradual. */
  fo_u32 both = fo_bits_f32(t) << 23, half = (fo_bits_f32(t) << 22) & 0xff800000u;
  return fo_exp_poly_f32(r) * fo_from_bits_f32(half) * fo_from_bits_f32(both - half);
}

/* fo_exp_f64: 1.2 ULP. */
FO_FN double fo_exp_f64(double x) {
  FO_KEPT double low = -746.0, high = 710.0;
  x = low > x ? low : x;
  x = high < x ? high : x;
  double t = fo_mad_f64(x, 0x1.71547652b82fep+0, 0x1.8p52 + 2046.0);
  double n = t - (0x1.8p52 + 2046.0);
  double r = fo_mad_f64(n, -0x1.3de6af278ece6p-42, fo_mad_f64(n, -0x1.62e42fefa3p-1, x));
  return fo_scale_f64(1.0 + fo_expm1_poly_f64(r), t);
}

/* fo_exp_negative_f32: exp(x) for x <= 0, or a little above; 2.3 ULP. */
FO_FN float fo_exp_negative_f32(float x) {
  FO_KEPT float low = -104.0f;
  x = low > x ? low : x;
  float t = fo_mad_f32(x, 0x1.715476p+0f, 0x1.8p23f + 150.0f);
  float n = t - (0x1.8p23f + 150.0f);
  float r = fo_mad_f32(n, -0x1.7f7d1cp-20f, fo_mad_f32(n, -0x1.62e4p-1f, x));
  float s = fo_from_bits_f32(fo_bits_f32(t) << 23); /* 2**(n + 23); 0 for n = -150 */
  return fo_exp_poly_f32(r) * s * 0x1p-23f;
}

/* fo_exp_negative_f64: exp(x) for x <= 0, or a little above; 1.2 ULP. */
FO_FN double fo_exp_negative_f64(double x) {
  FO_KEPT double low = -745.2;
  x = low > x ? low : x;
  double t = fo_mad_f64(x, 0x1.71547652b82fep+0, 0x1.8p52 + 1075.0);
  double n = t - (0x1.8p52 + 1075.0);
  double r = fo_mad_f64(n, -0x1.3de6af278ece6p-42, fo_mad_f64(n, -0x1.62e42fefa3p-1, x));
  double s = fo_from_bits_f64(fo_bits_f64(t) << 52); /* 2**(n + 52); 0 for n = -1075 */
  return fo_mad_f64(s, fo_expm1_poly_f64(r), s) * 0x1p-52;
}

/* fo_exp2_f32: 1.2 ULP; exact at integers. */
FO_FN float fo_exp2_f32(float x) {
  FO_KEPT float low = -151.0f, high = 129.0f;
  x = low > x ? low : x;
  x = high < x ? high : x;
  float t = x + (0x1.8p23f + 254.0f);
  float r = x - (t - (0x1.8p23f + 254.0f));
  float q = 0x1.3f9bcp-13f;
  q = fo_mad_f32(q, r, 0x1.5f0b8cp-10f);
  q = fo_mad_f32(q, r, 0x1.3b30a6p-7f);
  q = fo_mad_f32(q, r, 0x1.c6af76p-5f);
  q = fo_mad_f32(q, r, 0x1.ebfbd8p-3f);
  q = fo_mad_f32(q, r, 0x1.62e43p-1f);
  return fo_scale_f32(fo_mad_f32(q, r, 1.0f), t);
}

/* fo_exp2_f64: 1.2 ULP; exact at integers. */
FO_FN double fo_exp2_f64(double x) {
  FO_KEPT double low = -1076.0, high = 1025.0;
  x = low > x ? low : x;
  x = high < x ? high : x;
  double t = x + (0x1.8p52 + 2046.0);
  double r = x - (t - (0x1.8p52 + 2046.0));
  double z = r * r;
  double q = fo_mad_f64(0x1.eb0754d5d1ac4p-32, z, 0x1.b5241c91658f4p-24);
  q = fo_mad_f64(q, z, 0x1.ffcbfcde55481p-17);
  q = fo_mad_f64(q, z, 0x1.5d87fe788836bp-10);
  q = fo_mad_f64(q, z, 0x1.c6b08d704a185p-5);
  q = fo_mad_f64(q, z, 0x1.62e42fefa39efp-1);
  double odd = fo_mad_f64(0x1.d487100e0d40fp-36, z, 0x1.e4c3801506237p-28);
  odd = fo_mad_f64(odd, z, 0x1.62c025606fa91p-20);
  odd = fo_mad_f64(odd, z, 0x1.430912f7a9f3ep-13);
  odd = fo_mad_f64(odd, z, 0x1.3b2ab6fba50fep-7);
  odd = fo_mad_f64(odd, z, 0x1.ebfbdff82c58ep-3);
  q = fo_mad_f64(odd, r, q);
  return fo_scale_f64(fo_mad_f64(q, r, 1.0), t);
}

/* fo_expm1_core_f64: exp(x) - 1 for -700 <= x <= 700; the sign of zero is lost. 2**n * (exp(r) - 1) + (2**n - 1). */
FO_FN double fo_expm1_core_f64(double x) {
  double t = fo_mad_f64(x, 0x1.71547652b82fep+0, 0x1.8p52 + 1023.0);
  double n = t - (0x1.8p52 + 1023.0);
  double r = fo_mad_f64(n, -0x1.3de6af278ece6p-42, fo_mad_f64(n, -0x1.62e42fefa3p-1, x));
  double s = fo_from_bits_f64(fo_bits_f64(t) << 52);
  return fo_mad_f64(s, fo_expm1_poly_f64(r), s - 1.0);
}

/* fo_expm1_f32: 1.7 ULP; keeps the sign of zero. */
FO_FN float fo_expm1_f32(float x) {
  FO_KEPT float low = -20.0f, high = 89.0f;
  float c = low > x ? low : x;
  c = high < c ? high : c;
  float t = fo_mad_f32(c, 0x1.715476p+0f, 0x1.8p23f + 126.0f);
  float n = t - (0x1.8p23f + 126.0f);
  float r = fo_mad_f32(n, -0x1.7f7d1cp-20f, fo_mad_f32(n, -0x1.62e4p-1f, c));
  float s = fo_from_bits_f32(fo_bits_f32(t) << 23); /* 2**(n - 1): n may be 128 */
  float y = 2.0f * fo_mad_f32(s, fo_expm1_poly_f32(r), s - 0.5f);
  return __builtin_fabsf(x) < 0x1p-25f ? x : y;
}

/* fo_expm1_f64: 2.1 ULP; keeps the sign of zero. */
FO_FN double fo_expm1_f64(double x) {
  FO_KEPT double low = -40.0, high = 710.0;
  double c = low > x ? low : x;
  c = high < c ? high : c;
  double t = fo_mad_f64(c, 0x1.71547652b82fep+0, 0x1.8p52 + 1022.0);
  double n = t - (0x1.8p52 + 1022.0);
  double r = fo_mad_f64(n, -0x1.3de6af278ece6p-42, fo_mad_f64(n, -0x1.62e42fefa3p-1, c));
  double s = fo_from_bits_f64(fo_bits_f64(t) << 52); /* 2**(n - 1): n may be 1024 */
  double y = 2.0 * fo_mad_f64(s, fo_expm1_poly_f64(r), s - 0.5);
  return __builtin_fabs(x) < 0x1p-54 ? x : y;
}

/* fo_tanh_f32: 2.7 ULP; odd, keeps the sign of zero; h / (h + 1) with h = (exp(2 |x|) - 1) / 2. */
FO_FN float fo_tanh_f32(float x) {
  float a = __builtin_fabsf(x);
  FO_KEPT float high = 9.5f;
  a = high < a ? high : a;
  float t = fo_mad_f32(a, 0x1.715476p+1f, 0x1.8p23f + 127.0f);
  float n = t - (0x1.8p23f + 127.0f);
  float r = fo_mad_f32(n, -0x1.62e43p-2f, a);
  float s = fo_from_bits_f32(fo_bits_f32(t) << 23); /* 2**n */
  /* (exp(2 r) - 1) / 2: the coefficients of fo_expm1_poly_f32 times powers of two */
  float z = r * r;
  float q = fo_mad_f32(0x1.6b6514p-5f, z, 0x1.555722p-2f);
  q = fo_mad_f32(q, z, 0x1.fffffep-1f);
  float odd = fo_mad_f32(0x1.1228c2p-3f, z, 0x1.5554aep-1f);
  q = fo_mad_f32(odd, r, q);
  float h = fo_mad_f32(s, fo_mad_f32(z, q, r), fo_mad_f32(s, 0.5f, -0.5f));
  return __builtin_copysignf(h / (h + 1.0f), x);
}

/* fo_tanh_f64: 2.8 ULP; odd, keeps the sign of zero; e / (e + 2) with e = exp(2 |x|) - 1. */
FO_FN double fo_tanh_f64(double x) {
  double a = __builtin_fabs(x);
  FO_KEPT double high = 20.0;
  a = high < a ? high : a;
  double e = fo_expm1_core_f64(a + a);
  return __builtin_copysign(e / (e + 2.0), x);
}

/* fo_erf_f32: 2.7 ULP; odd, keeps the sign of zero; 1 - 2**(a g(a)) with the polynomial g(a) = log2(erfc(a)) / a. */
FO_FN float fo_erf_f32(float x) {
  FO_KEPT float high = 3.925f;
  float a = __builtin_fabsf(x);
  a = high < a ? high : a;
  float z = a * a;
  float odd = fo_mad_f32(-0x1.1de048p-14f, z, -0x1.02b784p-9f);
  odd = fo_mad_f32(odd, z, 0x1.c6808ap-6f);
  odd = fo_mad_f32(odd, z, -0x1.d63eb0p-1f);
  float g = fo_mad_f32(0x1.41ead4p-11f, z, -0x1.5e7036p-14f);
  g = fo_mad_f32(g, z, -0x1.2fb3b4p-3f);
  g = fo_mad_f32(fo_mad_f32(g, a, odd), a, -0x1.a0be84p+0f);
  float v = a * g;
  float t = v + (0x1.8p23f + 127.0f);
  float r = v - (t - (0x1.8p23f + 127.0f));
  float s = fo_from_bits_f32(fo_bits_f32(t) << 23);
  float p = 0x1.3f1b7ap-13f; /* (2**r - 1) / r */
  p = fo_mad_f32(p, r, 0x1.5efa52p-10f);
  p = fo_mad_f32(p, r, 0x1.3b3126p-7f);
  p = fo_mad_f32(p, r, 0x1.c6af94p-5f);
  p = fo_mad_f32(p, r, 0x1.ebfbd8p-3f);
  p = fo_mad_f32(p, r, 0x1.62e43p-1f);
  return __builtin_copysignf(fo_mad_f32(-(s * r), p, 1.0f - s), x);
}

/* fo_erf_f64: 2.2 ULP; odd, keeps the sign of zero; 1 - exp(-a - a g(a)) with the polynomial g(a) = -log(erfc(a)) / a - 1. */
FO_FN double fo_erf_f64(double x) {
  double a = __builtin_fabs(x);
  FO_KEPT double high = 5.95;
  a = high < a ? high : a;
  double z = a * a;
  double g = fo_mad_f64(0x1.584b9f1b641cdp-43, z, 0x1.68f1faf53cf8ep-35);
  g = fo_mad_f64(g, z, 0x1.3700005b5c5a3p-29);
  g = fo_mad_f64(g, z, 0x1.1ba404eec5787p-25);
  g = fo_mad_f64(g, z, -0x1.6c060b812dc0ap-26);
  g = fo_mad_f64(g, z, -0x1.147c9e1a2485bp-19);
  g = fo_mad_f64(g, z, 0x1.a68dd78a7545ap-19);
  g = fo_mad_f64(g, z, 0x1.0e2b2cb35bea1p-14);
  g = fo_mad_f64(g, z, -0x1.356655ab2c187p-11);
  g = fo_mad_f64(g, z, -0x1.b6b6a41c70638p-13);
  g = fo_mad_f64(g, z, 0x1.a4f4e2a1a92b4p-4);
  g = fo_mad_f64(g, z, 0x1.06eba8214db68p-3);
  double odd = fo_mad_f64(-0x1.e81cace376244p-49, z, -0x1.c2111cb06eccp-39);
  odd = fo_mad_f64(odd, z, -0x1.8b9906d60cf9cp-32);
  odd = fo_mad_f64(odd, z, -0x1.62e7eed1bac21p-27);
  odd = fo_mad_f64(odd, z, -0x1.07bb4d8c0ed1fp-24);
  odd = fo_mad_f64(odd, z, 0x1.3b36748c39c81p-21);
  odd = fo_mad_f64(odd, z, 0x1.a7d83d2a87e07p-19);
  odd = fo_mad_f64(odd, z, -0x1.eff54cd07b92bp-16);
  odd = fo_mad_f64(odd, z, 0x1.b2a6c51ba061ap-16);
  odd = fo_mad_f64(odd, z, 0x1.bca6944ba8f9dp-10);
  odd = fo_mad_f64(odd, z, -0x1.396685903dc66p-6);
  odd = fo_mad_f64(odd, z, 0x1.45f306dc9c8d8p-1);
  g = fo_mad_f64(odd, a, g);
  return __builtin_copysign(fo_expm1_core_f64(-fo_mad_f64(a, g, a)), x);
}

/* fo_log1p_poly_f32: log(1 + f) - f for sqrt(1/2) <= 1 + f <= sqrt(2). */
FO_FN float fo_log1p_poly_f32(float f) {
  float z = f * f;
  float p = fo_mad_f32(0x1.025beap-3f, z, 0x1.236438p-3f);
  p = fo_mad_f32(p, z, 0x1.99986p-3f);
  p = fo_mad_f32(p, z, 0x1.555564p-2f);
  float odd = fo_mad_f32(-0x1.2d3636p-4f, z, -0x1.0e6826p-3f);
  odd = fo_mad_f32(odd, z, -0x1.546790p-3f);
  odd = fo_mad_f32(odd, z, -0x1.00023cp-2f);
  p = fo_mad_f32(odd, f, p);
  return fo_mad_f32(z * f, p, -0.5f * z);
}

/* fo_log1p_poly_f64: log(1 + f) - f for sqrt(1/2) <= 1 + f <= sqrt(2); -f**2 / 2 + s (f**2 / 2 + R) with s = f / (2 + f) and
   R = (2 atanh(s) - 2 s) / s. */
FO_FN double fo_log1p_poly_f64(double f) {
  double s = f / (2.0 + f), z = s * s, h = 0.5 * f * f;
  double p = 0x1.2f0d5e2c92795p-3;
  p = fo_mad_f64(p, z, 0x1.39a0ddfa994c2p-3);
  p = fo_mad_f64(p, z, 0x1.7466486178ecdp-3);
  p = fo_mad_f64(p, z, 0x1.c71c51d50fa2ap-3);
  p = fo_mad_f64(p, z, 0x1.249249423c734p-2);
  p = fo_mad_f64(p, z, 0x1.999999997f72dp-2);
  p = fo_mad_f64(p, z, 0x1.5555555555594p-1);
  return fo_mad_f64(s, fo_mad_f64(p, z, h), -h);
}

/* fo_log_f32: 1.3 ULP; +-0 is -inf, x < 0 is NaN. */
FO_FN float fo_log_f32(float x) {
  FO_KEPT float least = 0x1p-126f, same = 0x1p-126f; /* of one name, gcc would compute both sides of it */
  float a = x < least ? x * 0x1p25f : x;
  fo_u32 u = (fo_bits_f32(a) - 0x3f3504f3u) & 0xff800000u; /* k << 23; 0x3f3504f3 is sqrt(1/2) */
  float f = fo_from_bits_f32(fo_bits_f32(a) - u) - 1.0f;
  float k = (float)(fo_i32)(x < same ? u - (25u << 23) : u);
  float z = f * f;
  float q = fo_mad_f32(-0x1.24359p-3f, z, -0x1.5381cap-3f);
  q = fo_mad_f32(q, z, -0x1.000384p-2f);
  q = fo_mad_f32(q, z, -0.5f);
  float odd = fo_mad_f32(0x1.6472dep-4f, z, 0x1.3171d8p-3f);
  odd = fo_mad_f32(odd, z, 0x1.98d82ap-3f);
  odd = fo_mad_f32(odd, z, 0x1.5556d8p-2f);
  q = fo_mad_f32(odd, f, q);
  float y = fo_mad_f32(k, 0x1.62e43p-24f, fo_mad_f32(z, q, f)); /* log(2) / 2**23 */
  y = x < __builtin_inff() ? y : x;
  float edge = x == 0.0f ? -__builtin_inff() : __builtin_nanf("");
  return x > 0.0f ? y : edge;
}

/* fo_log_f64: 1.0 ULP; +-0 is -inf, x < 0 is NaN. */
FO_FN double fo_log_f64(double x) {
  FO_KEPT double least = 0x1p-1022, same = 0x1p-1022; /* of one name, gcc would compute both sides of it */
  double a = x < least ? x * 0x1p54 : x;
  fo_u64 u = fo_bits_f64(a) - 0x3fe6a09e667f3bcdu + 0x3ff0000000000000u; /* 0x3fe6a09e667f3bcd is sqrt(1/2) */
  double k = fo_from_bits_f64(0x4330000000000000u | (u >> 52)) - (x < same ? 0x1p52 + 1077.0 : 0x1p52 + 1023.0);
  double f = fo_from_bits_f64((u & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu) - 1.0;
  double y = fo_mad_f64(k, 0x1.3de6af278ece6p-42, fo_log1p_poly_f64(f)) + f;
  y = fo_mad_f64(k, 0x1.62e42fefa3p-1, y);
  y = x < __builtin_inf() ? y : x;
  double edge = x == 0.0 ? -__builtin_inf() : __builtin_nan("");
  return x > 0.0 ? y : edge;
}

/* fo_log2_f32: 2.1 ULP; exact at powers of two; +-0 is -inf, x < 0 is NaN. */
FO_FN float fo_log2_f32(float x) {
  FO_KEPT float least = 0x1p-126f, same = 0x1p-126f; /* of one name, gcc would compute both sides of it */
  float a = x < least ? x * 0x1p25f : x;
  fo_u32 u = (fo_bits_f32(a) - 0x3f3504f3u) & 0xff800000u; /* k << 23; 0x3f3504f3 is sqrt(1/2) */
  float f = fo_from_bits_f32(fo_bits_f32(a) - u) - 1.0f;
  float k = (float)(fo_i32)(x < same ? u - (25u << 23) : u);
  float z = f * f;
  float q = fo_mad_f32(0x1.02c91cp-3f, z, 0x1.b9368p-3f);
  q = fo_mad_f32(q, z, 0x1.26dcfp-2f);
  q = fo_mad_f32(q, z, 0x1.ec736ep-2f);
  float odd = fo_mad_f32(-0x1.a839bp-3f, z, -0x1.e9600ap-3f);
  odd = fo_mad_f32(odd, z, -0x1.715c66p-2f);
  q = fo_mad_f32(odd, f, q);
  q = fo_mad_f32(q, f, -0x1.71547p-1f);
  q = fo_mad_f32(q, f, 0x1.715476p+0f);
  float y = fo_mad_f32(k, 0x1p-23f, q * f);
  y = x < __builtin_inff() ? y : x;
  float edge = x == 0.0f ? -__builtin_inff() : __builtin_nanf("");
  return x > 0.0f ? y : edge;
}

/* fo_log2_f64: 1.3 ULP; exact at powers of two; +-0 is -inf, x < 0 is NaN. */
FO_FN double fo_log2_f64(double x) {
  FO_KEPT double least = 0x1p-1022, same = 0x1p-1022; /* of one name, gcc would compute both sides of it */
  double a = x < least ? x * 0x1p54 : x;
  fo_u64 u = fo_bits_f64(a) - 0x3fe6a09e667f3bcdu + 0x3ff0000000000000u;
  double k = fo_from_bits_f64(0x4330000000000000u | (u >> 52)) - (x < same ? 0x1p52 + 1077.0 : 0x1p52 + 1023.0);
  double f = fo_from_bits_f64((u & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu) - 1.0;
  double p = fo_log1p_poly_f64(f);
  double y = fo_mad_f64(p, 0x1.71547652b82fep+0, f * -0x1.d57135a8fa03dp-5);
  y = fo_mad_f64(f, 1.5, y) + k;
  y = x < __builtin_inf() ? y : x;
  double edge = x == 0.0 ? -__builtin_inf() : __builtin_nan("");
  return x > 0.0 ? y : edge;
}

/* fo_log10_f32: 2.1 ULP; exact at powers of ten; +-0 is -inf, x < 0 is NaN. */
FO_FN float fo_log10_f32(float x) {
  FO_KEPT float least = 0x1p-126f, same = 0x1p-126f; /* of one name, gcc would compute both sides of it */
  float a = x < least ? x * 0x1p25f : x;
  fo_u32 u = fo_bits_f32(a) - 0x3f3504f3u;
  float k = (float)((fo_i32)u >> 23) - (x < same ? 25.0f : 0.0f);
  float f = fo_from_bits_f32((u & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
  float p = fo_log1p_poly_f32(f);
  /* 1 / log(10) = 0.4375 + -0x1.a42756p-9f: f * 0.4375 loses little, the rest is small. */
  float y = fo_mad_f32(k, 0x1.3509f8p-18f, fo_mad_f32(p, 0x1.bcb7b2p-2f, f * -0x1.a42756p-9f));
  y = fo_mad_f32(f, 0.4375f, y);
  y = fo_mad_f32(k, 0x1.344p-2f, y);
  y = x < __builtin_inff() ? y : x;
  float edge = x == 0.0f ? -__builtin_inff() : __builtin_nanf("");
  return x > 0.0f ? y : edge;
}

/* fo_log10_f64: 2.1 ULP; exact at powers of ten; +-0 is -inf, x < 0 is NaN. */
FO_FN double fo_log10_f64(double x) {
  FO_KEPT double least = 0x1p-1022, same = 0x1p-1022; /* of one name, gcc would compute both sides of it */
  double a = x < least ? x * 0x1p54 : x;
  fo_u64 u = fo_bits_f64(a) - 0x3fe6a09e667f3bcdu + 0x3ff0000000000000u;
  double k = fo_from_bits_f64(0x4330000000000000u | (u >> 52)) - (x < same ? 0x1p52 + 1077.0 : 0x1p52 + 1023.0);
  double f = fo_from_bits_f64((u & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu) - 1.0;
  double p = fo_log1p_poly_f64(f);
  /* 1 / log(10) = 0.4375 + -0x1.a42756c8d78e7p-9: f * 0.4375 loses little, the rest is small. */
  double y = fo_mad_f64(k, 0x1.fef311f12b358p-46, fo_mad_f64(p, 0x1.bcb7b1526e50ep-2, f * -0x1.a42756c8d78e7p-9));
  y = fo_mad_f64(f, 0.4375, y);
  y = fo_mad_f64(k, 0x1.34413509f78p-2, y);
  y = x < __builtin_inf() ? y : x;
  double edge = x == 0.0 ? -__builtin_inf() : __builtin_nan("");
  return x > 0.0 ? y : edge;
}

/* fo_log1p_f32: 1.6 ULP; keeps the sign of zero; -1 is -inf, x < -1 is NaN. */
FO_FN float fo_log1p_f32(float x) {
  fo_u32 u = fo_bits_f32(1.0f + x) - 0x3f3504f3u;
  u = (u & 0xff800000u) - 0x01000000u; /* (k - 2) << 23 */
  float s = 0.25f * fo_from_bits_f32(0x3f800000u - u); /* 2**-k: k may be 128 */
  float k = (float)((fo_i32)u >> 23) + 2.0f;
  float f = fo_mad_f32(x, s, s - 1.0f); /* (1 + x) / 2**k - 1 */
  float y = fo_mad_f32(k, 0x1.7f7d1cp-20f, fo_log1p_poly_f32(f)) + f;
  y = fo_mad_f32(k, 0x1.62e4p-1f, y);
  y = fo_from_bits_f32(fo_bits_f32(y) | (fo_bits_f32(x) & 0x80000000u)); /* of the sign of x, zeros, too */
  y = x < __builtin_inff() ? y : x;
  float edge = x == -1.0f ? -__builtin_inff() : __builtin_nanf("");
  return x > -1.0f ? y : edge;
}

/* fo_log1p_f64: 1.6 ULP; keeps the sign of zero; -1 is -inf, x < -1 is NaN. */
FO_FN double fo_log1p_f64(double x) {
  fo_u64 u = fo_bits_f64(1.0 + x) - 0x3fe6a09e667f3bcdu + 0x3ff0000000000000u;
  double k = fo_from_bits_f64(0x4330000000000000u | (u >> 52)) - (0x1p52 + 1023.0);
  double s = 0.25 * fo_from_bits_f64(0x8000000000000000u - (u & 0xfff0000000000000u)); /* 2**-k: k may be 1024 */
  double f = fo_mad_f64(x, s, s - 1.0); /* (1 + x) / 2**k - 1 */
  double y = fo_mad_f64(k, 0x1.3de6af278ece6p-42, fo_log1p_poly_f64(f)) + f;
  y = fo_mad_f64(k, 0x1.62e42fefa3p-1, y);
  y = fo_from_bits_f64(fo_bits_f64(y) | (fo_bits_f64(x) & 0x8000000000000000u)); /* of the sign of x, zeros, too */
  y = x < __builtin_inf() ? y : x;
  double edge = x == -1.0 ? -__builtin_inf() : __builtin_nan("");
  return x > -1.0 ? y : edge;
}

/* fo_sinh_f32: 2.4 ULP; odd, keeps the sign of zero; 2 (h + h / (4 h + 1)) with h = (exp(|x|) - 1) / 4. */
FO_FN float fo_sinh_f32(float x) {
  float c = __builtin_fabsf(x);
  FO_KEPT float high = 89.6f;
  c = high < c ? high : c;
  float t = fo_mad_f32(c, 0x1.715476p+0f, 0x1.8p23f + 125.0f);
  float n = t - (0x1.8p23f + 125.0f);
  float r = fo_mad_f32(n, -0x1.7f7d1cp-20f, fo_mad_f32(n, -0x1.62e4p-1f, c));
  float s = fo_from_bits_f32(fo_bits_f32(t) << 23); /* 2**(n - 2): n may be 129 */
  float h = fo_mad_f32(s, fo_expm1_poly_f32(r), s - 0.25f);
  float y = 2.0f * (h + h / fo_mad_f32(4.0f, h, 1.0f));
  return __builtin_fabsf(x) < 0x1p-12f ? x : __builtin_copysignf(y, x);
}

/* fo_sinh_f64: 2.5 ULP; odd, keeps the sign of zero; 2 (h + h / (4 h + 1)) with h = (exp(|x|) - 1) / 4. */
FO_FN double fo_sinh_f64(double x) {
  double c = __builtin_fabs(x);
  FO_KEPT double high = 710.6;
  c = high < c ? high : c;
  double t = fo_mad_f64(c, 0x1.71547652b82fep+0, 0x1.8p52 + 1021.0);
  double n = t - (0x1.8p52 + 1021.0);
  double r = fo_mad_f64(n, -0x1.3de6af278ece6p-42, fo_mad_f64(n, -0x1.62e42fefa3p-1, c));
  double s = fo_from_bits_f64(fo_bits_f64(t) << 52); /* 2**(n - 2): n may be 1025 */
  double h = fo_mad_f64(s, fo_expm1_poly_f64(r), s - 0.25);
  double y = 2.0 * (h + h / fo_mad_f64(4.0, h, 1.0));
  return __builtin_fabs(x) < 0x1p-27 ? x : __builtin_copysign(y, x);
}

/* fo_cosh_f32: 1.6 ULP; h + 1 / (4 h) with h = exp(|x|) / 2. */
FO_FN float fo_cosh_f32(float x) {
  float c = __builtin_fabsf(x);
  FO_KEPT float high = 90.0f;
  c = high < c ? high : c;
  float t = fo_mad_f32(c, 0x1.715476p+0f, 0x1.8p23f + 254.0f);
  float n = t - (0x1.8p23f + 254.0f);
  float r = fo_mad_f32(n, -0x1.7f7d1cp-20f, fo_mad_f32(n, -0x1.62e4p-1f, c));
  float h = fo_scale_f32(fo_mad_f32(0.5f, fo_expm1_poly_f32(r), 0.5f), t);
  return h + 0.25f / h;
}

/* fo_cosh_f64: 1.6 ULP; h + 1 / (4 h) with h = exp(|x|) / 2. */
FO_FN double fo_cosh_f64(double x) {
  double c = __builtin_fabs(x);
  FO_KEPT double high = 711.0;
  c = high < c ? high : c;
  double t = fo_mad_f64(c, 0x1.71547652b82fep+0, 0x1.8p52 + 2046.0);
  double n = t - (0x1.8p52 + 2046.0);
  double r = fo_mad_f64(n, -0x1.3de6af278ece6p-42, fo_mad_f64(n, -0x1.62e42fefa3p-1, c));
  double h = fo_scale_f64(fo_mad_f64(0.5, fo_expm1_poly_f64(r), 0.5), t);
  return h + 0.25 / h;
}

/* fo_asinh_f32: 2.0 ULP; odd, keeps the sign of zero; log1p(a + a**2 / (1 + sqrt(1 + a**2))), log1p(a) + log(2) for large a. */
FO_FN float fo_asinh_f32(float x) {
  float a = __builtin_fabsf(x);
  float b = a > 0x1p26f ? 1.0f : a;
  float w = a + b * b / (1.0f + __builtin_sqrtf(fo_mad_f32(b, b, 1.0f)));
  float y = fo_log1p_f32(a > 0x1p26f ? a : w) + (a > 0x1p26f ? 0x1.62e43p-1f : 0.0f);
  return __builtin_copysignf(y, x);
}

/* fo_asinh_f64: 2.0 ULP; odd, keeps the sign of zero; log1p(a + a**2 / (1 + sqrt(1 + a**2))), log1p(a) + log(2) for large a. */
FO_FN double fo_asinh_f64(double x) {
  double a = __builtin_fabs(x);
  double b = a > 0x1p55 ? 1.0 : a;
  double w = a + b * b / (1.0 + __builtin_sqrt(fo_mad_f64(b, b, 1.0)));
  double y = fo_log1p_f64(a > 0x1p55 ? a : w) + (a > 0x1p55 ? 0x1.62e42fefa39efp-1 : 0.0);
  return __builtin_copysign(y, x);
}

/* fo_acosh_f32: 2.5 ULP; x < 1 is NaN; log1p(u + sqrt(2 u + u**2)) with u = x - 1, log1p(x) + log(2) for large x. */
FO_FN float fo_acosh_f32(float x) {
  float u = x > 0x1p26f ? 0.0f : x - 1.0f;
  float w = u + __builtin_sqrtf(u * (u + 2.0f));
  float y = fo_log1p_f32(x > 0x1p26f ? x : w) + (x > 0x1p26f ? 0x1.62e43p-1f : 0.0f);
  return x < 1.0f ? __builtin_nanf("") : y;
}

/* fo_acosh_f64: 2.4 ULP; x < 1 is NaN; log1p(u + sqrt(2 u + u**2)) with u = x - 1, log1p(x) + log(2) for large x. */
FO_FN double fo_acosh_f64(double x) {
  double u = x > 0x1p55 ? 0.0 : x - 1.0;
  double w = u + __builtin_sqrt(u * (u + 2.0));
  double y = fo_log1p_f64(x > 0x1p55 ? x : w) + (x > 0x1p55 ? 0x1.62e42fefa39efp-1 : 0.0);
  return x < 1.0 ? __builtin_nan("") : y;
}

/* fo_atanh_f32: 2.2 ULP; odd, keeps the sign of zero; +-1 is +-inf, |x| > 1 is NaN; log1p(2 a / (1 - a)) / 2. */
FO_FN float fo_atanh_f32(float x) {
  float a = __builtin_fabsf(x);
  return __builtin_copysignf(0.5f * fo_log1p_f32((a + a) / (1.0f - a)), x);
}

/* fo_atanh_f64: 2.2 ULP; odd, keeps the sign of zero; +-1 is +-inf, |x| > 1 is NaN; log1p(2 a / (1 - a)) / 2. */
FO_FN double fo_atanh_f64(double x) {
  double a = __builtin_fabs(x);
  return __builtin_copysign(0.5 * fo_log1p_f64((a + a) / (1.0 - a)), x);
}

/* fo_cbrt_f32: 0.6 ULP, computed in double; keeps the sign of zero. Two steps of Halley from a division of the exponent by 3. */
FO_FN float fo_cbrt_f32(float x) {
  double a = __builtin_fabsf(x);
  double h = fo_from_bits_f64(0x4330000000000000u | (fo_bits_f64(a) >> 32)) - 0x1p52; /* the upper half of the bits */
  double c = fo_from_bits_f64(fo_bits_f64(h * 0x1.5555555555555p-2 + (0x1p52 + 715094163.0)) << 32); /* within 3.5% */
  double r = c * c * c;
  c = c * (r + 2.0 * a) / (2.0 * r + a);
  r = c * c * c;
  c = c * (r + 2.0 * a) / (2.0 * r + a);
  return a == 0.0 || !(a < __builtin_inf()) ? x : __builtin_copysignf((float)c, x);
}

/* fo_cbrt_f64: 0.7 ULP; keeps the sign of zero. */
FO_FN double fo_cbrt_f64(double x) {
  double a = __builtin_fabs(x);
  a = a < 0x1p-1022 ? a * 0x1p54 : a;
  double h = fo_from_bits_f64(0x4330000000000000u | (fo_bits_f64(a) >> 32)) - 0x1p52; /* the upper half of the bits */
  double c = fo_from_bits_f64(fo_bits_f64(h * 0x1.5555555555555p-2 + (0x1p52 + 715094163.0)) << 32); /* within 3.5% */
  double r = c * c * (c / a);
  double p = 0x1.2bf50ad806fbfp-3;
  p = fo_mad_f64(p, r, -0x1.859d98586ef44p-1);
  p = fo_mad_f64(p, r, 0x1.a0574d60b6e28p+0);
  p = fo_mad_f64(p, r, -0x1.e391870d7ce2p+0);
  p = fo_mad_f64(p, r, 0x1.e08a64ab667ep+0);
  c = fo_from_bits_f64(fo_bits_f64(c * p) & 0xfffffffff8000000u); /* 26 bits: the square is exact */
  double q = a / (c * c);
  c = fo_mad_f64(c, (q - c) / (c + c + q), c);
  c = __builtin_fabs(x) < 0x1p-1022 ? c * 0x1p-18 : c;
  return x == 0.0 || !(a < __builtin_inf()) ? x : __builtin_copysign(c, x);
}

/* fo_atan_tail_f32: atan(t) - t for |t| <= 1. */
FO_FN float fo_atan_tail_f32(float t) {
  float z = t * t, w = z * z;
  float p = fo_mad_f32(0x1.825e1ep-9f, w, 0x1.63e724p-5f);
  p = fo_mad_f32(p, w, 0x1.b561fep-4f);
  p = fo_mad_f32(p, w, 0x1.997bb0p-3f);
  float even = fo_mad_f32(-0x1.0e36dep-6f, w, -0x1.36453cp-4f);
  even = fo_mad_f32(even, w, -0x1.231dc0p-3f);
  even = fo_mad_f32(even, w, -0x1.5554f0p-2f);
  return fo_mad_f32(p, z, even) * (z * t);
}

/* fo_atan_tail_f64: atan(t) - t for |t| <= tan(pi / 8). */
FO_FN double fo_atan_tail_f64(double t) {
  double z = t * t;
  double w = z * z;
  double p = fo_mad_f64(-0x1.249b55312631ap-6, w, -0x1.9cab85b5ee55bp-5);
  p = fo_mad_f64(p, w, -0x1.10eb14ee8c2a4p-4);
  p = fo_mad_f64(p, w, -0x1.745cf7fb923c9p-4);
  p = fo_mad_f64(p, w, -0x1.2492492296c92p-3);
  p = fo_mad_f64(p, w, -0x1.555555555553bp-2);
  double odd = fo_mad_f64(0x1.3774b843371d9p-5, w, 0x1.df0652061957dp-5);
  odd = fo_mad_f64(odd, w, 0x1.3b110a2c26025p-4);
  odd = fo_mad_f64(odd, w, 0x1.c71c70ddcf918p-4);
  odd = fo_mad_f64(odd, w, 0x1.999999999547cp-3);
  p = fo_mad_f64(odd, z, p);
  return p * z * t;
}

/* fo_atan_f32: 2.0 ULP; odd, keeps the sign of zero; pi / 2 - atan(1 / |x|) for |x| > 1. */
FO_FN float fo_atan_f32(float x) {
  FO_KEPT float one = 1.0f;
  float a = __builtin_fabsf(x);
  float t = (one < a ? one : a) / (one > a ? one : a);
  float tail = fo_atan_tail_f32(t);
  float y = a > 1.0f ? (0x1.921fb6p+0f - t) - (tail - -0x1.777a5cp-25f) : t + tail;
  return __builtin_copysignf(y, x);
}

/* fo_atan_f64: 2.0 ULP; odd, keeps the sign of zero; by the angles from 0, pi / 4 and pi / 2. */
FO_FN double fo_atan_f64(double x) {
  double a = __builtin_fabs(x);
  int big = a > 0x1.3504f333f9de6p+1, some = a > 0x1.a827999fcef32p-2;
  double t = (big ? -1.0 : some ? a - 1.0 : a) / (big ? a : some ? a + 1.0 : 1.0);
  double high = big ? 0x1.921fb54442d18p+0 : some ? 0x1.921fb54442d18p-1 : 0.0;
  double low = big ? 0x1.1a62633145c07p-54 : some ? 0x1.1a62633145c07p-55 : 0.0;
  return __builtin_copysign(high + (t + (fo_atan_tail_f64(t) + low)), x);
}

/* fo_atan2_f32: 2.0 ULP; the special cases are those of C's atan2f: zeros and infinities are points on the axes and diagonals.
   The angle from the nearer axis is taken from that axis: 0, pi / 2 or pi. */
FO_FN float fo_atan2_f32(float y, float x) {
  FO_KEPT float least = 0x1p-149f; /* 0 / 0 is to be 0 */
  float a = __builtin_fabsf(y), b = __builtin_fabsf(x);
  float small = a < b ? a : b, large = b > a ? b : a;
  large = least > large ? least : large;
  float t = small / large;
  t = small == large ? 1.0f : t; /* both infinite, too */
  fo_u32 left = (fo_u32)((fo_i32)fo_bits_f32(x) >> 31);
  t = fo_from_bits_f32(fo_bits_f32(t) ^ (left & 0x80000000u));
  t = a > b ? -t : t;
  float axis = fo_from_bits_f32(left & 0x40490fdbu);
  axis = a > b ? 0x1.921fb6p+0f : axis;
  return __builtin_copysignf(axis + (t + fo_mad_f32(axis, -0x1.de12cap-26f, fo_atan_tail_f32(t))), y);
}

/* fo_atan2_f64: 2.1 ULP; the special cases are those of C's atan2: zeros and infinities are points on the axes and diagonals.
   The angle from the nearer axis is taken from that axis: 0, pi / 2 or pi. */
FO_FN double fo_atan2_f64(double y, double x) {
  FO_KEPT double least = 0x1p-1074; /* 0 / 0 is to be 0 */
  double a = __builtin_fabs(y), b = __builtin_fabs(x);
  double small = a < b ? a : b, large = b > a ? b : a;
  double scale = large > 0x1p1022 ? 0.25 : large < 0x1p-900 ? 0x1p200 : 1.0; /* sum and product are neither inf nor denormal */
  large = (least > large ? least : large) * scale;
  small = small * scale;
  int both = small == large, some = both | (small > 0x1.a827999fcef32p-2 * large);
  double t = (some ? small - large : small) / (large + (some ? small : 0.0));
  t = both ? 0.0 : t; /* both infinite, too */
  double angle = some ? 0x1.921fb54442d18p-1 : 0.0;
  fo_u64 left = fo_bits_f64(x) & 0x8000000000000000u;
  left ^= a > b ? 0x8000000000000000u : 0u;
  t = fo_from_bits_f64(fo_bits_f64(t) ^ left);
  angle = fo_from_bits_f64(fo_bits_f64(angle) ^ left);
  double axis = __builtin_copysign(0x1.921fb54442d18p+0, x);
  axis = a > b ? 0x1.921fb54442d18p+0 : 0x1.921fb54442d18p+0 - axis;
  return __builtin_copysign(axis + (angle + (t + fo_mad_f64(axis + angle, 0x1.678afae35cdd1p-55, fo_atan_tail_f64(t)))), y);
}

/* fo_asin_tail_f32: (asin(x) - x) / x with z = x**2 <= 1 / 4. */
FO_FN float fo_asin_tail_f32(float z) {
  float p = 0x1.338596p-5f;
  p = fo_mad_f32(p, z, 0x1.d86a28p-7f);
  p = fo_mad_f32(p, z, 0x1.04a2p-5f);
  p = fo_mad_f32(p, z, 0x1.6cac0ep-5f);
  p = fo_mad_f32(p, z, 0x1.333898p-4f);
  p = fo_mad_f32(p, z, 0x1.55554cp-3f);
  return p * z;
}

/* fo_asin_tail_f64: (asin(x) - x) / x with z = x**2 <= 1 / 4. */
FO_FN double fo_asin_tail_f64(double z) {
  double w = z * z;
  double p = fo_mad_f64(0x1.0aada7a3922bbp-5, w, 0x1.623e584be5d59p-6);
  p = fo_mad_f64(p, w, 0x1.60f08c8100624p-7);
  p = fo_mad_f64(p, w, 0x1.ca1df1df12a78p-7);
  p = fo_mad_f64(p, w, 0x1.6e8bde0160737p-6);
  p = fo_mad_f64(p, w, 0x1.6db6db72028b6p-5);
  p = fo_mad_f64(p, w, 0x1.5555555555577p-3);
  double odd = fo_mad_f64(-0x1.5610548a49ef3p-6, w, 0x1.ea75faba3ae5p-9);
  odd = fo_mad_f64(odd, w, 0x1.7592f53f16688p-7);
  odd = fo_mad_f64(odd, w, 0x1.1c4a00f13a1aap-6);
  odd = fo_mad_f64(odd, w, 0x1.f1c71a9c1b17dp-6);
  odd = fo_mad_f64(odd, w, 0x1.333333332e21p-4);
  p = fo_mad_f64(odd, z, p);
  return p * z;
}

/* fo_asin_f32: 2.5 ULP; odd, keeps the sign of zero; |x| > 1 is NaN; pi / 2 - 2 asin(sqrt((1 - a) / 2)) for a > 1 / 2. */
FO_FN float fo_asin_f32(float x) {
  float a = __builtin_fabsf(x);
  float z = 0.5f * (1.0f - a), root = __builtin_sqrtf(z); /* each is the lesser for a > 1 / 2 */
  float square = a * a;
  z = square < z ? square : z;
  float s = a < root ? a : root;
  s = fo_mad_f32(s, fo_asin_tail_f32(z), s);
  s = a > 0.5f ? 0x1.921fb6p+0f - (2.0f * s - (-0x1.777a5cp-25f)) : s;
  return __builtin_copysignf(s, x);
}

/* fo_asin_f64: 2.3 ULP; odd, keeps the sign of zero; |x| > 1 is NaN; pi / 2 - 2 asin(sqrt((1 - a) / 2)) for a > 1 / 2. */
FO_FN double fo_asin_f64(double x) {
  double a = __builtin_fabs(x);
  double z = 0.5 * (1.0 - a), root = __builtin_sqrt(z); /* each is the lesser for a > 1 / 2 */
  double square = a * a;
  z = square < z ? square : z;
  double s = a < root ? a : root;
  s = fo_mad_f64(s, fo_asin_tail_f64(z), s);
  s = a > 0.5 ? 0x1.921fb54442d18p+0 - (2.0 * s - (0x1.1a62633145c07p-54)) : s;
  return __builtin_copysign(s, x);
}

/* fo_acos_f32: 1.2 ULP; |x| > 1 is NaN; 2 asin(sqrt((1 - a) / 2)) for a > 1 / 2, from pi for x < 0. */
FO_FN float fo_acos_f32(float x) {
  float a = __builtin_fabsf(x);
  float z = 0.5f * (1.0f - a), root = __builtin_sqrtf(z);
  float square = a * a;
  z = square < z ? square : z;
  float side = (x + 0x1.8p23f) - 0x1.8p23f; /* the nearest integer: -1, 0 or 1 */
  float s = a > 0.5f ? -2.0f * side * root : x;
  s = fo_mad_f32(s, fo_asin_tail_f32(z), s);
  float high = fo_mad_f32(side, -0x1.921fb6p+0f, 0x1.921fb6p+0f); /* 0, pi / 2 or pi */
  return high + fo_mad_f32(high, -0x1.de12cap-26f, -s);
}

/* fo_acos_f64: 1.2 ULP; |x| > 1 is NaN; 2 asin(sqrt((1 - a) / 2)) for a > 1 / 2, from pi for x < 0. */
FO_FN double fo_acos_f64(double x) {
  double a = __builtin_fabs(x);
  double z = 0.5 * (1.0 - a), root = __builtin_sqrt(z);
  double square = a * a;
  z = square < z ? square : z;
  double side = (x + 0x1.8p52) - 0x1.8p52; /* the nearest integer: -1, 0 or 1 */
  double s = a > 0.5 ? -2.0 * side * root : x;
  s = fo_mad_f64(s, fo_asin_tail_f64(z), s);
  double high = fo_mad_f64(side, -0x1.921fb54442d18p+0, 0x1.921fb54442d18p+0); /* 0, pi / 2 or pi */
  return high + fo_mad_f64(high, 0x1.678afae35cdd1p-55, -s);
}

/* fo_hypot_f32: 0.6 ULP, computed in double, where nothing overflows; infinite when either is, even next to NaN. */
FO_FN float fo_hypot_f32(float x, float y) {
#ifdef __CUDACC__
  return hypotf(x, y);
#else
  double a = x, b = y;
  int infinite = __builtin_fabsf(x) == __builtin_inff() || __builtin_fabsf(y) == __builtin_inff();
  float r = (float)__builtin_sqrt(a * a + b * b);
  return infinite ? __builtin_inff() : r;
#endif
}

/* fo_hypot_f64: 1.3 ULP; infinite when either is, even next to NaN. The operands are scaled by a power of two. */
FO_FN double fo_hypot_f64(double x, double y) {
  double a = __builtin_fabs(x), b = __builtin_fabs(y);
  int infinite = a == __builtin_inf() || b == __builtin_inf();
  double m = a > b ? a : b;
  double scale = m > 0x1p500 ? 0x1p-600 : m < 0x1p-400 ? 0x1p600 : 1.0;
  double back = m > 0x1p500 ? 0x1p600 : m < 0x1p-400 ? 0x1p-600 : 1.0;
  a *= scale;
  b *= scale;
  double r = __builtin_sqrt(fo_mad_f64(a, a, b * b)) * back;
  return infinite ? __builtin_inf() : r;
}

/* fo_erfc_f32: 0.6 ULP, computed in double; exp(-x**2) g(t) / (1 + 2 |x|) with a polynomial g of t = (|x| - 3.75) / (|x| + 3.75),
   for x < 0 taken from 2. */
FO_FN float fo_erfc_f32(float x) {
#ifdef __CUDACC__
  return erfcf(x);
#else
  double a = __builtin_fabsf(x);
  FO_KEPT double high = 10.1;
  a = high < a ? high : a;
  double u = a + 3.75, v = a + a + 1.0;
  double d = 1.0 / (u * v);
  double t = (a - 3.75) * (v * d);
  double z = t * t;
  double g = fo_mad_f64(0x1.098a85b89b95dp-11, z, -0x1.421e8ff049769p-7);
  g = fo_mad_f64(g, z, -0x1.e0bb6d8bab021p-5);
  g = fo_mad_f64(g, z, -0x1.bda989d769fa6p-4);
  g = fo_mad_f64(g, z, 0x1.d5f281c76e702p-9);
  g = fo_mad_f64(g, z, 0x1.3ccda0b5e65e5p+0);
  double odd = fo_mad_f64(-0x1.a8d88ac8a8ae7p-13, z, 0x1.df69ea9f6d118p-10);
  odd = fo_mad_f64(odd, z, 0x1.cfd928a34cce6p-6);
  odd = fo_mad_f64(odd, z, 0x1.7a1e536c80ad7p-4);
  odd = fo_mad_f64(odd, z, 0x1.5100b21f2cb88p-4);
  odd = fo_mad_f64(odd, z, -0x1.1f3674bd81e5ep-3);
  g = fo_mad_f64(odd, t, g);
  double e = a * a * -0x1.71547652b82fep+0;
  double k = e + (0x1.8p52 + 1023.0);
  double r = e - (k - (0x1.8p52 + 1023.0));
  double q = 0x1.4258c49e8c8ccp-13; /* 2**r as in fo_pow_f32 */
  q = fo_mad_f64(q, r, 0x1.5f45095200cb9p-10);
  q = fo_mad_f64(q, r, 0x1.3b2cc3b3f02cap-7);
  q = fo_mad_f64(q, r, 0x1.c6aed5c30dba1p-5);
  q = fo_mad_f64(q, r, 0x1.ebfbdcf7c707fp-3);
  q = fo_mad_f64(q, r, 0x1.62e430c6ca09ep-1);
  q = fo_mad_f64(q, r, 1.0);
  double y = q * fo_from_bits_f64(fo_bits_f64(k) << 52) * (g * (u * d));
  return (float)(x < 0.0f ? 2.0 - y : y);
#endif
}

/* fo_erfc_f64: 5.8 ULP; as in f32, with the square of x exact in two parts. */
FO_FN double fo_erfc_f64(double x) {
  double a = __builtin_fabs(x);
  FO_KEPT double high = 27.3;
  a = high < a ? high : a;
  double t = (a - 3.75) / (a + 3.75);
  double z = t * t;
  double g = fo_mad_f64(0x1.f64f2eb8b93ep-30, z, -0x1.bd65410f2a62ep-28);
  g = fo_mad_f64(g, z, 0x1.237428b5d1032p-25);
  g = fo_mad_f64(g, z, -0x1.093fc9c137c23p-22);
  g = fo_mad_f64(g, z, 0x1.d302b9d6f06ep-20);
  g = fo_mad_f64(g, z, -0x1.7fc3e447080f7p-17);
  g = fo_mad_f64(g, z, 0x1.b13de5562107dp-15);
  g = fo_mad_f64(g, z, 0x1.33fb56061a35dp-12);
  g = fo_mad_f64(g, z, -0x1.3f603c71aacc1p-7);
  g = fo_mad_f64(g, z, -0x1.e0d0fa6c84aa6p-5);
  g = fo_mad_f64(g, z, -0x1.bda9309a32b56p-4);
  g = fo_mad_f64(g, z, 0x1.d5f2948161e58p-9);
  g = fo_mad_f64(g, z, 0x1.3ccda0b5d5dc2p+0);
  double odd = fo_mad_f64(0x1.27c2521c5e511p-28, z, -0x1.1e2163f4416bp-26);
  odd = fo_mad_f64(odd, z, 0x1.62ae2ab45a509p-25);
  odd = fo_mad_f64(odd, z, -0x1.32d58e8969e0ap-24);
  odd = fo_mad_f64(odd, z, -0x1.0377a78fafdcfp-20);
  odd = fo_mad_f64(odd, z, 0x1.7782247014844p-16);
  odd = fo_mad_f64(odd, z, -0x1.303f85e6f7257p-12);
  odd = fo_mad_f64(odd, z, 0x1.cc3a0d810c7bfp-10);
  odd = fo_mad_f64(odd, z, 0x1.d0b0037e4ea1p-6);
  odd = fo_mad_f64(odd, z, 0x1.7a14188a9982dp-4);
  odd = fo_mad_f64(odd, z, 0x1.510169d096781p-4);
  odd = fo_mad_f64(odd, z, -0x1.1f367683f89a6p-3);
  g = fo_mad_f64(odd, t, g);
  double h = fo_from_bits_f64(fo_bits_f64(a) & 0xfffffffff8000000u);
  double c = -h * h;
  double k = fo_mad_f64(c, 0x1.71547652b82fep+0, 0x1.8p52 + 2046.0);
  double n = k - (0x1.8p52 + 2046.0);
  double r = fo_mad_f64(n, -0x1.3de6af278ece6p-42, fo_mad_f64(n, -0x1.62e42fefa3p-1, c)) + (h - a) * (h + a);
  g = g / (a + a + 1.0);
  double y = fo_scale_f64(fo_mad_f64(g, fo_expm1_poly_f64(r), g), k);
  return x < 0.0 ? 2.0 - y : y;
}

/* fo_turns_f32: a / (2 pi) less its nearest integer multiple of a quarter, for every finite a >= 0; *quarter holds that multiple
   plus 0x1.8p50 (its low bits are the quadrant). 1 / (2 pi) is cut into pieces of 29 bits, so that each product is exact and its
   integer part drops out without error. */
FO_FN double fo_turns_f32(float a, double *quarter) {
  double x = a;
  double p0 = x * 0x1.45f306dp-3, p1 = x * 0x1.9391054p-32, p2 = x * 0x1.4fe13abp-61;
  double p3 = x * 0x1.d1f534dp-90, p4 = x * 0x1.b81b6c5p-119, p5 = x * 0x1.5993c439041fep-150;
  p0 -= __builtin_rint(p0);
  p1 -= __builtin_rint(p1);
  p2 -= __builtin_rint(p2);
  p3 -= __builtin_rint(p3);
  p4 -= __builtin_rint(p4);
  double t = ((p0 + p1) + (p2 + p3)) + (p4 + p5) + 0x1.8p50;
  *quarter = t;
  return p0 - (t - 0x1.8p50) + p1 + p2 + p3 + p4 + p5;
}

/* fo_sincos_f32: the sine of r plus quadrant quarter turns, for |r| <= pi / 4. */
FO_FN float fo_sincos_f32(float r, fo_u32 quadrant) {
  float z = r * r;
  float s = fo_mad_f32(fo_mad_f32(-0x1.9955aep-13f, z, 0x1.11077cp-7f), z, -0x1.555546p-3f);
  s = fo_mad_f32(z * r, s, r);
  float c = fo_mad_f32(fo_mad_f32(0x1.99eac2p-16f, z, -0x1.6c0c2ep-10f), z, 0x1.55554ap-5f);
  c = fo_mad_f32(z * z, c, fo_mad_f32(z, -0.5f, 1.0f));
  float y = (quadrant & 1u) != 0u ? c : s;
  return fo_from_bits_f32(fo_bits_f32(y) ^ (quadrant & 2u) << 30);
}

/* fo_sin_f32: 1.7 ULP for every finite x; +-inf is NaN; keeps the sign of zero. */
FO_FN float fo_sin_f32(float x) {
  double quarter;
  float r = (float)(fo_turns_f32(__builtin_fabsf(x), &quarter) * 0x1.921fb54442d18p+2);
  float y = fo_sincos_f32(r, (fo_u32)fo_bits_f64(quarter));
  return fo_from_bits_f32(fo_bits_f32(y) ^ (fo_bits_f32(x) & 0x80000000u));
}

/* fo_cos_f32: 1.7 ULP for every finite x; +-inf is NaN. */
FO_FN float fo_cos_f32(float x) {
  double quarter;
  float r = (float)(fo_turns_f32(__builtin_fabsf(x), &quarter) * 0x1.921fb54442d18p+2);
  return fo_sincos_f32(r, (fo_u32)fo_bits_f64(quarter) + 1u);
}

/* fo_sin_f64: libm's sine; not vectorised. */
FO_FN double fo_sin_f64(double x) {
  return __builtin_sin(x);
}

/* fo_cos_f64: libm's cosine; not vectorised. */
FO_FN double fo_cos_f64(double x) {
  return __builtin_cos(x);
}

/* fo_tan_f32: 0.6 ULP for every finite x, computed in double; +-inf is NaN; keeps the sign of zero. */
FO_FN float fo_tan_f32(float x) {
  double quarter;
  double r = fo_turns_f32(__builtin_fabsf(x), &quarter) * 0x1.921fb54442d18p+2;
  double z = r * r;
  double p = 0x1.1e2023c3a5289p-8;
  p = fo_mad_f64(p, z, 0x1.d372e0dc03ee6p-14);
  p = fo_mad_f64(p, z, 0x1.627afcc637c77p-7);
  p = fo_mad_f64(p, z, 0x1.5ccdaaf9c9a7bp-6);
  p = fo_mad_f64(p, z, 0x1.bad8fde0448b2p-5);
  p = fo_mad_f64(p, z, 0x1.110d9d0e5c42cp-3);
  p = fo_mad_f64(p, z, 0x1.5555602e68d4p-2);
  p = fo_mad_f64(p * z, r, r);
  int odd = ((fo_u32)fo_bits_f64(quarter) & 1u) != 0u;
  float y = (float)((odd ? -1.0 : p) / (odd ? p : 1.0));
  return fo_from_bits_f32(fo_bits_f32(y) ^ (fo_bits_f32(x) & 0x80000000u));
}

/* fo_tan_f64: libm's tangent; not vectorised: it needs the reduction of sine and cosine, which are libm's too. */
FO_FN double fo_tan_f64(double x) {
  return __builtin_tan(x);
}

/* fo_stirling_f64: log(gamma(x)) for x > 8.5. */
FO_FN double fo_stirling_f64(double x) {
  double i = 1.0 / x;
  double z = i * i;
  double p = 0x1.47cd28598299fp-8;
  p = fo_mad_f64(p, z, -0x1.eea5415dc99dp-10);
  p = fo_mad_f64(p, z, 0x1.b9229ab93b8f5p-11);
  p = fo_mad_f64(p, z, -0x1.3813350a52fap-11);
  p = fo_mad_f64(p, z, 0x1.a01a0160177p-11);
  p = fo_mad_f64(p, z, -0x1.6c16c16c10bc3p-9);
  p = fo_mad_f64(p, z, 0x1.5555555555555p-4);
  return fo_mad_f64(x - 0.5, fo_log_f64(x) - 1.0, fo_mad_f64(p, i, 0x1.acfe390c97d69p-2));
}

/* fo_lgamma_f64: log(|gamma(x)|), 7.0 ULP, for x < -2, where it has zeros, of max(|y|, 1); +-inf and the poles at 0, -1, -2 ...
   give inf. From the interval about 2 by a product, by Stirling's formula for x > 8.5, by reflection for x < -18.5, where no
   number is near a zero. Has branches: not vectorised. Unlike libm's, it writes no global variable. */
FO_FN double fo_lgamma_f64(double x) {
  double nearest = __builtin_rint(x);
  double t = x - nearest;
  if (x != x) return x;
  if (x > 8.5) return x < __builtin_inf() ? fo_stirling_f64(x) : x;
  if (x <= 0.0 && (t == 0.0 || !(x > -0x1p52))) return __builtin_inf();
  if (x < -18.5) {
    double s = __builtin_fabs(x * __builtin_sin(t * 0x1.921fb54442d18p+1));
    return fo_log_f64(0x1.921fb54442d18p+1 / s) - fo_stirling_f64(-x);
  }
  double product = 1.0;
  for (double j = 1.0; j <= nearest - 2.0; j += 1.0) product *= x - j;
  for (double j = 0.0; j < 2.0 - nearest; j += 1.0) product *= x + j;
  double p = 0x1.2d320fb5921a4p-22;
  p = fo_mad_f64(p, t, -0x1.3835de89ae704p-21);
  p = fo_mad_f64(p, t, 0x1.ece3c10d9c976p-21);
  p = fo_mad_f64(p, t, -0x1.08ee202a98e81p-19);
  p = fo_mad_f64(p, t, 0x1.2650625ca0cebp-18);
  p = fo_mad_f64(p, t, -0x1.3d4e7861e9146p-17);
  p = fo_mad_f64(p, t, 0x1.5805dc3dd6365p-16);
  p = fo_mad_f64(p, t, -0x1.78d8e1ab8dabdp-15);
  p = fo_mad_f64(p, t, 0x1.a127e63a168e7p-14);
  p = fo_mad_f64(p, t, -0x1.d3fd6b4b13708p-13);
  p = fo_mad_f64(p, t, 0x1.0b36af1b9a927p-11);
  p = fo_mad_f64(p, t, -0x1.38ac5bfb353a1p-10);
  p = fo_mad_f64(p, t, 0x1.7add6eaea4ecfp-9);
  p = fo_mad_f64(p, t, -0x1.e404fc21dd138p-8);
  p = fo_mad_f64(p, t, 0x1.51322ac7d7c8p-6);
  p = fo_mad_f64(p, t, -0x1.13e001a557544p-4);
  p = fo_mad_f64(p, t, 0x1.4a34cc4a60fa7p-2);
  p = fo_mad_f64(p, t, 0x1.b0ee6072093cep-2);
  double l = fo_log_f64(__builtin_fabs(product));
  return fo_mad_f64(p, t, nearest > 2.0 ? l : -l);
}

/* fo_lgamma_f32: log(|gamma(x)|), 0.6 ULP, computed in double; +-inf and the poles at 0, -1, -2 ... give inf. Not vectorised. */
FO_FN float fo_lgamma_f32(float x) {
  return (float)fo_lgamma_f64((double)x);
}

/* fo_pow_f32: 0.6 ULP, computed in double as 2**(y log2|x|); the special cases are those of C's powf
   (pow(x, 0) = pow(1, y) = 1 even for NaN; x < 0 with y no integer is NaN). */
FO_FN float fo_pow_f32(float x, float y) {
  float ax = __builtin_fabsf(x);
  double a = ax;
  fo_u64 u = fo_bits_f64(a) - 0x3fe6a09e667f3bcdu + 0x3ff0000000000000u;
  double k = fo_from_bits_f64(0x4330000000000000u | (u >> 52)) - (0x1p52 + 1023.0);
  double m = fo_from_bits_f64((u & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu);
  double s = (m - 1.0) / (m + 1.0), z = s * s;
  double p = 0x1.5ce79ded22f3ap-2;
  p = fo_mad_f64(p, z, 0x1.a58d939680ee8p-2);
  p = fo_mad_f64(p, z, 0x1.27777fcef2cc5p-1);
  p = fo_mad_f64(p, z, 0x1.ec709d12f6397p-1);
  p = fo_mad_f64(p, z, 0x1.71547652bedcep+1);
  p = fo_mad_f64(s, p, k);
  p = ax == __builtin_inff() ? __builtin_inf() : p;
  p = ax == 0.0f ? -__builtin_inf() : p;
  p = ax == ax ? p : (double)ax;
  double e = p * (double)y;
  FO_KEPT double low = -200.0, high = 200.0;
  e = low > e ? low : e;
  e = high < e ? high : e;
  double t = e + (0x1.8p52 + 1023.0);
  double r = e - (t - (0x1.8p52 + 1023.0));
  double q = 0x1.4258c49e8c8ccp-13;
  q = fo_mad_f64(q, r, 0x1.5f45095200cb9p-10);
  q = fo_mad_f64(q, r, 0x1.3b2cc3b3f02cap-7);
  q = fo_mad_f64(q, r, 0x1.c6aed5c30dba1p-5);
  q = fo_mad_f64(q, r, 0x1.ebfbdcf7c707fp-3);
  q = fo_mad_f64(q, r, 0x1.62e430c6ca09ep-1);
  q = fo_mad_f64(q, r, 1.0);
  float w = (float)(q * fo_from_bits_f64(fo_bits_f64(t) << 52));
  float integer = __builtin_rintf(y), even = 2.0f * __builtin_rintf(0.5f * y);
  w = ax == 1.0f && y == y ? 1.0f : w;
  w = (fo_bits_f32(x) >> 31) != 0u && integer == y && even != y ? -w : w;
  w = x < 0.0f && ax != __builtin_inff() && integer != y ? __builtin_nanf("") : w;
  return y == 0.0f || x == 1.0f ? 1.0f : w;
}

/* fo_pow_f64: libm's power; not vectorised. */
FO_FN double fo_pow_f64(double x, double y) {
  return __builtin_pow(x, y);
}

/* fo_floordiv_f32: the floored quotient (numpy.floor_divide); b == 0 gives a / b. Calls fmodf: not vectorised. */
FO_FN float fo_floordiv_f32(float a, float b) {
  float r = __builtin_fmodf(a, b);
  float q = (a - r) / b - (r != 0.0f && (b < 0.0f) != (r < 0.0f) ? 1.0f : 0.0f);
  float n = __builtin_floorf(q);
  n = q - n > 0.5f ? n + 1.0f : n;
  n = q == 0.0f ? __builtin_copysignf(0.0f, a / b) : n;
  return b == 0.0f ? a / b : n;
}

/* fo_floordiv_f64: the floored quotient (numpy.floor_divide); b == 0 gives a / b. Calls fmod: not vectorised. */
FO_FN double fo_floordiv_f64(double a, double b) {
  double r = __builtin_fmod(a, b);
  double q = (a - r) / b - (r != 0.0 && (b < 0.0) != (r < 0.0) ? 1.0 : 0.0);
  double n = __builtin_floor(q);
  n = q - n > 0.5 ? n + 1.0 : n;
  n = q == 0.0 ? __builtin_copysign(0.0, a / b) : n;
  return b == 0.0 ? a / b : n;
}

/* fo_floordiv_i8: the floored quotient; x / 0 is 0; -128 / -1 wraps to -128.
   The quotient as float is never rounded across an integer. */
FO_FN fo_i8 fo_floordiv_i8(fo_i8 a, fo_i8 b) {
  float q = __builtin_floorf((float)a / (float)(b == 0 ? 1 : b));
  return (fo_i8)(b == 0 ? 0 : (fo_i32)q);
}

/* fo_rem_i8: the remainder of the floored quotient, sign of b; x % 0 is 0. */
FO_FN fo_i8 fo_rem_i8(fo_i8 a, fo_i8 b) {
  return (fo_i8)(b == 0 ? 0 : a - fo_floordiv_i8(a, b) * b);
}

/* fo_floordiv_i16: the floored quotient; x / 0 is 0; -32768 / -1 wraps to -32768.
   The quotient as float is never rounded across an integer. */
FO_FN fo_i16 fo_floordiv_i16(fo_i16 a, fo_i16 b) {
  float q = __builtin_floorf((float)a / (float)(b == 0 ? 1 : b));
  return (fo_i16)(b == 0 ? 0 : (fo_i32)q);
}

/* fo_rem_i16: the remainder of the floored quotient, sign of b; x % 0 is 0. */
FO_FN fo_i16 fo_rem_i16(fo_i16 a, fo_i16 b) {
  return (fo_i16)(b == 0 ? 0 : a - fo_floordiv_i16(a, b) * b);
}

/* fo_floordiv_u8: the floored quotient; x / 0 is 0.
   The quotient as float is never rounded across an integer. */
FO_FN fo_u8 fo_floordiv_u8(fo_u8 a, fo_u8 b) {
  float q = __builtin_floorf((float)a / (float)(b == 0 ? 1 : b));
  return (fo_u8)(b == 0 ? 0 : (fo_i32)q);
}

/* fo_rem_u8: the remainder of the floored quotient, sign of b; x % 0 is 0. */
FO_FN fo_u8 fo_rem_u8(fo_u8 a, fo_u8 b) {
  return (fo_u8)(b == 0 ? 0 : a - fo_floordiv_u8(a, b) * b);
}

/* fo_floordiv_u16: the floored quotient; x / 0 is 0.
   The quotient as float is never rounded across an integer. */
FO_FN fo_u16 fo_floordiv_u16(fo_u16 a, fo_u16 b) {
  float q = __builtin_floorf((float)a / (float)(b == 0 ? 1 : b));
  return (fo_u16)(b == 0 ? 0 : (fo_i32)q);
}

/* fo_rem_u16: the remainder of the floored quotient; x % 0 is 0. */
FO_FN fo_u16 fo_rem_u16(fo_u16 a, fo_u16 b) {
  return (fo_u16)(b == 0 ? 0u : (fo_u32)a - (fo_u32)fo_floordiv_u16(a, b) * (fo_u32)b);
}

/* fo_floordiv_i32: the floored quotient; x / 0 is 0; -2**31 / -1 wraps to -2**31.
   The quotient as double is never rounded across an integer. */
FO_FN fo_i32 fo_floordiv_i32(fo_i32 a, fo_i32 b) {
  double q = __builtin_floor((double)a / (double)(b == 0 || b == -1 ? 1 : b));
  fo_i32 n = (fo_i32)q;
  n = b == -1 ? (fo_i32)(0u - (fo_u32)a) : n;
  return b == 0 ? 0 : n;
}

/* fo_rem_i32: the remainder of the floored quotient, sign of b; x % 0 is 0. */
FO_FN fo_i32 fo_rem_i32(fo_i32 a, fo_i32 b) {
  return b == 0 ? 0 : (fo_i32)((fo_u32)a - (fo_u32)fo_floordiv_i32(a, b) * (fo_u32)b);
}

/* fo_floordiv_i64: the floored quotient; x / 0 is 0; -2**63 / -1 wraps to -2**63. Not vectorised. */
FO_FN fo_i64 fo_floordiv_i64(fo_i64 a, fo_i64 b) {
  fo_i64 d = b == 0 || b == -1 ? 1 : b;
  fo_i64 q = a / d - (a % d != 0 && (a < 0) != (d < 0));
  q = b == -1 ? (fo_i64)((fo_u64)0 - (fo_u64)a) : q;
  return b == 0 ? 0 : q;
}

/* fo_rem_i64: the remainder of the floored quotient, sign of b; x % 0 is 0. Not vectorised. */
FO_FN fo_i64 fo_rem_i64(fo_i64 a, fo_i64 b) {
  fo_i64 d = b == 0 || b == -1 ? 1 : b;
  fo_i64 r = a % d;
  return r != 0 && (r < 0) != (d < 0) ? r + d : r;
}

/* fo_floordiv_u32: the floored quotient; x / 0 is 0. The quotient as double is never rounded across an integer. */
FO_FN fo_u32 fo_floordiv_u32(fo_u32 a, fo_u32 b) {
  double q = __builtin_floor((double)a / (double)(b == 0u ? 1u : b));
  return b == 0u ? 0u : (fo_u32)q;
}

/* fo_rem_u32: the remainder of the floored quotient; x % 0 is 0. */
FO_FN fo_u32 fo_rem_u32(fo_u32 a, fo_u32 b) {
  return b == 0u ? 0u : a - fo_floordiv_u32(a, b) * b;
}

/* fo_floordiv_u64: the floored quotient; x / 0 is 0. Not vectorised. */
FO_FN fo_u64 fo_floordiv_u64(fo_u64 a, fo_u64 b) {
  return b == 0 ? 0 : a / b;
}

/* fo_rem_u64: the remainder of the floored quotient; x % 0 is 0. Not vectorised. */
FO_FN fo_u64 fo_rem_u64(fo_u64 a, fo_u64 b) {
  return b == 0 ? 0 : a % b;
}

/* fo_fmod_f32: remainder of the truncated quotient, sign of a, exact; b == 0 or infinite a is NaN.
   Calls fmodf: not vectorised. */
FO_FN float fo_fmod_f32(float a, float b) {
  return __builtin_fmodf(a, b);
}

/* fo_fmod_f64: remainder of the truncated quotient, sign of a, exact; b == 0 or infinite a is NaN.
   Calls fmod: not vectorised. */
FO_FN double fo_fmod_f64(double a, double b) {
  return __builtin_fmod(a, b);
}

/* fo_shl_i8: x * 2**n, wrapped; 0 for counts outside 0 ... 7. */
FO_FN fo_i8 fo_shl_i8(fo_i8 x, fo_i8 n) {
  fo_u32 r = (fo_u32)x << ((fo_u32)n & 7u);
  return (fo_i8)((fo_u32)n < 8u ? r : 0u);
}

/* fo_shr_i8: floor(x / 2**n); counts outside 0 ... 7 shift all out: 0, -1 for x < 0. */
FO_FN fo_i8 fo_shr_i8(fo_i8 x, fo_i8 n) {
  fo_u32 k = (fo_u32)n < 8u ? (fo_u32)n : 7u;
  return (fo_i8)(x >> k);
}

/* fo_shl_i16: x * 2**n, wrapped; 0 for counts outside 0 ... 15. */
FO_FN fo_i16 fo_shl_i16(fo_i16 x, fo_i16 n) {
  fo_u32 r = (fo_u32)x << ((fo_u32)n & 15u);
  return (fo_i16)((fo_u32)n < 16u ? r : 0u);
}

/* fo_shr_i16: floor(x / 2**n); counts outside 0 ... 15 shift all out: 0, -1 for x < 0. */
FO_FN fo_i16 fo_shr_i16(fo_i16 x, fo_i16 n) {
  fo_u32 k = (fo_u32)n < 16u ? (fo_u32)n : 15u;
  return (fo_i16)(x >> k);
}

/* fo_shl_i32: x * 2**n, wrapped; 0 for counts outside 0 ... 31. */
FO_FN fo_i32 fo_shl_i32(fo_i32 x, fo_i32 n) {
  fo_u32 r = (fo_u32)x << ((fo_u32)n & 31u);
  return (fo_i32)((fo_u32)n < 32u ? r : 0u);
}

/* fo_shr_i32: floor(x / 2**n); counts outside 0 ... 31 shift all out: 0, -1 for x < 0. */
FO_FN fo_i32 fo_shr_i32(fo_i32 x, fo_i32 n) {
  fo_u32 k = (fo_u32)n < 32u ? (fo_u32)n : 31u;
  return (fo_i32)(x >> k);
}

/* fo_shl_i64: x * 2**n, wrapped; 0 for counts outside 0 ... 63. */
FO_FN fo_i64 fo_shl_i64(fo_i64 x, fo_i64 n) {
  fo_u64 r = (fo_u64)x << ((fo_u64)n & 63u);
  return (fo_i64)((fo_u64)n < 64u ? r : (fo_u64)0);
}

/* fo_shr_i64: floor(x / 2**n); counts outside 0 ... 63 shift all out: 0, -1 for x < 0. */
FO_FN fo_i64 fo_shr_i64(fo_i64 x, fo_i64 n) {
  fo_u64 k = (fo_u64)n < 64u ? (fo_u64)n : 63u;
  return (fo_i64)(x >> k);
}

/* fo_shl_u8: x * 2**n, wrapped; 0 for counts outside 0 ... 7. */
FO_FN fo_u8 fo_shl_u8(fo_u8 x, fo_u8 n) {
  fo_u32 r = (fo_u32)x << ((fo_u32)n & 7u);
  return (fo_u8)((fo_u32)n < 8u ? r : 0u);
}

/* fo_shr_u8: floor(x / 2**n); counts outside 0 ... 7 shift all out: 0. */
FO_FN fo_u8 fo_shr_u8(fo_u8 x, fo_u8 n) {
  fo_u32 r = (fo_u32)x >> ((fo_u32)n & 7u);
  return (fo_u8)((fo_u32)n < 8u ? r : 0u);
}

/* fo_shl_u16: x * 2**n, wrapped; 0 for counts outside 0 ... 15. */
FO_FN fo_u16 fo_shl_u16(fo_u16 x, fo_u16 n) {
  fo_u32 r = (fo_u32)x << ((fo_u32)n & 15u);
  return (fo_u16)((fo_u32)n < 16u ? r : 0u);
}

/* fo_shr_u16: floor(x / 2**n); counts outside 0 ... 15 shift all out: 0. */
FO_FN fo_u16 fo_shr_u16(fo_u16 x, fo_u16 n) {
  fo_u32 r = (fo_u32)x >> ((fo_u32)n & 15u);
  return (fo_u16)((fo_u32)n < 16u ? r : 0u);
}

/* fo_shl_u32: x * 2**n, wrapped; 0 for counts outside 0 ... 31. */
FO_FN fo_u32 fo_shl_u32(fo_u32 x, fo_u32 n) {
  fo_u32 r = x << (n & 31u);
  return n < 32u ? r : 0u;
}

/* fo_shr_u32: floor(x / 2**n); counts outside 0 ... 31 shift all out: 0. */
FO_FN fo_u32 fo_shr_u32(fo_u32 x, fo_u32 n) {
  fo_u32 r = x >> (n & 31u);
  return n < 32u ? r : 0u;
}

/* fo_shl_u64: x * 2**n, wrapped; 0 for counts outside 0 ... 63. */
FO_FN fo_u64 fo_shl_u64(fo_u64 x, fo_u64 n) {
  fo_u64 r = x << (n & 63u);
  return n < 64u ? r : (fo_u64)0;
}

/* fo_shr_u64: floor(x / 2**n); counts outside 0 ... 63 shift all out: 0. */
FO_FN fo_u64 fo_shr_u64(fo_u64 x, fo_u64 n) {
  fo_u64 r = x >> (n & 63u);
  return n < 64u ? r : (fo_u64)0;
}

/* fo_cast_f32_i8: toward zero, clamped to the type's range; NaN is 0. */
FO_FN fo_i8 fo_cast_f32_i8(float x) {
  x = x == x ? x : 0.0f;
  FO_KEPT float low = -128.0f, high = 127.0f;
  x = low > x ? low : x;
  x = high < x ? high : x;
  return (fo_i8)(fo_i32)x;
}

/* fo_cast_f32_i16: toward zero, clamped to the type's range; NaN is 0. */
FO_FN fo_i16 fo_cast_f32_i16(float x) {
  x = x == x ? x : 0.0f;
  FO_KEPT float low = -32768.0f, high = 32767.0f;
  x = low > x ? low : x;
  x = high < x ? high : x;
  return (fo_i16)(fo_i32)x;
}

/* fo_cast_f32_u8: toward zero, clamped to the type's range; NaN is 0. */
FO_FN fo_u8 fo_cast_f32_u8(float x) {
  x = x == x ? x : 0.0f;
  FO_KEPT float low = 0.0f, high = 255.0f;
  x = low > x ? low : x;
  x = high < x ? high : x;
  return (fo_u8)(fo_i32)x;
}

/* fo_cast_f32_u16: toward zero, clamped to the type's range; NaN is 0. */
FO_FN fo_u16 fo_cast_f32_u16(float x) {
  x = x == x ? x : 0.0f;
  FO_KEPT float low = 0.0f, high = 65535.0f;
  x = low > x ? low : x;
  x = high < x ? high : x;
  return (fo_u16)(fo_i32)x;
}

/* fo_cast_f32_u32: toward zero, clamped to the type's range; NaN is 0. */
FO_FN fo_u32 fo_cast_f32_u32(float x) {
  float c = x < 0x1p32f ? x : 0.0f;
  FO_KEPT float low = 0.0f;
  c = low > c ? low : c;
  return x >= 0x1p32f ? 0xffffffffu : (fo_u32)c;
}

/* fo_cast_f32_u64: toward zero, clamped to the type's range; NaN is 0. */
FO_FN fo_u64 fo_cast_f32_u64(float x) {
  float c = x < 0x1p64f ? x : 0.0f;
  FO_KEPT float low = 0.0f;
  c = low > c ? low : c;
  return x >= 0x1p64f ? 0xffffffffffffffff : (fo_u64)c;
}

/* fo_cast_f32_i32: toward zero, clamped to the type's range; NaN is 0. */
FO_FN fo_i32 fo_cast_f32_i32(float x) {
  float c = x < 0x1p31f ? x : 0.0f;
  FO_KEPT float low = -0x1p31f;
  c = low > c ? low : c;
  return x >= 0x1p31f ? 0x7fffffff : (fo_i32)c;
}

/* fo_cast_f32_i64: toward zero, clamped to the type's range; NaN is 0. */
FO_FN fo_i64 fo_cast_f32_i64(float x) {
  float c = x < 0x1p63f ? x : 0.0f;
  FO_KEPT float low = -0x1p63f;
  c = low > c ? low : c;
  return x >= 0x1p63f ? 0x7fffffffffffffff : (fo_i64)c;
}

/* fo_cast_f64_i8: toward zero, clamped to the type's range; NaN is 0. */
FO_FN fo_i8 fo_cast_f64_i8(double x) {
  x = x == x ? x : 0.0;
  FO_KEPT double low = -128.0, high = 127.0;
  x = low > x ? low : x;
  x = high < x ? high : x;
  return (fo_i8)(fo_i32)x;
}

/* fo_cast_f64_i16: toward zero, clamped to the type's range; NaN is 0. */
FO_FN fo_i16 fo_cast_f64_i16(double x) {
  x = x == x ? x : 0.0;
  FO_KEPT double low = -32768.0, high = 32767.0;
  x = low > x ? low : x;
  x = high < x ? high : x;
  return (fo_i16)(fo_i32)x;
}

/* fo_cast_f64_u8: toward zero, clamped to the type's range; NaN is 0. */
FO_FN fo_u8 fo_cast_f64_u8(double x) {
  x = x == x ? x : 0.0;
  FO_KEPT double low = 0.0, high = 255.0;
  x = low > x ? low : x;
  x = high < x ? high : x;
  return (fo_u8)(fo_i32)x;
}

/* fo_cast_f64_u16: toward zero, clamped to the type's range; NaN is 0. */
FO_FN fo_u16 fo_cast_f64_u16(double x) {
  x = x == x ? x : 0.0;
  FO_KEPT double low = 0.0, high = 65535.0;
  x = low > x ? low : x;
  x = high < x ? high : x;
  return (fo_u16)(fo_i32)x;
}

/* fo_cast_f64_u32: toward zero, clamped to the type's range; NaN is 0. */
FO_FN fo_u32 fo_cast_f64_u32(double x) {
  double c = x < 0x1p32 ? x : 0.0;
  FO_KEPT double low = 0.0;
  c = low > c ? low : c;
  return x >= 0x1p32 ? 0xffffffffu : (fo_u32)c;
}

/* fo_cast_f64_u64: toward zero, clamped to the type's range; NaN is 0. */
FO_FN fo_u64 fo_cast_f64_u64(double x) {
  double c = x < 0x1p64 ? x : 0.0;
  FO_KEPT double low = 0.0;
  c = low > c ? low : c;
  return x >= 0x1p64 ? 0xffffffffffffffff : (fo_u64)c;
}

/* fo_cast_f64_i32: toward zero, clamped to the type's range; NaN is 0. */
FO_FN fo_i32 fo_cast_f64_i32(double x) {
  double c = x < 0x1p31 ? x : 0.0;
  FO_KEPT double low = -0x1p31;
  c = low > c ? low : c;
  return x >= 0x1p31 ? 0x7fffffff : (fo_i32)c;
}

/* fo_cast_f64_i64: toward zero, clamped to the type's range; NaN is 0. */
FO_FN fo_i64 fo_cast_f64_i64(double x) {
  double c = x < 0x1p63 ? x : 0.0;
  FO_KEPT double low = -0x1p63;
  c = low > c ? low : c;
  return x >= 0x1p63 ? 0x7fffffffffffffff : (fo_i64)c;
}

/* ---- exponentials of one argument ----

   What several fo_shared_* functions of one argument compute by calls of the same parts is computed once: compilers merge it.
   With x = n log(2) + r, exp(r) is cosh(r) + sinh(r), and exp(-r) their difference. */

/* fo_shared_reach_f32: x within what exp needs of either sign. */
FO_FN float fo_shared_reach_f32(float x) {
  FO_KEPT float low = -105.0f, high = 105.0f;
  x = low > x ? low : x;
  return high < x ? high : x;
}

/* fo_shared_reach_f64: x within what exp needs of either sign. */
FO_FN double fo_shared_reach_f64(double x) {
  FO_KEPT double low = -746.0, high = 746.0;
  x = low > x ? low : x;
  return high < x ? high : x;
}

/* fo_shared_steps_f32: n + 0x1.8p23f + 254.0f, x / log(2) being nearly n. */
FO_FN float fo_shared_steps_f32(float x) {
  return fo_mad_f32(fo_shared_reach_f32(x), 0x1.715476p+0f, 0x1.8p23f + 254.0f);
}

/* fo_shared_steps_f64: n + 0x1.8p52 + 2046.0, x / log(2) being nearly n. */
FO_FN double fo_shared_steps_f64(double x) {
  return fo_mad_f64(fo_shared_reach_f64(x), 0x1.71547652b82fep+0, 0x1.8p52 + 2046.0);
}

/* fo_shared_rest_f32: r = x - n log(2). */
FO_FN float fo_shared_rest_f32(float x) {
  float n = fo_shared_steps_f32(x) - (0x1.8p23f + 254.0f);
  return fo_mad_f32(n, -0x1.7f7d1cp-20f, fo_mad_f32(n, -0x1.62e4p-1f, fo_shared_reach_f32(x)));
}

/* fo_shared_rest_f64: r = x - n log(2). */
FO_FN double fo_shared_rest_f64(double x) {
  double n = fo_shared_steps_f64(x) - (0x1.8p52 + 2046.0);
  return fo_mad_f64(n, -0x1.3de6af278ece6p-42, fo_mad_f64(n, -0x1.62e42fefa3p-1, fo_shared_reach_f64(x)));
}

/* fo_shared_even_f32: cosh(r) - 1 for |r| <= 0.3467. */
FO_FN float fo_shared_even_f32(float r) {
  float q = r * r;
  float c = 0x1.6d4f2ap-10f;
  c = fo_mad_f32(c, q, 0x1.5554e6p-5f);
  c = fo_mad_f32(c, q, 0.5f);
  return c * q;
}

/* fo_shared_even_f64: cosh(r) - 1 for |r| <= 0.3467. */
FO_FN double fo_shared_even_f64(double r) {
  double q = r * r;
  double c = 0x1.28a0494571367p-22;
  c = fo_mad_f64(c, q, 0x1.a019aa6dec66dp-16);
  c = fo_mad_f64(c, q, 0x1.6c16c17cffc20p-10);
  c = fo_mad_f64(c, q, 0x1.555555555314ap-5);
  c = fo_mad_f64(c, q, 0.5);
  return c * q;
}

/* fo_shared_odd_f32: sinh(r) - r + more for |r| <= 0.3467. */
FO_FN float fo_shared_odd_f32(float r, float more) {
  float q = r * r;
  float s = 0x1.12283cp-7f;
  s = fo_mad_f32(s, q, 0x1.5554bp-3f);
  return fo_mad_f32(s, q * r, more);
}

/* fo_shared_odd_f64: sinh(r) - r + more for |r| <= 0.3467. */
FO_FN double fo_shared_odd_f64(double r, double more) {
  double q = r * r;
  double s = 0x1.af5ef35bd5251p-26;
  s = fo_mad_f64(s, q, 0x1.71ddf837f8066p-19);
  s = fo_mad_f64(s, q, 0x1.a01a01afef1acp-13);
  s = fo_mad_f64(s, q, 0x1.111111110f698p-7);
  s = fo_mad_f64(s, q, 0x1.5555555555559p-3);
  return fo_mad_f64(s, q * r, more);
}

/* fo_shared_power_f32: exp(r) - 1. */
FO_FN float fo_shared_power_f32(float x) {
  float r = fo_shared_rest_f32(x);
  return r + fo_shared_odd_f32(r, fo_shared_even_f32(r));
}

/* fo_shared_power_f64: exp(r) - 1. */
FO_FN double fo_shared_power_f64(double x) {
  double r = fo_shared_rest_f64(x);
  return r + fo_shared_odd_f64(r, fo_shared_even_f64(r));
}

/* fo_shared_power_negated_f32: exp(-r) - 1. */
FO_FN float fo_shared_power_negated_f32(float x) {
  float r = fo_shared_rest_f32(x);
  return -r - fo_shared_odd_f32(r, -fo_shared_even_f32(r));
}

/* fo_shared_power_negated_f64: exp(-r) - 1. */
FO_FN double fo_shared_power_negated_f64(double x) {
  double r = fo_shared_rest_f64(x);
  return -r - fo_shared_odd_f64(r, -fo_shared_even_f64(r));
}

/* fo_shared_first_f32: bits of the first of two powers of two that make 2**n: its exponent's field is half of n + 254. */
FO_FN fo_u32 fo_shared_first_f32(float x) {
  return (fo_bits_f32(fo_shared_steps_f32(x)) << 22) & 0xff800000u;
}

/* fo_shared_first_f64: bits of the first of two powers of two that make 2**n: its exponent's field is half of n + 2046. */
FO_FN fo_u64 fo_shared_first_f64(double x) {
  return (fo_bits_f64(fo_shared_steps_f64(x)) << 51) & 0xfff0000000000000u;
}

/* fo_shared_other_f32: bits of the second one. */
FO_FN fo_u32 fo_shared_other_f32(float x) {
  return (fo_bits_f32(fo_shared_steps_f32(x)) << 23) - fo_shared_first_f32(x);
}

/* fo_shared_other_f64: bits of the second one. */
FO_FN fo_u64 fo_shared_other_f64(double x) {
  return (fo_bits_f64(fo_shared_steps_f64(x)) << 52) - fo_shared_first_f64(x);
}

/* fo_shared_exp_f32: 1.1 ULP. */
FO_FN float fo_shared_exp_f32(float x) {
  float f = fo_from_bits_f32(fo_shared_first_f32(x));
  return fo_mad_f32(f, fo_shared_power_f32(x), f) * fo_from_bits_f32(fo_shared_other_f32(x));
}

/* fo_shared_exp_f64: 1.1 ULP. */
FO_FN double fo_shared_exp_f64(double x) {
  double f = fo_from_bits_f64(fo_shared_first_f64(x));
  return fo_mad_f64(f, fo_shared_power_f64(x), f) * fo_from_bits_f64(fo_shared_other_f64(x));
}

/* fo_shared_exp_negated_f32: exp(-x), 1.1 ULP. */
FO_FN float fo_shared_exp_negated_f32(float x) {
  float f = fo_from_bits_f32((254u << 23) - fo_shared_first_f32(x));
  float g = fo_from_bits_f32((254u << 23) - fo_shared_other_f32(x));
  return fo_mad_f32(f, fo_shared_power_negated_f32(x), f) * g;
}

/* fo_shared_exp_negated_f64: exp(-x), 1.1 ULP. */
FO_FN double fo_shared_exp_negated_f64(double x) {
  double f = fo_from_bits_f64(((fo_u64)2046 << 52) - fo_shared_first_f64(x));
  double g = fo_from_bits_f64(((fo_u64)2046 << 52) - fo_shared_other_f64(x));
  return fo_mad_f64(f, fo_shared_power_negated_f64(x), f) * g;
}

/* fo_shared_exp_magnitude_f32: exp(-|x|), 1.1 ULP. */
FO_FN float fo_shared_exp_magnitude_f32(float x) {
  float up = fo_shared_exp_f32(x), down = fo_shared_exp_negated_f32(x);
  return up < down ? up : down;
}

/* fo_shared_exp_magnitude_f64: exp(-|x|), 1.1 ULP. */
FO_FN double fo_shared_exp_magnitude_f64(double x) {
  double up = fo_shared_exp_f64(x), down = fo_shared_exp_negated_f64(x);
  return up < down ? up : down;
}

/* fo_shared_expm1_f32: 2.0 ULP; keeps the sign of zero. 2**n = f g: g (f (exp(r) - 1) + (f - 1 / g)). */
FO_FN float fo_shared_expm1_f32(float x) {
  float f = fo_from_bits_f32(fo_shared_first_f32(x)), g = fo_from_bits_f32(fo_shared_other_f32(x));
  float h = fo_from_bits_f32((254u << 23) - fo_shared_other_f32(x));
  float y = fo_mad_f32(f, fo_shared_power_f32(x), f - h) * g;
  return __builtin_fabsf(x) < 0x1p-25f ? x : y;
}

/* fo_shared_expm1_f64: 2.5 ULP; keeps the sign of zero. 2**n = f g: g (f (exp(r) - 1) + (f - 1 / g)). */
FO_FN double fo_shared_expm1_f64(double x) {
  double f = fo_from_bits_f64(fo_shared_first_f64(x)), g = fo_from_bits_f64(fo_shared_other_f64(x));
  double h = fo_from_bits_f64(((fo_u64)2046 << 52) - fo_shared_other_f64(x));
  double y = fo_mad_f64(f, fo_shared_power_f64(x), f - h) * g;
  return __builtin_fabs(x) < 0x1p-54 ? x : y;
}

/* fo_shared_tanh_f32: tanh(y) where x is y or -y, 3.6 ULP; odd, keeps the sign of zero; e / (e + 2) with
   e = exp(2 x) - 1 = m (m + 2) and m = exp(x) - 1. */
FO_FN float fo_shared_tanh_f32(float x, float y) {
  FO_KEPT float most = 0x1p30f;
  float s = fo_from_bits_f32(fo_shared_first_f32(x)) * fo_from_bits_f32(fo_shared_other_f32(x));
  s = most < s ? most : s;
  float m = fo_mad_f32(s, fo_shared_power_f32(x), s - 1.0f);
  float e = fo_mad_f32(m, m, m + m);
  return __builtin_copysignf(e / (e + 2.0f), y);
}

/* fo_shared_tanh_f64: tanh(y) where x is y or -y, 3.6 ULP; odd, keeps the sign of zero; e / (e + 2) with
   e = exp(2 x) - 1 = m (m + 2) and m = exp(x) - 1. */
FO_FN double fo_shared_tanh_f64(double x, double y) {
  FO_KEPT double most = 0x1p60;
  double s = fo_from_bits_f64(fo_shared_first_f64(x)) * fo_from_bits_f64(fo_shared_other_f64(x));
  s = most < s ? most : s;
  double m = fo_mad_f64(s, fo_shared_power_f64(x), s - 1.0);
  double e = fo_mad_f64(m, m, m + m);
  return __builtin_copysign(e / (e + 2.0), y);
}

/* fo_shared_sigmoid_f32: 2.6 ULP; 1 / (1 + exp(-x)) as e / (e + 1) with e = exp(x). */
FO_FN float fo_shared_sigmoid_f32(float x) {
  FO_KEPT float most = 0x1p30f;
  float e = fo_shared_exp_f32(x);
  e = most < e ? most : e;
  return e / (e + 1.0f);
}

/* fo_shared_sigmoid_f64: 2.6 ULP; 1 / (1 + exp(-x)) as e / (e + 1) with e = exp(x). */
FO_FN double fo_shared_sigmoid_f64(double x) {
  FO_KEPT double most = 0x1p60;
  double e = fo_shared_exp_f64(x);
  e = most < e ? most : e;
  return e / (e + 1.0);
}

/* fo_shared_sigmoid_negated_f32: 1 / (1 + exp(x)), 2.6 ULP; over 0x1p-24f so that it underflows gradually. */
FO_FN float fo_shared_sigmoid_negated_f32(float x) {
  float f = fo_from_bits_f32(fo_shared_first_f32(x));
  float g = fo_from_bits_f32(fo_shared_other_f32(x) - ((fo_u32)24 << 23));
  return 0x1p-24f / (0x1p-24f + fo_mad_f32(f, fo_shared_power_f32(x), f) * g);
}

/* fo_shared_sigmoid_negated_f64: 1 / (1 + exp(x)), 2.6 ULP; over 0x1p-53 so that it underflows gradually. */
FO_FN double fo_shared_sigmoid_negated_f64(double x) {
  double f = fo_from_bits_f64(fo_shared_first_f64(x));
  double g = fo_from_bits_f64(fo_shared_other_f64(x) - ((fo_u64)53 << 52));
  return 0x1p-53 / (0x1p-53 + fo_mad_f64(f, fo_shared_power_f64(x), f) * g);
}

/* fo_shared_nonpositive_reach_f32: x within what exp needs. */
FO_FN float fo_shared_nonpositive_reach_f32(float x) {
  FO_KEPT float low = -104.0f;
  return low > x ? low : x;
}

/* fo_shared_nonpositive_reach_f64: x within what exp needs. */
FO_FN double fo_shared_nonpositive_reach_f64(double x) {
  FO_KEPT double low = -745.2;
  return low > x ? low : x;
}

/* fo_shared_nonpositive_steps_f32: n + 0x1.8p23f + 150.0f, x / log(2) being nearly n; for x <= 0, or a little above. */
FO_FN float fo_shared_nonpositive_steps_f32(float x) {
  return fo_mad_f32(fo_shared_nonpositive_reach_f32(x), 0x1.715476p+0f, 0x1.8p23f + 150.0f);
}

/* fo_shared_nonpositive_steps_f64: n + 0x1.8p52 + 1075.0, x / log(2) being nearly n; for x <= 0, or a little above. */
FO_FN double fo_shared_nonpositive_steps_f64(double x) {
  return fo_mad_f64(fo_shared_nonpositive_reach_f64(x), 0x1.71547652b82fep+0, 0x1.8p52 + 1075.0);
}

/* fo_shared_nonpositive_power_f32: exp(x - n log(2)) - 1. */
FO_FN float fo_shared_nonpositive_power_f32(float x) {
  float n = fo_shared_nonpositive_steps_f32(x) - (0x1.8p23f + 150.0f);
  float r = fo_mad_f32(n, -0x1.62e4p-1f, fo_shared_nonpositive_reach_f32(x));
  return fo_expm1_poly_f32(fo_mad_f32(n, -0x1.7f7d1cp-20f, r));
}

/* fo_shared_nonpositive_power_f64: exp(x - n log(2)) - 1. */
FO_FN double fo_shared_nonpositive_power_f64(double x) {
  double n = fo_shared_nonpositive_steps_f64(x) - (0x1.8p52 + 1075.0);
  double r = fo_mad_f64(n, -0x1.62e42fefa3p-1, fo_shared_nonpositive_reach_f64(x));
  return fo_expm1_poly_f64(fo_mad_f64(n, -0x1.3de6af278ece6p-42, r));
}

/* fo_shared_nonpositive_scale_f32: 2**(n + 23); 0 for n = -150. */
FO_FN float fo_shared_nonpositive_scale_f32(float x) {
  return fo_from_bits_f32(fo_bits_f32(fo_shared_nonpositive_steps_f32(x)) << 23);
}

/* fo_shared_nonpositive_scale_f64: 2**(n + 52); 0 for n = -1075. */
FO_FN double fo_shared_nonpositive_scale_f64(double x) {
  return fo_from_bits_f64(fo_bits_f64(fo_shared_nonpositive_steps_f64(x)) << 52);
}

/* fo_shared_nonpositive_exp_f32: exp(x) for x <= 0, or a little above; 1.1 ULP. */
FO_FN float fo_shared_nonpositive_exp_f32(float x) {
  float s = fo_shared_nonpositive_scale_f32(x);
  return fo_mad_f32(s, fo_shared_nonpositive_power_f32(x), s) * 0x1p-23f;
}

/* fo_shared_nonpositive_exp_f64: exp(x) for x <= 0, or a little above; 1.1 ULP. */
FO_FN double fo_shared_nonpositive_exp_f64(double x) {
  double s = fo_shared_nonpositive_scale_f64(x);
  return fo_mad_f64(s, fo_shared_nonpositive_power_f64(x), s) * 0x1p-52;
}

/* fo_shared_nonpositive_tanh_f32: tanh(y) for x = -|y|, 3.6 ULP; as fo_shared_tanh_f32. */
FO_FN float fo_shared_nonpositive_tanh_f32(float x, float y) {
  float s = fo_shared_nonpositive_scale_f32(x) * 0x1p-23f;
  float m = fo_mad_f32(s, fo_shared_nonpositive_power_f32(x), s - 1.0f);
  float e = fo_mad_f32(m, m, m + m);
  return __builtin_copysignf(e / (e + 2.0f), y);
}

/* fo_shared_nonpositive_tanh_f64: tanh(y) for x = -|y|, 3.6 ULP; as fo_shared_tanh_f64. */
FO_FN double fo_shared_nonpositive_tanh_f64(double x, double y) {
  double s = fo_shared_nonpositive_scale_f64(x) * 0x1p-52;
  double m = fo_mad_f64(s, fo_shared_nonpositive_power_f64(x), s - 1.0);
  double e = fo_mad_f64(m, m, m + m);
  return __builtin_copysign(e / (e + 2.0), y);
}
