/* Exponentials and logarithms. */

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

/* fo_small_exp_poly_f32: the same times 2**-23, bit for bit. */
FO_FN float fo_small_exp_poly_f32(float r) {
  float q = 0x1.0fa356p-30f;
  q = fo_mad_f32(q, r, 0x1.573abcp-28f);
  q = fo_mad_f32(q, r, 0x1.555a7ap-26f);
  q = fo_mad_f32(q, r, 0x1.fffdc4p-25f);
  q = fo_mad_f32(q, r, 0x1.fffff6p-24f);
  return fo_mad_f32(q, r, 0x1p-23f);
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
  return fo_small_exp_poly_f32(r) * s;
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

/* fo_expm1_{f32|f64}: {1.7|2.1} ULP; keeps the sign of zero. */
FO_FN float fo_expm1_f32(float x) {
  FO_KEPT float low = {-20.0f|-40.0}, high = {89.0f|710.0};
  float c = low > x ? low : x;
  c = high < c ? high : c;
  float t = fo_mad_f32(c, {LOG2_E}, {SHIFTER} + {126.0f|1022.0});
  float n = t - ({SHIFTER} + {126.0f|1022.0});
  float r = fo_mad_f32(n, -{LOG_2_LOW}, fo_mad_f32(n, -{LOG_2_HIGH}, c));
  float s = fo_from_bits_f32(fo_bits_f32(t) << {FRACTION_BITS}); /* 2**(n - 1): n may be {128|1024} */
  float y = 2.0f * fo_mad_f32(s, fo_expm1_poly_f32(r), s - 0.5f);
  return __builtin_fabsf(x) < {0x1p-25f|0x1p-54} ? x : y;
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

/* fo_log_parts_f32: log(1 + f) + k log(2) / 2**23 for sqrt(1/2) <= 1 + f <= sqrt(2). */
FO_FN float fo_log_parts_f32(float f, float k) {
  float z = f * f;
  float q = fo_mad_f32(-0x1.24359p-3f, z, -0x1.5381cap-3f);
  q = fo_mad_f32(q, z, -0x1.000384p-2f);
  q = fo_mad_f32(q, z, -0.5f);
  float odd = fo_mad_f32(0x1.6472dep-4f, z, 0x1.3171d8p-3f);
  odd = fo_mad_f32(odd, z, 0x1.98d82ap-3f);
  odd = fo_mad_f32(odd, z, 0x1.5556d8p-2f);
  q = fo_mad_f32(odd, f, q);
  return fo_mad_f32(k, 0x1.62e43p-24f, fo_mad_f32(z, q, f));
}

/* fo_log_f32: 1.3 ULP; +-0 is -inf, x < 0 is NaN. */
FO_FN float fo_log_f32(float x) {
  FO_KEPT float least = 0x1p-126f, same = 0x1p-126f; /* of one name, gcc would compute both sides of it */
  float a = x < least ? x * 0x1p25f : x;
  fo_u32 u = (fo_bits_f32(a) - 0x3f3504f3u) & 0xff800000u; /* k << 23; 0x3f3504f3 is sqrt(1/2) */
  float f = fo_from_bits_f32(fo_bits_f32(a) - u) - 1.0f;
  float k = (float)(fo_i32)(x < same ? u - (25u << 23) : u);
  float y = fo_log_parts_f32(f, k);
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
  fo_u32 u = (fo_bits_f32(a) - 0x3f3504f3u) & 0xff800000u; /* k << 23; 0x3f3504f3 is sqrt(1/2) */
  float f = fo_from_bits_f32(fo_bits_f32(a) - u) - 1.0f;
  float k = (float)(fo_i32)(x < same ? u - (25u << 23) : u);
  float p = fo_log1p_poly_f32(f);
  /* 1 / log(10) = 0.4375 + -0x1.a42756p-9f: f * 0.4375 loses little, the rest is small. */
  float y = fo_mad_f32(k, 0x1.3509f8p-41f, fo_mad_f32(p, 0x1.bcb7b2p-2f, f * -0x1.a42756p-9f));
  y = fo_mad_f32(f, 0.4375f, y);
  y = fo_mad_f32(k, 0x1.344p-25f, y);
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

/* fo_finite_log1p_f32: log(1 + x) for finite x > -1, and zero of either sign. */
FO_FN float fo_finite_log1p_f32(float x) {
  fo_u32 u = fo_bits_f32(1.0f + x) - 0x3f3504f3u;
  u = (u & 0xff800000u) - 0x01000000u; /* (k - 2) << 23 */
  float s = 0.25f * fo_from_bits_f32(0x3f800000u - u); /* 2**-k: k may be 128 */
  float k = (float)((fo_i32)u >> 23) + 2.0f;
  float f = fo_mad_f32(x, s, s - 1.0f); /* (1 + x) / 2**k - 1 */
  float y = fo_mad_f32(k, 0x1.7f7d1cp-20f, fo_log1p_poly_f32(f)) + f;
  return fo_mad_f32(k, 0x1.62e4p-1f, y);
}

/* fo_log1p_f32: 1.6 ULP; keeps the sign of zero; -1 is -inf, x < -1 is NaN. */
FO_FN float fo_log1p_f32(float x) {
  float y = fo_finite_log1p_f32(x);
  y = fo_from_bits_f32(fo_bits_f32(y) | (fo_bits_f32(x) & 0x80000000u)); /* of the sign of x, zeros, too */
  y = x < __builtin_inff() ? y : x;
  float edge = x == -1.0f ? -__builtin_inff() : __builtin_nanf("");
  return x > -1.0f ? y : edge;
}

/* fo_finite_log1p_f64: log(1 + x) for finite x > -1, and zero of either sign. */
FO_FN double fo_finite_log1p_f64(double x) {
  fo_u64 u = fo_bits_f64(1.0 + x) - 0x3fe6a09e667f3bcdu + 0x3ff0000000000000u;
  double k = fo_from_bits_f64(0x4330000000000000u | (u >> 52)) - (0x1p52 + 1023.0);
  double s = 0.25 * fo_from_bits_f64(0x8000000000000000u - (u & 0xfff0000000000000u)); /* 2**-k: k may be 1024 */
  double f = fo_mad_f64(x, s, s - 1.0); /* (1 + x) / 2**k - 1 */
  double y = fo_mad_f64(k, 0x1.3de6af278ece6p-42, fo_log1p_poly_f64(f)) + f;
  return fo_mad_f64(k, 0x1.62e42fefa3p-1, y);
}

/* fo_log1p_f64: 1.6 ULP; keeps the sign of zero; -1 is -inf, x < -1 is NaN. */
FO_FN double fo_log1p_f64(double x) {
  double y = fo_finite_log1p_f64(x);
  y = fo_from_bits_f64(fo_bits_f64(y) | (fo_bits_f64(x) & 0x8000000000000000u)); /* of the sign of x, zeros, too */
  y = x < __builtin_inf() ? y : x;
  double edge = x == -1.0 ? -__builtin_inf() : __builtin_nan("");
  return x > -1.0 ? y : edge;
}
