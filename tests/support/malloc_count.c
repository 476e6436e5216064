/* Preloaded into a process: counts allocations of at least so many bytes while it is armed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <sys/mman.h>

static volatile size_t armed, counted, largest;

void count_from(size_t bytes) { counted = largest = 0, armed = bytes; }
size_t count_until(void) { armed = 0; return counted; }
size_t count_largest(void) { return largest; }

static void note(size_t bytes) {
  if (!armed || bytes < armed) return;
  __atomic_fetch_add(&counted, 1, __ATOMIC_RELAXED);
  if (bytes > largest) largest = bytes;
}

#define WRAP(type, name, parameters, arguments, bytes)            \
  type name parameters {                                          \
    static type(*next) parameters;                                \
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, #name);         \
    note(bytes);                                                  \
    return next arguments;                                        \
  }
WRAP(void *, malloc, (size_t n), (n), n)
WRAP(void *, realloc, (void *p, size_t n), (p, n), n)
WRAP(void *, aligned_alloc, (size_t a, size_t n), (a, n), n)
WRAP(int, posix_memalign, (void **p, size_t a, size_t n), (p, a, n), n)
WRAP(void *, mmap, (void *p, size_t n, int a, int b, int c, off_t d), (p, n, a, b, c, d), n)
