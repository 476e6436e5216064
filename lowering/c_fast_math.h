/* fo_fast_exp_f32: 1.2 ULP; what is below 2**-125 is 0. */
FO_FN float fo_fast_exp_f32(float x) {
  x = x < -87.33654f ? -87.33654f : x;
  x = x > 89.0f ? 89.0f : x;
  float t = fo_mad_f32(x, 0x1.715476p+0f, 0x1.8p23f + 126.0f);
  float n = t - (0x1.8p23f + 126.0f);
  float r = fo_mad_f32(n, -0x1.7f7d1cp-20f, fo_mad_f32(n, -0x1.62e4p-1f, x));
  float y = (1.0f + fo_expm1_poly_f32(r)) * fo_from_bits_f32(fo_bits_f32(t) << 23); /* 2**(n - 1): n may be 128 */
  return y + y;
}

/* fo_fast_exp_f64: 1.2 ULP; what is below 2**-1021 is 0. */
FO_FN double fo_fast_exp_f64(double x) {
  x = x < -708.39641 ? -708.39641 : x;
  x = x > 710.0 ? 710.0 : x;
  double t = fo_mad_f64(x, 0x1.71547652b82fep+0, 0x1.8p52 + 1022.0);
  double n = t - (0x1.8p52 + 1022.0);
  double r = fo_mad_f64(n, -0x1.3de6af278ece6p-42, fo_mad_f64(n, -0x1.62e42fefa3p-1, x));
  double y = (1.0 + fo_expm1_poly_f64(r)) * fo_from_bits_f64(fo_bits_f64(t) << 52); /* 2**(n - 1): n may be 1024 */
  return y + y;
}

/* fo_fast_sigmoid_f32: 2.7 ULP; 1 / (1 + exp(-x)); what is below 2**-127 is 0. */
FO_FN float fo_fast_sigmoid_f32(float x) {
  return 1.0f / (1.0f + fo_fast_exp_f32(-x));
}

/* fo_fast_sigmoid_f64: 2.7 ULP; 1 / (1 + exp(-x)); what is below 2**-1023 is 0. */
FO_FN double fo_fast_sigmoid_f64(double x) {
  return 1.0 / (1.0 + fo_fast_exp_f64(-x));
}

/* fo_fast_erf_f32: 6.0 ULP; odd, keeps the sign of zero; the rational function of Eigen's generic_fast_erf_float. */
FO_FN float fo_fast_erf_f32(float x) {
  float a = x < -4.0f ? -4.0f : x;
  a = a > 4.0f ? 4.0f : a;
  float s = a * a;
  float p = fo_mad_f32(s, -2.72614225801306e-10f, 2.77068142495902e-08f);
  p = fo_mad_f32(p, s, -2.10102402082508e-06f);
  p = fo_mad_f32(p, s, -5.69250639462346e-05f);
  p = fo_mad_f32(p, s, -7.34990630326855e-04f);
  p = fo_mad_f32(p, s, -2.95459980854025e-03f);
  p = fo_mad_f32(p, s, -1.60960333262415e-02f);
  float q = fo_mad_f32(s, -1.45660718464996e-05f, -2.13374055278905e-04f);
  q = fo_mad_f32(q, s, -1.68282697438203e-03f);
  q = fo_mad_f32(q, s, -7.37332916720468e-03f);
  q = fo_mad_f32(q, s, -1.42647390514189e-02f);
  float y = a * p / q;
  return __builtin_fabsf(x) < 0x1p-60f ? x * 1.1283791670955126f : y;
}
