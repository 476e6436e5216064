"""Primitives of oneDNN for tensors of known extents: what they are called with, and how the library would run them."""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from fuse_opt.dialects.implementation.site import Tensor
from fuse_opt.dialects.types.encodings import OrderAttr, PanelAttr, parts_of
from fuse_opt.runtime.backends.onednn.library import Library, OneDnnError

DTYPES = {"f16": 1, "bf16": 2, "f32": 3, "i32": 4, "i8": 5, "ui8": 6}
"""By element type: oneDNN's number."""
SRC, SRC_1, DST, WEIGHTS, SCRATCHPAD, POST_OP = 1, 2, 17, 33, 80, 32768
"""Numbers of arguments; of the operand of post-op k, `POST_OP * (k + 1) | SRC_1`."""
PARAMETERS, STATISTICS = (51, 52), (50, 49)
"""Of a normalization: its scale and what is added behind it; the variances and means of rows, in the order of var_mean."""
_USER_SCRATCHPAD = 1
_TRAINING, _INFERENCE, _DIRECT, _SOFTMAX = 64, 96, 1, 0x30000
_USES_SCALE, _USES_SHIFT = 2, 4
REFUSED = ("ref", "x64:gemm", "simple")
"""What names of implementations begin with that are slower than code of ours: loops, and a product with unfolded windows."""


@dataclass(frozen=True, slots=True)
class Dense:
    """A tensor by strides, in elements."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    """Nothing where the library is to choose how the tensor lies."""
    panel: tuple[int, int] | None = None
    """An axis in panels, of which the stride is from one to the next, and their width: elements of one lie innermost."""

    @classmethod
    def in_order(cls, shape: Sequence[int], dtype: str) -> Dense:
        """One in C order."""
        return cls(tuple(shape), dtype, tuple(prod(shape[axis + 1 :]) for axis in range(len(shape))))

    @classmethod
    def in_memory(
        cls, extents: Sequence[int], dtype: str, order: Sequence[int], panel: tuple[int, int] | None = None
    ) -> Dense:
        """
        One whose axes lie so, from outermost to innermost, with these extents there; no order is C order. Of a `panel` (its place
        in that order, the width) panels come first, and elements of one last.
        """
        steps, axes = cls.in_order(extents, dtype).strides, list(range(len(extents)))
        lying, moves = list(extents), list(steps)
        if panel is not None:
            place, width = panel
            lying, moves, axes = lying[1:-1], moves[1:-1], axes[:-1]
            lying.insert(place, extents[0] * width)
            moves.insert(place, steps[0])
        places = [order.index(axis) for axis in range(len(order))] or axes
        inside = None if panel is None else (order[panel[0]] if order else panel[0], panel[1])
        return cls(tuple(lying[n] for n in places), dtype, tuple(moves[n] for n in places), inside)

    @classmethod
    def of(cls, tensor: Tensor) -> Dense:
        """An operand or a result of a site, which lies in an order."""
        parts = () if tensor.encoding is None else parts_of(tensor.encoding)
        order = next((part.order for part in parts if isinstance(part, OrderAttr)), ())
        panel = next(((p.axis.data, p.width.data) for p in parts if isinstance(p, PanelAttr)), None)
        extents = tensor.shape if tensor.encoding is None else tensor.encoding.memory_extents(tensor.shape)
        return cls.in_memory(extents, tensor.dtype, order, panel)


@dataclass(frozen=True, slots=True)
class PostOp:
    """What is done to each element of the result, in order."""

    kind: Literal["eltwise", "binary", "sum"]
    algorithm: int = 0
    alpha: float = 0.0
    beta: float = 0.0
    operand: Dense | None = None
    """Of a binary one, with extents of 1 where it is broadcast."""


@dataclass(frozen=True, slots=True)
class Windows:
    """How a convolution's windows lie, by axis."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """What is done to each row of a matrix: a softmax, or with an `epsilon` a normalization with as many parameters."""

    epsilon: float | None = None
    parameters: tuple[Dense, ...] = ()
    """A scale, and what is added behind it."""
    statistics: tuple[Dense, ...] = ()
    """Where variances and means of rows are left, if they are."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A product, with `windows` a convolution, or what is done to `rows`: then `weights` are none."""

    src: Dense
    weights: Dense | None
    dst: Dense
    windows: Windows | None = None
    post_ops: tuple[PostOp, ...] = ()
    rows: Rows | None = None

    def arguments(self) -> list[tuple[int, Dense]]:
        """Numbers of arguments and what they are, in the order of operands: src, weights, those of post-ops, dst, statistics."""
        if (rows := self.rows) is not None:
            left = zip(STATISTICS, rows.statistics, strict=False)
            return [(SRC, self.src), *zip(PARAMETERS, rows.parameters, strict=False), (DST, self.dst), *left]
        assert self.weights is not None
        posts = [(POST_OP * (k + 1) | SRC_1, p.operand) for k, p in enumerate(self.post_ops) if p.operand is not None]
        return [(SRC, self.src), (WEIGHTS, self.weights), *posts, (DST, self.dst)]


class Primitive:
    """How the library runs a problem, and the primitive once it is asked for."""

    def __init__(self, library: Library, problem: Problem) -> None:
        """Raises OneDnnError where the library does not run it."""
        self.library, self.problem = library, problem
        with library.one_thread():
            self._description = _described(library, problem)
        weakref.finalize(self, library.call, "dnnl_primitive_desc_destroy", self._description).atexit = False
        self.implementation = library.implementation(self._description)
        self.scratchpad, self.scratchpad_bytes = library.scratchpad_desc(self._description)

    @functools.cached_property
    def weights(self) -> Dense:
        """The weights as the primitive reads them, or with no strides where they lie in another way than panels."""
        wanted = self.problem.weights
        assert wanted is not None
        if wanted.strides and wanted.panel is None:
            return wanted
        found = self.library.blocks(self.weights_desc, len(wanted.shape))
        otherwise = replace(wanted, strides=(), panel=None)
        if not 1 <= len(found.inner) <= 2 or found.padded != wanted.shape:
            return otherwise
        *groups, panel = found.inner
        strides = list(found.strides)
        for axis, count in groups:
            if axis == panel[0] or strides[axis] != count * panel[1]:
                return otherwise
            strides[axis] = panel[1]  # groups of a panel's rows lie one behind the other, as single rows would
        return replace(wanted, strides=tuple(strides), panel=panel)

    @property
    def weights_desc(self) -> int:
        """The description of the weights, which is the primitive's own."""
        return self.library.weights_desc(self._description)

    @property
    def other_panels(self) -> bool:
        """Whether weights lie in panels, and in others than those that it reads."""
        weights = self.problem.weights
        return weights is not None and weights.panel is not None and self.weights != weights

    @property
    def refusal(self) -> str | None:
        """Why it is not worth a call, or cannot be called."""
        if self.other_panels:
            return "panels"
        slow = self.implementation.startswith(REFUSED) or ":ref" in self.implementation
        return f"implementation-{self.implementation}" if slow else None

    @functools.cached_property
    def handle(self) -> int:
        """The primitive, made at the first use, which takes up to some milliseconds."""
        with self.library.one_thread():
            found = self.library.make("dnnl_primitive_create", self._description)
        weakref.finalize(self, self.library.call, "dnnl_primitive_destroy", found).atexit = False
        return found


@functools.lru_cache(maxsize=4096)
def primitive_of(library: Library, problem: Problem) -> Primitive:
    """The same object for equal problems. Raises OneDnnError where the library does not run it."""
    return Primitive(library, problem)


def _described(library: Library, problem: Problem) -> int:
    """A primitive's description, whose scratchpad is the caller's. Raises OneDnnError."""
    with ExitStack() as stack:

        def desc(tensor: Dense) -> int:
            return stack.enter_context(_made(library, "memory_desc", lambda: _memory_desc(library, tensor)))

        attributes = stack.enter_context(
            _made(library, "primitive_attr", lambda: library.make("dnnl_primitive_attr_create"))
        )
        library.call("dnnl_primitive_attr_set_scratchpad_mode", attributes, _USER_SCRATCHPAD)
        if problem.post_ops:
            posts = stack.enter_context(_made(library, "post_ops", lambda: library.make("dnnl_post_ops_create")))
            for post in problem.post_ops:
                _append(library, posts, post, desc)
            library.call("dnnl_primitive_attr_set_post_ops", attributes, posts)
        src, dst = desc(problem.src), desc(problem.dst)
        if problem.rows is not None:
            statistics = desc(problem.rows.statistics[0]) if problem.rows.statistics else None
            return _described_rows(library, problem.rows, src, dst, statistics, attributes)
        assert problem.weights is not None
        weights = desc(problem.weights)
        if (windows := problem.windows) is None:
            return library.make(
                "dnnl_matmul_primitive_desc_create", library.engine, src, weights, None, dst, attributes
            )
        spaces = [_extents(v) for v in (windows.strides, windows.dilations, windows.before, windows.after)]
        return library.make(
            "dnnl_convolution_forward_primitive_desc_create",
            library.engine, _INFERENCE, _DIRECT, src, weights, None, dst, *spaces, attributes,
        )  # fmt: skip


def _described_rows(library: Library, rows: Rows, src: int, dst: int, statistics: int | None, attributes: int) -> int:
    if rows.epsilon is None:
        return library.make(
            "dnnl_softmax_forward_primitive_desc_create", library.engine, _INFERENCE, _SOFTMAX, src, dst, 1, attributes
        )
    flags = sum((_USES_SCALE, _USES_SHIFT)[: len(rows.parameters)])
    return library.make(
        "dnnl_layer_normalization_forward_primitive_desc_create",
        library.engine, _INFERENCE if statistics is None else _TRAINING, src, dst, statistics, rows.epsilon, flags, attributes,
    )  # fmt: skip


@contextmanager
def _made(library: Library, kind: str, make: Callable[[], int]) -> Generator[int]:
    """A handle that is destroyed behind the body."""
    handle = make()
    try:
        yield handle
    finally:
        library.call(f"dnnl_{kind}_destroy", handle)


def _append(library: Library, posts: int, post: PostOp, desc: Callable[[Dense], int]) -> None:
    if post.kind == "eltwise":
        library.call("dnnl_post_ops_append_eltwise", posts, post.algorithm, post.alpha, post.beta)
    elif post.kind == "binary":
        assert post.operand is not None
        library.call("dnnl_post_ops_append_binary", posts, post.algorithm, desc(post.operand))
    else:
        library.call("dnnl_post_ops_append_sum", posts, 1.0, 0, 0)


def _memory_desc(library: Library, tensor: Dense) -> int:
    if tensor.panel is not None or not tensor.strides:  # which of them is asked about what was made
        return library.any_memory_desc(DTYPES[tensor.dtype], tensor.shape)
    return library.memory_desc(DTYPES[tensor.dtype], tensor.shape, tensor.strides)


def _extents(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * 12)(*values)


class Bound:
    """Objects of a primitive for one caller at a time: a stream, a memory object for each argument."""

    def __init__(self, primitive: Primitive) -> None:
        """Raises OneDnnError."""
        library = primitive.library
        self.primitive = primitive
        self.stream = library.stream()
        weakref.finalize(self, library.call, "dnnl_stream_destroy", self.stream).atexit = False
        self.numbers = [number for number, _ in primitive.problem.arguments()]
        self.memory = [self._memory(*argument) for argument in primitive.problem.arguments()]
        if primitive.scratchpad_bytes:
            self.numbers.append(SCRATCHPAD)
            self.memory.append(self._memory_of(primitive.scratchpad))

    def _memory(self, number: int, tensor: Dense) -> int:
        library = self.primitive.library
        if number == WEIGHTS and tensor.panel is not None:
            return self._memory_of(self.primitive.weights_desc)
        with _made(library, "memory_desc", lambda: _memory_desc(library, tensor)) as desc:
            return self._memory_of(desc)

    def _memory_of(self, desc: int) -> int:
        library = self.primitive.library
        found = library.make("dnnl_memory_create", desc, library.engine, None)
        weakref.finalize(self, library.call, "dnnl_memory_destroy", found).atexit = False
        return found


__all__ = ["Bound", "Dense", "OneDnnError", "PostOp", "Primitive", "Problem", "Rows", "Windows", "primitive_of"]
