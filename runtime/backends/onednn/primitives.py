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

from fuse_opt.runtime.backends.onednn.library import Library, OneDnnError
from fuse_opt.runtime.backends.onednn.tensors import ITEM_BYTES, SIDE_BY_SIDE, Dense

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
        otherwise = replace(wanted, strides=(), panel=None, group=None)
        inner, side = list(found.inner), SIDE_BY_SIDE.get(wanted.dtype, 1)
        group = inner.pop() if side > 1 and len(inner) > 1 else None
        if not 1 <= len(inner) <= 2 or found.padded != wanted.shape or (group is None) != (side == 1):
            return otherwise
        if self.library.size_of(self.weights_desc) != prod(found.padded) * ITEM_BYTES[wanted.dtype]:
            return otherwise  # the library keeps sums of its own behind them
        *groups, panel = inner
        strides = list(found.strides)
        for axis, count in groups:
            if axis == panel[0] or strides[axis] != count * panel[1] * side:
                return otherwise
            strides[axis] = panel[1] * side  # groups of a panel's rows lie one behind the other, as single rows would
        if group is not None and (group[1] != side or group[0] == panel[0]):
            return otherwise
        return replace(wanted, strides=tuple(strides), panel=panel, group=group)

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
    def reads_plain_bytes(self) -> bool:
        """Whether it is a convolution of bytes with filters as programs have them: right, and slow until they are packed."""
        weights = self.problem.weights
        is_plain = weights is not None and weights.panel is None and weights.dtype == "i8"
        return is_plain and self.problem.windows is not None

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
        if number == WEIGHTS and (tensor.panel is not None or not tensor.strides):
            return self._memory_of(self.primitive.weights_desc)
        with _made(library, "memory_desc", lambda: _memory_desc(library, tensor)) as desc:
            return self._memory_of(desc)

    def _memory_of(self, desc: int) -> int:
        library = self.primitive.library
        found = library.make("dnnl_memory_create", desc, library.engine, None)
        weakref.finalize(self, library.call, "dnnl_memory_destroy", found).atexit = False
        return found


__all__ = ["Bound", "Dense", "OneDnnError", "PostOp", "Primitive", "Problem", "Rows", "Windows", "primitive_of"]
