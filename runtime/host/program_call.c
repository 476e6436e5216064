/* A run of a program as one call of compiled code: arguments are checked and their addresses taken, then its loops run.
 * Follows python_objects.c and the pool in one text; runtime/host/thread_pool.py compiles and loads it. */

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
  struct fuse_loop *loops;
  int64_t count;
  void (*enter)(void), (*leave)(void); /* around a run, or 0 */
  void *(*release)(void);              /* lets other threads have the interpreter; 0 to keep it */
  void (*take)(void *);
  const int64_t *const *failed; /* each is not 0 after a run that is refused */
  int64_t failures;
  int64_t busy;
  int64_t apart;   /* whether these buffers were found to be apart */
  int64_t refused; /* the thread whose run is over and was refused; nobody has said so yet */
};

/* Memory of one result: methods, each of an array, that give a view of it. Nobody uses that memory while the method has the
 * only reference to the array. */
struct result {
  const struct list *kept;
  void *make; /* gives an array where all of that is in use */
};

#define MOST_FRAMES 16
struct fuse_program {
  const struct interface *python;
  struct fuse_frame *frames[MOST_FRAMES];
  int64_t count;
  int64_t arguments, own; /* arrays that it takes; results that it has memory for */
  const struct result *results;
  const int64_t *given; /* by result of a call: the argument, or behind them the own result, that it is */
  int64_t results_given;
  int64_t plain;     /* whether these are the own results in order: others may be given in their place */
  int64_t exclusive; /* whether arguments are written to */
  void *fail;        /* a function of Python that raises what a run was refused with */
};

void fuse_run_frame(const struct fuse_frame *frame) {
  if (frame->enter) frame->enter();
  fuse_run_loops(frame->loops, (long)frame->count);
  if (frame->leave) frame->leave();
}

/* The functions below are called with the interpreter held, so one at a time. */

static struct fuse_frame *idle_frame(const struct fuse_program *program) {
  for (int64_t k = 0; k < program->count; k++)
    if (!program->frames[k]->busy) {
      program->frames[k]->busy = 1;
      return program->frames[k];
    }
  return 0;
}

/* A frame that nobody uses, for one to fill its table; 0 where there is none. It is given back by `busy`. */
struct fuse_frame *fuse_take_frame(const struct fuse_program *program) {
  struct fuse_frame *frame = idle_frame(program);
  if (frame) frame->apart = 0;
  return frame;
}

/* Lets later runs have the frame; 0 where there are enough. */
int fuse_keep_frame(struct fuse_program *program, struct fuse_frame *frame) {
  if (program->count == MOST_FRAMES) return 0;
  program->frames[program->count++] = frame;
  return 1;
}

/* Takes a frame that the caller has taken away from later runs. */
void fuse_drop_frame(struct fuse_program *program, const struct fuse_frame *frame) {
  for (int64_t k = 0; k < program->count; k++)
    if (program->frames[k] == frame) program->frames[k--] = program->frames[--program->count];
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

/* Fills the table from arrays; whether they are what can be taken as it is. */
static int bind(struct fuse_frame *frame, const struct tuple *arguments, const struct tuple *results, int must_be_apart,
                const void *type) {
  int64_t count = frame->arguments + frame->results;
  for (int64_t k = 0; k < count; k++) {
    int own = k >= frame->arguments;
    const struct array *array = own ? results->items[k - frame->arguments] : arguments->items[k];
    if (!fits(array, &frame->values[k], type)) return 0;
    if (frame->buffers[k] == array->data) continue;
    frame->buffers[k] = array->data;
    frame->apart = 0;
  }
  if (must_be_apart && !frame->apart && !apart(frame, count)) return 0;
  frame->apart |= must_be_apart;
  return 1;
}

static struct array *new_result(const struct result *result, const struct interface *python) {
  for (intptr_t k = 0; k < result->kept->size; k++) {
    struct method *view = result->kept->items[k];
    if (view->self->references == 1) return python->call(view, 0);
  }
  return python->call(result->make, 0);
}

static struct tuple *new_results(const struct fuse_program *program, const struct result *memory) {
  const struct interface *python = program->python;
  struct tuple *found = python->new_tuple((intptr_t)program->own);
  for (int64_t k = 0; found && k < program->own; k++)
    if (!(found->items[k] = new_result(&memory[k], python))) {
      python->decrement(found);
      found = 0;
    }
  if (!found) python->clear_error(); /* the checked call meets it again */
  return found;
}

/* The caller's arrays as a tuple of its own. */
static struct tuple *given_results(const struct fuse_program *program, struct array *out) {
  const struct interface *python = program->python;
  if (out->head.type == python->tuple_type) {
    python->increment(out);
    return (struct tuple *)out;
  }
  int alone = out->head.type == python->array_type;
  if (!alone && out->head.type != python->list_type) return 0;
  struct list *list = (struct list *)out;
  struct array **items = alone ? &out : (struct array **)list->items;
  intptr_t size = alone ? 1 : list->size;
  struct tuple *found = size == program->own ? python->new_tuple(size) : 0;
  for (intptr_t k = 0; found && k < size; k++) python->increment(found->items[k] = items[k]);
  return found;
}

/* What a call gives: an array, or a tuple of them. */
static void *returned(const struct fuse_program *program, const struct tuple *arguments, struct tuple *results) {
  const struct interface *python = program->python;
  struct tuple *made = program->plain ? results : python->new_tuple((intptr_t)program->results_given);
  for (int64_t k = 0; made && made != results && k < program->results_given; k++) {
    int64_t number = program->given[k];
    int own = number >= program->arguments;
    made->items[k] = own ? results->items[number - program->arguments] : arguments->items[number];
    python->increment(made->items[k]);
  }
  if (made != results) python->decrement(results);
  if (!made || program->results_given != 1) return made;
  void *only = made->items[0];
  python->increment(only);
  python->decrement(made);
  return only;
}

static int has_failed(const struct fuse_frame *frame) {
  int found = 0;
  for (int64_t k = 0; k < frame->failures; k++) found |= *frame->failed[k] != 0;
  return found;
}

/* Runs a program in a frame that is marked as busy, and gives its result; NotImplemented where there is no frame or no results,
 * or these and the arguments are not arrays that can be taken as they are. */
static void *finish_call(const struct fuse_program *program, struct fuse_frame *frame, const struct tuple *arguments,
                         struct tuple *results, int out) {
  const struct interface *python = program->python;
  if (!results || results->size != program->own ||
      !bind(frame, arguments, results, out || program->exclusive, python->array_type)) {
    if (frame) frame->busy = 0;
    if (results) python->decrement(results);
    python->increment(python->not_implemented);
    return python->not_implemented;
  }
  void *state = frame->release ? frame->release() : 0;
  fuse_run_frame(frame);
  if (frame->take) frame->take(state);
  if (!has_failed(frame)) {
    frame->busy = 0;
    return returned(program, arguments, results);
  }
  python->decrement(results);
  frame->refused = (int64_t)pthread_self();
  void *nothing = python->call(program->fail, 0);
  frame->busy = 0;
  return nothing;
}

/* As a method of CPython (METH_FASTCALL) on an array whose elements are a fuse_program, with a tuple of arguments, and None
 * or what the results are to be written to. Runs the program and gives its result, or NotImplemented where these are not
 * arrays that can be taken as they are, or all frames are in use. */
void *fuse_call(const struct array *self, void *const *given, intptr_t count) {
  const struct fuse_program *program = (const struct fuse_program *)self->data;
  const struct interface *python = program->python;
  struct tuple *arguments = count == 2 ? given[0] : 0, *results = 0;
  struct fuse_frame *frame = 0;
  int out = count == 2 && given[1] != python->none;
  if (arguments && arguments->head.type == python->tuple_type && arguments->size == program->arguments)
    frame = idle_frame(program);
  if (frame && (!out || program->plain))
    results = out ? given_results(program, given[1]) : new_results(program, program->results);
  return finish_call(program, frame, arguments, results, out);
}

/* What is read of an array, of a list with it, and of a method of it, for the look at how they are laid out. */
void fuse_describe(const struct array *array, const struct list *list, const struct method *method, void **found) {
  found[0] = array->head.type;
  found[1] = array->data;
  found[2] = (void *)(intptr_t)array->dimensions;
  found[3] = array->descr;
  found[4] = (void *)(intptr_t)array->flags;
  found[5] = array->shape;
  found[6] = list->head.type;
  found[7] = (void *)list->size;
  found[8] = list->size ? list->items[0] : 0;
  found[9] = method->self;
  found[10] = (void *)method->self->references;
}
