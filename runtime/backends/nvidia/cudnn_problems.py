"""Convolutions and their gradients as cuDNN has them, and what it is known to take: nothing is loaded here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from fuse_opt.dialects.implementation.site import Cost, LayoutRow, Site
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.types.encodings import OrderAttr
from fuse_opt.lowering.program import Config
from fuse_opt.lowering.reference.kernels.registry import native_implementation
from fuse_opt.runtime.backends.nvidia.cudnn_steps import EXACT, FAST
from fuse_opt.runtime.backends.nvidia.device_calls import with_room

IS_FAST = "_fast"
"""How the names of those end that may round operands of f32 to TF32, and take transforms."""
_MOST_ELEMENTS = 1 << 31
_LEAST_WORKSPACE = 1 << 20
_MOST_FORWARD = 256 << 20
"""Bytes. A forward call always has an algorithm that takes none; of gradients none is promised to."""

# Values of enums in cudnn_graph.h and cudnn_ops.h.
TYPES = {"f32": 0, "f64": 1, "f16": 2, "bf16": 9}
_DEFAULT_MATH, TENSOR_MATH, FMA_MATH = 0, 1, 3
"""Of f32 the default one may round operands to TF32, and the last one never does."""


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


def strides_of(shape: Sequence[int], order: Sequence[int] = ()) -> list[int]:
    """Of axes that lie in an order, from outermost to innermost; none is C order."""
    axes = order or range(len(shape))
    return [prod(shape[axis] for axis in axes[axes.index(own) + 1 :]) for own in range(len(shape))]


def math_type(dtype: str, fast: bool) -> int:
    """What products may be rounded to: those of f16 and bf16 are exact in f32 anyway."""
    if dtype in ("f16", "bf16"):
        return TENSOR_MATH
    return FMA_MATH if dtype == "f32" and not fast else _DEFAULT_MATH


def _accepts(site: Site) -> str | None:
    tensors = (*site.operands, *site.results)
    if not site.is_static:
        return "extent-unknown"
    if len(site.dtypes) != 1 or not site.dtypes < TYPES.keys():
        return "dtype"
    if not all(tensor.size for tensor in tensors):
        return "empty"
    if any(tensor.size >= _MOST_ELEMENTS for tensor in tensors):
        return "extent"
    if not site.is_row_major and not any(site.lies_as(row) for row in _layouts(site)):
        return "layout"
    found = problem_of(site.name, [tensor.shape for tensor in tensors], site.config)
    return found if isinstance(found, str) else None


def _layouts(site: Site) -> list[LayoutRow]:
    return _channels_last(site) if site.name == "graph.conv" else []


def _channels_last(site: Site) -> list[LayoutRow]:
    """Channels innermost: the order in which kernels for matrix units read them."""
    rank = len(site.results[0].shape)
    if rank < 4 or site.config.get("groups", 1) != 1 or site.dtypes - {"f16", "bf16"}:
        return []
    order = OrderAttr.of((0, *range(2, rank), 1))
    return [LayoutRow((order, order), (order,))]


def _cost(site: Site) -> Cost:
    """
    Where there are kernels for channels innermost alone, other orders are copied, there and back: on an H200 in twice the time
    of copies (25 us for two tensors of 12.8 MB, November 2026).
    """
    assert site.device is not None
    of = site.op.window_contraction() if isinstance(site.op, OpaqueOp) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    name = "cudnn.conv_depthwise" if of is not None and of.is_depthwise else "cudnn.conv"
    rate = site.device.implementation_rate(name, site.operands[0].dtype)
    copied = 4 * site.nbytes if site.is_row_major and _layouts(site) else 0
    call = site.device.launch + site.device.move_seconds(copied)
    return Cost(_operations(site), site.nbytes, rate, call)


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
    for op, direction in DIRECTIONS.items():
        what = op.partition(".")[2]
        for suffix in ("", IS_FAST):
            native_implementation(
                f"cudnn.{what}{suffix}",
                f"numpy.{what}",
                op,
                _accepts,
                _cost,
                priority=0,
                epilogue=(FAST if suffix else EXACT) if direction is _FORWARD else None,
                workspace=_workspace,
                numerics="fast" if suffix else "strict",
                layouts=_channels_last if direction is _FORWARD else None,
                platform="cuda",
                features=lambda site: ("sm_80",) if "bf16" in site.dtypes else (),
            )


_register()
