/* Functions of generated CUDA C by which a warp multiplies small matrices, and a thread copies while it goes on: each is an
   instruction of processors of 8.0 and newer (PTX ISA, warp level matrix instructions), for which alone kernels with them
   are generated. The emulation has the same by exchange between its threads. */

/* fo_mma_{f16|bf16}: sums[s..] += a[i..] b[j..], matrices of 16x16 and 16x8 elements over the lanes of a warp, as `mma.m16n8k16` has them;
   products are exact and are summed up in f32. */
FO_FN void fo_mma_f16(float *sums, int s, const int *a, int i, const int *b, int j) {
#if !defined(__CUDACC__)
  shim::multiply({0|1}, sums + s, a + i, b + j, __LINE__);
#elif !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.{f16|bf16}.{f16|bf16}.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sums[s]), "+f"(sums[s + 1]), "+f"(sums[s + 2]), "+f"(sums[s + 3])
      : "r"(a[i]), "r"(a[i + 1]), "r"(a[i + 2]), "r"(a[i + 3]), "r"(b[j]), "r"(b[j + 1]));
#else
  __trap();
#endif
}

/* fo_matrices_{f16|bf16}: four matrices of 8x8 elements of 16 bits from shared memory, one to each of `to[i..]`; lane l names row l % 8 of
   matrix l / 8. A lane gets elements 2 (l % 4) and the next of row l / 4 of each. */
FO_FN void fo_matrices_f16(int *to, int i, const {__half|__nv_bfloat16} *rows, int at) {
#if !defined(__CUDACC__)
  shim::load_matrices(to + i, rows + at, false, __LINE__);
#elif !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 750
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
      : "=r"(to[i]), "=r"(to[i + 1]), "=r"(to[i + 2]), "=r"(to[i + 3])
      : "r"((unsigned)__cvta_generic_to_shared(rows + at)) : "memory");
#else
  __trap();
#endif
}

/* fo_turned_matrices_{f16|bf16}: the same, each matrix transposed: a lane gets elements l / 4 of rows 2 (l % 4) and the next. */
FO_FN void fo_turned_matrices_f16(int *to, int i, const {__half|__nv_bfloat16} *rows, int at) {
#if !defined(__CUDACC__)
  shim::load_matrices(to + i, rows + at, true, __LINE__);
#elif !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 750
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
      : "=r"(to[i]), "=r"(to[i + 1]), "=r"(to[i + 2]), "=r"(to[i + 3])
      : "r"((unsigned)__cvta_generic_to_shared(rows + at)) : "memory");
#else
  __trap();
#endif
}

/* fo_async_copy_{f16|bf16|f32}: 16 bytes from memory to shared memory, there after `fo_async_wait`; zeros where not `inside`, and nothing is
   read. */
FO_FN void fo_async_copy_f16({__half|__nv_bfloat16|float} *to, int at, const {__half|__nv_bfloat16|float} *from, long long place, bool inside) {
#if !defined(__CUDACC__)
  shim::copy_later(to + at, from + place, inside, __LINE__);
#elif !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
      : : "r"((unsigned)__cvta_generic_to_shared(to + at)), "l"(from + place), "r"(inside ? 16 : 0) : "memory");
#else
  __trap();
#endif
}

/* fo_async_wait: until all that the thread copies is there; other threads see it behind a barrier. */
FO_FN void fo_async_wait() {
#if !defined(__CUDACC__)
  shim::finish_copies();
#elif !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" : : : "memory");
#endif
}

/* fo_pair_{f16|bf16}: two numbers, each rounded to nearest, side by side; the first one has the lower bits. */
FO_FN int fo_pair_f16(float low, float high) {
#if defined(__CUDACC__) && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800)
  int pair;
  asm("cvt.rn.{f16x2|bf16x2}.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  unsigned l = {__half_as_ushort(__float2half_rn(low))|__bfloat16_as_ushort(__float2bfloat16_rn(low))};
  unsigned h = {__half_as_ushort(__float2half_rn(high))|__bfloat16_as_ushort(__float2bfloat16_rn(high))};
  return (int)(l | h << 16);
#endif
}

/* fo_fast_exp2_f32: 2 ULP; results below the smallest normal number are 0. */
FO_FN float fo_fast_exp2_f32(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}

/* fo_larger_f32: the greater; NaN if either is NaN. */
FO_FN float fo_larger_f32(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  float r = b > a ? b : a;
  return b != b ? b : r;
#endif
}
