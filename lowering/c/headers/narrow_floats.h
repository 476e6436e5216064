/* Floats of 16 and 8 bits: conversions and rounding. */

/* fo_f16_to_f32: exact, denormals included. */
FO_FN float fo_f16_to_f32(unsigned short h) {
  fo_u32 w = (h & 0x7fffu) << 13, u = fo_bits_f32(fo_from_bits_f32(w) * 0x1p112f);
  u |= w >= 0x0f800000u ? 0x7f800000u : 0u;
  return fo_from_bits_f32(u | (h & 0x8000u) << 16);
}

/* fo_round_f16: the nearest number that f16 has, halves to even; NaN stays NaN. A sum with 2**13 times the number's power
   of two loses the digits that f16 has not. */
FO_FN float fo_round_f16(float x) {
  float a = __builtin_fabsf(x);
  FO_KEPT float high = 0x1p16f;
  a = high < a ? high : a;
  fo_u32 e = fo_bits_f32(a) & 0x7f800000u;
  e = e < 0x38800000u ? 0x38800000u : e;
  float c = fo_from_bits_f32(e + 0x06800000u);
  float y = (a + c) - c;
  y = y > 65504.0f ? __builtin_inff() : y;
  return fo_signed_f32(y, x);
}

/* fo_f32_to_f16: to nearest, halves to even; NaN stays NaN. */
FO_FN unsigned short fo_f32_to_f16(float x) {
  fo_u32 u = fo_bits_f32(x) & 0x7fffffffu, sign = (fo_bits_f32(x) >> 16) & 0x8000u;
  fo_u32 big = u > 0x7f800000u ? 0x7e00u : 0x7c00u;
  fo_u32 small = fo_bits_f32(fo_from_bits_f32(u) + 0.5f) - 0x3f000000u;
  fo_u32 normal = (u + 0xc8000fffu + ((u >> 13) & 1u)) >> 13;
  return (unsigned short)(sign | (u >= 0x47800000u ? big : u < 0x38800000u ? small : normal));
}

/* fo_widen_f16: `count` numbers from from[at] on, as f32 from to[to_at] on; by 16 or 8 where machines convert vectors, of
   which the last one overlaps the one before. */
FO_FN void fo_widen_f16(const unsigned short *from, long at, float *to, long to_at, long count) {
  long i = 0;
  from += at;
  to += to_at;
#if defined(__AVX512F__)
  typedef short fo_halves __attribute__((vector_size(32), aligned(2), may_alias));
  typedef float fo_floats __attribute__((vector_size(64), aligned(4), may_alias));
  for (; i < count && count >= 16; i += 16) {
    i = i + 16 <= count ? i : count - 16;
    *(fo_floats *)(to + i) = __builtin_ia32_vcvtph2ps512_mask(*(const fo_halves *)(from + i), (fo_floats){0}, -1, 4);
  }
#elif defined(__F16C__)
  typedef short fo_halves __attribute__((vector_size(16), aligned(2), may_alias));
  typedef float fo_floats __attribute__((vector_size(32), aligned(4), may_alias));
  for (; i < count && count >= 8; i += 8) {
    i = i + 8 <= count ? i : count - 8;
    *(fo_floats *)(to + i) = __builtin_ia32_vcvtph2ps256(*(const fo_halves *)(from + i));
  }
#endif
#pragma omp simd
  for (long j = i; j < count; ++j) to[j] = fo_f16_to_f32(from[j]);
}

/* fo_widen_i1: `count` booleans from from[at] on, as 0 or 1 from to[to_at] on, where room is for whole vectors of 16. */
FO_FN void fo_widen_i1(const unsigned char *from, long at, int *to, long to_at, long count) {
  long i = 0;
  from += at;
  to += to_at;
#if defined(__AVX512BW__) && defined(__AVX512VL__) && !defined(__clang__)
  typedef char fo_bytes __attribute__((vector_size(16), aligned(1), may_alias));
  typedef int fo_words __attribute__((vector_size(64), aligned(4), may_alias));
  for (; i + 16 <= count; i += 16)
    *(fo_words *)(to + i) = __builtin_ia32_pmovzxbd512_mask(*(const fo_bytes *)(from + i), (fo_words){0}, -1);
  if (i < count) {
    fo_bytes few = __builtin_ia32_loaddquqi128_mask((const char *)(from + i), (fo_bytes){0}, (unsigned short)((1 << (count - i)) - 1));
    *(fo_words *)(to + i) = __builtin_ia32_pmovzxbd512_mask(few, (fo_words){0}, -1);
    i = count;
  }
#elif defined(__AVX2__) && !defined(__clang__)
  /* Whole vectors of words: loops that load these at once would wait for narrower stores. */
  typedef long fo_pair __attribute__((vector_size(16)));
  typedef char fo_bytes __attribute__((vector_size(16)));
  typedef int fo_words __attribute__((vector_size(32), aligned(4), may_alias));
  for (; i < count; i += 8) {
    fo_u64 few = 0;
    if (count - i >= 8) {
      __builtin_memcpy(&few, from + i, 8);
    } else if (count >= 8) {
      __builtin_memcpy(&few, from + count - 8, 8);
      few >>= 8 * (8 - (count - i));
    } else {
      for (long k = count; k-- > i;) few = few << 8 | from[k];
    }
    *(fo_words *)(to + i) = (fo_words)__builtin_ia32_pmovzxbd256((fo_bytes)(fo_pair){(long)few, 0});
  }
  if (i % 16) *(fo_words *)(to + i) = (fo_words){0};
#endif
#pragma omp simd
  for (long j = i; j < count; ++j) to[j] = from[j];
}

/* fo_narrow_f16: `count` numbers from from[at] on, as f16 from to[to_at] on, to nearest, halves to even. */
FO_FN void fo_narrow_f16(const float *from, long at, unsigned short *to, long to_at, long count) {
  long i = 0;
  from += at;
  to += to_at;
#if defined(__AVX512F__)
  typedef short fo_halves __attribute__((vector_size(32), aligned(2), may_alias));
  typedef float fo_floats __attribute__((vector_size(64), aligned(4), may_alias));
  for (; i < count && count >= 16; i += 16) {
    i = i + 16 <= count ? i : count - 16;
    *(fo_halves *)(to + i) = __builtin_ia32_vcvtps2ph512_mask(*(const fo_floats *)(from + i), 0, (fo_halves){0}, -1);
  }
#elif defined(__F16C__)
  typedef short fo_halves __attribute__((vector_size(16), aligned(2), may_alias));
  typedef float fo_floats __attribute__((vector_size(32), aligned(4), may_alias));
  for (; i < count && count >= 8; i += 8) {
    i = i + 8 <= count ? i : count - 8;
    *(fo_halves *)(to + i) = __builtin_ia32_vcvtps2ph256(*(const fo_floats *)(from + i), 0);
  }
#endif
#pragma omp simd
  for (long j = i; j < count; ++j) to[j] = fo_f32_to_f16(from[j]);
}

/* fo_odd_f64_to_f32: rounded to odd, so that a second rounding to a narrower type gives what one rounding would. */
FO_FN float fo_odd_f64_to_f32(double x) {
  float f = (float)x;
  fo_u32 u = fo_bits_f32(f);
  u -= __builtin_fabs((double)f) > __builtin_fabs(x) ? 1u : 0u;
  return (double)f == x || x != x ? f : fo_from_bits_f32(u | 1u);
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

/* fo_clean_f32_to_bf16: the same for numbers and for NaN that bf16 has. */
FO_FN unsigned short fo_clean_f32_to_bf16(float x) {
  fo_u32 u = fo_bits_f32(x);
  return (unsigned short)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

/* fo_exact_f32_to_bf16: a number that bf16 has. */
FO_FN unsigned short fo_exact_f32_to_bf16(float x) {
  return (unsigned short)(fo_bits_f32(x) >> 16);
}

/* fo_round_bf16: the nearest number that bf16 has, halves to even; NaN stays NaN. */
FO_FN float fo_round_bf16(float x) {
  fo_u32 u = fo_bits_f32(x);
  u = (u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u;
  return x != x ? x : fo_from_bits_f32(u);
}

/* fo_round_clean_bf16: the same for numbers and for NaN that bf16 has. */
FO_FN float fo_round_clean_bf16(float x) {
  fo_u32 u = fo_bits_f32(x);
  return fo_from_bits_f32((u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u);
}

/* fo_f8E4M3FN_to_f32: exact, denormals included. */
FO_FN float fo_f8E4M3FN_to_f32(unsigned char h) {
  fo_u32 u = h & 0x7fu, w = (u << 20) + 0x3c000000u;
  w = u < 0x08u ? fo_bits_f32((float)(fo_i32)u * 0x1p-9f) : w;
  w = u == 0x7fu ? 0x7fc00000u : w;
  return fo_from_bits_f32(w | (h & 0x80u) << 24);
}

/* fo_f32_to_f8E4M3FN: to nearest, halves to even; what is too large, and an infinity, is NaN as there are none. */
FO_FN unsigned char fo_f32_to_f8E4M3FN(float x) {
  fo_u32 u = fo_bits_f32(x) & 0x7fffffffu, sign = (fo_bits_f32(x) >> 24) & 0x80u;
  fo_u32 small = fo_bits_f32(fo_from_bits_f32(u) + 0x1p14f) - 0x46800000u;
  fo_u32 normal = (u - 0x3c000000u + 0x7ffffu + ((u >> 20) & 1u)) >> 20;
  normal = normal > 0x7fu ? 0x7fu : normal;
  return (unsigned char)(sign | (u < 0x3c800000u ? small : normal));
}

/* fo_f8E5M2_to_f32: exact, denormals included. */
FO_FN float fo_f8E5M2_to_f32(unsigned char h) {
  fo_u32 u = h & 0x7fu, w = (u << 21) + 0x38000000u;
  w = u < 0x04u ? fo_bits_f32((float)(fo_i32)u * 0x1p-16f) : w;
  w = u >= 0x7cu ? (u > 0x7cu ? 0x7fc00000u : 0x7f800000u) : w;
  return fo_from_bits_f32(w | (h & 0x80u) << 24);
}

/* fo_f32_to_f8E5M2: to nearest, halves to even; NaN stays NaN. */
FO_FN unsigned char fo_f32_to_f8E5M2(float x) {
  fo_u32 u = fo_bits_f32(x) & 0x7fffffffu, sign = (fo_bits_f32(x) >> 24) & 0x80u;
  fo_u32 big = u > 0x7f800000u ? 0x7eu : 0x7cu;
  fo_u32 small = fo_bits_f32(fo_from_bits_f32(u) + 0x1p7f) - 0x43000000u;
  fo_u32 normal = (u - 0x38000000u + 0xfffffu + ((u >> 21) & 1u)) >> 21;
  normal = normal > 0x7cu || u > 0x7f800000u ? big : normal;
  return (unsigned char)(sign | (u < 0x38800000u ? small : normal));
}

/* fo_f64_to_{f16|bf16|f8E4M3FN|f8E5M2}: to nearest, halves to even, rounded once. */
FO_FN unsigned {short|short|char|char} fo_f64_to_f16(double x) {
  return fo_f32_to_f16(fo_odd_f64_to_f32(x));
}
