/* Matrix products on the shared pool, each task tiles of tile_products.c or one call of a BLAS's gemm, which must not use
 * threads of its own:
 * those wait for each other, and on a busy machine that costs hundreds of times the work. runtime/backends/blas/matmul.py compiles and
 * loads this together with the files that follow it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROW_MAJOR 101
#define PLAIN 111
#define TRANSPOSED 112

static struct {
  void (*parallel_for)(void (*task)(void *, long, long), void *arg, long count, long grain);
  void (*gemm_f32)(void), (*gemm_f64)(void), (*gemv_f32)(void), (*gemv_f64)(void); /* of the types in GEMM and GEMV */
  void (*set_threads)(int);
  int (*get_threads)(void);
  int wide; /* whether the BLAS's integers have 64 bits */
} blas;

/* `calls` of this file are running; the first sets the BLAS to one thread and the last restores what it found. */
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static int calls, threads_before;

void fuse_enter_blas(void) {
  pthread_mutex_lock(&guard);
  if (calls++ == 0 && (threads_before = blas.get_threads()) != 1) blas.set_threads(1);
  pthread_mutex_unlock(&guard);
}

void fuse_leave_blas(void) {
  pthread_mutex_lock(&guard);
  /* Any other count than one was set by somebody else meanwhile, who is to have it. */
  if (--calls == 0 && threads_before != 1 && blas.get_threads() == 1) blas.set_threads(threads_before);
  pthread_mutex_unlock(&guard);
}

/* A fork waits for running calls, so that the child finds the BLAS as it was, and no lock of it held. */
static void before_fork(void) {
  struct timespec pause = {0, 50000};
  for (pthread_mutex_lock(&guard); calls; pthread_mutex_lock(&guard)) {
    pthread_mutex_unlock(&guard);
    nanosleep(&pause, 0);
  }
}
static void after_fork(void) { pthread_mutex_unlock(&guard); }

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(before_fork, after_fork, after_fork); }

void fuse_blas_bind(void *parallel_for, void *gemm_f32, void *gemm_f64, void *gemv_f32, void *gemv_f64,
                    void *set_threads, void *get_threads, int wide) {
  blas.parallel_for = (void (*)(void (*)(void *, long, long), void *, long, long))parallel_for;
  blas.gemm_f32 = (void (*)(void))gemm_f32;
  blas.gemm_f64 = (void (*)(void))gemm_f64;
  blas.gemv_f32 = (void (*)(void))gemv_f32;
  blas.gemv_f64 = (void (*)(void))gemv_f64;
  blas.set_threads = (void (*)(int))set_threads;
  blas.get_threads = (int (*)(void))get_threads;
  blas.wide = wide;
}

/* A row-major matrix, or a transposed one: `ld` elements from one row (column) to the next. */
struct matrix {
  const char *data;
  int transposed;
  int64_t ld;
};

#define GEMM(T, INT, f)                                                                                             \
  ((void (*)(int, int, int, INT, INT, INT, T, const T *, INT, const T *, INT, T, T *, INT))f)(                       \
      ROW_MAJOR, a.transposed ? TRANSPOSED : PLAIN, b.transposed ? TRANSPOSED : PLAIN, (INT)m, (INT)n, (INT)k, 1,     \
      (const T *)a.data, (INT)a.ld, (const T *)b.data, (INT)b.ld, (T)beta, (T *)c, (INT)ldc)

#define GEMV(T, INT, f)                                                                                             \
  ((void (*)(int, int, INT, INT, T, const T *, INT, const T *, INT, T, T *, INT))f)(                                 \
      ROW_MAJOR, across ? TRANSPOSED : PLAIN, (INT)lines, (INT)length, 1, (const T *)matrix.data, (INT)matrix.ld,     \
      (const T *)vector.data, (INT)x_step, (T)beta, (T *)c, (INT)c_step)

/* One row or one column of a result: BLAS's routine for it reads the matrix without copying it first. */
static void gemv(int64_t item, int64_t m, int64_t n, int64_t k, struct matrix a, struct matrix b, double beta, char *c,
                 int64_t ldc) {
  int one_row = m == 1;
  struct matrix matrix = one_row ? b : a, vector = one_row ? a : b;
  int64_t count = one_row ? n : m; /* of results */
  int across = one_row != matrix.transposed;
  int64_t lines = across ? k : count, length = across ? count : k;
  int64_t x_step = one_row == vector.transposed ? vector.ld : 1, c_step = one_row ? 1 : ldc;
  if (item == 4 && blas.wide) GEMV(float, int64_t, blas.gemv_f32);
  else if (item == 4) GEMV(float, int, blas.gemv_f32);
  else if (blas.wide) GEMV(double, int64_t, blas.gemv_f64);
  else GEMV(double, int, blas.gemv_f64);
}

/* c[m, n] = a[m, k] b[k, n] + beta c, of elements of `item` bytes. */
static void gemm(int64_t item, int64_t m, int64_t n, int64_t k, struct matrix a, struct matrix b, double beta, char *c,
                 int64_t ldc) {
  if (m == 1 || n == 1) gemv(item, m, n, k, a, b, beta, c, ldc);
  else if (item == 4 && blas.wide) GEMM(float, int64_t, blas.gemm_f32);
  else if (item == 4) GEMM(float, int, blas.gemm_f32);
  else if (blas.wide) GEMM(double, int64_t, blas.gemm_f64);
  else GEMM(double, int, blas.gemm_f64);
}

/* A stack of products; runtime/backends/blas/matmul.py fills it, field by field. */
struct products {
  int64_t item, m, n, k;
  int64_t a_transposed, lda, b_transposed, ldb, ldc;
  int64_t row_block, column_block; /* of c, for one task */
  int64_t tasks, grain;
  int64_t tiled; /* whether tile_product makes them */
  int64_t axes;
  struct {
    int64_t extent, a_step, b_step, c_step; /* steps in bytes */
  } axis[];
};

/* Where an array is in a run of a program: `offset` bytes into a buffer whose address is in a table. */
struct place {
  char *const *buffer;
  int64_t offset;
};

/* The products as a loop of a program; runtime/cpu/native_calls.py fills it, as it does all records with places. */
struct fuse_product {
  const struct products *p;
  struct place a, b, c;
};

static char *address(struct place place) { return *place.buffer + place.offset; }

static int64_t row_blocks(const struct products *p) { return (p->m - 1) / p->row_block + 1; }
static int64_t column_blocks(const struct products *p) { return (p->n - 1) / p->column_block + 1; }

static void tile_product(int64_t item, int64_t m, int64_t n, int64_t k, struct matrix a, struct matrix b, char *c,
                         int64_t ldc);

static void run_product(const struct products *p, const char *a, const char *b, char *c, int64_t task) {
  int64_t down = row_blocks(p), across = column_blocks(p);
  int64_t row = task / across % down * p->row_block, column = task % across * p->column_block;
  int64_t entry = task / (down * across);
  a += p->item * row * (p->a_transposed ? 1 : p->lda);
  b += p->item * column * (p->b_transposed ? p->ldb : 1);
  c += p->item * (row * p->ldc + column);
  for (int64_t k = p->axes - 1; k >= 0; k--) {
    int64_t index = entry % p->axis[k].extent;
    entry /= p->axis[k].extent;
    a += index * p->axis[k].a_step;
    b += index * p->axis[k].b_step;
    c += index * p->axis[k].c_step;
  }
  int64_t rows = p->m - row < p->row_block ? p->m - row : p->row_block;
  int64_t columns = p->n - column < p->column_block ? p->n - column : p->column_block;
  struct matrix left = {a, p->a_transposed != 0, p->lda}, right = {b, p->b_transposed != 0, p->ldb};
  if (p->tiled) tile_product(p->item, rows, columns, p->k, left, right, c, p->ldc);
  else gemm(p->item, rows, columns, p->k, left, right, 0.0, c, p->ldc);
}

/* Products as a task of a program's loop. */
void fuse_run_product(void *arg, long begin, long end) {
  const struct fuse_product *f = arg;
  const char *a = address(f->a), *b = address(f->b);
  char *c = address(f->c);
  for (long task = begin; task < end; task++) run_product(f->p, a, b, c, task);
}

/* No extent may be zero. */
void fuse_products(const struct products *p, char *a, char *b, char *c) {
  struct fuse_product f = {p, {&a, 0}, {&b, 0}, {&c, 0}};
  fuse_enter_blas();
  blas.parallel_for(fuse_run_product, &f, p->tasks, p->grain);
  fuse_leave_blas();
}

/* What follows a product, piece by piece: a loop over `count` tasks, `per_row` of which overwrite a row of a contiguous c
 * and read nothing else of it. A panel is a block of rows of one entry, cut into `pieces`; blocks are those of
 * fuse_products, so the bits are. Items are taken in order: the blocks of a panel, then the pieces of the panel before,
 * which are done by then or left for a second loop, with those of the last panel. Nobody waits. */
struct fuse_followed {
  struct fuse_product product;
  int64_t per_row, pieces, workers;
  int64_t panels, blocks; /* blocks in a panel */
  void (*task)(void *arg, long begin, long end);
  void *arg;
  _Atomic int64_t *missing; /* by panel, blocks that are not done */
  int64_t *left;            /* pieces for the second loop */
  _Atomic int64_t next, left_count;
};

/* The count of the first loop: as many as there are threads, each of which takes items until there are none. */
long fuse_begin_followed(void *arg) {
  struct fuse_followed *f = arg;
  for (int64_t panel = 0; panel < f->panels; panel++) atomic_init(&f->missing[panel], f->blocks);
  atomic_init(&f->next, 0);
  atomic_init(&f->left_count, 0);
  return (long)f->workers;
}

static void run_piece(const struct fuse_followed *f, int64_t piece) {
  const struct products *p = f->product.p;
  int64_t down = row_blocks(p), panel = piece / f->pieces, part = piece % f->pieces;
  int64_t row = panel % down * p->row_block;
  int64_t rows = p->m - row < p->row_block ? p->m - row : p->row_block;
  int64_t first = (panel / down * p->m + row) * f->per_row, tasks = rows * f->per_row;
  f->task(f->arg, first + tasks * part / f->pieces, first + tasks * (part + 1) / f->pieces);
}

void fuse_run_followed(void *arg, long begin, long end) {
  struct fuse_followed *f = arg;
  int64_t round = f->blocks + f->pieces, items = f->blocks + (f->panels - 1) * round;
  (void)begin, (void)end;
  for (int64_t item; (item = atomic_fetch_add(&f->next, 1)) < items;) {
    int64_t panel = item < f->blocks ? 0 : (item - f->blocks) / round + 1;
    int64_t at = item < f->blocks ? item : (item - f->blocks) % round;
    if (at < f->blocks) {
      fuse_run_product(&f->product, panel * f->blocks + at, panel * f->blocks + at + 1);
      atomic_fetch_sub_explicit(&f->missing[panel], 1, memory_order_release);
      continue;
    }
    int64_t piece = (panel - 1) * f->pieces + at - f->blocks;
    if (atomic_load_explicit(&f->missing[panel - 1], memory_order_acquire) == 0) run_piece(f, piece);
    else f->left[atomic_fetch_add(&f->left_count, 1)] = piece;
  }
}

/* The count of the second loop. */
long fuse_begin_left(void *arg) {
  struct fuse_followed *f = arg;
  for (int64_t part = 0; part < f->pieces; part++) f->left[f->left_count++] = (f->panels - 1) * f->pieces + part;
  return (long)f->left_count;
}

void fuse_run_left(void *arg, long begin, long end) {
  const struct fuse_followed *f = arg;
  for (long k = begin; k < end; k++) run_piece(f, f->left[k]);
}
