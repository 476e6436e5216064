/* Objects of Python as compiled code reads them: the structures that NumPy and CPython document (PyArrayObject, PyTupleObject,
 * PyListObject, PyCFunctionObject), declared here so that no headers are needed. runtime/host/program_call.py looks first
 * whether objects of this process are laid out so. Stands before others in one text. */
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

struct list {
  struct object head;
  intptr_t size;
  void **items;
};

/* A method of an object. */
struct method {
  struct object head;
  void *definition;
  struct object *self;
};

/* Of CPython. */
struct interface {
  void *tuple_type, *list_type, *array_type, *none, *not_implemented;
  void (*increment)(void *), (*decrement)(void *);
  void *(*new_tuple)(intptr_t size);
  void *(*call)(void *function, void *arguments); /* a tuple, or 0 */
  void (*clear_error)(void);
  void *(*new_integer)(int64_t);
};

