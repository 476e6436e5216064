/* fo_f16_to_f32: exact, denormals included. */
FO_FN float fo_f16_to_f32(unsigned short h) {
  fo_u32 w = (h & 0x7fffu) << 13, e = w & 0x0f800000u;
  w += 0x38000000u;
  w = e == 0x0f800000u ? w + 0x38000000u : w;
  w = e == 0u ? fo_bits_f32(fo_from_bits_f32(w + 0x00800000u) - 0x1p-14f) : w;
  return fo_from_bits_f32(w | (h & 0x8000u) << 16);
}

/* fo_f32_to_f16: to nearest, halves to even; NaN stays NaN. */
FO_FN unsigned short fo_f32_to_f16(float x) {
  fo_u32 u = fo_bits_f32(x) & 0x7fffffffu, sign = (fo_bits_f32(x) >> 16) & 0x8000u;
  fo_u32 big = u > 0x7f800000u ? 0x7e00u : 0x7c00u;
  fo_u32 small = fo_bits_f32(fo_from_bits_f32(u) + 0.5f) - 0x3f000000u;
  fo_u32 normal = (u + 0xc8000fffu + ((u >> 13) & 1u)) >> 13;
  return (unsigned short)(sign | (u >= 0x47800000u ? big : u < 0x38800000u ? small : normal));
}

/* fo_odd_f64_to_f32: rounded to odd, so that a second rounding to a narrower type gives what one rounding would. */
FO_FN float fo_odd_f64_to_f32(double x) {
  float f = (float)x;
  fo_u32 u = fo_bits_f32(f);
  u -= __builtin_fabs((double)f) > __builtin_fabs(x) ? 1u : 0u;
  return (double)f == x || x != x ? f : fo_from_bits_f32(u | 1u);
}

/* fo_f64_to_f16: to nearest, halves to even, rounded once. */
FO_FN unsigned short fo_f64_to_f16(double x) {
  return fo_f32_to_f16(fo_odd_f64_to_f32(x));
}

/* fo_bf16_to_f32: exact. */
FO_FN float fo_bf16_to_f32(unsigned short h) {
  return fo_from_bits_f32((fo_u32)h << 16);
}

/* fo_f32_to_bf16: to nearest, halves to even; NaN stays NaN. */
FO_FN unsigned short fo_f32_to_bf16(float x) {
  fo_u32 u = fo_bits_f32(x);
  return (unsigned short)(x != x ? 0x7fc0u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

/* fo_f64_to_bf16: to nearest, halves to even, rounded once. */
FO_FN unsigned short fo_f64_to_bf16(double x) {
  return fo_f32_to_bf16(fo_odd_f64_to_f32(x));
}
