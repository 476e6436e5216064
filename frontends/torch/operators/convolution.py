"""Records of convolutions: sums where they are small, generated convolutions, or else calls of PyTorch's.

A call costs microseconds and cuts the program in two; up to some thousand multiplications a sum is done before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.conv_kernels import conv_problem
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.dtypes import F32
from fuse_opt.dialects.types.extents import estimate
from fuse_opt.frontends.torch.fx.handler import Call, NotCoveredError, handlers

CONVOLUTION, handler = handlers()
_OPTIONS = {"strides": "stride", "pads": "padding", "dilations": "dilation"}
"""PyTorch's names of attributes."""
_SMALL = 4096
"""Multiplications, those with padding included: measured with one thread, up to here a kernel takes no longer than a call."""


@handler("aten.convolution.default")
def _convolution(call: Call) -> SSAValue:
    if call.exported:
        return _exported(call)
    x, weight = call.tensor("input"), call.tensor("weight")
    spatial = len(shape(x)) - 2
    if 0 in (*shape(x), *shape(weight), *call.shape):
        raise NotCoveredError("has no elements")
    channels = shape(weight)[0] if call["transposed"] else shape(weight)[1] * call["groups"]
    terms = prod(call.shape) * channels // call["groups"] * prod(shape(weight)[2:])
    if spatial < 1:
        raise NotCoveredError("is run by PyTorch's own kernel")
    if estimate(terms) > _SMALL:
        call.leave_to_library()
        return _biased(call, _generated(call, x, weight, spatial), spatial)
    if (element := dtype(x)).is_float and element.bits < 32:
        x, weight = call.cast(x, F32), call.cast(weight, F32)
    return _biased(call, (_transposed if call["transposed"] else _plain)(call, x, weight, spatial), spatial)


@handler("aten.convolution_backward.default")
def _convolution_backward(call: Call) -> Sequence[SSAValue | None]:
    """By input, weight and bias, as far as they are asked for: code is generated for the first two, or PyTorch runs all."""
    call.leave_to_library()
    grad, x, weight = (call.tensor(name) for name in ("grad_output", "input", "weight"))
    spatial, wanted = len(shape(x)) - 2, call["output_mask"]
    if call.exported or spatial < 1 or 0 in (*shape(x), *shape(weight), *shape(grad)):
        raise NotCoveredError("is run by PyTorch's own kernel")
    _check_contiguous(call, "grad_output", "input", "weight")
    options = {**_options(call, spatial), "groups": call["groups"]}
    found: list[SSAValue | None] = [None, None, None]
    if wanted[0]:
        found[0] = _checked(
            call.emit.conv(grad, weight, **options)
            if call["transposed"]
            else call.emit.conv_backward_data(grad, weight, **options, shape=list(shape(x)[2:]))
        )
    if wanted[1]:
        rows, columns = (x, grad) if call["transposed"] else (grad, x)
        found[1] = _checked(
            call.emit.conv_backward_weight(rows, columns, **options, kernel_shape=list(shape(weight)[2:]))
        )
    if wanted[2]:
        found[2] = call.emit.sum(grad, axes=[0, *range(2, 2 + spatial)])
    return found


def _check_contiguous(call: Call, *names: str) -> None:
    if not all(call.meta(name).is_contiguous() for name in names):
        raise NotCoveredError("is run by PyTorch's own kernel, with its operands in another order of memory")


def _options(call: Call, spatial: int) -> dict[str, list[int]]:
    """The attributes of the op, by their names."""
    options = {name: _lengthened(call, option, spatial) for name, option in _OPTIONS.items()}
    options["pads"] *= 2
    return options


def _checked(y: SSAValue) -> SSAValue:
    """The op's result, where code is generated for it."""
    assert isinstance(y.owner, OpaqueOp)
    if (problem := conv_problem(y.owner)) is not None:
        raise NotCoveredError(f"is run by PyTorch's own kernel: {problem}")
    return y


def _biased(call: Call, y: SSAValue, spatial: int) -> SSAValue:
    if call.has("bias"):
        bias = call.cast(call.tensor("bias"), dtype(y))
        y = call.emit.add(y, call.reshaped(bias, [shape(bias)[0], *[1] * spatial]))
    return call.result(y)


def _generated(call: Call, x: SSAValue, weight: SSAValue, spatial: int) -> SSAValue:
    """The op, where code is generated for it; PyTorch's own kernels are at home in memory with channels last."""
    _check_contiguous(call, "input", "weight")
    options, emit = _options(call, spatial), call.emit.conv
    if call["transposed"]:
        emit, options["output_padding"] = call.emit.conv_transpose, _lengthened(call, "output_padding", spatial)
    return _checked(emit(x, weight, **options, groups=call["groups"]))


def _lengthened(call: Call, name: str, spatial: int) -> list[int]:
    """An option of each axis, where one number stands for all."""
    return (list(call[name]) * spatial)[:spatial]


def _plain(call: Call, x: SSAValue, weight: SSAValue, spatial: int) -> SSAValue:
    padding = _lengthened(call, "padding", spatial)
    x = _padded(call, x, padding, padding)
    outputs, *rest = shape(weight)
    weight = call.reshaped(weight, [1, call["groups"], outputs // call["groups"], *rest])
    return _summed(call, _windows(call, x, rest[1:], _lengthened(call, "stride", spatial)), weight)


def _transposed(call: Call, x: SSAValue, weight: SSAValue, spatial: int) -> SSAValue:
    """
    A convolution with the mirrored window of x with zeros in between and around. The products with those are taken as zero:
    PyTorch does not make them, and an infinite weight shows it.
    """
    strides, dilations = _lengthened(call, "stride", spatial), _lengthened(call, "dilation", spatial)
    padding, more = _lengthened(call, "padding", spatial), _lengthened(call, "output_padding", spatial)
    inputs, outputs, *window = shape(weight)
    reach = [dilation * (size - 1) for dilation, size in zip(dilations, window, strict=True)]
    before = [r - p for r, p in zip(reach, padding, strict=True)]
    after = [b + m for b, m in zip(before, more, strict=True)]
    groups = call["groups"]

    def spread(value: SSAValue) -> SSAValue:
        value = _padded(call, _apart(call, value, strides), before, after)
        return _windows(call, value, window, [1] * spatial)

    weight = call.emit.flip(weight, axes=list(range(2, 2 + spatial)))
    weight = call.reshaped(weight, [1, groups, inputs // groups, outputs, *window])
    weight = call.emit.permute_dims(weight, axes=[0, 1, 3, 2, *range(4, 4 + spatial)])
    given = spread(call.number(1, dtype(x), [1, groups, *shape(x)[2:]]))
    return _summed(call, spread(x), weight, given)


def _apart(call: Call, x: SSAValue, strides: Sequence[int]) -> SSAValue:
    """With zeros between the elements of the axes after two, so that these are `strides` apart."""
    if set(strides) == {1}:
        return x
    front, extents = shape(x)[:2], shape(x)[2:]
    split = call.reshaped(x, [*front, *(n for extent in extents for n in (extent, 1))])
    ends = [n for stride in strides for n in (0, stride - 1)]
    padded = call.emit.pad(split, pads=[*[0] * (2 + len(ends)), 0, 0, *ends])
    whole = [extent * stride for extent, stride in zip(extents, strides, strict=True)]
    stops = [n - stride + 1 for n, stride in zip(whole, strides, strict=True)]
    joined = call.reshaped(padded, [*front, *whole])
    return call.emit.slice(joined, starts=[0] * len(shape(x)), stops=[*front, *stops])


def _padded(call: Call, x: SSAValue, before: Sequence[int], after: Sequence[int]) -> SSAValue:
    """With zeros around the axes after two, or with less where there are fewer than none."""
    return call.emit.pad(x, pads=[0, 0, *before, 0, 0, *after]) if any((*before, *after)) else x


def _windows(call: Call, x: SSAValue, window: Sequence[int], strides: Sequence[int]) -> SSAValue:
    """(images, groups, 1, channels of one, positions..., window...) of (images, channels, extents...)"""
    images, channels, *extents = shape(x)
    x = call.reshaped(x, [images, call["groups"], 1, channels // call["groups"], *extents])
    dilations = _lengthened(call, "dilation", len(window))
    return call.emit.sliding_windows(x, window=list(window), strides=list(strides), dilations=dilations)


def _summed(call: Call, windows: SSAValue, weight: SSAValue, given: SSAValue | None = None) -> SSAValue:
    """Windows times (1, groups, outputs of one, channels of one, window...), summed; where nothing is given, zeros."""
    *front, channels = shape(weight)[:4]
    window = shape(weight)[4:]
    weight = call.reshaped(weight, [*front, channels, *[1] * len(window), *window])
    terms = call.emit.multiply(windows, weight)
    if given is not None:
        zero = call.number(0, dtype(terms))
        terms = call.emit.where(call.emit.not_equal(given, zero), terms, zero)
    last = len(shape(terms)) - len(window)
    summed = call.emit.sum(terms, axes=[3, *range(last, last + len(window))])
    return call.reshaped(summed, call.shape)


def _exported(call: Call) -> SSAValue:
    x, weight = call.tensor("input"), call.tensor("weight")
    spatial = len(shape(x)) - 2
    if call["transposed"]:
        raise NotCoveredError("is transposed")
    y = call.emit.conv(x, weight, **_options(call, spatial), groups=call["groups"])
    if not call.has("bias"):
        return y
    bias = call.tensor("bias")
    return call.emit.add(y, call.reshaped(bias, [shape(bias)[0], *[1] * spatial]))
