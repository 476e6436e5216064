/* Integers: quotients, remainders, shifts, and casts from floats. */

/* fo_floordiv_{i8|i16|u8|u16}: the floored quotient; x / 0 is 0{; -128 / -1 wraps to -128|; -32768 / -1 wraps to -32768||}.
   The quotient as float is never rounded across an integer. */
FO_FN fo_i8 fo_floordiv_i8(fo_i8 a, fo_i8 b) {
  float q = __builtin_floorf((float)a / (float)(b == 0 ? 1 : b));
  return (fo_i8)(b == 0 ? 0 : (fo_i32)q);
}

/* fo_truncdiv_{i8|i16}: the quotient, rounded towards zero; x / 0 is 0; {-128 / -1 wraps to -128|-32768 / -1 wraps to -32768}. */
FO_FN fo_i8 fo_truncdiv_i8(fo_i8 a, fo_i8 b) {
  float q = (float)a / (float)(b == 0 ? 1 : b);
  return (fo_i8)(b == 0 ? 0 : (fo_i32)q);
}

/* fo_rem_{i8|i16|u8}: the remainder of the floored quotient, sign of b; x % 0 is 0. */
FO_FN fo_i8 fo_rem_i8(fo_i8 a, fo_i8 b) {
  return (fo_i8)(b == 0 ? 0 : a - fo_floordiv_i8(a, b) * b);
}

/* fo_rem_u16: the remainder of the floored quotient; x % 0 is 0. */
FO_FN fo_u16 fo_rem_u16(fo_u16 a, fo_u16 b) {
  return (fo_u16)(b == 0 ? 0u : (fo_u32)a - (fo_u32)fo_floordiv_u16(a, b) * (fo_u32)b);
}

/* fo_floordiv_i32: the floored quotient; x / 0 is 0; -2**31 / -1 wraps to -2**31.
   The quotient as double is never rounded across an integer. Masks choose: of choices that others ask for, gcc 12 makes truth values
   that are chosen between, which it has no vectors for. */
FO_FN fo_i32 fo_floordiv_i32(fo_i32 a, fo_i32 b) {
#if defined(__GNUC__) && !defined(__CUDACC__)
  if (__builtin_constant_p(b) && b > 0) { /* a multiplication */
    fo_i32 n = a / b;
    return n + ((a - n * b) >> 31);
  }
#endif
  double q = __builtin_floor((double)a / (double)(b == 0 || b == -1 ? 1 : b));
  fo_i32 n = (fo_i32)q, turned = (fo_i32)(0u - (fo_u32)a), is_turned = -(fo_i32)(b == -1);
  return ((n & ~is_turned) | (turned & is_turned)) & -(fo_i32)(b != 0);
}

/* fo_truncdiv_i32: the quotient, rounded towards zero; x / 0 is 0; -2**31 / -1 wraps to -2**31. Made as fo_floordiv_i32. */
FO_FN fo_i32 fo_truncdiv_i32(fo_i32 a, fo_i32 b) {
#if defined(__GNUC__) && !defined(__CUDACC__)
  if (__builtin_constant_p(b) && b > 0) /* a multiplication */
    return a / b;
#endif
  fo_i32 n = (fo_i32)((double)a / (double)(b == 0 || b == -1 ? 1 : b));
  fo_i32 turned = (fo_i32)(0u - (fo_u32)a), is_turned = -(fo_i32)(b == -1);
  return ((n & ~is_turned) | (turned & is_turned)) & -(fo_i32)(b != 0);
}

/* fo_rem_i32: the remainder of the floored quotient, sign of b; x % 0 is 0. */
FO_FN fo_i32 fo_rem_i32(fo_i32 a, fo_i32 b) {
  return (fo_i32)(((fo_u32)a - (fo_u32)fo_floordiv_i32(a, b) * (fo_u32)b) & -(fo_u32)(b != 0));
}

/* fo_floordiv_u32: the floored quotient; x / 0 is 0. The quotient as double is never rounded across an integer. */
FO_FN fo_u32 fo_floordiv_u32(fo_u32 a, fo_u32 b) {
  double q = __builtin_floor((double)a / (double)(b == 0u ? 1u : b));
  return b == 0u ? 0u : (fo_u32)q;
}

/* fo_rem_u32: the remainder of the floored quotient; x % 0 is 0. */
FO_FN fo_u32 fo_rem_u32(fo_u32 a, fo_u32 b) {
  return b == 0u ? 0u : a - fo_floordiv_u32(a, b) * b;
}

/* fo_floordiv_i64: the floored quotient; x / 0 is 0; -2**63 / -1 wraps to -2**63. Vectorised where b is constant. */
FO_FN fo_i64 fo_floordiv_i64(fo_i64 a, fo_i64 b) {
#if defined(__GNUC__) && !defined(__CUDACC__)
  if (__builtin_constant_p(b) && b > 0) { /* a multiplication */
    fo_i64 n = a / b;
    return n + ((a - n * b) >> 63);
  }
#endif
  fo_i64 d = b == 0 || b == -1 ? 1 : b;
  fo_i64 q = a / d - (a % d != 0 && (a < 0) != (d < 0));
  q = b == -1 ? (fo_i64)((fo_u64)0 - (fo_u64)a) : q;
  return b == 0 ? 0 : q;
}

/* fo_truncdiv_i64: the quotient, rounded towards zero; x / 0 is 0; -2**63 / -1 wraps to -2**63. Vectorised where b is constant. */
FO_FN fo_i64 fo_truncdiv_i64(fo_i64 a, fo_i64 b) {
  fo_i64 q = a / (b == 0 || b == -1 ? 1 : b);
  q = b == -1 ? (fo_i64)((fo_u64)0 - (fo_u64)a) : q;
  return b == 0 ? 0 : q;
}

/* fo_rem_i64: the remainder of the floored quotient, sign of b; x % 0 is 0. Vectorised where b is constant. */
FO_FN fo_i64 fo_rem_i64(fo_i64 a, fo_i64 b) {
#if defined(__GNUC__) && !defined(__CUDACC__)
  if (__builtin_constant_p(b) && b > 0) {
    fo_i64 rest = a - a / b * b;
    return rest + ((rest >> 63) & b);
  }
#endif
  fo_i64 d = b == 0 || b == -1 ? 1 : b;
  fo_i64 r = a % d;
  return r != 0 && (r < 0) != (d < 0) ? r + d : r;
}

/* fo_floordiv_u64: the floored quotient; x / 0 is 0. Not vectorised. */
FO_FN fo_u64 fo_floordiv_u64(fo_u64 a, fo_u64 b) {
  return b == 0 ? 0 : a / b;
}

/* fo_rem_u64: the remainder of the floored quotient; x % 0 is 0. Not vectorised. */
FO_FN fo_u64 fo_rem_u64(fo_u64 a, fo_u64 b) {
  return b == 0 ? 0 : a % b;
}

/* fo_shl_{i8|i16|i32|u8|u16}: x * 2**n, wrapped; 0 for counts outside 0 ... {7|15|31|7|15}. */
FO_FN fo_i8 fo_shl_i8(fo_i8 x, fo_i8 n) {
  fo_u32 r = (fo_u32)x << ((fo_u32)n & {7|15|31|7|15}u);
  return (fo_i8)((fo_u32)n < {8|16|32|8|16}u ? r : 0u);
}

/* fo_shl_i64: x * 2**n, wrapped; 0 for counts outside 0 ... 63. */
FO_FN fo_i64 fo_shl_i64(fo_i64 x, fo_i64 n) {
  fo_u64 r = (fo_u64)x << ((fo_u64)n & 63u);
  return (fo_i64)((fo_u64)n < 64u ? r : (fo_u64)0);
}

/* fo_shl_{u32|u64}: x * 2**n, wrapped; 0 for counts outside 0 ... {31|63}. */
FO_FN fo_u32 fo_shl_u32(fo_u32 x, fo_u32 n) {
  fo_u32 r = x << (n & {31|63}u);
  return n < {32|64}u ? r : {0u|(fo_u64)0};
}

/* fo_shr_{i8|i16|i32}: floor(x / 2**n); counts outside 0 ... {7|15|31} shift all out: 0, -1 for x < 0. */
FO_FN fo_i8 fo_shr_i8(fo_i8 x, fo_i8 n) {
  fo_u32 k = (fo_u32)n < {8|16|32}u ? (fo_u32)n : {7|15|31}u;
  return (fo_i8)(x >> k);
}

/* fo_shr_i64: floor(x / 2**n); counts outside 0 ... 63 shift all out: 0, -1 for x < 0. */
FO_FN fo_i64 fo_shr_i64(fo_i64 x, fo_i64 n) {
  fo_u64 k = (fo_u64)n < 64u ? (fo_u64)n : 63u;
  return (fo_i64)(x >> k);
}

/* fo_shr_{u8|u16}: floor(x / 2**n); counts outside 0 ... {7|15} shift all out: 0. */
FO_FN fo_u8 fo_shr_u8(fo_u8 x, fo_u8 n) {
  fo_u32 r = (fo_u32)x >> ((fo_u32)n & {7|15}u);
  return (fo_u8)((fo_u32)n < {8|16}u ? r : 0u);
}

/* fo_shr_{u32|u64}: floor(x / 2**n); counts outside 0 ... {31|63} shift all out: 0. Of two shifts gcc makes no rotation, of which it
   has no vectors. */
FO_FN fo_u32 fo_shr_u32(fo_u32 x, fo_u32 n) {
#if defined(__GNUC__) && __GNUC__ >= 12 && !defined(__clang__) && !defined(__cplusplus) /* C alone has it */
  fo_u32 r = __builtin_assoc_barrier(x >> (n & {31|63}u));
#else
  fo_u32 r = x >> (n & {31|63}u);
#endif
  return n < {32|64}u ? r : {0u|(fo_u64)0};
}

/* fo_cast_{f32|f64}_{i8|i16|u8|u16}: toward zero, clamped to the type's range; NaN is 0. */
FO_FN fo_i8 fo_cast_f32_i8(float x) {
  x = x == x ? x : 0.0f;
  FO_KEPT float low = {-128.0f|-32768.0f|0.0f|0.0f}, high = {127.0f|32767.0f|255.0f|65535.0f};
  x = low > x ? low : x;
  x = high < x ? high : x;
  return (fo_i8)(fo_i32)x;
}

/* fo_whole_f64: (fo_i64)x of -2**63 <= x < 2**63, in vectors of machines without such an instruction, too: the lowest bits of its sum
   with 1.5 * 2**84 are multiples of 2**32, those of what is left over and 1.5 * 2**52 the rest. All is exact. */
FO_FN fo_i64 fo_whole_f64(double x) {
#if defined(__SSE4_1__) && !defined(__AVX512DQ__) && !defined(__CUDACC__)
  double whole = __builtin_trunc(x), high = whole + 0x1.8p84, low = whole - (high - 0x1.8p84) + 0x1.8p52;
  return (fo_i64)((fo_bits_f64(high) << 32) + fo_bits_f64(low) - ((fo_bits_f64(0x1.8p84) << 32) + fo_bits_f64(0x1.8p52)));
#else
  return (fo_i64)x;
#endif
}

/* fo_within_{f32|f64}_i32: toward zero, of what is within the type's range alone. */
FO_FN fo_i32 fo_within_f32_i32(float x) {
  return (fo_i32)x;
}

/* fo_within_{f32|f64}_i64: the same. */
FO_FN fo_i64 fo_within_f32_i64(float x) {
  return fo_whole_f64(x);
}

/* fo_cast_f32_{u32|u64|i32|i64}: toward zero, clamped to the type's range; NaN is 0. */
FO_FN fo_u32 fo_cast_f32_u32(float x) {
  float c = x < {0x1p32f|0x1p64f|0x1p31f|0x1p63f} ? x : 0.0f;
  FO_KEPT float low = {0.0f|0.0f|-0x1p31f|-0x1p63f};
  c = low > c ? low : c;
  return x >= {0x1p32f|0x1p64f|0x1p31f|0x1p63f} ? {0xffffffffu|0xffffffffffffffff|0x7fffffff|0x7fffffffffffffff} : {(fo_u32)c|(fo_u32)c|(fo_u32)c|fo_whole_f64(c)};
}

/* fo_cast_f64_{u32|u64|i64}: the same. */
FO_FN fo_u32 fo_cast_f64_u32(double x) {
  double c = x < {0x1p32|0x1p64|0x1p63} ? x : 0.0;
  FO_KEPT double low = {0.0|0.0|-0x1p63};
  c = low > c ? low : c;
  return x >= {0x1p32|0x1p64|0x1p63} ? {0xffffffffu|0xffffffffffffffff|0x7fffffffffffffff} : {(fo_u32)c|(fo_u32)c|fo_whole_f64(c)};
}

/* fo_cast_f64_i32: the same; f64 has both ends, so that none is chosen among integers, by masks of other widths. */
FO_FN fo_i32 fo_cast_f64_i32(double x) {
  x = x == x ? x : 0.0;
  FO_KEPT double low = -0x1p31, high = 0x7fffffff;
  x = low > x ? low : x;
  x = high < x ? high : x;
  return (fo_i32)x;
}
