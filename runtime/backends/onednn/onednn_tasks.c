/* Primitives of oneDNN as tasks of a program's loop. They are made before; a task sets where operands are, and runs one.
 * runtime/backends/onednn/calls.py compiles this and fills the records. */
#include <stdint.h>

/* A memory object of oneDNN, and where its elements are in a run: `offset` bytes into a buffer whose address is in a table. */
struct onednn_operand {
  void *memory;
  char *const *buffer;
  int64_t offset;
};

/* Part of a call. What it points to is no other part's: several run at a time. */
struct onednn_piece {
  void *primitive, *stream;
  int64_t count;
  const struct onednn_operand *operands;
  void *arguments; /* `count` records dnnl_exec_arg_t with these memory objects */
};

struct onednn_call {
  int (*execute)(const void *primitive, void *stream, int count, const void *arguments);
  int (*set_handle)(void *memory, void *handle);
  int (*get_threads)(void); /* of OpenMP, for the calling thread; 0 where the library has none */
  void (*set_threads)(int);
  const struct onednn_piece *pieces;
  int64_t failed; /* the status that is not 0 */
};

static int run_piece(const struct onednn_call *call, const struct onednn_piece *piece) {
  for (int64_t k = 0; k < piece->count; k++) {
    const struct onednn_operand *operand = &piece->operands[k];
    int status = call->set_handle(operand->memory, *operand->buffer + operand->offset);
    if (status) return status;
  }
  return call->execute(piece->primitive, piece->stream, (int)piece->count, piece->arguments);
}

/* The count of threads is the calling thread's own, so that nobody else sees it change. With one thread OpenMP starts none:
 * they would fight the pool's, and a fork after it would leave a child that waits for them. */
void fuse_run_onednn(void *arg, long begin, long end) {
  struct onednn_call *call = arg;
  int before = call->get_threads ? call->get_threads() : 1;
  if (before != 1) call->set_threads(1);
  for (long k = begin; k < end; k++) {
    int status = run_piece(call, &call->pieces[k]);
    if (status) __atomic_store_n(&call->failed, (int64_t)status, __ATOMIC_RELAXED);
  }
  if (before != 1) call->set_threads(before);
}
