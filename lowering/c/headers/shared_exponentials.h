/* Exponentials of one argument.

   What several fo_shared_* functions of one argument compute by calls of the same parts is computed once: compilers merge it.
   With x = n log(2) + r, exp(r) is cosh(r) + sinh(r), and exp(-r) their difference. */

/* fo_shared_reach_{f32|f64}: x within what exp needs of either sign. */
FO_FN float fo_shared_reach_f32(float x) {
  FO_KEPT float low = {-105.0f|-746.0}, high = {105.0f|746.0};
  x = low > x ? low : x;
  return high < x ? high : x;
}

/* fo_shared_steps_{f32|f64}: n + {SHIFTER} + {254.0f|2046.0}, x / log(2) being nearly n. */
FO_FN float fo_shared_steps_f32(float x) {
  return fo_mad_f32(fo_shared_reach_f32(x), {LOG2_E}, {SHIFTER} + {254.0f|2046.0});
}

/* fo_shared_rest_{f32|f64}: r = x - n log(2). */
FO_FN float fo_shared_rest_f32(float x) {
  float n = fo_shared_steps_f32(x) - ({SHIFTER} + {254.0f|2046.0});
  return fo_mad_f32(n, -{LOG_2_LOW}, fo_mad_f32(n, -{LOG_2_HIGH}, fo_shared_reach_f32(x)));
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

/* fo_shared_power_{f32|f64}: exp(r) - 1. */
FO_FN float fo_shared_power_f32(float x) {
  float r = fo_shared_rest_f32(x);
  return r + fo_shared_odd_f32(r, fo_shared_even_f32(r));
}

/* fo_shared_power_negated_{f32|f64}: exp(-r) - 1. */
FO_FN float fo_shared_power_negated_f32(float x) {
  float r = fo_shared_rest_f32(x);
  return -r - fo_shared_odd_f32(r, -fo_shared_even_f32(r));
}

/* fo_shared_first_{f32|f64}: bits of the first of two powers of two that make 2**n: its exponent's field is half of n + {254|2046}. */
FO_FN fo_{u32|u64} fo_shared_first_f32(float x) {
  return (fo_bits_f32(fo_shared_steps_f32(x)) << {22|51}) & {EXPONENT};
}

/* fo_shared_other_{f32|f64}: bits of the second one. */
FO_FN fo_{u32|u64} fo_shared_other_f32(float x) {
  return (fo_bits_f32(fo_shared_steps_f32(x)) << {FRACTION_BITS}) - fo_shared_first_f32(x);
}

/* fo_shared_exp_{f32|f64}: 1.1 ULP. */
FO_FN float fo_shared_exp_f32(float x) {
  float f = fo_from_bits_f32(fo_shared_first_f32(x));
  return fo_mad_f32(f, fo_shared_power_f32(x), f) * fo_from_bits_f32(fo_shared_other_f32(x));
}

/* fo_shared_exp_negated_{f32|f64}: exp(-x), 1.1 ULP. */
FO_FN float fo_shared_exp_negated_f32(float x) {
  float f = fo_from_bits_f32(({254u|(fo_u64)2046} << {FRACTION_BITS}) - fo_shared_first_f32(x));
  float g = fo_from_bits_f32(({254u|(fo_u64)2046} << {FRACTION_BITS}) - fo_shared_other_f32(x));
  return fo_mad_f32(f, fo_shared_power_negated_f32(x), f) * g;
}

/* fo_shared_exp_magnitude_{f32|f64}: exp(-|x|), 1.1 ULP. */
FO_FN float fo_shared_exp_magnitude_f32(float x) {
  float up = fo_shared_exp_f32(x), down = fo_shared_exp_negated_f32(x);
  return up < down ? up : down;
}

/* fo_shared_expm1_{f32|f64}: {2.0|2.5} ULP; keeps the sign of zero. 2**n = f g: g (f (exp(r) - 1) + (f - 1 / g)). */
FO_FN float fo_shared_expm1_f32(float x) {
  float f = fo_from_bits_f32(fo_shared_first_f32(x)), g = fo_from_bits_f32(fo_shared_other_f32(x));
  float h = fo_from_bits_f32(({254u|(fo_u64)2046} << {FRACTION_BITS}) - fo_shared_other_f32(x));
  float y = fo_mad_f32(f, fo_shared_power_f32(x), f - h) * g;
  return __builtin_fabsf(x) < {0x1p-25f|0x1p-54} ? x : y;
}

/* fo_shared_tanh_{f32|f64}: tanh(y) where x is y or -y, 3.6 ULP; odd, keeps the sign of zero; e / (e + 2) with
   e = exp(2 x) - 1 = m (m + 2) and m = exp(x) - 1. */
FO_FN float fo_shared_tanh_f32(float x, float y) {
  FO_KEPT float most = {0x1p30f|0x1p60};
  float s = fo_from_bits_f32(fo_shared_first_f32(x)) * fo_from_bits_f32(fo_shared_other_f32(x));
  s = most < s ? most : s;
  float m = fo_mad_f32(s, fo_shared_power_f32(x), s - 1.0f);
  float e = fo_mad_f32(m, m, m + m);
  return __builtin_copysignf(e / (e + 2.0f), y);
}

/* fo_shared_sigmoid_{f32|f64}: 2.6 ULP; 1 / (1 + exp(-x)) as e / (e + 1) with e = exp(x). */
FO_FN float fo_shared_sigmoid_f32(float x) {
  FO_KEPT float most = {0x1p30f|0x1p60};
  float e = fo_shared_exp_f32(x);
  e = most < e ? most : e;
  return e / (e + 1.0f);
}

/* fo_shared_sigmoid_negated_{f32|f64}: 1 / (1 + exp(x)), 2.6 ULP; over {0x1p-24f|0x1p-53} so that it underflows gradually. */
FO_FN float fo_shared_sigmoid_negated_f32(float x) {
  float f = fo_from_bits_f32(fo_shared_first_f32(x));
  float g = fo_from_bits_f32(fo_shared_other_f32(x) - ((fo_{u32|u64}){24|53} << {FRACTION_BITS}));
  return {0x1p-24f|0x1p-53} / ({0x1p-24f|0x1p-53} + fo_mad_f32(f, fo_shared_power_f32(x), f) * g);
}

/* fo_shared_nonpositive_reach_{f32|f64}: x within what exp needs. */
FO_FN float fo_shared_nonpositive_reach_f32(float x) {
  FO_KEPT float low = {-104.0f|-745.2};
  return low > x ? low : x;
}

/* fo_shared_nonpositive_steps_{f32|f64}: n + {SHIFTER} + {150.0f|1075.0}, x / log(2) being nearly n; for x <= 0, or a little above. */
FO_FN float fo_shared_nonpositive_steps_f32(float x) {
  return fo_mad_f32(fo_shared_nonpositive_reach_f32(x), {LOG2_E}, {SHIFTER} + {150.0f|1075.0});
}

/* fo_shared_nonpositive_power_{f32|f64}: exp(x - n log(2)) - 1. */
FO_FN float fo_shared_nonpositive_power_f32(float x) {
  float n = fo_shared_nonpositive_steps_f32(x) - ({SHIFTER} + {150.0f|1075.0});
  float r = fo_mad_f32(n, -{LOG_2_HIGH}, fo_shared_nonpositive_reach_f32(x));
  return fo_expm1_poly_f32(fo_mad_f32(n, -{LOG_2_LOW}, r));
}

/* fo_shared_nonpositive_scale_{f32|f64}: 2**(n + {FRACTION_BITS}); 0 for n = -{150|1075}. */
FO_FN float fo_shared_nonpositive_scale_f32(float x) {
  return fo_from_bits_f32(fo_bits_f32(fo_shared_nonpositive_steps_f32(x)) << {FRACTION_BITS});
}

/* fo_shared_nonpositive_exp_{f32|f64}: exp(x) for x <= 0, or a little above; 1.1 ULP. */
FO_FN float fo_shared_nonpositive_exp_f32(float x) {
  float s = fo_shared_nonpositive_scale_f32(x);
  return fo_mad_f32(s, fo_shared_nonpositive_power_f32(x), s) * {0x1p-23f|0x1p-52};
}

/* fo_shared_nonpositive_tanh_{f32|f64}: tanh(y) for x = -|y|, 3.6 ULP; as fo_shared_tanh_f32. */
FO_FN float fo_shared_nonpositive_tanh_f32(float x, float y) {
  float s = fo_shared_nonpositive_scale_f32(x) * {0x1p-23f|0x1p-52};
  float m = fo_mad_f32(s, fo_shared_nonpositive_power_f32(x), s - 1.0f);
  float e = fo_mad_f32(m, m, m + m);
  return __builtin_copysignf(e / (e + 2.0f), y);
}
