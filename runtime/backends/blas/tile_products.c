/* Tiles of products held in registers, by vectors of the widest kind that the machine has; follows matmul_tasks.c in one
 * text. Their left operand is read as it lies, by rows, the right one by vectors that begin at any offsets. */
#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#define TILE_ROWS 8 /* times TILE_VECTORS: sums that, with what they are made of, fit into the registers */
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#define TILE_ROWS 4
#elif defined(__aarch64__)
#define VECTOR_BYTES 16
#define TILE_ROWS 8
#else
#define VECTOR_BYTES 16
#define TILE_ROWS 4
#endif
#define TILE_VECTORS 3
#define UNROLLED _Pragma("GCC unroll 8")

/* out[i][p] = the sum over k of left[i][k] * right[offset[k] + p]. */
#define DEFINE_TILE(NAME, T, ROWS, VECTORS)                                                                         \
  static void NAME(int64_t terms, const int64_t *offset, const T *const *left, const T *right, T *out) {            \
    typedef T vector __attribute__((vector_size(VECTOR_BYTES)));                                                    \
    typedef T loose __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(T)), may_alias));                      \
    enum { lanes = VECTOR_BYTES / sizeof(T) };                                                                      \
    vector sum[ROWS][VECTORS];                                                                                      \
    const T *row[ROWS];                                                                                             \
    UNROLLED for (int i = 0; i < ROWS; i++) row[i] = left[i];                                                       \
    UNROLLED for (int i = 0; i < ROWS; i++)                                                                         \
      UNROLLED for (int j = 0; j < VECTORS; j++) sum[i][j] = (vector){0};                                           \
    for (int64_t k = 0; k < terms; k++) {                                                                           \
      vector v[VECTORS];                                                                                            \
      UNROLLED for (int j = 0; j < VECTORS; j++) v[j] = *(const loose *)(right + offset[k] + j * lanes);            \
      UNROLLED for (int i = 0; i < ROWS; i++)                                                                       \
        UNROLLED for (int j = 0; j < VECTORS; j++) sum[i][j] += row[i][k] * v[j];                                   \
    }                                                                                                               \
    UNROLLED for (int i = 0; i < ROWS; i++)                                                                         \
      UNROLLED for (int j = 0; j < VECTORS; j++) *(loose *)(out + (i * VECTORS + j) * lanes) = sum[i][j];           \
  }
DEFINE_TILE(tile_f32_1, float, TILE_ROWS, 1)
DEFINE_TILE(tile_f32_2, float, TILE_ROWS, 2)
DEFINE_TILE(tile_f32_3, float, TILE_ROWS, 3)
DEFINE_TILE(row_f32_1, float, 1, 1)
DEFINE_TILE(row_f32_2, float, 1, 2)
DEFINE_TILE(row_f32_3, float, 1, 3)
DEFINE_TILE(tile_f64_1, double, TILE_ROWS, 1)
DEFINE_TILE(tile_f64_2, double, TILE_ROWS, 2)
DEFINE_TILE(tile_f64_3, double, TILE_ROWS, 3)
DEFINE_TILE(row_f64_1, double, 1, 1)
DEFINE_TILE(row_f64_2, double, 1, 2)
DEFINE_TILE(row_f64_3, double, 1, 3)

/* A tile of TILE_ROWS rows, or of one where no more are wanted, and of as many vectors as are, one to TILE_VECTORS. */
static void tile(int64_t item, int64_t rows, int64_t vectors, int64_t terms, const int64_t *offset,
                 const char *const *left, const char *right, char *out) {
  typedef void (*f32)(int64_t, const int64_t *, const float *const *, const float *, float *);
  typedef void (*f64)(int64_t, const int64_t *, const double *const *, const double *, double *);
  static const f32 singles[2][TILE_VECTORS] = {{row_f32_1, row_f32_2, row_f32_3}, {tile_f32_1, tile_f32_2, tile_f32_3}};
  static const f64 doubles[2][TILE_VECTORS] = {{row_f64_1, row_f64_2, row_f64_3}, {tile_f64_1, tile_f64_2, tile_f64_3}};
  if (item == 4)
    singles[rows > 1][vectors - 1](terms, offset, (const float *const *)left, (const float *)right, (float *)out);
  else doubles[rows > 1][vectors - 1](terms, offset, (const double *const *)left, (const double *)right, (double *)out);
}

#define DEPTH 256 /* terms that are added one by one; sums of so many are added to each other */

/* memcpy of a multiple of 4 bytes, for lines too short to be worth a call. */
static inline void copy_line(char *to, const char *from, int64_t size) {
  for (; size >= 64; size -= 64, to += 64, from += 64) {
    memcpy(to, from, 64);
    __asm__ volatile("" ::: "memory"); /* or compilers make it a call again */
  }
  if (size & 32) memcpy(to, from, 32), to += 32, from += 32;
  if (size & 16) memcpy(to, from, 16), to += 16, from += 16;
  if (size & 8) memcpy(to, from, 8), to += 8, from += 8;
  if (size & 4) memcpy(to, from, 4);
}

#define DEFINE_ADD(NAME, T)                                                 \
  static void NAME(T *restrict to, const T *restrict from, int64_t count) { \
    for (int64_t i = 0; i < count; i++) to[i] += from[i];                   \
  }
DEFINE_ADD(add_4, float)
DEFINE_ADD(add_8, double)

/* A row of sums to where it belongs, or added to what is there. */
static inline void put_line(int64_t item, char *to, const char *from, int64_t count, int add) {
  if (!add) copy_line(to, from, count * item);
  else if (item == 4) add_4((float *)to, (const float *)from, count);
  else add_8((double *)to, (const double *)from, count);
}

/* c[m, n] = a[m, k] b[k, n], of which neither is a transposed one: some columns of b at a time with all rows of a, copied
 * where they are read again. What is added in which order depends on k alone. */
static void tile_product(int64_t item, int64_t m, int64_t n, int64_t k, struct matrix a, struct matrix b, char *c,
                         int64_t ldc) {
  int64_t lanes = VECTOR_BYTES / item, width = TILE_VECTORS * lanes, near[DEPTH], far[DEPTH];
  _Alignas(64) char panel[DEPTH * TILE_VECTORS * VECTOR_BYTES], sums[TILE_ROWS * TILE_VECTORS * VECTOR_BYTES];
  for (int64_t i = 0; i < DEPTH; i++) near[i] = i * width, far[i] = i * b.ld;
  for (int64_t first = 0; first < k; first += DEPTH) {
    int64_t terms = k - first < DEPTH ? k - first : DEPTH;
    for (int64_t column = 0; column < n; column += width) {
      int64_t columns = n - column < width ? n - column : width, vectors = (columns - 1) / lanes + 1;
      const char *right = b.data + (first * b.ld + column) * item;
      int once = m <= TILE_ROWS && columns == vectors * lanes;
      for (int64_t i = 0; i < terms && !once; i++)
        copy_line(panel + i * width * item, right + i * b.ld * item, columns * item);
      for (int64_t row = 0; row < m; row += TILE_ROWS) {
        const char *left[TILE_ROWS];
        for (int64_t i = 0; i < TILE_ROWS; i++)
          left[i] = a.data + ((row + i < m ? row + i : m - 1) * a.ld + first) * item;
        tile(item, m, vectors, terms, once ? far : near, left, once ? right : panel, sums);
        for (int64_t i = 0; i < TILE_ROWS && row + i < m; i++)
          put_line(item, c + ((row + i) * ldc + column) * item, sums + i * vectors * VECTOR_BYTES, columns, first > 0);
      }
    }
  }
}
