/* Scalar math: branch-free functions that gcc and clang vectorise inside `#pragma omp simd` loops.

   Compile with -fno-math-errno -fno-trapping-math, never with -ffast-math; round-to-nearest is assumed. libm is called only
   where a comment says so, and for roundings on machines without such instructions. `ULP` bounds are of the result against the
   exact value over the whole range, in units of the type's spacing there. Unless said otherwise NaN gives NaN, denormal
   arguments count in full and results underflow gradually. */

#define FO_FN static inline __attribute__((always_inline, unused))
#define FO_APART static __attribute__((noinline, unused))

/* FO_KEPT float c = ...: a constant that gcc does not fold. `c > x ? c : x` is one instruction of x86 then; of a known c gcc
   makes comparisons and blends, as it threads jumps from one such choice to the next. */
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#define FO_KEPT static __attribute__((used))
#else
#define FO_KEPT const
#endif

typedef __INT8_TYPE__ fo_i8;
typedef __INT16_TYPE__ fo_i16;
typedef __INT32_TYPE__ fo_i32;
typedef __INT64_TYPE__ fo_i64;
typedef __UINT8_TYPE__ fo_u8;
typedef __UINT16_TYPE__ fo_u16;
typedef __UINT32_TYPE__ fo_u32;
typedef __UINT64_TYPE__ fo_u64;

