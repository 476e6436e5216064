/* Functions of generated CUDA C that one or a few instructions of the hardware are; without nvcc or NVRTC, plain C++.
   Errors are NVIDIA's (PTX ISA, floating point instructions), in units of the last place. */

/* fo_round_bf16: the nearest number that bf16 has, halves to even: the upper half of a pair whose lower one is 0.
   Processors before 8.0 have no such instruction. */
FO_FN float fo_round_bf16(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  int pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(x), "f"(0.0f));
  return __int_as_float(pair);
#else
  return __bfloat162float(__float2bfloat16_rn(x));
#endif
}

/* fo_round_f16: the nearest number that f16 has, halves to even; a pair is made by a faster instruction than one. */
FO_FN float fo_round_f16(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float y;
  asm("{ .reg .b32 pair; .reg .b16 low, high; cvt.rn.f16x2.f32 pair, %1, %2; mov.b32 {low, high}, pair; "
      "cvt.f32.f16 %0, high; }" : "=f"(y) : "f"(x), "f"(0.0f));
  return y;
#else
  return __half2float(__float2half_rn(x));
#endif
}

/* fo_round_clean_bf16: as fo_round_bf16; here, too, where C has a shorter one for numbers that came from narrow ones. */
FO_FN float fo_round_clean_bf16(float x) {
  return fo_round_bf16(x);
}

/* fo_max_f32: the greater; NaN if either is NaN; of two zeros either. One instruction from 8.0 on, three before. */
FO_FN float fo_max_f32(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  float r = b > a ? b : a;
  return b != b ? b : r;
#endif
}

/* fo_min_f32: the lesser; NaN if either is NaN; of two zeros either. One instruction from 8.0 on, three before. */
FO_FN float fo_min_f32(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  float r = b < a ? b : a;
  return b != b ? b : r;
#endif
}

/* fo_approximate_reciprocal_f32: 1 ULP, of a number from 2**-126 to 2**126. */
FO_FN float fo_approximate_reciprocal_f32(float d) {
#ifdef __CUDACC__
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
  return r;
#else
  return 1.0f / d;
#endif
}

/* fo_moderate_reciprocal_f32: 1 / d, rounded to nearest, of a number from 2**-126 to 2**126: what nvcc makes of the division there,
   without its question whether that is so. */
FO_FN float fo_moderate_reciprocal_f32(float d) {
  float r = fo_approximate_reciprocal_f32(d);
  return fmaf(r, fmaf(-d, r, 1.0f), r);
}

/* fo_moderate_rsqrt_f32: as rsqrtf (2 ULP), of a number from 2**-126 on: its one instruction, without what makes smaller ones larger. */
FO_FN float fo_moderate_rsqrt_f32(float x) {
#ifdef __CUDACC__
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0f / sqrtf(x);
#endif
}

/* fo_sigmoid_f32: 4 ULP (an H100: 3.3); the formula with exp(-|x|), whose divisor lies between 1 and 2: the dividend times its
   reciprocal of 1 ULP. */
FO_FN float fo_sigmoid_f32(float x) {
  float e = expf(-fabsf(x));
  float d = 1.0f + e;
#ifdef __CUDACC__
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
  return x < 0.0f ? e * r : r;
#else
  return (x < 0.0f ? e : 1.0f) / d;
#endif
}

/* fo_tanh_f32: 3 ULP (an H100: 2.4); odd, keeps the sign of zero: x times a polynomial of its square up to 0.6, else 1 - 2 / (exp(2 |x|) + 1). */
FO_FN float fo_tanh_f32(float x) {
#ifdef __CUDACC__
  float e, r, s = x * x;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(fabsf(x) * 2.8853900817779268f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(e + 1.0f));
  float far = copysignf(fmaf(-2.0f, r, 1.0f), x);
  float p = fmaf(s, fmaf(s, fmaf(s, 0.0157338083f, -0.0523039624f), 0.133152977f), -0.333327681f);
  float near = fmaf(p * s, x, x);
  return fabsf(x) >= 0.6f ? far : near;
#else
  return tanhf(x);
#endif
}

/* fo_fast_exp_f32: 2 ULP and 1.2 |x| ULP; results below the smallest normal number are 0. */
FO_FN float fo_fast_exp_f32(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
  return y;
#else
  return expf(x);
#endif
}

/* fo_fast_sigmoid_f32: 4 ULP and 1.2 |x| ULP; results below the smallest normal number are 0. */
FO_FN float fo_fast_sigmoid_f32(float x) {
  float d = 1.0f + fo_fast_exp_f32(-x);
#ifdef __CUDACC__
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(d));
  return y;
#else
  return 1.0f / d;
#endif
}

/* fo_near_exp_f32: 2 ULP and 1.2 |x| ULP, those below the smallest normal number as well. */
FO_FN float fo_near_exp_f32(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
  return y;
#else
  return expf(x);
#endif
}

/* fo_near_sigmoid_f32: 4 ULP and 1.2 |x| ULP, those below the smallest normal number as well: the formula with exp(-|x|). */
FO_FN float fo_near_sigmoid_f32(float x) {
  float e = fo_near_exp_f32(-fabsf(x));
  float d = 1.0f + e;
  float n = x < 0.0f ? e : 1.0f;
#ifdef __CUDACC__
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
  return n * r;
#else
  return n / d;
#endif
}

/* fo_fast_divide_f32: 2 ULP over the whole range of divisors. */
FO_FN float fo_fast_divide_f32(float x, float y) {
#ifdef __CUDACC__
  float z;
  asm("div.full.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
#else
  return x / y;
#endif
}

/* fo_fast_sqrt_f32: 2 ULP. */
FO_FN float fo_fast_sqrt_f32(float x) {
#ifdef __CUDACC__
  float y;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return sqrtf(x);
#endif
}

/* fo_narrow_tanh_f32: relative error of 2**-14, for what is rounded to 16 bits. */
FO_FN float fo_narrow_tanh_f32(float x) {
#ifdef __CUDACC__
  float d = 1.0f + fo_fast_exp_f32(x + x), r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
  return fabsf(x) < 0x1p-7f ? x : fmaf(-2.0f, r, 1.0f);
#else
  return tanhf(x);
#endif
}

/* fo_fast_tanh_f32: relative error of 2**-11, for what is rounded to bf16. */
FO_FN float fo_fast_tanh_f32(float x) {
#ifdef __CUDACC__
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return tanhf(x);
#endif
}
