/* What `math = "fast"` calls in place of functions of the other files. */

/* fo_fast_exp_f32: 2.3 ULP; what is below 2**-125 is 0. */
FO_FN float fo_fast_exp_f32(float x) {
  FO_KEPT float low = -87.33654f, high = 89.0f;
  x = low > x ? low : x;
  x = high < x ? high : x;
  float t = fo_mad_f32(x, 0x1.715476p+0f, 0x1.8p23f + 126.0f);
  float n = t - (0x1.8p23f + 126.0f);
  float r = fo_mad_f32(n, -0x1.7f7d1cp-20f, fo_mad_f32(n, -0x1.62e4p-1f, x));
  float q = 0x1.0fa356p-6f; /* 2 exp(r), as in fo_exp_poly_f32: n may be 128 */
  q = fo_mad_f32(q, r, 0x1.573abcp-4f);
  q = fo_mad_f32(q, r, 0x1.555a7ap-2f);
  q = fo_mad_f32(q, r, 0x1.fffdc4p-1f);
  q = fo_mad_f32(q, r, 0x1.fffff6p+0f);
  q = fo_mad_f32(q, r, 2.0f);
  return q * fo_from_bits_f32(fo_bits_f32(t) << 23); /* 2**(n - 1); 0 for n = -126 */
}

/* fo_fast_exp_f64: 1.2 ULP; what is below 2**-1021 is 0. */
FO_FN double fo_fast_exp_f64(double x) {
  FO_KEPT double low = -708.39641, high = 710.0;
  x = low > x ? low : x;
  x = high < x ? high : x;
  double t = fo_mad_f64(x, 0x1.71547652b82fep+0, 0x1.8p52 + 1022.0);
  double n = t - (0x1.8p52 + 1022.0);
  double r = fo_mad_f64(n, -0x1.3de6af278ece6p-42, fo_mad_f64(n, -0x1.62e42fefa3p-1, x));
  double y = (1.0 + fo_expm1_poly_f64(r)) * fo_from_bits_f64(fo_bits_f64(t) << 52); /* 2**(n - 1): n may be 1024 */
  return y + y;
}

/* fo_fast_exp_negative_f32: 2.3 ULP; exp(x) for x <= 0, or a little above; what is below 2**-126 is 0. */
FO_FN float fo_fast_exp_negative_f32(float x) {
  FO_KEPT float low = -88.0f;
  x = low > x ? low : x;
  float t = fo_mad_f32(x, 0x1.715476p+0f, 0x1.8p23f + 127.0f);
  float n = t - (0x1.8p23f + 127.0f);
  float r = fo_mad_f32(n, -0x1.7f7d1cp-20f, fo_mad_f32(n, -0x1.62e4p-1f, x));
  return fo_exp_poly_f32(r) * fo_from_bits_f32(fo_bits_f32(t) << 23); /* 2**n; 0 for n = -127 */
}

/* fo_fast_sigmoid_{f32|f64}: {3.6|2.7} ULP; 1 / (1 + exp(-x)); what is below 2**-{127|1023} is 0. */
FO_FN float fo_fast_sigmoid_f32(float x) {
  return 1.0f / (1.0f + fo_fast_exp_f32(-x));
}

/* fo_fast_erf_f32: 5.6 ULP; odd, keeps the sign of zero; x p(x**2) / q(x**2), which is 1 from 3.91 on. */
FO_FN float fo_fast_erf_f32(float x) {
  FO_KEPT float low = -3.9140625f, high = 3.9140625f;
  x = low > x ? low : x;
  x = high < x ? high : x;
  float z = x * x;
  float p = fo_mad_f32(0x1.e54ce8p-20f, z, 0x1.08e048p-12f);
  p = fo_mad_f32(p, z, 0x1.b839dep-9f);
  p = fo_mad_f32(p, z, 0x1.7f7adep-5f);
  p = fo_mad_f32(p, z, 0x1.5ab49cp-3f);
  float q = fo_mad_f32(0x1.1a776p-15f, z, 0x1.0f4786p-10f);
  q = fo_mad_f32(q, z, 0x1.b41c6ep-7f);
  q = fo_mad_f32(q, z, 0x1.9f1c26p-4f);
  q = fo_mad_f32(q, z, 0x1.c820c6p-2f);
  q = fo_mad_f32(q, z, 0x1.c5bf8ap-1f);
  return fo_mad_f32(x * z, p, x) / q;
}
