/* A pool of threads that shares one region at a time; follows pool_waiting.c in one text, which runtime/host/thread_pool.py
 * compiles and loads.
 *
 * A region is a sequence of phases, a phase one loop or several that do not depend on each other. Loops are cut into
 * chunks. Every thread has a share of neighbouring chunks, which it takes from the front; with none left it takes from the
 * back of others' shares. So a loop that runs again finds its data in the caches of the same processors, and threads seldom
 * write to the same cache line.
 *
 * `unfinished` counts the chunks of the phase that are not known to be done; a thread tells once it finds none to take. The
 * phase cannot end before that, so `region` is read only by those who hold a chunk. Who brings the count to zero begins the
 * next phase, and runs those of one chunk itself: no thread waits for one that has not started, and between phases nobody
 * has to come back to work. A worker that wakes up late finds no chunk, or takes a valid one of a later phase. */
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#define CHUNKS_PER_THREAD 6
#define WAKES_BY_CALLER 1 /* each costs the caller a system call of several microseconds */
#define WAKES_BY_WORKER 2
#define MOST_THREADS 1024
#define OWN_LINE _Alignas(128)
#define CALLER 0 /* its share; workers count from 1 */

typedef void (*fuse_task)(void *arg, long begin, long end);

/* A loop over [0, count), each call of `task` on a range of it. The last two fields are the pool's own. */
struct fuse_loop {
  fuse_task task;
  void *arg;
  long count, grain;
  long (*prepare)(void *arg); /* 0, or gives the count when the loop's phase begins */
  long first;                 /* 0: of the phase of the loop before; PHASE or REGION: the first one of it */
  long chunk, chunks;
};
#define PHASE 1
#define REGION 2

static struct {
  struct fuse_loop *phase, *next, *end; /* loops of this phase, and of those that come */
} region;
static OWN_LINE _Atomic int busy;       /* held by the caller whose region it is; guards `region` and `workers` */
static OWN_LINE _Atomic int unfinished; /* chunks of the phase */
static OWN_LINE _Atomic int phases;     /* changes when there is news for workers; they sleep on it */
static _Atomic int finished;            /* whether the region is done; the caller looks at both */
static struct {
  OWN_LINE _Atomic uint64_t chunks; /* the first that is left in the low half, the one behind the last in the high half */
} shares[MOST_THREADS];
static _Atomic int calls_to_caller;     /* changes when there is news for a caller that sleeps on it */
static _Atomic int sleeping_workers, sleeping_callers;
static _Atomic int generation; /* workers of an older one end */
/* Of a worker's stack: kernels have copies of up to some hundred kilobytes there, more than some systems give. */
#define STACK_BYTES (8 << 20)
static _Atomic int threads = 1;
static int workers;

/* Threads of another library, which share regions in place of workers: the entry of OpenMP's runtime for parallel regions
 * as gcc calls it, and omp_get_thread_num; 0 without. */
typedef void (*fuse_team)(void (*member)(void *), void *data, unsigned threads, unsigned flags);
static fuse_team team;
static int (*team_number)(void);

static void share_out(long chunks) {
  long count = atomic_load_explicit(&threads, memory_order_relaxed);
  for (long k = 0; k < count; k++) {
    uint64_t begin = (uint64_t)(chunks * k / count), end = (uint64_t)(chunks * (k + 1) / count);
    atomic_store_explicit(&shares[k].chunks, end << 32 | begin, memory_order_release);
  }
}

static long left_of(uint64_t share) {
  uint64_t begin = share & UINT32_MAX, end = share >> 32;
  return begin < end ? (long)(end - begin) : 0;
}

/* Takes a chunk of a share, the first or the last one; -1 where there is none. */
static long take_from(int share, int first) {
  uint64_t found = atomic_load_explicit(&shares[share].chunks, memory_order_relaxed);
  while (left_of(found)) {
    uint64_t begin = found & UINT32_MAX, end = found >> 32;
    uint64_t rest = first ? end << 32 | (begin + 1) : (end - 1) << 32 | begin;
    if (atomic_compare_exchange_weak_explicit(&shares[share].chunks, &found, rest, memory_order_acquire,
                                              memory_order_relaxed))
      return (long)(first ? begin : end - 1);
  }
  return -1;
}

/* A chunk for a thread, which it must run then; -1 where there is none. */
static long take(int self) {
  int count = atomic_load_explicit(&threads, memory_order_relaxed);
  long chunk = self < count ? take_from(self, 1) : -1;
  for (int k = 1; chunk < 0 && k <= count; k++) chunk = take_from((self + k) % count, 0);
  return chunk;
}

/* Wakes as many workers as there are chunks left for, `most` at a time: those that wake up go on waking. */
static void wake_workers(int available, int most) {
  int asleep = atomic_load(&sleeping_workers);
  if (!asleep) return;
  long wanted = -1;
  for (int k = 0; k <= available; k++)
    wanted += left_of(atomic_load_explicit(&shares[k].chunks, memory_order_relaxed));
  int count = (int)wanted - (available - asleep);
  if (count > asleep) count = asleep;
  if (count > most) count = most;
  if (count > 0) wake(&phases, count);
}

/* A worker that wakes up must not push aside the caller, or another job of a busy machine: it would run the whole phase
 * on the caller's processor while the caller waits to have it back. */
static void give_way(void) {
#ifdef SCHED_BATCH
  struct sched_param none = {0};
  pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
#endif
}

static void *worker(void *argument);

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
  pthread_attr_setstacksize(&attributes, STACK_BYTES); /* where it is refused, the system's own size holds */
  intptr_t own = (intptr_t)atomic_load(&generation) * MOST_THREADS;
  pthread_t ignored;
  while (workers < wanted && pthread_create(&ignored, &attributes, worker, (void *)(own + workers + 1)) == 0) workers++;
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &old, 0);
  atomic_store(&threads, workers + 1); /* fewer than asked for where the system refuses more */
}

static void start_anew_in_child(void) {
  forget_sleepers();
  workers = 0;
  atomic_store(&sleeping_workers, 0);
  atomic_store(&sleeping_callers, 0);
  for (int k = 0; k < MOST_THREADS; k++) atomic_store_explicit(&shares[k].chunks, 0, memory_order_relaxed);
  atomic_store(&unfinished, 0);
  atomic_store(&finished, 0);
  atomic_store(&busy, 0);
  team = 0; /* its threads stayed with the parent */
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(0, 0, start_anew_in_child); }

/* Cuts a loop into chunks, which are multiples of its grain, so that each begins at one; returns how many there are. */
static long cut(struct fuse_loop *loop) {
  if (loop->prepare) loop->count = loop->prepare(loop->arg);
  long count = loop->count, grain = loop->grain < 1 ? 1 : loop->grain;
  if (count <= grain) {
    loop->chunk = count;
    return loop->chunks = count > 0;
  }
  long chunk = (count - 1) / (atomic_load_explicit(&threads, memory_order_relaxed) * CHUNKS_PER_THREAD) + 1;
  loop->chunk = chunk <= grain ? grain : ((chunk - 1) / grain + 1) * grain;
  return loop->chunks = (count - 1) / loop->chunk + 1;
}

/* Needs `busy`, and that no chunk is left. Begins the next phase that has work for several threads, after those before it;
 * returns whether there is one. */
static int begin_phase(void) {
  while (region.next < region.end) {
    struct fuse_loop *loop = region.phase = region.next;
    long chunks = 0;
    do chunks += cut(loop++);
    while (loop < region.end && !loop->first);
    region.next = loop;
    if (chunks > 1) {
      if (!team && workers < atomic_load(&threads) - 1) start_workers();
      atomic_store_explicit(&unfinished, (int)chunks, memory_order_relaxed);
      share_out(chunks);
      atomic_fetch_add(&phases, 1);
      return 1;
    }
    for (loop = region.phase; loop < region.next; loop++)
      if (loop->chunks) loop->task(loop->arg, 0, loop->count);
  }
  return 0;
}

static void call_caller(void) {
  if (!atomic_load(&sleeping_callers)) return;
  atomic_fetch_add(&calls_to_caller, 1);
  wake(&calls_to_caller, 1);
}

static void run_chunk(long number) {
  struct fuse_loop *loop = region.phase;
  for (; number >= loop->chunks; loop++) number -= loop->chunks;
  long begin = number * loop->chunk;
  loop->task(loop->arg, begin, loop->count - begin < loop->chunk ? loop->count : begin + loop->chunk);
}

/* Until no chunk is to be had. */
static void work(int self) {
  for (;;) {
    int done = 0;
    for (long chunk = take(self); chunk >= 0; chunk = take(self), done++) run_chunk(chunk);
    if (!done || atomic_fetch_sub(&unfinished, done) > done) return;
    if (begin_phase()) wake_workers(atomic_load_explicit(&threads, memory_order_relaxed) - 1, WAKES_BY_WORKER);
    else atomic_store(&finished, 1);
    call_caller();
  }
}

static void *worker(void *argument) {
  int self = (int)((intptr_t)argument % MOST_THREADS), own = (int)((intptr_t)argument / MOST_THREADS);
  give_way();
  for (;;) {
    int seen = atomic_load(&phases);
    if (atomic_load(&generation) != own) return 0;
    wake_workers(atomic_load_explicit(&threads, memory_order_relaxed) - 1, WAKES_BY_WORKER);
    work(self);
    await_change(&phases, seen, &sleeping_workers);
  }
}

static int has_news(int phase) {
  return atomic_load(&phases) != phase || atomic_load(&finished);
}

/* Returns when another phase has begun, or the region is done, or without cause. */
static void await_news(int phase) {
  long long limit = nanoseconds() + SPIN_NANOSECONDS;
  do {
    for (int i = 0; i < 16; i++) {
      if (has_news(phase)) return;
      relax();
    }
  } while (nanoseconds() < limit);
  int seen = atomic_load(&calls_to_caller);
  atomic_store(&sleeping_callers, 1);
  if (!has_news(phase)) sleep_while_equal(&calls_to_caller, seen);
  atomic_store(&sleeping_callers, 0);
}

/* What each thread of a team runs, to the end of the region. */
static void run_member(void *ignored) {
  (void)ignored;
  int self = team_number();
  for (;;) {
    int phase = atomic_load(&phases);
    work(self);
    if (atomic_load(&finished)) return;
    long long limit = nanoseconds() + SPIN_NANOSECONDS;
    while (!has_news(phase)) {
      for (int i = 0; i < 16 && !has_news(phase); i++) relax();
      if (nanoseconds() >= limit) sched_yield();
    }
  }
}

/* Needs `busy`, and gives it back. */
static void run_shared(struct fuse_loop *begin, struct fuse_loop *end) {
  region.next = begin;
  region.end = end;
  atomic_store_explicit(&finished, 0, memory_order_relaxed);
  int shared = begin_phase();
  if (shared && team) {
    team(run_member, 0, (unsigned)atomic_load(&threads), 0);
  } else if (shared) {
    wake_workers(workers, WAKES_BY_CALLER);
    for (;;) {
      int phase = atomic_load(&phases);
      work(CALLER);
      if (atomic_load(&finished)) break;
      await_news(phase);
    }
  }
  atomic_store_explicit(&busy, 0, memory_order_release);
}

/* With the pool from the first phase on that is worth it and finds it free. */
static void run_region(struct fuse_loop *loop, struct fuse_loop *end) {
  int alone = atomic_load_explicit(&threads, memory_order_relaxed) < 2;
  while (loop < end) {
    struct fuse_loop *begin = loop;
    int worthwhile = 0;
    do worthwhile |= loop->prepare || loop->count > loop->grain || loop != begin;
    while (++loop < end && !loop->first);
    if (worthwhile && !alone && !atomic_exchange_explicit(&busy, 1, memory_order_acquire)) {
      run_shared(begin, end);
      return;
    }
    for (; begin < loop; begin++) {
      if (begin->prepare) begin->count = begin->prepare(begin->arg);
      if (begin->count > 0) begin->task(begin->arg, 0, begin->count);
    }
  }
}

/* Runs the loops in order, those of a phase side by side. The caller alone runs what is of one grain, a loop inside a loop,
 * and what comes while another thread has the pool. */
void fuse_run_loops(struct fuse_loop *loop, long count) {
  struct fuse_loop *end = loop + count;
  while (loop < end) {
    struct fuse_loop *begin = loop++;
    while (loop < end && loop->first != REGION) loop++;
    run_region(begin, loop);
  }
}

/* Calls task(arg, begin, end) so that the ranges cover [0, count) once, each beginning at a multiple of `grain` and, but
 * for the last, of at least `grain`; returns when all are done. */
void fuse_parallel_for(fuse_task task, void *arg, long count, long grain) {
  struct fuse_loop loop = {task, arg, count, grain, 0, REGION, 0, 0};
  run_region(&loop, &loop + 1);
}

/* Takes the pool; its workers end, others start when they are needed. */
static void replace_workers(void) {
  struct timespec pause = {0, 50000};
  while (atomic_exchange_explicit(&busy, 1, memory_order_acquire)) nanosleep(&pause, 0);
  workers = 0;
  atomic_fetch_add(&generation, 1);
  atomic_fetch_add(&phases, 1);
  wake(&phases, INT_MAX);
}

/* From the next region on, `count` threads share it, the caller included. Must not be called from a task. */
void fuse_set_num_threads(int count) {
  replace_workers();
  atomic_store(&threads, count < 1 ? 1 : count > MOST_THREADS ? MOST_THREADS : count);
  atomic_store_explicit(&busy, 0, memory_order_release);
}

/* From the next region on, a team shares it in place of the pool's own threads; 0 for those again. */
void fuse_set_team(fuse_team found, int (*number)(void)) {
  if (team == found) return;
  replace_workers();
  team = found;
  team_number = number;
  atomic_store_explicit(&busy, 0, memory_order_release);
}

/* Takes the pool away from all regions, which their callers then run alone; its threads fall asleep. Not from a task. */
void fuse_take_pool(void) {
  struct timespec pause = {0, 50000};
  while (atomic_exchange_explicit(&busy, 1, memory_order_acquire)) nanosleep(&pause, 0);
}

void fuse_give_pool(void) { atomic_store_explicit(&busy, 0, memory_order_release); }

int fuse_num_threads(void) { return atomic_load(&threads); }
