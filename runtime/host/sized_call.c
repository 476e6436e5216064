/* A run of a program that takes any sizes: what follows from the extents of a call is computed by a function of the program, or
 * known from one before. Follows program_call.c in one text. */

/* What calls of some extents have. */
struct answer {
  int64_t *symbols, *numbers;
  struct value *values;         /* of arguments and results; their shapes are among the numbers */
  const struct result *results; /* memory of results, once there were two such calls; or 0 */
  int64_t calls, used;          /* how many there were, and the clock at the last one */
};

#define MOST_ANSWERS 8
struct sized_frame {
  struct fuse_frame *const *pieces; /* of one run, in order, on the same buffers; a call by compiled code has one */
  int64_t count, number;
  struct answer *answers, *current; /* the one whose numbers the frame has */
  int64_t arena;                    /* bytes that it has */
};

#define MOST_SYMBOLS 16
#define MOST_SIZED_FRAMES 16
struct fuse_sized {
  const struct interface *python;
  const struct fuse_program *program; /* without frames and memory of results */
  int (*sizes)(const int64_t *symbols, int64_t *numbers);
  int64_t symbols;
  const int64_t *places; /* by symbol an argument and an axis, or -1 where its value, an i64, is the symbol; for calls by compiled code */
  int64_t tasks, works, nbytes, arena; /* where such numbers begin */
  const int64_t *grains, *chunks;      /* of loops: tasks that are worth a thread, or operations, where those of a task are known */
  int64_t table;                /* the buffer that is the numbers, or -1 */
  void *(*release)(void);       /* what frames have that are worth it */
  void (*take)(void *);
  void *const *makers, *const *dtypes; /* by result twice, for small and large ones: what gives an array of a shape; its type */
  int64_t large;                       /* bytes from which on they are large */
  void *grow; /* gives a frame a larger arena: of its number and bytes */
  void *keep; /* gives an answer memory for results: of the numbers of a frame and an answer */
  struct sized_frame *frames[MOST_SIZED_FRAMES];
  int64_t count, clock;
  struct answer *last; /* of the call before */
};

static struct sized_frame *sized_frame_for(const struct fuse_sized *sized, const int64_t *symbols) {
  struct sized_frame *found = 0;
  for (int64_t k = 0; k < sized->count; k++) {
    struct sized_frame *frame = sized->frames[k];
    if (frame->pieces[0]->busy) continue;
    if (!found) found = frame;
    int64_t same = frame->current != 0;
    for (int64_t n = 0; same && n < sized->symbols; n++) same = frame->current->symbols[n] == symbols[n];
    if (same) return frame;
  }
  return found;
}

/* Calls a function of Python with two numbers; whether it could. */
static int tell(const struct interface *python, void *function, int64_t a, int64_t b) {
  struct tuple *numbers = python->new_tuple(2);
  void *done = 0;
  if (numbers && (numbers->items[0] = python->new_integer(a)) && (numbers->items[1] = python->new_integer(b)))
    done = python->call(function, numbers);
  if (numbers) python->decrement(numbers);
  if (!done) {
    python->clear_error(); /* the checked call meets it again */
    return 0;
  }
  python->decrement(done);
  return 1;
}

/* The answer for symbols, one before or a new one in the place of the one that was used least lately; 0 where there is none. */
static struct answer *answer_for(const struct fuse_sized *sized, struct sized_frame *frame, const int64_t *symbols) {
  struct answer *oldest = frame->answers;
  for (struct answer *answer = frame->answers; answer < frame->answers + MOST_ANSWERS; answer++) {
    int64_t same = answer->calls != 0;
    for (int64_t n = 0; same && n < sized->symbols; n++) same = answer->symbols[n] == symbols[n];
    if (same) return answer;
    if (answer->used < oldest->used) oldest = answer;
  }
  if (frame->current == oldest) frame->current = 0;
  oldest->results = 0;
  oldest->calls = oldest->used = 0;
  if (sized->sizes(symbols, oldest->numbers)) return 0;
  for (int64_t n = 0; n < sized->symbols; n++) oldest->symbols[n] = symbols[n];
  for (int64_t k = 0; k < frame->pieces[0]->arguments + frame->pieces[0]->results; k++)
    oldest->values[k].bytes = oldest->numbers[sized->nbytes + k];
  return oldest;
}

/* Gives the frame, whose arena is large enough, an answer's numbers. */
static void take_answer(const struct fuse_sized *sized, struct sized_frame *sized_frame, struct answer *answer) {
  int64_t work = 0, number = 0;
  const int64_t *tasks = answer->numbers + sized->tasks, *works = answer->numbers + sized->works;
  if (sized_frame->current == answer) return;
  for (int64_t piece = 0; piece < sized_frame->count; piece++) {
    struct fuse_frame *frame = sized_frame->pieces[piece];
    for (int64_t k = 0; k < frame->count; k++, number++) {
      int64_t chunk = sized->chunks[number], each = works[number], grain = sized->grains[number];
      if (chunk && each > 0) grain = (chunk - 1) / each + 1;
      frame->loops[k].count = (long)tasks[number];
      frame->loops[k].grain = (long)grain;
      work += tasks[number] / grain;
    }
  }
  for (int64_t piece = 0; piece < sized_frame->count; piece++) {
    struct fuse_frame *frame = sized_frame->pieces[piece];
    frame->values = answer->values;
    if (sized->table >= 0) frame->buffers[sized->table] = (char *)answer->numbers;
    frame->apart = 0;
    frame->release = work < 2 ? 0 : sized->release;
    frame->take = work < 2 ? 0 : sized->take;
  }
  sized_frame->current = answer;
}

/* Gives a frame that does not run the numbers for symbols, for a caller that binds it to memory itself: 0; bytes that its arena
 * has to have first; or -1 where the program is not for them. */
int64_t fuse_take_sizes(struct fuse_sized *sized, struct sized_frame *frame, const int64_t *symbols) {
  struct answer *answer = answer_for(sized, frame, symbols);
  if (!answer) return -1;
  answer->calls = 1;
  answer->used = ++sized->clock;
  if (answer->numbers[sized->arena] > frame->arena) return answer->numbers[sized->arena];
  take_answer(sized, frame, answer);
  return 0;
}

static struct tuple *arrays_for(const struct fuse_sized *sized, const struct answer *answer) {
  const struct interface *python = sized->python;
  int64_t own = sized->program->own;
  struct tuple *found = python->new_tuple((intptr_t)own);
  for (int64_t k = 0; found && k < own; k++) {
    const struct value *value = &answer->values[sized->program->arguments + k];
    struct tuple *shape = python->new_tuple((intptr_t)value->dimensions), *said = python->new_tuple(2);
    int64_t made = shape && said;
    for (int64_t axis = 0; made && axis < value->dimensions; axis++)
      made = (shape->items[axis] = python->new_integer(value->shape[axis])) != 0;
    if (made) {
      said->items[0] = (struct array *)shape;
      python->increment(said->items[1] = sized->dtypes[k]);
      found->items[k] = python->call(sized->makers[2 * k + (value->bytes >= sized->large)], said);
    } else if (shape) {
      python->decrement(shape);
    }
    if (said) python->decrement(said);
    if (!found->items[k]) {
      python->decrement(found);
      found = 0;
    }
  }
  if (!found) python->clear_error();
  return found;
}

static struct tuple *results_for(const struct fuse_sized *sized, struct sized_frame *frame, struct answer *answer) {
  if (!answer->results && answer->calls == 2) {
    if (!tell(sized->python, sized->keep, frame->number, answer - frame->answers)) answer->results = 0;
  }
  return answer->results ? new_results(sized->program, answer->results) : arrays_for(sized, answer);
}

/* As fuse_call. */
void *fuse_call_sized(const struct array *self, void *const *given, intptr_t count) {
  struct fuse_sized *sized = (struct fuse_sized *)self->data;
  const struct fuse_program *program = sized->program;
  const struct interface *python = sized->python;
  struct tuple *arguments = count == 2 ? given[0] : 0, *results = 0;
  int out = count == 2 && given[1] != python->none;
  int64_t symbols[MOST_SYMBOLS], known = 0;
  if (arguments && arguments->head.type == python->tuple_type && arguments->size == program->arguments)
    for (; known < sized->symbols; known++) {
      const struct array *array = arguments->items[sized->places[2 * known]];
      int64_t axis = sized->places[2 * known + 1];
      if (array->head.type != python->array_type || axis >= array->dimensions) break;
      if (axis < 0 && !fits(array, &sized->frames[0]->pieces[0]->values[sized->places[2 * known]], python->array_type)) break;
      symbols[known] = axis < 0 ? *(const int64_t *)array->data : array->shape[axis];
    }
  struct sized_frame *frame = known == sized->symbols && (!out || program->plain) ? sized_frame_for(sized, symbols) : 0;
  struct answer *answer = 0;
  if (frame) {
    frame->pieces[0]->busy = 1;
    answer = answer_for(sized, frame, symbols);
    int64_t needed = answer ? answer->numbers[sized->arena] : 0;
    if (needed > frame->arena && !tell(python, sized->grow, frame->number, needed)) answer = 0;
    if (answer) take_answer(sized, frame, answer);
  }
  if (!answer) {
    if (frame) frame->pieces[0]->busy = 0;
    return finish_call(program, 0, 0, 0, out);
  }
  answer->calls++;
  answer->used = ++sized->clock;
  sized->last = answer;
  results = out ? given_results(program, given[1]) : results_for(sized, frame, answer);
  return finish_call(program, frame->pieces[0], arguments, results, out);
}
