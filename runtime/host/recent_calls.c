/* Calls of one of several programs, as the shapes of arguments say. Follows sized_call.c in one text. */

/* Programs of one signature for different shapes, the one that was called last first. */
#define MOST_RECENT 64
struct fuse_recent {
  const struct interface *python;
  struct array *programs[MOST_RECENT]; /* arrays whose elements are a fuse_program each */
  int64_t count;
  struct array *sized[2]; /* arrays whose elements are a fuse_sized each, for what none of these is for */
  int64_t sized_count, sized_last; /* how many there are; whether one of them was called last */
};

static void put_first(struct fuse_recent *recent, struct array *program, int64_t place) {
  for (; place > 0; place--) recent->programs[place] = recent->programs[place - 1];
  recent->programs[0] = program;
}

/* Takes a program up as the first; gives one that had to go, or 0. */
struct array *fuse_remember(struct fuse_recent *recent, struct array *program) {
  int64_t place = 0;
  while (place < recent->count && recent->programs[place] != program) place++;
  struct array *dropped = place == MOST_RECENT ? recent->programs[--place] : 0;
  recent->count += place == recent->count;
  put_first(recent, program, place);
  return dropped;
}

static int has_shapes(const struct fuse_program *program, const struct tuple *arguments, const void *type) {
  if (!program->count || arguments->size != program->arguments) return 0;
  for (int64_t k = 0; k < program->arguments; k++) {
    const struct value *value = &program->frames[0]->values[k];
    const struct array *array = arguments->items[k];
    if (array->head.type != type || array->dimensions != value->dimensions) return 0;
    for (int64_t axis = 0; axis < value->dimensions; axis++)
      if (array->shape[axis] != value->shape[axis]) return 0;
  }
  return 1;
}

/* As fuse_call, of the program for the arguments' shapes. */
void *fuse_call_recent(const struct array *self, void *const *given, intptr_t count) {
  struct fuse_recent *recent = (struct fuse_recent *)self->data;
  const struct interface *python = recent->python;
  const struct tuple *arguments = count == 2 ? given[0] : 0;
  if (arguments && arguments->head.type == python->tuple_type)
    for (int64_t k = 0; k < recent->count; k++) {
      struct array *program = recent->programs[k];
      if (!has_shapes((const struct fuse_program *)program->data, arguments, python->array_type)) continue;
      put_first(recent, program, k);
      recent->sized_last = 0;
      python->increment(program); /* others may let go of it while this runs */
      void *found = fuse_call(program, given, count);
      python->decrement(program);
      return found;
    }
  for (int64_t k = 0; k < recent->sized_count; k++) {
    struct array *program = recent->sized[k];
    python->increment(program);
    void *found = fuse_call_sized(program, given, count);
    python->decrement(program);
    if (found == python->not_implemented && k + 1 < recent->sized_count) {
      python->decrement(found);
      continue;
    }
    recent->sized_last = found == python->not_implemented ? recent->sized_last : k + 1;
    return found;
  }
  python->increment(python->not_implemented);
  return python->not_implemented;
}
