/* A run of a program as one foreign call: arguments are checked and their addresses taken, then its loops run. Follows
 * the pool in one text; runtime/thread_pool.py compiles and loads it.
 *
 * Arrays are read as the structures that NumPy and CPython document (PyArrayObject, PyTupleObject), declared here so that
 * no headers are needed. runtime/program_call.py looks first whether objects of this process are laid out so. */
#include <stdint.h>

struct object {
  intptr_t references;
  void *type;
};

struct array {
  struct object head;
  char *data;
  int dimensions;
  intptr_t *shape, *strides;
  void *base, *descr;
  int flags;
};

struct tuple {
  struct object head;
  intptr_t size;
  struct array *items[];
};

/* What an array must be. */
struct value {
  void *descr; /* the element type's object */
  int64_t dimensions;
  const int64_t *shape;
  int64_t bytes, flags; /* flags that must be set */
  int64_t alone;        /* whether its memory must be no other's: the program writes to it */
};

struct fuse_frame {
  char **buffers; /* arguments first, then results */
  int64_t arguments, results;
  const struct value *values;
  void *array_type;
  struct fuse_loop *loops;
  int64_t count;
  void (*enter)(void), (*leave)(void); /* around a run, or 0 */
  void *(*release)(void);              /* lets other threads have the interpreter; 0 to keep it */
  void (*take)(void *);
};

void fuse_run_frame(const struct fuse_frame *frame) {
  if (frame->enter) frame->enter();
  fuse_run_loops(frame->loops, (long)frame->count);
  if (frame->leave) frame->leave();
}

static int fits(const struct array *array, const struct value *value, const void *type) {
  if (array->head.type != type || array->descr != value->descr || array->dimensions != value->dimensions) return 0;
  if ((array->flags & value->flags) != value->flags) return 0;
  for (int64_t axis = 0; axis < value->dimensions; axis++)
    if (array->shape[axis] != value->shape[axis]) return 0;
  return 1;
}

/* Whether no value that must be alone shares memory with another. */
static int apart(const struct fuse_frame *frame, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    if (!frame->values[i].alone) continue;
    for (int64_t k = 0; k < count; k++)
      if (k != i && frame->buffers[i] < frame->buffers[k] + frame->values[k].bytes &&
          frame->buffers[k] < frame->buffers[i] + frame->values[i].bytes)
        return 0;
  }
  return 1;
}

/* Runs the program on tuples of arrays and returns 1, or returns 0 where they are not what can be taken as it is. Called
 * with the interpreter held. */
int fuse_call(const struct fuse_frame *frame, const struct tuple *arguments, const struct tuple *results, int given) {
  if (arguments->size != frame->arguments || results->size != frame->results) return 0;
  for (int64_t k = 0; k < frame->arguments + frame->results; k++) {
    int own = k >= frame->arguments;
    const struct array *array = own ? results->items[k - frame->arguments] : arguments->items[k];
    if (!fits(array, &frame->values[k], frame->array_type)) return 0;
    frame->buffers[k] = array->data;
  }
  if (given && !apart(frame, frame->arguments + frame->results)) return 0;
  void *state = frame->release ? frame->release() : 0;
  fuse_run_frame(frame);
  if (frame->take) frame->take(state);
  return 1;
}

/* What is read of an array, for the look at how it is laid out. */
void fuse_describe(const struct array *array, void **found) {
  found[0] = array->head.type;
  found[1] = array->data;
  found[2] = (void *)(intptr_t)array->dimensions;
  found[3] = array->descr;
  found[4] = (void *)(intptr_t)array->flags;
  found[5] = array->shape;
}
