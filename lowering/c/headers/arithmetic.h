/* Arithmetic of floats: bit patterns, roots and powers, rounding, quotients and remainders. */

/* fo_bits_{f32|f64}: the bit pattern. */
FO_FN fo_{u32|u64} fo_bits_f32(float x) {
  fo_{u32|u64} u;
  __builtin_memcpy(&u, &x, sizeof u);
  return u;
}

/* fo_from_bits_{f32|f64}: the number with that bit pattern. */
FO_FN float fo_from_bits_f32(fo_{u32|u64} u) {
  float x;
  __builtin_memcpy(&x, &u, sizeof x);
  return x;
}

/* fo_signed_{f32|f64}: y, or -y where x has a sign: of y without one in two operations, where copysign takes three. */
FO_FN float fo_signed_f32(float y, float x) {
  return fo_from_bits_f32(fo_bits_f32(y) ^ (fo_bits_f32(x) & {0x80000000u|0x8000000000000000u}));
}

/* fo_opaque_f32: the number, which gcc does not know then: it makes one instruction of `c > x ? c : x` only where c is no
   constant, and threads no jumps from one such choice to the next. For loops to be vectors, it must be outside of them. */
FO_FN float fo_opaque_f32(float x) {
#if defined(__clang__)
  if (x != 0.0f) return x; /* of zeros clang 14 may take the other one in vectors */
#endif
  volatile float y = x;
  return y;
}

/* fo_opaque_f64: the number, which gcc does not know then; see fo_opaque_f32. */
FO_FN double fo_opaque_f64(double x) {
#if defined(__clang__)
  if (x != 0.0) return x; /* of zeros clang 14 may take the other one in vectors */
#endif
  volatile double y = x;
  return y;
}

/* fo_fma_{f32|f64}: a * b + c rounded once, on every machine (a slow call where there is no such instruction). */
FO_FN float fo_fma_f32(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}

/* fo_mad_{f32|f64}: a * b + c, rounded once where that is one instruction, else twice. */
FO_FN float fo_mad_f32(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__) || defined(__CUDACC__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

/* fo_sqrt_{f32|f64}: correctly rounded (0.5 ULP); x < 0 is NaN, -0 is -0. */
FO_FN float fo_sqrt_f32(float x) {
  return __builtin_sqrtf(x);
}

/* fo_rsqrt_{f32|f64}: 1 / sqrt(x), 1.5 ULP; +-0 gives +-inf, x < 0 is NaN. */
FO_FN float fo_rsqrt_f32(float x) {
  return 1.0f / __builtin_sqrtf(x);
}

/* fo_floor_{f32|f64}: exact; keeps the sign of zero. */
FO_FN float fo_floor_f32(float x) {
  return __builtin_floorf(x);
}

/* fo_ceil_{f32|f64}: exact; keeps the sign of zero. */
FO_FN float fo_ceil_f32(float x) {
  return __builtin_ceilf(x);
}

/* fo_trunc_{f32|f64}: exact; keeps the sign of zero. */
FO_FN float fo_trunc_f32(float x) {
  return __builtin_truncf(x);
}

/* fo_round_{f32|f64}: to the nearest integer, halves to even; exact; keeps the sign of zero. */
FO_FN float fo_round_f32(float x) {
  return __builtin_rintf(x);
}

/* fo_max_{f32|f64}: the greater; NaN if either is NaN; of two zeros the first. */
FO_FN float fo_max_f32(float a, float b) {
  float r = b > a ? b : a; /* one instruction of x86; apart: gcc does not vectorise nests of one choice by `||` */
  return b != b ? b : r;
}

/* fo_min_{f32|f64}: the lesser; NaN if either is NaN; of two zeros the first. */
FO_FN float fo_min_f32(float a, float b) {
  float r = b < a ? b : a; /* one instruction of x86; apart: gcc does not vectorise nests of one choice by `||` */
  return b != b ? b : r;
}

/* fo_moderate_fmod_f32: fo_fmod_f32 of |a / b| < 10000 * 2**15, a number: all in f64, where the quotient is not rounded to an integer
   that it is below, and its product with b has 53 digits. */
FO_FN float fo_moderate_fmod_f32(float a, float b) {
  double x = a, y = b, n = __builtin_trunc(x / y); /* a loop that asks for the quotient has it once */
  double r = n == 0.0 ? x : x - n * y; /* y may be infinite */
  return __builtin_copysignf((float)r, a);
}

/* fo_moderate_fmod_f64: fo_fmod_f64 of |a / b| < 10000 * 2**39, a number. The integer may be one too great; with one rounding, what is
   left is exact either way. Without fused multiply-adds it calls fmod. */
FO_FN double fo_moderate_fmod_f64(double a, double b) {
#if defined(__FMA__) || defined(__aarch64__)
  double n = __builtin_trunc(a / b), r = n == 0.0 ? a : __builtin_fma(-n, b, a);
  r = r != 0.0 && (r < 0.0) != (a < 0.0) ? r + __builtin_copysign(b, a) : r;
  return __builtin_copysign(r, a);
#else
  return __builtin_fmod(a, b);
#endif
}

/* fo_rem_of_rest_{f32|f64}: fo_rem_f32 of what fmod gives. */
FO_FN float fo_rem_of_rest_f32(float r, float b) {
  r = r == 0.0f ? __builtin_copysignf(0.0f, b) : (b < 0.0f) != (r < 0.0f) ? r + b : r;
  return b == b ? r : b;
}

/* fo_rem_{f32|f64}: remainder of the floored quotient, sign of b (numpy.remainder); b == 0 or infinite a is NaN.
   Calls {fmodf|fmod}: exact, but not vectorised; the one rounding is the addition of b when the signs differ. */
FO_FN float fo_rem_f32(float a, float b) {
  return fo_rem_of_rest_f32(__builtin_fmodf(a, b), b);
}

/* fo_moderate_rem_{f32|f64}: fo_rem_f32 where fo_moderate_fmod_f32 may be taken. */
FO_FN float fo_moderate_rem_f32(float a, float b) {
  return fo_rem_of_rest_f32(fo_moderate_fmod_f32(a, b), b);
}

/* fo_rooted_quotient_f32: x / c for a constant c whose reciprocal is nearly high + low, but for quotients below 2**-103: of it a root
   is taken and added to what is so large that no bit of the sum depends on these. By the unit that divides where no product and
   sum are rounded at once. */
FO_FN float fo_rooted_quotient_f32(float x, float c, float high, float low) {
#if defined(__FMA__) || defined(__aarch64__)
  (void)c;
  return __builtin_fmaf(x, high, x * low);
#else
  (void)high, (void)low;
  return x / c;
#endif
}

/* fo_divided_f32: x / c for a constant c whose reciprocal in f64 is r, and with which both ways give the same bits: by the unit that
   divides, or beside it where vectors are wide enough for conversions to be worth it: not those of Zen 4, which are halves one after
   the other (for gcc 12 it is a Zen 3). */
FO_FN float fo_divided_f32(float x, float c, double r) {
#if defined(__AVX__) && (!defined(__AVX512F__) || defined(__znver3__) || defined(__znver4__))
  (void)r;
  return x / c;
#else
  (void)c;
  return (float)((double)x * r);
#endif
}

/* fo_floordiv_of_rest_{f32|f64}: fo_floordiv_f32 where fmod gives r. */
FO_FN float fo_floordiv_of_rest_f32(float a, float b, float r) {
  float q = (a - r) / b - (r != 0.0f && (b < 0.0f) != (r < 0.0f) ? 1.0f : 0.0f);
  float n = __builtin_floorf(q);
  n = q - n > 0.5f ? n + 1.0f : n;
  n = q == 0.0f ? __builtin_copysignf(0.0f, a / b) : n;
  return b == 0.0f ? a / b : n;
}

/* fo_floordiv_{f32|f64}: the floored quotient (numpy.floor_divide); b == 0 gives a / b. Calls {fmodf|fmod}: not vectorised. */
FO_FN float fo_floordiv_f32(float a, float b) {
  return fo_floordiv_of_rest_f32(a, b, __builtin_fmodf(a, b));
}

/* fo_moderate_floordiv_{f32|f64}: fo_floordiv_f32 where fo_moderate_fmod_f32 may be taken. */
FO_FN float fo_moderate_floordiv_f32(float a, float b) {
  return fo_floordiv_of_rest_f32(a, b, fo_moderate_fmod_f32(a, b));
}

/* fo_fmod_{f32|f64}: remainder of the truncated quotient, sign of a, exact; b == 0 or infinite a is NaN.
   Calls {fmodf|fmod}: not vectorised. */
FO_FN float fo_fmod_f32(float a, float b) {
  return __builtin_fmodf(a, b);
}

/* fo_cbrt_f32: 1.3 ULP; keeps the sign of zero. From y = a**(-1/3), within 4% by a division of the exponent by 3 and then by a
   polynomial of 1 - a y**3, to a y**2 and a step of Newton, all without a division. */
FO_FN float fo_cbrt_f32(float x) {
  float a = __builtin_fabsf(x), scale = a < 0x1p-126f ? 0x1p24f : 1.0f, back = a < 0x1p-126f ? 0x1p-8f : 1.0f;
  float s = a * scale;
  float start = fo_mad_f32((float)(fo_i32)fo_bits_f32(s), -0x1.555556p-2f, 1419900000.0f);
  float y = fo_from_bits_f32((fo_u32)(fo_i32)start);
  float e = fo_mad_f32(s * y * y, -y, 1.0f);
  float p = fo_mad_f32(0x1.ca71a8p-3f, e, 0x1.56b942p-2f);
  y = y * fo_mad_f32(p, e, 0x1.ffffaep-1f);
  float square = y * y, c = s * square;
  float rest = fo_mad_f32(c * c, -c, s);
  c = fo_mad_f32(rest, square * 0x1.555556p-2f, c) * back;
  return a > 0.0f && a < __builtin_inff() ? __builtin_copysignf(c, x) : x;
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

/* fo_hypot_f32: 1.3 ULP; infinite when either is, even next to NaN. The operands are scaled by a power of two. */
FO_FN float fo_hypot_f32(float x, float y) {
#ifdef __CUDACC__
  return hypotf(x, y);
#else
  float a = __builtin_fabsf(x), b = __builtin_fabsf(y);
  int infinite = a == __builtin_inff() || b == __builtin_inff();
  float m = a > b ? a : b;
  float scale = m > 0x1p60f ? 0x1p-70f : m < 0x1p-50f ? 0x1p100f : 1.0f;
  float back = m > 0x1p60f ? 0x1p70f : m < 0x1p-50f ? 0x1p-100f : 1.0f;
  a *= scale;
  b *= scale;
  float r = __builtin_sqrtf(fo_mad_f32(a, a, b * b)) * back;
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
