/* Loops of a program whose pieces are written down, each with its thread and its times. A loop of the program has `noted_task`
 * in the place of its task, and a record `noted_loop` in that of its argument. */
#include <stdint.h>
#include <time.h>

typedef void (*fuse_task)(void *arg, long begin, long end);

/* A piece of a step's loop, [begin, end) of its tasks; times in nanoseconds. */
struct note {
  int64_t step, thread, begin, end, started, ended;
};

struct notes {
  struct note *rows;
  int64_t most, used;
};

struct noted_loop {
  fuse_task task;
  void *arg;
  long (*prepare)(void *arg);
  int64_t step;
  struct notes *notes;
};

static int64_t threads; /* that have asked for a number */
static _Thread_local int64_t own;

int64_t noted_thread(void) {
  if (!own) own = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
  return own;
}

int64_t noted_time(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

void noted_task(void *arg, long begin, long end) {
  struct noted_loop *loop = arg;
  int64_t started = noted_time();
  loop->task(loop->arg, begin, end);
  int64_t ended = noted_time(), place = __atomic_fetch_add(&loop->notes->used, 1, __ATOMIC_RELAXED);
  if (place < loop->notes->most)
    loop->notes->rows[place] = (struct note){loop->step, noted_thread(), begin, end, started, ended};
}

long noted_prepare(void *arg) {
  struct noted_loop *loop = arg;
  return loop->prepare(loop->arg);
}
