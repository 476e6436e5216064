"""Convolutions, their gradients and batch norms on a device, by cuDNN through ctypes: the backend `cudnn`.

The functions are those of cuDNN's first interface, which versions 8 and 9 have: a call is its descriptors and a number. The
library is asked for an algorithm when the program is built; its documentation promises no result in place of an operand.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fuse_opt.lowering.program import BufferRef, LibraryCall
from fuse_opt.runtime.backends.nvidia.cudnn_library import LIBRARY, WITH_STEPS
from fuse_opt.runtime.backends.nvidia.cudnn_problems import (
    DIRECTIONS,
    FMA_MATH,
    IS_FAST,
    TENSOR_MATH,
    TYPES,
    Direction,
    Problem,
    math_type,
    problem_of,
    strides_of,
)
from fuse_opt.runtime.backends.nvidia.cudnn_steps import Steps, steps_of
from fuse_opt.runtime.backends.nvidia.cudnn_whole import BATCH_NORM
from fuse_opt.runtime.backends.nvidia.device_calls import (
    Address,
    Enqueue,
    Handles,
    chain_of,
    check,
    operands_of,
    workspace_at,
)
from fuse_opt.runtime.device.driver import Device
from fuse_opt.runtime.device.driver_library import CudaError

# Values of enums in cudnn_graph.h and cudnn_ops.h.
_CROSS_CORRELATION, _NCHW, _NHWC, _DETERMINISTIC = 1, 0, 1, 1
_RELU, _IDENTITY, _PROPAGATE_NAN = 1, 5, 1
_BY_CHANNEL = 1
"""Statistics of a batch norm: for each channel, whatever its axes are."""
_PRECOMPUTED_GEMM = 1
"""The only algorithm that may be followed by steps without a function."""

_I, _S = ctypes.c_int, ctypes.c_size_t


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


_REQUESTED = 8
"""Algorithms at most, as many as there are."""


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
    bias: int = 0
    """Descriptors of what steps behind it have; 0 where there are none."""
    activation: int = 0


class Cudnn(Handles):
    """Calls of one program."""

    def __init__(self, device: Device) -> None:
        """Raises CudaError."""
        super().__init__(LIBRARY, device)
        self._handle = self._made("cudnnCreate", "cudnnDestroy")

    def bound(self, call: LibraryCall, address: Address) -> Enqueue:
        """What enqueues a call."""
        if call.operation == BATCH_NORM:
            return self._batch_norm(call, address)
        return self._convolve(call, address)

    def _batch_norm(self, call: LibraryCall, address: Address) -> Enqueue:
        x, scale, *_ = call.inputs
        extents = (*x.shape, *(1,) * (4 - len(x.shape)))
        tensor = self._tensor(extents, x.dtype)
        parameter = self._tensor(tuple(n if axis == 1 else 1 for axis, n in enumerate(extents)), scale.dtype)
        scalars = ((ctypes.c_double if x.dtype == "f64" else ctypes.c_float) * 2)(1, 0)
        given = call.config.get("epsilon")
        epsilon = float(given) if isinstance(given, int | float) else 1e-5

        def enqueue(stream: Any) -> None:
            self._call("cudnnSetStream", self._handle, stream.handle)
            one = ctypes.addressof(scalars)
            zero, (out,) = one + ctypes.sizeof(scalars) // 2, call.outputs
            first, *parameters = map(address, call.inputs)
            self._call(
                "cudnnBatchNormalizationForwardInference", self._handle, _BY_CHANNEL, one, zero, tensor, first, tensor,
                address(out), parameter, *parameters, epsilon,
            )  # fmt: skip

        return enqueue

    def _convolve(self, call: LibraryCall, address: Address) -> Enqueue:
        direction, refs = DIRECTIONS[call.operation], (*operands_of(call), *call.outputs)
        steps = steps_of(chain_of(call))
        # All of them lie in one order: it is what is accepted.
        order = call.order(-1)
        problem = problem_of(call.operation, [_by_axis(ref.shape, order) for ref in refs], call.config)
        assert isinstance(problem, Problem), call
        by_role = dict(zip(direction.roles, refs, strict=True))
        dtype = refs[0].dtype
        descriptors = {"x": self._tensor(problem.x, dtype, order), "y": self._tensor(problem.y, dtype, order)}
        descriptors["w"] = self._filter(problem.w, dtype, order)
        is_fast = call.implementation.endswith(IS_FAST)
        description = self._convolution(problem, dtype, math := math_type(dtype, is_fast))
        operands = tuple((by_role[role], descriptors[role]) for role in direction.given)
        room = workspace_at(call, lambda ref: ref.offset)[1]
        found = self._ask(direction, [each for _, each in operands], description, room, math, is_fast, steps)
        if found is None:
            raise CudaError(
                f"'{call.operation}': cuDNN has no algorithm for {problem} of {dtype} in {room} bytes; "
                'compile with backend="-cudnn"'
            )
        if math != FMA_MATH:
            self._call("cudnnSetConvolutionMathType", description, found.math)
        scalar = ctypes.c_double if dtype == "f64" else ctypes.c_float
        function = getattr(self._library, direction.function)
        bound = _Bound(function, operands, description, found.algorithm, (scalar * 2)(1, 0))
        if steps is None:
            return partial(self._enqueue, bound, direction.function, call, address)
        along = tuple(n if axis == 1 else 1 for axis, n in enumerate(problem.y))
        bound = replace(bound, bias=self._tensor(along, dtype), activation=self._activation(steps))
        return partial(self._enqueue_steps, bound, steps, call, address)

    def _enqueue_steps(self, bound: _Bound, steps: Steps, call: LibraryCall, address: Address, stream: Any) -> None:
        self._call("cudnnSetStream", self._handle, stream.handle)
        (first, a), (second, b), (result, c) = bound.operands
        one = ctypes.addressof(bound.scalars)
        zero = one + ctypes.sizeof(bound.scalars) // 2
        more = None if steps.like_result is None else call.inputs[steps.like_result]
        factor, added = (zero, result) if more is None else (one, more)
        self._call(
            WITH_STEPS, self._handle, one, a, address(first), b, address(second), bound.description, bound.algorithm,
            *workspace_at(call, address), factor, c, address(added), bound.bias, address(call.inputs[steps.bias]),
            bound.activation, c, address(result),
        )  # fmt: skip

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
        self, direction: Direction, operands: Sequence[int], description: int, room: int, math: int, fast: bool,
        steps: Steps | None,
    ) -> _Found | None:  # fmt: skip
        """The first algorithm that the heuristic names of those that may be taken; None where there is none."""
        found, count = (_Found * _REQUESTED)(), _I()
        first, second, result = operands
        arguments = (first, second, description, result, _REQUESTED, ctypes.byref(count), found)
        self._call(direction.ask, self._handle, *arguments)
        able = [each for each in found[: count.value] if not each.status and each.memory <= room]
        able = [each for each in able if each.determinism == _DETERMINISTIC]
        if not fast:
            able = [each for each in able if each.algorithm in direction.plain and each.math <= max(math, TENSOR_MATH)]
        if steps is not None and not steps.relu:
            able = [each for each in able if each.algorithm == _PRECOMPUTED_GEMM]
        return next(iter(able), None)

    def _described(self, kind: str) -> int:
        return self._made(f"cudnnCreate{kind}", f"cudnnDestroy{kind}")

    def _activation(self, steps: Steps) -> int:
        made = self._described("ActivationDescriptor")
        mode = _RELU if steps.relu else _IDENTITY
        self._call("cudnnSetActivationDescriptor", made, mode, _PROPAGATE_NAN, 0.0)
        return made

    def _tensor(self, shape: tuple[int, ...], dtype: str, order: Sequence[int] = ()) -> int:
        """Of axes that lie in an order, from outermost to innermost; none is C order."""
        made = self._described("TensorDescriptor")
        lies = _integers(strides_of(shape, order))
        self._call("cudnnSetTensorNdDescriptor", made, TYPES[dtype], len(shape), _integers(shape), lies)
        return made

    def _filter(self, shape: tuple[int, ...], dtype: str, order: Sequence[int]) -> int:
        made = self._described("FilterDescriptor")
        lies = _NHWC if order else _NCHW
        self._call("cudnnSetFilterNdDescriptor", made, TYPES[dtype], lies, len(shape), _integers(shape))
        return made

    def _convolution(self, problem: Problem, dtype: str, math: int) -> int:
        made = self._described("ConvolutionDescriptor")
        windows = (_integers(each) for each in (problem.pads, problem.strides, problem.dilations))
        sums = TYPES["f64" if dtype == "f64" else "f32"]
        self._call("cudnnSetConvolutionNdDescriptor", made, len(problem.pads), *windows, _CROSS_CORRELATION, sums)
        self._call("cudnnSetConvolutionGroupCount", made, problem.groups)
        self._call("cudnnSetConvolutionMathType", made, math)
        return made


def _by_axis(extents: tuple[int, ...], order: Sequence[int]) -> tuple[int, ...]:
    """The extents of axes that lie in an order, from outermost to innermost."""
    return tuple(extents[order.index(axis)] for axis in range(len(extents))) if order else extents


def _integers(numbers: Sequence[int]) -> Any:
    return (_I * len(numbers))(*numbers)
