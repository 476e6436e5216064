/* A pool of threads that shares one loop at a time; runtime/thread_pool.py compiles and loads it.
 *
 * A loop over [0, count) is cut into chunks. `unclaimed` counts the chunks that nobody has taken, `unfinished` those that
 * are not done. A thread takes a chunk by lowering `unclaimed` from a value above zero, and the loop cannot end before
 * that chunk is done, so the fields of `loop` are read only while a chunk is held. A worker that wakes up late finds
 * zero, or takes a valid chunk of a later loop: nobody ever waits for a thread that has not started. */
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define CHUNKS_PER_THREAD 6
#define SPIN_NANOSECONDS 30000
#define WAKES_BY_CALLER 1 /* each costs the caller a system call of several microseconds */
#define WAKES_BY_WORKER 2
#define MOST_THREADS 1024
#define OWN_LINE _Alignas(128)

typedef void (*fuse_task)(void *arg, long begin, long end);

static struct {
  fuse_task task;
  void *arg;
  long count, chunk;
  int chunks;
} loop;
static OWN_LINE _Atomic int busy;       /* held by the caller whose loop it is; guards `loop` and `workers` */
static OWN_LINE _Atomic int unclaimed;  /* chunks */
static OWN_LINE _Atomic int unfinished; /* chunks; the caller sleeps on it */
static OWN_LINE _Atomic int loops;      /* changes when there is news for workers; they sleep on it */
static _Atomic int sleeping_workers, sleeping_callers;
static _Atomic int generation; /* workers of an older one end */
static _Atomic int threads = 1;
static int workers;

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield" ::: "memory");
#endif
}

#ifdef __linux__
static void sleep_while_equal(_Atomic int *word, int value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, (void *)0, (void *)0, 0);
}
static void wake(_Atomic int *word, int sleepers) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, sleepers, (void *)0, (void *)0, 0);
}
static void forget_sleepers(void) {}
#else
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static void sleep_while_equal(_Atomic int *word, int value) {
  pthread_mutex_lock(&mutex);
  if (atomic_load(word) == value) pthread_cond_wait(&changed, &mutex);
  pthread_mutex_unlock(&mutex);
}
static void wake(_Atomic int *word, int sleepers) {
  (void)word, (void)sleepers;
  pthread_mutex_lock(&mutex);
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&mutex);
}
static void forget_sleepers(void) {
  pthread_mutex_init(&mutex, 0);
  pthread_cond_init(&changed, 0);
}
#endif

static long long nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Returns when *word is not `value`, or without cause; the caller of this looks again. */
static void await_change(_Atomic int *word, int value, _Atomic int *sleeping) {
  long long limit = nanoseconds() + SPIN_NANOSECONDS;
  do {
    for (int i = 0; i < 16; i++) {
      if (atomic_load_explicit(word, memory_order_acquire) != value) return;
      relax();
    }
  } while (nanoseconds() < limit);
  atomic_fetch_add(sleeping, 1);
  sleep_while_equal(word, value);
  atomic_fetch_sub(sleeping, 1);
}

/* Takes a chunk; returns how many were left with it, or 0 where none was. */
static int claim(void) {
  int left = atomic_load_explicit(&unclaimed, memory_order_relaxed);
  while (left > 0)
    if (atomic_compare_exchange_weak_explicit(&unclaimed, &left, left - 1, memory_order_acquire,
                                              memory_order_relaxed))
      return left;
  return 0;
}

static void work(void) {
  for (int left; (left = claim()) > 0;) {
    long begin = (loop.chunks - left) * loop.chunk;
    long end = loop.count - begin < loop.chunk ? loop.count : begin + loop.chunk;
    loop.task(loop.arg, begin, end);
    if (atomic_fetch_sub(&unfinished, 1) == 1 && atomic_load(&sleeping_callers)) wake(&unfinished, 1);
  }
}

/* Wakes as many workers as there are chunks left for, `most` at a time: those that wake up go on waking. */
static void wake_workers(int available, int most) {
  int wanted = atomic_load_explicit(&unclaimed, memory_order_relaxed) - 1;
  int asleep = atomic_load(&sleeping_workers);
  int count = wanted - (available - asleep);
  if (count > asleep) count = asleep;
  if (count > most) count = most;
  if (count > 0) wake(&loops, count);
}

/* A worker that wakes up must not push aside the caller, or another job of a busy machine: it would run the whole loop
 * on the caller's processor while the caller waits to have it back. */
static void give_way(void) {
#ifdef SCHED_BATCH
  struct sched_param none = {0};
  pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
#endif
}

static void *worker(void *argument) {
  int own = (int)(intptr_t)argument;
  give_way();
  for (;;) {
    int seen = atomic_load(&loops);
    if (atomic_load(&generation) != own) return 0;
    wake_workers(atomic_load_explicit(&threads, memory_order_relaxed) - 1, WAKES_BY_WORKER);
    work();
    await_change(&loops, seen, &sleeping_workers);
  }
}

/* Needs `busy`. Signals meant for the process go to the program's own threads; faults stay where they happen. */
static void start_workers(void) {
  sigset_t mask, old;
  pthread_attr_t attributes;
  int wanted = atomic_load(&threads) - 1;
  sigfillset(&mask);
  sigdelset(&mask, SIGSEGV), sigdelset(&mask, SIGBUS), sigdelset(&mask, SIGFPE);
  sigdelset(&mask, SIGILL), sigdelset(&mask, SIGABRT), sigdelset(&mask, SIGTRAP);
  pthread_sigmask(SIG_SETMASK, &mask, &old);
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  void *own = (void *)(intptr_t)atomic_load(&generation);
  pthread_t ignored;
  while (workers < wanted && pthread_create(&ignored, &attributes, worker, own) == 0) workers++;
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &old, 0);
  atomic_store(&threads, workers + 1); /* fewer than asked for where the system refuses more */
}

static void start_anew_in_child(void) {
  forget_sleepers();
  workers = 0;
  atomic_store(&sleeping_workers, 0);
  atomic_store(&sleeping_callers, 0);
  atomic_store(&unclaimed, 0);
  atomic_store(&unfinished, 0);
  atomic_store(&busy, 0);
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(0, 0, start_anew_in_child); }

/* Needs `busy`. Chunks are multiples of `grain`, so each begins at one. */
static void publish(fuse_task task, void *arg, long count, long grain) {
  long chunk = (count - 1) / (atomic_load(&threads) * CHUNKS_PER_THREAD) + 1;
  chunk = chunk <= grain ? grain : ((chunk - 1) / grain + 1) * grain;
  loop.task = task;
  loop.arg = arg;
  loop.count = count;
  loop.chunk = chunk;
  loop.chunks = (int)((count - 1) / chunk + 1);
  atomic_store_explicit(&unfinished, loop.chunks, memory_order_relaxed);
  atomic_store_explicit(&unclaimed, loop.chunks, memory_order_release);
  atomic_fetch_add(&loops, 1);
}

/* Calls task(arg, begin, end) so that the ranges cover [0, count) once, each beginning at a multiple of `grain` and, but
 * for the last, of at least `grain`; returns when all are done. The caller alone runs a loop of one grain, a loop inside a
 * loop, and a loop that comes while another thread has one. */
void fuse_parallel_for(fuse_task task, void *arg, long count, long grain) {
  if (count <= 0) return;
  if (grain < 1) grain = 1;
  if (count <= grain || atomic_load_explicit(&threads, memory_order_relaxed) < 2 ||
      atomic_exchange_explicit(&busy, 1, memory_order_acquire)) {
    task(arg, 0, count);
    return;
  }
  if (workers < atomic_load(&threads) - 1) start_workers();
  publish(task, arg, count, grain);
  wake_workers(workers, WAKES_BY_CALLER);
  work();
  for (int left; (left = atomic_load_explicit(&unfinished, memory_order_acquire)) > 0;)
    await_change(&unfinished, left, &sleeping_callers);
  atomic_store_explicit(&busy, 0, memory_order_release);
}

/* From the next loop on, `count` threads share it, the caller included. Must not be called from a task. */
void fuse_set_num_threads(int count) {
  struct timespec pause = {0, 50000};
  while (atomic_exchange_explicit(&busy, 1, memory_order_acquire)) nanosleep(&pause, 0);
  atomic_store(&threads, count < 1 ? 1 : count > MOST_THREADS ? MOST_THREADS : count);
  workers = 0;
  atomic_fetch_add(&generation, 1);
  atomic_fetch_add(&loops, 1);
  wake(&loops, INT_MAX);
  atomic_store_explicit(&busy, 0, memory_order_release);
}

int fuse_num_threads(void) { return atomic_load(&threads); }
