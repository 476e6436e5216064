/* Hyperbolic functions and their inverses, by exponentials and logarithms. */

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
  return fo_signed_f32(h / (h + 1.0f), x);
}

/* fo_tanh_f64: 2.8 ULP; odd, keeps the sign of zero; e / (e + 2) with e = exp(2 |x|) - 1. */
FO_FN double fo_tanh_f64(double x) {
  double a = __builtin_fabs(x);
  FO_KEPT double high = 20.0;
  a = high < a ? high : a;
  double e = fo_expm1_core_f64(a + a);
  return fo_signed_f64(e / (e + 2.0), x);
}

/* fo_sinh_{f32|f64}: {2.4|2.5} ULP; odd, keeps the sign of zero; 2 (h + h / (4 h + 1)) with h = (exp(|x|) - 1) / 4. */
FO_FN float fo_sinh_f32(float x) {
  float c = __builtin_fabsf(x);
  FO_KEPT float high = {89.6f|710.6};
  c = high < c ? high : c;
  float t = fo_mad_f32(c, {LOG2_E}, {SHIFTER} + {125.0f|1021.0});
  float n = t - ({SHIFTER} + {125.0f|1021.0});
  float r = fo_mad_f32(n, -{LOG_2_LOW}, fo_mad_f32(n, -{LOG_2_HIGH}, c));
  float s = fo_from_bits_f32(fo_bits_f32(t) << {FRACTION_BITS}); /* 2**(n - 2): n may be {129|1025} */
  float h = fo_mad_f32(s, fo_expm1_poly_f32(r), s - 0.25f);
  float y = 2.0f * (h + h / fo_mad_f32(4.0f, h, 1.0f));
  return __builtin_fabsf(x) < {0x1p-12f|0x1p-27} ? x : fo_signed_f32(y, x);
}

/* fo_cosh_{f32|f64}: 1.6 ULP; h + 1 / (4 h) with h = exp(|x|) / 2. */
FO_FN float fo_cosh_f32(float x) {
  float c = __builtin_fabsf(x);
  FO_KEPT float high = {90.0f|711.0};
  c = high < c ? high : c;
  float t = fo_mad_f32(c, {LOG2_E}, {SHIFTER} + {254.0f|2046.0});
  float n = t - ({SHIFTER} + {254.0f|2046.0});
  float r = fo_mad_f32(n, -{LOG_2_LOW}, fo_mad_f32(n, -{LOG_2_HIGH}, c));
  float h = fo_scale_f32(fo_mad_f32(0.5f, fo_expm1_poly_f32(r), 0.5f), t);
  return h + 0.25f / h;
}

/* fo_asinh_f32: 2.5 ULP; odd, keeps the sign of zero; x + x**3 p(x**2) up to 0.75, else log(a + sqrt(a**2 + 1)), for large a that
   of 2 a. */
FO_FN float fo_asinh_f32(float x) {
  float a = __builtin_fabsf(x), z = a * a;
  float p = fo_mad_f32(0x1.321112p-8f, z, -0x1.f60a66p-7f);
  p = fo_mad_f32(p, z, 0x1.cd0704p-6f);
  p = fo_mad_f32(p, z, -0x1.6a9084p-5f);
  p = fo_mad_f32(p, z, 0x1.33126ep-4f);
  p = fo_mad_f32(p, z, -0x1.5554e2p-3f);
  float small = fo_mad_f32(a * z, p, a);
  float w = a > 0x1p26f ? a : 0.5f * (a + __builtin_sqrtf(z + 1.0f));
  fo_u32 u = (fo_bits_f32(w) - 0x3f3504f3u) & 0xff800000u;
  float y = fo_log_parts_f32(fo_from_bits_f32(fo_bits_f32(w) - u) - 1.0f, (float)(fo_i32)u + 0x1p23f);
  y = a < __builtin_inff() ? y : a;
  return __builtin_copysignf(a < 0.75f ? small : y, x);
}

/* fo_asinh_f64: 2.0 ULP; odd, keeps the sign of zero; log1p(a + a**2 / (1 + sqrt(1 + a**2))), log1p(a) + log(2) for large a. */
FO_FN double fo_asinh_f64(double x) {
  double a = __builtin_fabs(x);
  double b = a > 0x1p55 ? 1.0 : a;
  double w = a + b * b / (1.0 + __builtin_sqrt(fo_mad_f64(b, b, 1.0)));
  double y = fo_log1p_f64(a > 0x1p55 ? a : w) + (a > 0x1p55 ? 0x1.62e42fefa39efp-1 : 0.0);
  return __builtin_copysign(y, x);
}

/* fo_acosh_{f32|f64}: {2.5|2.4} ULP; x < 1 is NaN; log1p(u + sqrt(2 u + u**2)) with u = x - 1, log1p(x) + log(2) for large x. */
FO_FN float fo_acosh_f32(float x) {
  float u = x > {0x1p26f|0x1p55} ? 0.0f : x - 1.0f;
  float w = u + __builtin_sqrtf(u * (u + 2.0f));
  float y = fo_finite_log1p_f32(x > {0x1p26f|0x1p55} ? x : w) + (x > {0x1p26f|0x1p55} ? {LOG_2} : 0.0f);
  y = x < __builtin_inff() ? y : x;
  return x < 1.0f ? __builtin_nanf("") : y;
}

/* fo_atanh_{f32|f64}: 2.2 ULP; odd, keeps the sign of zero; +-1 is +-inf, |x| > 1 is NaN; log1p(2 a / (1 - a)) / 2. */
FO_FN float fo_atanh_f32(float x) {
  float a = __builtin_fabsf(x);
  float y = 0.5f * fo_finite_log1p_f32((a + a) / (1.0f - a));
  float edge = a == 1.0f ? __builtin_inff() : __builtin_nanf("");
  return __builtin_copysignf(a < 1.0f ? y : edge, x);
}
