/* How threads of the pool wait for a word of memory to change: spinning for a while, then asleep, by futexes where the system
 * has them. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define SPIN_NANOSECONDS 30000

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
