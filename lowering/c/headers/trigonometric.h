/* Trigonometric functions and their inverses. */

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
  return fo_signed_f32(y, x);
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

/* fo_asin_{f32|f64}: {2.5|2.3} ULP; odd, keeps the sign of zero; |x| > 1 is NaN; pi / 2 - 2 asin(sqrt((1 - a) / 2)) for a > 1 / 2. */
FO_FN float fo_asin_f32(float x) {
  float a = __builtin_fabsf(x);
  float z = 0.5f * (1.0f - a), root = __builtin_sqrtf(z); /* each is the lesser for a > 1 / 2 */
  float square = a * a;
  z = square < z ? square : z;
  float s = a < root ? a : root;
  s = fo_mad_f32(s, fo_asin_tail_f32(z), s);
  s = a > 0.5f ? {HALF_PI} - (2.0f * s - ({-0x1.777a5cp-25f|0x1.1a62633145c07p-54})) : s;
  return __builtin_copysignf(s, x);
}

/* fo_acos_{f32|f64}: 1.2 ULP; |x| > 1 is NaN; 2 asin(sqrt((1 - a) / 2)) for a > 1 / 2, from pi for x < 0. */
FO_FN float fo_acos_f32(float x) {
  float a = __builtin_fabsf(x);
  float z = 0.5f * (1.0f - a), root = __builtin_sqrtf(z);
  float square = a * a;
  z = square < z ? square : z;
  float side = (x + {SHIFTER}) - {SHIFTER}; /* the nearest integer: -1, 0 or 1 */
  float s = a > 0.5f ? -2.0f * side * root : x;
  s = fo_mad_f32(s, fo_asin_tail_f32(z), s);
  float high = fo_mad_f32(side, -{HALF_PI}, {HALF_PI}); /* 0, pi / 2 or pi */
  return high + fo_mad_f32(high, {-0x1.de12cap-26f|0x1.678afae35cdd1p-55}, -s);
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

/* fo_is_odd_u32: vectors of AVX2 are blended by sign bits; elsewhere a bit is asked for as such. */
FO_FN int fo_is_odd_u32(fo_u32 x) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  return (int)(x << 31) < 0;
#else
  return (x & 1u) != 0u;
#endif
}

/* fo_sincos_f32: the sine of r plus quadrant quarter turns, for |r| <= pi / 4. */
FO_FN float fo_sincos_f32(float r, fo_u32 quadrant) {
  float z = r * r;
  float s = fo_mad_f32(fo_mad_f32(-0x1.9955aep-13f, z, 0x1.11077cp-7f), z, -0x1.555546p-3f);
  s = fo_mad_f32(z * r, s, r);
  float c = fo_mad_f32(fo_mad_f32(0x1.99eac2p-16f, z, -0x1.6c0c2ep-10f), z, 0x1.55554ap-5f);
  c = fo_mad_f32(fo_mad_f32(c, z, -0.5f), z, 1.0f);
  float y = fo_is_odd_u32(quadrant) ? c : s;
  return fo_from_bits_f32(fo_bits_f32(y) ^ (quadrant & 2u) << 30);
}

/* fo_wide_sincos_f32: the sine of a >= 0 plus quarter turns, for every finite a. */
FO_FN float fo_wide_sincos_f32(float a, fo_u32 turns) {
  double quarter;
  float r = (float)(fo_turns_f32(a, &quarter) * 0x1.921fb54442d18p+2);
  return fo_sincos_f32(r, (fo_u32)fo_bits_f64(quarter) + turns);
}

/* fo_moderate_rest_f32: a less multiples of pi / 2 for |a| < 10000, and their number in the low bits of *turns. They are taken away in
   three parts. Before the first multiple is rounded, a less it fits 24 bits: with a fused multiply-add it is exact. */
FO_FN float fo_moderate_rest_f32(float a, fo_u32 *turns) {
  float t = fo_mad_f32(a, 0x1.45f306p-1f, 0x1.8p23f);
  float n = t - 0x1.8p23f;
  float r = fo_mad_f32(n, 0x1.777a5cp-25f, fo_mad_f32(n, -0x1.921fb6p+0f, a));
  *turns = fo_bits_f32(t);
  return fo_mad_f32(n, 0x1.ee59dap-50f, r);
}

/* fo_moderate_sincos_f32: fo_wide_sincos_f32 for |a| < 10000. */
FO_FN float fo_moderate_sincos_f32(float a, fo_u32 turns) {
#if defined(__FMA__) || defined(__aarch64__) || defined(__CUDACC__)
  fo_u32 taken;
  float r = fo_moderate_rest_f32(a, &taken);
  return fo_sincos_f32(r, taken + turns);
#else
  return fo_wide_sincos_f32(a, turns);
#endif
}

/* fo_any_sincos_f32: of either, so that elements have the same bits whatever is beside them. */
FO_FN float fo_any_sincos_f32(float a, fo_u32 turns) {
  float moderate = fo_moderate_sincos_f32(a, turns), wide = fo_wide_sincos_f32(a, turns);
  return a < 10000.0f ? moderate : wide;
}

/* fo_sin_f32: 1.7 ULP for every finite x; +-inf is NaN; keeps the sign of zero. */
FO_FN float fo_sin_f32(float x) {
  float y = fo_any_sincos_f32(__builtin_fabsf(x), 0u);
  return fo_signed_f32(y, x);
}

/* fo_cos_f32: 1.7 ULP for every finite x; +-inf is NaN. */
FO_FN float fo_cos_f32(float x) {
  return fo_any_sincos_f32(__builtin_fabsf(x), 1u);
}

/* fo_moderate_sin_f32: 1.7 ULP; fo_sin_f32 of |x| < 10000. */
FO_FN float fo_moderate_sin_f32(float x) {
  float y = fo_moderate_sincos_f32(__builtin_fabsf(x), 0u);
  return fo_signed_f32(y, x);
}

/* fo_moderate_cos_f32: 1.7 ULP; fo_cos_f32 of |x| < 10000. */
FO_FN float fo_moderate_cos_f32(float x) {
  return fo_moderate_sincos_f32(__builtin_fabsf(x), 1u);
}

/* fo_sin_f64: libm's sine; not vectorised. */
FO_FN double fo_sin_f64(double x) {
  return __builtin_sin(x);
}

/* fo_cos_f64: libm's cosine; not vectorised. */
FO_FN double fo_cos_f64(double x) {
  return __builtin_cos(x);
}

/* fo_wide_tan_f32: the tangent of every finite a >= 0, computed in double. */
FO_FN float fo_wide_tan_f32(float a) {
  double quarter;
  double r = fo_turns_f32(a, &quarter) * 0x1.921fb54442d18p+2;
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
  return (float)((odd ? -1.0 : p) / (odd ? p : 1.0));
}

/* fo_near_tan_f32: the same for a < 10000. */
FO_FN float fo_near_tan_f32(float a) {
#if defined(__FMA__) || defined(__aarch64__) || defined(__CUDACC__)
  fo_u32 turns;
  float r = fo_moderate_rest_f32(a, &turns), z = r * r;
  float p = fo_mad_f32(0x1.341b9ep-7f, z, 0x1.954594p-9f);
  p = fo_mad_f32(p, z, 0x1.908858p-6f);
  p = fo_mad_f32(p, z, 0x1.b58302p-5f);
  p = fo_mad_f32(p, z, 0x1.112df6p-3f);
  p = fo_mad_f32(p, z, 0x1.5554dep-2f);
  p = fo_mad_f32(p * z, r, r);
  int odd = fo_is_odd_u32(turns);
  return (odd ? -1.0f : p) / (odd ? p : 1.0f);
#else
  return fo_wide_tan_f32(a);
#endif
}

/* fo_tan_f32: 2.9 ULP for every finite x; +-inf is NaN; keeps the sign of zero. */
FO_FN float fo_tan_f32(float x) {
  float a = __builtin_fabsf(x), near = fo_near_tan_f32(a), wide = fo_wide_tan_f32(a);
  float y = a < 10000.0f ? near : wide;
  return fo_signed_f32(y, x);
}

/* fo_moderate_tan_f32: 2.9 ULP; fo_tan_f32 of |x| < 10000. */
FO_FN float fo_moderate_tan_f32(float x) {
  float y = fo_near_tan_f32(__builtin_fabsf(x));
  return fo_signed_f32(y, x);
}

/* fo_tan_f64: libm's tangent; not vectorised: it needs the reduction of sine and cosine, which are libm's too. */
FO_FN double fo_tan_f64(double x) {
  return __builtin_tan(x);
}
