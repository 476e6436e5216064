/* Functions of generated CUDA C by which a group of four warps multiplies matrices that lie in shared memory (PTX ISA, asynchronous
   warpgroup level matrix instructions): processors of 9.0 alone have them, as code made for sm_90a. A matrix in shared memory is
   columns of 64 elements, each of which has rows of 128 bytes, begins at a multiple of 1024, and has the 16 bytes of number c
   of a row r at c ^ r % 8. The emulation multiplies at once; the hardware may do so until `fo_group_wait` has gone by. */

/* fo_group_address_{f16|bf16}: where such a matrix begins, as the instructions take it; rows of 8 lie 1024 bytes behind the 8 before. */
FO_FN unsigned long long fo_group_address_f16(const {__half|__nv_bfloat16} *rows, int at) {
#if defined(__CUDACC__)
  return (unsigned long long)((unsigned)__cvta_generic_to_shared(rows + at) >> 4 & 0x3fffu) | 0x4000004000400000ull;
#else
  return (unsigned long long)(rows + at);
#endif
}

/* fo_group_begin: what threads wrote to registers is there for products that follow. */
FO_FN void fo_group_begin() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
#endif
}

/* fo_group_end: products up to here are on their way. */
FO_FN void fo_group_end() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
#endif
}

/* fo_group_wait: all products of the group are there, 32 sums of which are those from s on. */
FO_FN void fo_group_wait(float *sums, int s) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.wait_group.sync.aligned 0;"
      : "+f"(sums[s]), "+f"(sums[s + 1]), "+f"(sums[s + 2]), "+f"(sums[s + 3]),
        "+f"(sums[s + 4]), "+f"(sums[s + 5]), "+f"(sums[s + 6]), "+f"(sums[s + 7]),
        "+f"(sums[s + 8]), "+f"(sums[s + 9]), "+f"(sums[s + 10]), "+f"(sums[s + 11]),
        "+f"(sums[s + 12]), "+f"(sums[s + 13]), "+f"(sums[s + 14]), "+f"(sums[s + 15]),
        "+f"(sums[s + 16]), "+f"(sums[s + 17]), "+f"(sums[s + 18]), "+f"(sums[s + 19]),
        "+f"(sums[s + 20]), "+f"(sums[s + 21]), "+f"(sums[s + 22]), "+f"(sums[s + 23]),
        "+f"(sums[s + 24]), "+f"(sums[s + 25]), "+f"(sums[s + 26]), "+f"(sums[s + 27]),
        "+f"(sums[s + 28]), "+f"(sums[s + 29]), "+f"(sums[s + 30]), "+f"(sums[s + 31]) : : "memory");
#endif
}

/* fo_group_wait_but_one: the same but for products behind the last `fo_group_end` but one. */
FO_FN void fo_group_wait_but_one(float *sums, int s) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.wait_group.sync.aligned 1;"
      : "+f"(sums[s]), "+f"(sums[s + 1]), "+f"(sums[s + 2]), "+f"(sums[s + 3]),
        "+f"(sums[s + 4]), "+f"(sums[s + 5]), "+f"(sums[s + 6]), "+f"(sums[s + 7]),
        "+f"(sums[s + 8]), "+f"(sums[s + 9]), "+f"(sums[s + 10]), "+f"(sums[s + 11]),
        "+f"(sums[s + 12]), "+f"(sums[s + 13]), "+f"(sums[s + 14]), "+f"(sums[s + 15]),
        "+f"(sums[s + 16]), "+f"(sums[s + 17]), "+f"(sums[s + 18]), "+f"(sums[s + 19]),
        "+f"(sums[s + 20]), "+f"(sums[s + 21]), "+f"(sums[s + 22]), "+f"(sums[s + 23]),
        "+f"(sums[s + 24]), "+f"(sums[s + 25]), "+f"(sums[s + 26]), "+f"(sums[s + 27]),
        "+f"(sums[s + 28]), "+f"(sums[s + 29]), "+f"(sums[s + 30]), "+f"(sums[s + 31]) : : "memory");
#endif
}

/* fo_group_visible: what the thread wrote to shared memory is there for products behind the next barrier. */
FO_FN void fo_group_visible() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
#endif
}

/* fo_group_mma_{f16|bf16}: sums[s..] = a[i..] b, added to what they are where `adds`: a has 16 rows and columns for each warp, as
   `mma.m16n8k16` has them, b is 16 elements of each of 64 rows of a matrix in shared memory; sums are those of eight products of 8. */
FO_FN void fo_group_mma_f16(float *sums, int s, const int *a, int i, const {__half|__nv_bfloat16} *rows, int at, bool adds) {
#if !defined(__CUDACC__)
  shim::multiply_group({0|1}, false, sums + s, a + i, rows + at, adds, __LINE__);
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.{f16|bf16}.{f16|bf16} "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
      "{%32,%33,%34,%35}, %36, p, 1, 1, 0;\n}"
      : "+f"(sums[s]), "+f"(sums[s + 1]), "+f"(sums[s + 2]), "+f"(sums[s + 3]),
        "+f"(sums[s + 4]), "+f"(sums[s + 5]), "+f"(sums[s + 6]), "+f"(sums[s + 7]),
        "+f"(sums[s + 8]), "+f"(sums[s + 9]), "+f"(sums[s + 10]), "+f"(sums[s + 11]),
        "+f"(sums[s + 12]), "+f"(sums[s + 13]), "+f"(sums[s + 14]), "+f"(sums[s + 15]),
        "+f"(sums[s + 16]), "+f"(sums[s + 17]), "+f"(sums[s + 18]), "+f"(sums[s + 19]),
        "+f"(sums[s + 20]), "+f"(sums[s + 21]), "+f"(sums[s + 22]), "+f"(sums[s + 23]),
        "+f"(sums[s + 24]), "+f"(sums[s + 25]), "+f"(sums[s + 26]), "+f"(sums[s + 27]),
        "+f"(sums[s + 28]), "+f"(sums[s + 29]), "+f"(sums[s + 30]), "+f"(sums[s + 31])
      : "r"(a[i]), "r"(a[i + 1]), "r"(a[i + 2]), "r"(a[i + 3]), "l"(fo_group_address_f16(rows, at)), "r"((int)adds) : "memory");
#elif defined(__CUDA_ARCH__)
  __trap();
#endif
}

/* fo_group_turned_mma_{f16|bf16}: the same, where b is the 64 elements of each of 16 rows. */
FO_FN void fo_group_turned_mma_f16(float *sums, int s, const int *a, int i, const {__half|__nv_bfloat16} *rows, int at, bool adds) {
#if !defined(__CUDACC__)
  shim::multiply_group({0|1}, true, sums + s, a + i, rows + at, adds, __LINE__);
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.{f16|bf16}.{f16|bf16} "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
      "{%32,%33,%34,%35}, %36, p, 1, 1, 1;\n}"
      : "+f"(sums[s]), "+f"(sums[s + 1]), "+f"(sums[s + 2]), "+f"(sums[s + 3]),
        "+f"(sums[s + 4]), "+f"(sums[s + 5]), "+f"(sums[s + 6]), "+f"(sums[s + 7]),
        "+f"(sums[s + 8]), "+f"(sums[s + 9]), "+f"(sums[s + 10]), "+f"(sums[s + 11]),
        "+f"(sums[s + 12]), "+f"(sums[s + 13]), "+f"(sums[s + 14]), "+f"(sums[s + 15]),
        "+f"(sums[s + 16]), "+f"(sums[s + 17]), "+f"(sums[s + 18]), "+f"(sums[s + 19]),
        "+f"(sums[s + 20]), "+f"(sums[s + 21]), "+f"(sums[s + 22]), "+f"(sums[s + 23]),
        "+f"(sums[s + 24]), "+f"(sums[s + 25]), "+f"(sums[s + 26]), "+f"(sums[s + 27]),
        "+f"(sums[s + 28]), "+f"(sums[s + 29]), "+f"(sums[s + 30]), "+f"(sums[s + 31])
      : "r"(a[i]), "r"(a[i + 1]), "r"(a[i + 2]), "r"(a[i + 3]), "l"(fo_group_address_f16(rows, at)), "r"((int)adds) : "memory");
#elif defined(__CUDA_ARCH__)
  __trap();
#endif
}
