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
  return __builtin_copysignf(y, x);
}

/* fo_f32_to_f16: to nearest, halves to even; NaN stays NaN. */
FO_FN unsigned short fo_f32_to_f16(float x) {
  fo_u32 u = fo_bits_f32(x) & 0x7fffffffu, sign = (fo_bits_f32(x) >> 16) & 0x8000u;
  fo_u32 big = u > 0x7f800000u ? 0x7e00u : 0x7c00u;
  fo_u32 small = fo_bits_f32(fo_from_bits_f32(u) + 0.5f) - 0x3f000000u;
  fo_u32 normal = (u + 0xc8000fffu + ((u >> 13) & 1u)) >> 13;
  return (unsigned short)(sign | (u >= 0x47800000u ? big : u < 0x38800000u ? small : normal));
}

/* fo_widen_f16: `count` numbers from from[at] on, as f32 from to[to_at] on; by 16 or 8 where machines convert vectors. */
FO_FN void fo_widen_f16(const unsigned short *from, long at, float *to, long to_at, long count) {
  long i = 0;
  from += at;
  to += to_at;
#if defined(__AVX512F__)
  typedef short fo_halves __attribute__((vector_size(32), aligned(2), may_alias));
  typedef float fo_floats __attribute__((vector_size(64), aligned(4), may_alias));
  for (; i + 16 <= count; i += 16)
    *(fo_floats *)(to + i) = __builtin_ia32_vcvtph2ps512_mask(*(const fo_halves *)(from + i), (fo_floats){0}, -1, 4);
#elif defined(__F16C__)
  typedef short fo_halves __attribute__((vector_size(16), aligned(2), may_alias));
  typedef float fo_floats __attribute__((vector_size(32), aligned(4), may_alias));
  for (; i + 8 <= count; i += 8) *(fo_floats *)(to + i) = __builtin_ia32_vcvtph2ps256(*(const fo_halves *)(from + i));
#endif
#pragma omp simd
  for (long j = i; j < count; ++j) to[j] = fo_f16_to_f32(from[j]);
}

/* fo_narrow_f16: `count` numbers from from[at] on, as f16 from to[to_at] on, to nearest, halves to even. */
FO_FN void fo_narrow_f16(const float *from, long at, unsigned short *to, long to_at, long count) {
  long i = 0;
  from += at;
  to += to_at;
#if defined(__AVX512F__)
  typedef short fo_halves __attribute__((vector_size(32), aligned(2), may_alias));
  typedef float fo_floats __attribute__((vector_size(64), aligned(4), may_alias));
  for (; i + 16 <= count; i += 16)
    *(fo_halves *)(to + i) = __builtin_ia32_vcvtps2ph512_mask(*(const fo_floats *)(from + i), 0, (fo_halves){0}, -1);
#elif defined(__F16C__)
  typedef short fo_halves __attribute__((vector_size(16), aligned(2), may_alias));
  typedef float fo_floats __attribute__((vector_size(32), aligned(4), may_alias));
  for (; i + 8 <= count; i += 8) *(fo_halves *)(to + i) = __builtin_ia32_vcvtps2ph256(*(const fo_floats *)(from + i), 0);
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

/* fo_f64_to_bf16: to nearest, halves to even, rounded once. */
FO_FN unsigned short fo_f64_to_bf16(double x) {
  return fo_f32_to_bf16(fo_odd_f64_to_f32(x));
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

/* fo_f64_to_f8E4M3FN: to nearest, halves to even, rounded once. */
FO_FN unsigned char fo_f64_to_f8E4M3FN(double x) {
  return fo_f32_to_f8E4M3FN(fo_odd_f64_to_f32(x));
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

/* fo_f64_to_f8E5M2: to nearest, halves to even, rounded once. */
FO_FN unsigned char fo_f64_to_f8E5M2(double x) {
  return fo_f32_to_f8E5M2(fo_odd_f64_to_f32(x));
}

/* fo_turn_u8: the first 16 elements of 16 lines `step` apart become the columns of 16 lines `to_step` apart. */
FO_FN void fo_turn_u8(const void *from, long step, void *to, long to_step) {
  typedef unsigned char element;
  const element *source = from;
  element *target = to;
#if defined(__clang__) || __GNUC__ >= 12
  typedef element line __attribute__((vector_size(16)));
  line a[16], b[16];
  for (int i = 0; i < 16; i++) __builtin_memcpy(&a[i], source + i * step, sizeof a[i]);
  for (int i = 0; i < 8; i++) {
    b[i] = __builtin_shufflevector(a[i], a[i + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    b[i + 8] = __builtin_shufflevector(a[i], a[i + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  }
  for (int i = 0; i < 16; i++) {
    if (i & 4) continue;
    a[i] = __builtin_shufflevector(b[i], b[i + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
    a[i + 4] = __builtin_shufflevector(b[i], b[i + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
  }
  for (int i = 0; i < 16; i++) {
    if (i & 2) continue;
    b[i] = __builtin_shufflevector(a[i], a[i + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
    b[i + 2] = __builtin_shufflevector(a[i], a[i + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  }
  for (int i = 0; i < 16; i++) {
    if (i & 1) continue;
    a[i] = __builtin_shufflevector(b[i], b[i + 1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30);
    a[i + 1] = __builtin_shufflevector(b[i], b[i + 1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
  }
  for (int i = 0; i < 16; i++) __builtin_memcpy(target + i * to_step, &a[i], sizeof a[i]);
#else
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 16; j++) target[j * to_step + i] = source[i * step + j];
#endif
}

/* fo_turn_u16: the first 16 elements of 16 lines `step` apart become the columns of 16 lines `to_step` apart. */
FO_FN void fo_turn_u16(const void *from, long step, void *to, long to_step) {
  typedef unsigned short element;
  const element *source = from;
  element *target = to;
#if defined(__clang__) || __GNUC__ >= 12
  typedef element line __attribute__((vector_size(32)));
  line a[16], b[16];
  for (int i = 0; i < 16; i++) __builtin_memcpy(&a[i], source + i * step, sizeof a[i]);
  for (int i = 0; i < 8; i++) {
    b[i] = __builtin_shufflevector(a[i], a[i + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    b[i + 8] = __builtin_shufflevector(a[i], a[i + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  }
  for (int i = 0; i < 16; i++) {
    if (i & 4) continue;
    a[i] = __builtin_shufflevector(b[i], b[i + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
    a[i + 4] = __builtin_shufflevector(b[i], b[i + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
  }
  for (int i = 0; i < 16; i++) {
    if (i & 2) continue;
    b[i] = __builtin_shufflevector(a[i], a[i + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
    b[i + 2] = __builtin_shufflevector(a[i], a[i + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  }
  for (int i = 0; i < 16; i++) {
    if (i & 1) continue;
    a[i] = __builtin_shufflevector(b[i], b[i + 1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30);
    a[i + 1] = __builtin_shufflevector(b[i], b[i + 1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
  }
  for (int i = 0; i < 16; i++) __builtin_memcpy(target + i * to_step, &a[i], sizeof a[i]);
#else
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 16; j++) target[j * to_step + i] = source[i * step + j];
#endif
}

/* fo_turn_u32: the first 16 elements of 16 lines `step` apart become the columns of 16 lines `to_step` apart. */
FO_FN void fo_turn_u32(const void *from, long step, void *to, long to_step) {
  typedef fo_u32 element;
  const element *source = from;
  element *target = to;
#if defined(__clang__) || __GNUC__ >= 12
  typedef element line __attribute__((vector_size(64)));
  line a[16], b[16];
  for (int i = 0; i < 16; i++) __builtin_memcpy(&a[i], source + i * step, sizeof a[i]);
  for (int i = 0; i < 8; i++) {
    b[i] = __builtin_shufflevector(a[i], a[i + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    b[i + 8] = __builtin_shufflevector(a[i], a[i + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  }
  for (int i = 0; i < 16; i++) {
    if (i & 4) continue;
    a[i] = __builtin_shufflevector(b[i], b[i + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
    a[i + 4] = __builtin_shufflevector(b[i], b[i + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
  }
  for (int i = 0; i < 16; i++) {
    if (i & 2) continue;
    b[i] = __builtin_shufflevector(a[i], a[i + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
    b[i + 2] = __builtin_shufflevector(a[i], a[i + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  }
  for (int i = 0; i < 16; i++) {
    if (i & 1) continue;
    a[i] = __builtin_shufflevector(b[i], b[i + 1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30);
    a[i + 1] = __builtin_shufflevector(b[i], b[i + 1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
  }
  for (int i = 0; i < 16; i++) __builtin_memcpy(target + i * to_step, &a[i], sizeof a[i]);
#else
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 16; j++) target[j * to_step + i] = source[i * step + j];
#endif
}

/* fo_turn_u64: the first 8 elements of 8 lines `step` apart become the columns of 8 lines `to_step` apart. */
FO_FN void fo_turn_u64(const void *from, long step, void *to, long to_step) {
  typedef fo_u64 element;
  const element *source = from;
  element *target = to;
#if defined(__clang__) || __GNUC__ >= 12
  typedef element line __attribute__((vector_size(64)));
  line a[8], b[8];
  for (int i = 0; i < 8; i++) __builtin_memcpy(&a[i], source + i * step, sizeof a[i]);
  for (int i = 0; i < 4; i++) {
    b[i] = __builtin_shufflevector(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    b[i + 4] = __builtin_shufflevector(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
  for (int i = 0; i < 8; i++) {
    if (i & 2) continue;
    a[i] = __builtin_shufflevector(b[i], b[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
    a[i + 2] = __builtin_shufflevector(b[i], b[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
  }
  for (int i = 0; i < 8; i++) {
    if (i & 1) continue;
    b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  for (int i = 0; i < 8; i++) __builtin_memcpy(target + i * to_step, &b[i], sizeof b[i]);
#else
  for (int i = 0; i < 8; i++)
    for (int j = 0; j < 8; j++) target[j * to_step + i] = source[i * step + j];
#endif
}

/* fo_copy_short: `bytes` below 64, without a call. */
FO_FN void fo_copy_short(const char *from, char *to, long bytes) {
  if (bytes & 32) __builtin_memcpy(to, from, 32), from += 32, to += 32;
  if (bytes & 16) __builtin_memcpy(to, from, 16), from += 16, to += 16;
  if (bytes & 8) __builtin_memcpy(to, from, 8), from += 8, to += 8;
  if (bytes & 4) __builtin_memcpy(to, from, 4), from += 4, to += 4;
  if (bytes & 2) __builtin_memcpy(to, from, 2), from += 2, to += 2;
  if (bytes & 1) *to = *from;
}

/* fo_stream_line: 64 bytes to the start of a cache line, which is not read for it where machines can write past caches. */
FO_FN void fo_stream_line(const char *from, char *to) {
#if defined(__clang__)
  typedef float fo_line __attribute__((vector_size(64), may_alias));
  fo_line line;
  __builtin_memcpy(&line, from, sizeof line);
  __builtin_nontemporal_store(line, (fo_line *)to);
#elif defined(__AVX512F__)
  typedef float fo_line __attribute__((vector_size(64), aligned(1), may_alias));
  __builtin_ia32_movntps512((float *)to, *(const fo_line *)from);
#elif defined(__AVX__)
  typedef float fo_line __attribute__((vector_size(32), aligned(1), may_alias));
  for (int k = 0; k < 64; k += 32) __builtin_ia32_movntps256((float *)(to + k), *(const fo_line *)(from + k));
#elif defined(__SSE__)
  typedef float fo_line __attribute__((vector_size(16), aligned(1), may_alias));
  for (int k = 0; k < 64; k += 16) __builtin_ia32_movntps((float *)(to + k), *(const fo_line *)(from + k));
#else
  __builtin_memcpy(to, from, 64);
#endif
}

/* fo_stream_bytes: a copy past the caches; what lies before the first whole line of the target and behind the last one is
   stored as usual. What other threads may read is there from the next fo_stream_end on. */
FO_FN void fo_stream_bytes(const char *from, char *to, long bytes) {
  long head = (long)(-(__UINTPTR_TYPE__)to % 64);
  head = head < bytes ? head : bytes;
  fo_copy_short(from, to, head);
  for (; head + 64 <= bytes; head += 64) fo_stream_line(from + head, to + head);
  fo_copy_short(from + head, to + head, bytes - head);
}

/* fo_stream_block_bytes: the same of a block of `whole` bytes, lines of the buffer and of the target, or of a part of it. */
FO_FN void fo_stream_block_bytes(const char *from, char *to, long bytes, long whole) {
  if (bytes != whole) {
    fo_stream_bytes(from, to, bytes);
  } else if ((__UINTPTR_TYPE__)to % 64) {
    __builtin_memcpy(to, from, (unsigned long)whole);
  } else {
    for (long k = 0; k < whole; k += 64) fo_stream_line(from + k, to + k);
  }
}

/* fo_stream_end: what the thread has streamed comes before whatever it stores next, as other threads see it. */
FO_FN void fo_stream_end(void) {
#if defined(__SSE__)
  __builtin_ia32_sfence();
#endif
}
