/* The error function, its complement, and the logarithm of the gamma function. */

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
  return fo_signed_f32(fo_mad_f32(-(s * r), p, 1.0f - s), x);
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

/* fo_erfc_f32: 4.3 ULP; exp(-x**2) g(v) u with u = 1 / (|x| + 1.25) and a polynomial g of v = u - 0.4375, which is nearly constant;
   for x < 0 taken from 2. The square of x is exact: two numbers, or that of its upper bits. CUDA's erfcf takes a fifth more instructions. */
FO_FN float fo_erfc_f32(float x) {
  float a = __builtin_fabsf(x);
  FO_KEPT float high = 10.1f;
  a = high < a ? high : a;
#ifdef __CUDACC__
  float d = a + 1.25f, u; /* its reciprocal is rounded to nearest, as the division, without a question for what d never is */
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(u) : "f"(d));
  u = fo_mad_f32(u, fo_mad_f32(-d, u, 1.0f), u);
#else
  float u = 1.0f / (a + 1.25f);
#endif
  float v = u - 0.4375f, z = v * v;
  /* g times 2**-23, bit for bit */
  float g = fo_mad_f32(0x1.0c68ecp-23f, z, 0x1.23ae1p-24f);
  g = fo_mad_f32(g, z, -0x1.19126ap-23f);
  g = fo_mad_f32(g, z, 0x1.3d49eap-24f);
  g = fo_mad_f32(g, z, -0x1.bed9cep-26f);
  g = fo_mad_f32(g, z, 0x1.e933bcp-24f);
  float odd = fo_mad_f32(-0x1.e4ebc6p-23f, z, 0x1.e6df44p-24f);
  odd = fo_mad_f32(odd, z, 0x1.fdf0ccp-26f);
  odd = fo_mad_f32(odd, z, -0x1.572faap-24f);
  odd = fo_mad_f32(odd, z, 0x1.e6ad4p-24f);
  g = fo_mad_f32(odd, v, g) * u;
#if defined(__FMA__) || defined(__aarch64__) || defined(__CUDACC__)
  float e = a * a, low = fo_mad_f32(a, a, -e);
  float k = fo_mad_f32(e, -0x1.715476p+0f, 0x1.8p23f + 150.0f);
  float n = k - (0x1.8p23f + 150.0f);
  float r = fo_mad_f32(n, -0x1.62e43p-1f, -e) - fo_mad_f32(n, -0x1.05c61p-29f, low); /* the first is exact */
#else
  float upper = fo_from_bits_f32(fo_bits_f32(a) & 0xfffff000u);
  float low = (upper - a) * (upper + a), e = upper * -upper;
  float k = fo_mad_f32(e + low, 0x1.715476p+0f, 0x1.8p23f + 150.0f);
  float n = k - (0x1.8p23f + 150.0f);
  float r = fo_mad_f32(n, -0x1.7f7d1cp-20f, low) + fo_mad_f32(n, -0x1.62e4p-1f, e);
#endif
  float s = fo_from_bits_f32(fo_bits_f32(k) << 23); /* 2**(n + 23), as in fo_exp_negative_f32 */
  float q = 0x1.6a21a4p-10f;
  q = fo_mad_f32(q, r, 0x1.123b6ap-7f);
  q = fo_mad_f32(q, r, 0x1.5558fcp-5f);
  q = fo_mad_f32(q, r, 0x1.55549p-3f);
  q = fo_mad_f32(q, r, 0x1.fffffcp-2f);
  q = fo_mad_f32(r * r, q, r); /* exp(r) - 1 */
  float y = fo_mad_f32(g, q, g) * s;
  return x < 0.0f ? 2.0f - y : y;
}

/* fo_erfc_f64: 5.8 ULP; as in f32. */
FO_FN double fo_erfc_f64(double x) {
  double a = __builtin_fabs(x);
  FO_KEPT double high = 27.3;
  a = high < a ? high : a;
  double u = 1.0 / (a + 2.5);
  double v = u - 0.21875, z = v * v;
  double g = fo_mad_f64(0x1.c20bd26d3e6e3p+22, z, -0x1.77b0e6d899dfep+21);
  g = fo_mad_f64(g, z, 0x1.35a56e046ba29p+19);
  g = fo_mad_f64(g, z, -0x1.2600f1220c68bp+16);
  g = fo_mad_f64(g, z, 0x1.3a166772199a7p+10);
  g = fo_mad_f64(g, z, 0x1.0e8350fcb497p+11);
  g = fo_mad_f64(g, z, -0x1.983f21b7192ap+9);
  g = fo_mad_f64(g, z, 0x1.de5153632f73ap+7);
  g = fo_mad_f64(g, z, -0x1.10b69b56ad4d9p+6);
  g = fo_mad_f64(g, z, 0x1.dc2b1aab6ad9ap+3);
  g = fo_mad_f64(g, z, 0x1.92ccb0ff5cd98p+3);
  g = fo_mad_f64(g, z, 0x1.2233a6dd6c9e8p+0);
  double odd = fo_mad_f64(-0x1.2de7781b98ce1p+24, z, 0x1.402bb0220b10cp+22);
  odd = fo_mad_f64(odd, z, -0x1.246ccefbc20e5p+18);
  odd = fo_mad_f64(odd, z, -0x1.f880d3a6ae995p+16);
  odd = fo_mad_f64(odd, z, 0x1.6d521d94006bep+15);
  odd = fo_mad_f64(odd, z, -0x1.3451796a7ffbbp+13);
  odd = fo_mad_f64(odd, z, 0x1.aa6812ca9d0cdp+10);
  odd = fo_mad_f64(odd, z, -0x1.27f30f3846d88p+8);
  odd = fo_mad_f64(odd, z, 0x1.24e32fea6703cp+6);
  odd = fo_mad_f64(odd, z, -0x1.12c5af5cd3b84p+5);
  odd = fo_mad_f64(odd, z, 0x1.6a246906a0b87p+4);
  odd = fo_mad_f64(odd, z, 0x1.1e327a58b50b9p+2);
  g = fo_mad_f64(odd, v, g) * u;
  double h = fo_from_bits_f64(fo_bits_f64(a) & 0xfffffffff8000000u);
  double c = -h * h;
  double k = fo_mad_f64(c, 0x1.71547652b82fep+0, 0x1.8p52 + 2046.0);
  double n = k - (0x1.8p52 + 2046.0);
  double r = fo_mad_f64(n, -0x1.3de6af278ece6p-42, fo_mad_f64(n, -0x1.62e42fefa3p-1, c)) + (h - a) * (h + a);
  double y = fo_scale_f64(fo_mad_f64(g, fo_expm1_poly_f64(r), g), k);
  return x < 0.0 ? 2.0 - y : y;
}

/* fo_stirling_rest_f64: log(gamma(x)) less (x - 1 / 2) (log(x) - 1), of i = 1 / x for x > 8.5. */
FO_FN double fo_stirling_rest_f64(double i) {
  double z = i * i;
  double p = 0x1.47cd28598299fp-8;
  p = fo_mad_f64(p, z, -0x1.eea5415dc99dp-10);
  p = fo_mad_f64(p, z, 0x1.b9229ab93b8f5p-11);
  p = fo_mad_f64(p, z, -0x1.3813350a52fap-11);
  p = fo_mad_f64(p, z, 0x1.a01a0160177p-11);
  p = fo_mad_f64(p, z, -0x1.6c16c16c10bc3p-9);
  p = fo_mad_f64(p, z, 0x1.5555555555555p-4);
  return fo_mad_f64(p, i, 0x1.acfe390c97d69p-2);
}

/* fo_stirling_f64: log(gamma(x)) for x > 8.5. */
FO_FN double fo_stirling_f64(double x) {
  return fo_mad_f64(x - 0.5, fo_log_f64(x) - 1.0, fo_stirling_rest_f64(1.0 / x));
}

/* fo_lgamma_rate_f64: log(gamma(2 + t)) / t for |t| <= 1 / 2. */
FO_FN double fo_lgamma_rate_f64(double t) {
  double square = t * t;
  double p = -0x1.3835de89ae704p-21;
  p = fo_mad_f64(p, square, -0x1.08ee202a98e81p-19);
  p = fo_mad_f64(p, square, -0x1.3d4e7861e9146p-17);
  p = fo_mad_f64(p, square, -0x1.78d8e1ab8dabdp-15);
  p = fo_mad_f64(p, square, -0x1.d3fd6b4b13708p-13);
  p = fo_mad_f64(p, square, -0x1.38ac5bfb353a1p-10);
  p = fo_mad_f64(p, square, -0x1.e404fc21dd138p-8);
  p = fo_mad_f64(p, square, -0x1.13e001a557544p-4);
  p = fo_mad_f64(p, square, 0x1.b0ee6072093cep-2);
  double odd = 0x1.2d320fb5921a4p-22;
  odd = fo_mad_f64(odd, square, 0x1.ece3c10d9c976p-21);
  odd = fo_mad_f64(odd, square, 0x1.2650625ca0cebp-18);
  odd = fo_mad_f64(odd, square, 0x1.5805dc3dd6365p-16);
  odd = fo_mad_f64(odd, square, 0x1.a127e63a168e7p-14);
  odd = fo_mad_f64(odd, square, 0x1.0b36af1b9a927p-11);
  odd = fo_mad_f64(odd, square, 0x1.7add6eaea4ecfp-9);
  odd = fo_mad_f64(odd, square, 0x1.51322ac7d7c8p-6);
  odd = fo_mad_f64(odd, square, 0x1.4a34cc4a60fa7p-2);
  return fo_mad_f64(odd, t, p);
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
  double l = fo_log_f64(__builtin_fabs(product));
  return fo_mad_f64(fo_lgamma_rate_f64(t), t, nearest > 2.0 ? l : -l);
}

/* fo_lgamma_of_f32: log(gamma(a)) for a >= 0 that is an f32, without branches: as fo_lgamma_f64, of either side by one logarithm. */
FO_FN double fo_lgamma_of_f32(double a) {
  double nearest = __builtin_rint(a), t = a - nearest;
  double above = nearest > 2.5 ? a - 1.0 : 1.0, below = nearest < 1.5 ? a : 1.0;
  above *= nearest > 3.5 ? a - 2.0 : 1.0;
  above *= nearest > 4.5 ? a - 3.0 : 1.0;
  above *= nearest > 5.5 ? a - 4.0 : 1.0;
  above *= nearest > 6.5 ? a - 5.0 : 1.0;
  above *= nearest > 7.5 ? a - 6.0 : 1.0;
  below *= nearest < 0.5 ? a + 1.0 : 1.0;
  double l = fo_log_f64(a > 8.5 ? a : nearest > 2.5 ? above : below);
  double far = fo_mad_f64(a - 0.5, l - 1.0, fo_stirling_rest_f64(1.0 / a));
  double near = fo_mad_f64(fo_lgamma_rate_f64(t), t, nearest > 2.5 ? l : -l);
  return a > 8.5 ? far : near;
}

/* fo_lgamma_f32: log(|gamma(x)|), 1.0 ULP, computed in double; +-inf and the poles at 0, -1, -2 ... give inf. By reflection below 0. */
FO_FN float fo_lgamma_f32(float x) {
  double a = __builtin_fabsf(x), t = a - __builtin_rint(a), z = t * t;
  double s = 0x1.9d462020fcc78p-21;
  s = fo_mad_f64(s, z, -0x1.6f7acdb8f6580p-16);
  s = fo_mad_f64(s, z, 0x1.e8f3675ee37ddp-12);
  s = fo_mad_f64(s, z, -0x1.e3074dfaf87afp-8);
  s = fo_mad_f64(s, z, 0x1.5078348551854p-4);
  s = fo_mad_f64(s, z, -0x1.32d2cce627c86p-1);
  s = fo_mad_f64(s, z, 0x1.466bc6775aa7dp+1);
  s = fo_mad_f64(s, z, -0x1.4abbce625be52p+2);
  s = fo_mad_f64(s, z, 0x1.921fb54442d18p+1);
  double y = fo_lgamma_of_f32(a), mirrored = fo_log_f64(0x1.921fb54442d18p+1 / __builtin_fabs(a * (s * t))) - y;
  y = x < 0.0f ? mirrored : y;
  y = a < __builtin_inf() ? y : a;
  return (float)(x == x ? y : (double)x);
}
