"""Matrix products on the CPU: NumPy's own BLAS, one thread at a time, called from the pool that all programs share.

OpenBLAS's threads wait for each other. With its processors busy a product takes hundreds of times as long as by one
thread; tasks that whoever is free takes do not have that trouble, and no second set of threads competes with the pool.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuse_opt.lowering.c.headers.conversions import c_conversions
from fuse_opt.lowering.program import ConfigValue
from fuse_opt.runtime.backends.blas.routines import find_routines
from fuse_opt.runtime.backends.blas.task_sizes import choose_blocks, choose_grain
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.host.c_compiler import CompileError, find_c_compiler
from fuse_opt.runtime.host.c_records import address_in, fields_of, int64_table, runtime_text
from fuse_opt.runtime.host.thread_pool import load_pool, num_threads

Array = NDArray[Any]

_SOURCES = (
    "backends/blas/matmul_tasks.c",
    "backends/blas/tile_products.c",
    "backends/blas/convolution_tasks.c",
    "backends/blas/convolution_gradients.c",
)
FLOAT_TYPES = (np.dtype(np.float32), np.dtype(np.float64))
_Shape = tuple[int, ...]
_NARROW = 128
"""Rows or columns up to which products are not the BLAS's, which copies both operands even where that takes the most time."""
_LINE_BYTES = 64
"""Of a row of the result, from which on they are not."""


class Products(ctypes.Structure):
    """The record `products` of matmul_tasks.c, without the axes at its end."""

    _fields_ = fields_of("backends/blas/matmul_tasks.c", "products")


@dataclass(frozen=True)
class Tasks:
    """The routines of matmul_tasks.c and of the files behind it, tied to a BLAS and to the pool."""

    library: ctypes.CDLL
    wide: bool

    def function(self, name: str) -> int:
        """The address of one of them."""
        return address_in(self.library, name)


_FUNCTIONS = ("fuse_blas_bind", "fuse_products")


@functools.cache
def load_tasks() -> Tasks | None:
    """
    The routines, or None where NumPy's BLAS is not an OpenBLAS that can be found, or nothing can be compiled for it.
    The first call compiles them, or takes them from the disk cache.
    """
    routines, compiler, pool = find_routines(), find_c_compiler(), load_pool()
    if routines is None or compiler is None or not pool:
        return None
    source = c_conversions() + "".join(map(runtime_text, _SOURCES))
    try:
        library = compiler.load_shared(source, DiskCache(), _FUNCTIONS, ["-pthread", "-ffp-contract=fast"])
    except (CompileError, OSError):
        return None
    pointers = [ctypes.c_void_p] * 7
    library.fuse_blas_bind.argtypes, library.fuse_blas_bind.restype = [*pointers, ctypes.c_int], None
    library.fuse_products.argtypes, library.fuse_products.restype = pointers[:4], None
    library.fuse_blas_bind(pool, *routines.products, routines.set_threads, routines.get_threads, routines.wide)
    tasks = Tasks(library, routines.wide)
    return tasks if all(_multiplies(tasks, dtype) for dtype in FLOAT_TYPES) else None


def _multiplies(tasks: Tasks, dtype: np.dtype[Any]) -> bool:
    """Whether a small product is right; one of integers of the wrong width is not."""
    a, b = np.arange(6, dtype=dtype).reshape(2, 3), np.arange(12, dtype=dtype).reshape(3, 4)
    out = np.full((2, 4), -1, dtype)
    table = product_table(tasks.wide, num_threads(), a.itemsize, a.shape, b.shape, out.shape, {})
    tasks.library.fuse_products(table, *(array.ctypes.data for array in (a, b, out)))
    return bool((out == [[20, 23, 26, 29], [56, 68, 80, 92]]).all())


def product_table(
    wide: bool, threads: int, item: int, a: _Shape, b: _Shape, c: _Shape, config: Mapping[str, ConfigValue]
) -> ctypes.Array[ctypes.c_int64] | None:
    """
    The record `products` of matmul_tasks.c for arrays in C order, operands transposed as `config` says; None where there is
    nothing to multiply, or a BLAS cannot do it without copies. `wide`: its integers have 64 bits.
    """
    a, a_steps = _transposed(a, item, bool(config.get("transpose_lhs")))
    b, b_steps = _transposed(b, item, bool(config.get("transpose_rhs")))
    plan = _plan(wide, threads, item, a, a_steps, b, b_steps, c, _packed_steps(c, item))
    return None if plan is None or plan.copies else plan.table


def _packed_steps(shape: _Shape, item: int) -> _Shape:
    return tuple(item * prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _transposed(shape: _Shape, item: int, swap: bool) -> tuple[_Shape, _Shape]:
    """The extents and steps of an array in C order, or of the view with its last axes swapped."""
    steps = _packed_steps(shape, item)
    if not swap or len(shape) < 2:
        return shape, steps
    return (*shape[:-2], shape[-1], shape[-2]), (*steps[:-2], steps[-1], steps[-2])


@dataclass(frozen=True)
class _Plan:
    """What depends on shapes and steps alone."""

    copies: bool = False
    """Whether an operand or the result lies as no BLAS takes it."""
    table: ctypes.Array[ctypes.c_int64] | None = None
    """The record `products` of matmul_tasks.c; None where nothing is to be multiplied."""


@dataclass(frozen=True)
class _Axis:
    """An axis of the stack: its extent, and steps in bytes of both operands and the result."""

    extent: int
    a: int
    b: int
    c: int


@functools.lru_cache(maxsize=1024)
def _plan(
    wide: bool,
    threads: int,
    item: int,
    a: _Shape,
    a_steps: _Shape,
    b: _Shape,
    b_steps: _Shape,
    c: _Shape,
    c_steps: _Shape,
) -> _Plan | None:
    """How to multiply such arrays; None where they do not fit together, or the BLAS's integers do not hold an extent."""
    if not a or not b or c != _result_shape(a, b):
        return None
    if len(b) == 1:
        b, b_steps, c, c_steps = (*b, 1), (*b_steps, item), (*c, 1), (*c_steps, item)
    if len(a) == 1:
        a, a_steps, c, c_steps = (1, *a), (item, *a_steps), (*c[:-1], 1, c[-1]), (*c_steps[:-1], item, c_steps[-1])
    if 0 in (*a, *b):
        return _Plan()
    (m, k), n = a[-2:], b[-1]
    stack = _stack(a, a_steps, b, b_steps, c, c_steps)
    a_rows, c_rows = a_steps[-2], c_steps[-2]
    # A stack times one matrix is one large product.
    while stack and stack[-1].b == 0 and stack[-1].a > 0:
        if m == 1:
            a_rows, c_rows = stack[-1].a, stack[-1].c
        elif (stack[-1].a, stack[-1].c) != (m * a_rows, m * c_rows):
            break
        m *= stack.pop().extent
    if not wide and max(m, n, k) >= 2**31:
        return None
    of_a = _layout(m, k, a_rows, a_steps[-1], item, wide)
    of_b = _layout(k, n, b_steps[-2], b_steps[-1], item, wide)
    of_c = _layout(m, n, c_rows, c_steps[-1], item, wide)
    if of_a is None or of_b is None or of_c is None or of_c[0]:
        return _Plan(copies=True)
    entries = int(np.prod([axis.extent for axis in stack], dtype=np.int64))
    rows, columns = choose_blocks(m, n, k, entries, threads)
    tasks = entries * -(-m // rows) * -(-n // columns)
    grain = choose_grain(2 * min(m, rows) * min(n, columns) * k)
    tiled = not of_a[0] and not of_b[0] and m > 1 and n * item >= _LINE_BYTES and min(m, n) <= _NARROW
    steps = (value for axis in stack for value in (axis.extent, axis.a, axis.b, axis.c))
    sizes = item, m, n, k, *of_a, *of_b, of_c[1], rows, columns, tasks, grain
    return _Plan(table=int64_table(*sizes, tiled, len(stack), *steps))


def _result_shape(a: _Shape, b: _Shape) -> _Shape | None:
    if a[-1] != b[-2:][0]:
        return None
    try:
        stack = np.broadcast_shapes(a[:-2], b[:-2])
    except ValueError:
        return None
    return (*stack, *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


def _stack(a: _Shape, a_steps: _Shape, b: _Shape, b_steps: _Shape, c: _Shape, c_steps: _Shape) -> list[_Axis]:
    """The leading axes of the result that have more than one element."""
    found: list[_Axis] = []
    for axis in range(-len(c), -2):
        a_step = a_steps[axis] if len(a) >= -axis and a[axis] > 1 else 0
        b_step = b_steps[axis] if len(b) >= -axis and b[axis] > 1 else 0
        if c[axis] > 1:
            found.append(_Axis(c[axis], a_step, b_step, c_steps[axis]))
    return found


def _layout(rows: int, columns: int, row_step: int, column_step: int, item: int, wide: bool) -> tuple[bool, int] | None:
    """Whether a matrix with such steps is a transposed one to a BLAS, and the distance of its lines; None if it is none."""
    for transposed, lines, length, line_step, step in (
        (False, rows, columns, row_step, column_step),
        (True, columns, rows, column_step, row_step),
    ):
        if step != item and length > 1:
            continue
        distance, rest = (length, 0) if lines == 1 else divmod(line_step, item)
        if rest == 0 and distance >= length and (wide or distance < 2**31):
            return transposed, distance
    return None
