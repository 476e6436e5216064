"""Convolutions and their gradients on a device, by cuDNN through ctypes: the backend `cudnn`.

The functions are those of cuDNN's first interface, which versions 8 and 9 have: a call is its descriptors and a number. The
library is asked for an algorithm when the program is built; its documentation promises no result in place of an operand.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

from fuse_opt.dialects.implementation.site import Cost, Site
from fuse_opt.lowering.program import BufferRef, Config, LibraryCall
from fuse_opt.lowering.reference.kernels.registry import native_implementation
from fuse_opt.runtime.backends.device_calls import (
    Address,
    Enqueue,
    check,
    load_library,
    load_problem,
    required,
    with_room,
    workspace_at,
)
from fuse_opt.runtime.device.driver import CudaError, Device

VARIABLE = "FUSE_OPT_CUDNN"
_VERSIONS = (".9", ".8", "")
_FAST = "_fast"
_MOST_ELEMENTS = 1 << 31
_LEAST_WORKSPACE = 1 << 20
_MOST_FORWARD = 256 << 20
"""Bytes. A forward call always has an algorithm that takes none; of gradients none is promised to."""

# Values of enums in cudnn_graph.h and cudnn_ops.h.
_TYPES = {"f32": 0, "f64": 1, "f16": 2, "bf16": 9}
_DEFAULT_MATH, _TENSOR_MATH, _FMA_MATH = 0, 1, 3
"""Of f32 the default one may round operands to TF32, and the last one never does."""
_CROSS_CORRELATION, _NCHW, _DETERMINISTIC = 1, 0, 1

_P, _I, _S = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_ASK = (_P, _P, _P, _P, _P, _I, _P, _P)
_RUN = (_P, _P, _P, _P, _P, _P, _P, _I, _P, _S, _P, _P, _P)


class _Found(ctypes.Structure):
    """cudnnConvolutionFwdAlgoPerf_t, and those of the gradients."""

    _fields_ = (
        ("algorithm", _I),
        ("status", _I),
        ("time", ctypes.c_float),
        ("memory", _S),
        ("determinism", _I),
        ("math", _I),
        ("reserved", _I * 3),
    )


@dataclass(frozen=True)
class Direction:
    """One of the three computations that a convolution has."""

    function: str
    ask: str
    roles: str
    """What the op's operands and its result are: x and y as of a convolution, w the weight."""
    given: str
    """The library's order of operands and result."""
    plain: tuple[int, ...]
    """Algorithms that are sums of products: no transforms, no atomics."""


_FORWARD = Direction("cudnnConvolutionForward", "cudnnGetConvolutionForwardAlgorithm_v7", "xwy", "xwy", (0, 1, 2, 3))
_DATA = Direction("cudnnConvolutionBackwardData", "cudnnGetConvolutionBackwardDataAlgorithm_v7", "ywx", "wyx", (1,))
_WEIGHT = Direction(
    "cudnnConvolutionBackwardFilter", "cudnnGetConvolutionBackwardFilterAlgorithm_v7", "yxw", "xyw", (1,)
)
DIRECTIONS = {
    "graph.conv": _FORWARD,
    "graph.conv_backward_data": _DATA,
    "graph.conv_transpose": _DATA,
    "graph.conv_backward_weight": _WEIGHT,
}
"""By op."""
_SIGNATURES = {
    "cudnnCreate": (_P,),
    "cudnnDestroy": (_P,),
    "cudnnSetStream": (_P, _P),
    "cudnnCreateTensorDescriptor": (_P,),
    "cudnnDestroyTensorDescriptor": (_P,),
    "cudnnSetTensorNdDescriptor": (_P, _I, _I, _P, _P),
    "cudnnCreateFilterDescriptor": (_P,),
    "cudnnDestroyFilterDescriptor": (_P,),
    "cudnnSetFilterNdDescriptor": (_P, _I, _I, _I, _P),
    "cudnnCreateConvolutionDescriptor": (_P,),
    "cudnnDestroyConvolutionDescriptor": (_P,),
    "cudnnSetConvolutionNdDescriptor": (_P, _I, _P, _P, _P, _I, _I),
    "cudnnSetConvolutionGroupCount": (_P, _I),
    "cudnnSetConvolutionMathType": (_P, _I),
    **{each.function: _RUN for each in DIRECTIONS.values()},
    **{each.ask: _ASK for each in DIRECTIONS.values()},
}
_REQUESTED = 8
"""Algorithms at most, as many as there are."""


def _chosen() -> str:
    return os.environ.get(VARIABLE, "")


def _library() -> ctypes.CDLL | None:
    return load_library(VARIABLE, _chosen(), "cudnn", _SIGNATURES, _VERSIONS)


def cudnn_problem() -> str | None:
    """Why cuDNN cannot be called here; it is loaded for that."""
    return load_problem(VARIABLE, _chosen(), "cuDNN", _library)


@dataclass(frozen=True)
class Problem:
    """A convolution as the library has it: at least two spatial axes, equal pads on both sides of each."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    y: tuple[int, ...]
    pads: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int


def problem_of(op: str, shapes: Sequence[tuple[int, ...]], config: Config) -> Problem | str:
    """The problem of an op on operands and a result of these shapes, or the code of why it is none."""
    extents = dict(zip(DIRECTIONS[op].roles, shapes, strict=True))
    axes = len(shapes[0]) - 2
    strides, dilations = (_numbers(config, name, axes, 1) for name in ("strides", "dilations"))
    both = _numbers(config, "pads", 2 * axes, 0)
    pads, groups = both[:axes], config.get("groups", 1)
    if pads != both[axes:]:
        return "pads"
    along = zip(extents["x"][2:], extents["w"][2:], pads, strides, dilations, strict=True)
    positions = tuple((n + 2 * pad - d * (k - 1) - 1) // s + 1 for n, k, pad, s, d in along)
    if positions != extents["y"][2:]:
        return "output-padding"
    if axes == 1:  # the library begins with two
        extents = {role: (*shape[:2], 1, *shape[2:]) for role, shape in extents.items()}
        pads, strides, dilations = (0, *pads), (1, *strides), (1, *dilations)
    assert isinstance(groups, int)
    return Problem(extents["x"], extents["w"], extents["y"], pads, strides, dilations, groups)


def _numbers(config: Config, name: str, count: int, otherwise: int) -> tuple[int, ...]:
    found = config.get(name)
    return tuple(int(n) for n in found) if isinstance(found, tuple) and found else (otherwise,) * count


@dataclass(frozen=True)
class _Bound:
    """A call with its descriptors, in the library's order, and its algorithm."""

    function: Any
    operands: tuple[tuple[BufferRef, int], ...]
    """With the result last."""
    description: int
    algorithm: int
    scalars: Any
    """One and zero, in the type of sums."""


class Cudnn:
    """Convolutions of one program."""

    def __init__(self, device: Device) -> None:
        """Raises CudaError."""
        self._library = required(_library(), "cuDNN", VARIABLE)
        self._device = device
        self._handle = self._made("")

    def bound(self, call: LibraryCall, address: Address) -> Enqueue:
        """What enqueues a convolution."""
        direction, refs = DIRECTIONS[call.operation], (*call.inputs, *call.outputs)
        problem = problem_of(call.operation, [ref.shape for ref in refs], call.config)
        assert isinstance(problem, Problem), call
        by_role = dict(zip(direction.roles, refs, strict=True))
        dtype = refs[0].dtype
        descriptors = {"x": self._tensor(problem.x, dtype), "y": self._tensor(problem.y, dtype)}
        descriptors["w"] = self._filter(problem.w, dtype)
        is_fast = call.implementation.endswith(_FAST)
        description = self._convolution(problem, dtype, math := math_type(dtype, is_fast))
        operands = tuple((by_role[role], descriptors[role]) for role in direction.given)
        room = workspace_at(call, lambda ref: ref.offset)[1]
        found = self._ask(direction, [each for _, each in operands], description, room, math, is_fast)
        if found is None:
            raise CudaError(
                f"'{call.operation}': cuDNN has no algorithm for {problem} of {dtype} in {room} bytes; "
                'compile with backend="-cudnn"'
            )
        if math != _FMA_MATH:
            self._call("cudnnSetConvolutionMathType", description, found.math)
        scalar = ctypes.c_double if dtype == "f64" else ctypes.c_float
        function = getattr(self._library, direction.function)
        bound = _Bound(function, operands, description, found.algorithm, (scalar * 2)(1, 0))
        return partial(self._enqueue, bound, direction.function, call, address)

    def _enqueue(self, bound: _Bound, name: str, call: LibraryCall, address: Address, stream: Any) -> None:
        self._call("cudnnSetStream", self._handle, stream.handle)
        (first, a), (second, b), (result, c) = bound.operands
        one = ctypes.addressof(bound.scalars)
        zero = one + ctypes.sizeof(bound.scalars) // 2
        status = bound.function(
            self._handle, one, a, address(first), b, address(second), bound.description, bound.algorithm,
            *workspace_at(call, address), zero, c, address(result),
        )  # fmt: skip
        check(status, name)

    def _ask(
        self, direction: Direction, operands: Sequence[int], description: int, room: int, math: int, fast: bool
    ) -> _Found | None:
        """The first algorithm that the heuristic names of those that may be taken; None where there is none."""
        found, count = (_Found * _REQUESTED)(), _I()
        first, second, result = operands
        arguments = (first, second, description, result, _REQUESTED, ctypes.byref(count), found)
        self._call(direction.ask, self._handle, *arguments)
        able = [each for each in found[: count.value] if not each.status and each.memory <= room]
        able = [each for each in able if each.determinism == _DETERMINISTIC]
        if not fast:
            able = [each for each in able if each.algorithm in direction.plain and each.math <= max(math, _TENSOR_MATH)]
        return next(iter(able), None)

    def _tensor(self, shape: tuple[int, ...], dtype: str) -> int:
        made = self._made("TensorDescriptor")
        strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
        self._call("cudnnSetTensorNdDescriptor", made, _TYPES[dtype], len(shape), _integers(shape), _integers(strides))
        return made

    def _filter(self, shape: tuple[int, ...], dtype: str) -> int:
        made = self._made("FilterDescriptor")
        self._call("cudnnSetFilterNdDescriptor", made, _TYPES[dtype], _NCHW, len(shape), _integers(shape))
        return made

    def _convolution(self, problem: Problem, dtype: str, math: int) -> int:
        made = self._made("ConvolutionDescriptor")
        windows = (_integers(each) for each in (problem.pads, problem.strides, problem.dilations))
        sums = _TYPES["f64" if dtype == "f64" else "f32"]
        self._call("cudnnSetConvolutionNdDescriptor", made, len(problem.pads), *windows, _CROSS_CORRELATION, sums)
        self._call("cudnnSetConvolutionGroupCount", made, problem.groups)
        self._call("cudnnSetConvolutionMathType", made, math)
        return made

    def _made(self, kind: str) -> int:
        """An object of the library's, which is destroyed with this one. Raises CudaError."""
        handle = ctypes.c_void_p()
        self._call(f"cudnnCreate{kind}", ctypes.byref(handle))
        assert handle.value is not None
        destroy = getattr(self._library, f"cudnnDestroy{kind}")
        weakref.finalize(self, self._device.destroy, destroy, handle).atexit = False
        return handle.value

    def _call(self, name: str, *arguments: Any) -> None:
        check(getattr(self._library, name)(*arguments), name)


def _integers(numbers: Sequence[int]) -> Any:
    return (_I * len(numbers))(*numbers)


def math_type(dtype: str, fast: bool) -> int:
    """What products may be rounded to: those of f16 and bf16 are exact in f32 anyway."""
    if dtype in ("f16", "bf16"):
        return _TENSOR_MATH
    return _FMA_MATH if dtype == "f32" and not fast else _DEFAULT_MATH


def _accepts(site: Site) -> str | None:
    tensors = (*site.operands, *site.results)
    if not site.is_static:
        return "extent-unknown"
    if len(site.dtypes) != 1 or not site.dtypes < _TYPES.keys():
        return "dtype"
    if not all(tensor.size for tensor in tensors):
        return "empty"
    if any(tensor.size >= _MOST_ELEMENTS for tensor in tensors):
        return "extent"
    found = problem_of(site.name, [tensor.shape for tensor in tensors], site.config)
    return found if isinstance(found, str) else None


def _cost(site: Site) -> Cost:
    assert site.device is not None
    rate = site.device.implementation_rate("cudnn.conv", site.operands[0].dtype)
    return Cost(_operations(site), site.nbytes, rate, site.device.launch)


def _operations(site: Site) -> int:
    """Those of the convolution whose gradient it is, where it is one: each tap of each of its results."""
    shapes = [tensor.shape for tensor in (*site.operands, *site.results)]
    found = problem_of(site.name, shapes, site.config)
    return 0 if isinstance(found, str) else 2 * prod(found.y) * prod(found.w[1:])


def _workspace(site: Site) -> int:
    """Room for copies of operands and result in another order of axes, and for partial sums, f32 each."""
    elements = sum(tensor.size for tensor in (*site.operands, *site.results))
    wanted = _LEAST_WORKSPACE + 8 * elements
    return with_room(min(wanted, _MOST_FORWARD) if DIRECTIONS[site.name] is _FORWARD else wanted)


def _register() -> None:
    """With `_fast` they may round operands of f32 to TF32, and take transforms (Winograd, FFT)."""
    for op in DIRECTIONS:
        what = op.partition(".")[2]
        for suffix in ("", _FAST):
            native_implementation(
                f"cudnn.{what}{suffix}",
                f"numpy.{what}",
                op,
                _accepts,
                _cost,
                workspace=_workspace,
                numerics="fast" if suffix else "strict",
                platform="cuda",
            )


_register()
