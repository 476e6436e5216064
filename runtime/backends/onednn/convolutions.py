"""Convolutions as problems of oneDNN, in plain strides: channels innermost, or [N, C, spatial...] as programs have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fuse_opt.lowering.program import ConfigValue
from fuse_opt.runtime.backends.onednn.primitives import Dense, PostOp, Problem, Windows
from fuse_opt.runtime.backends.onednn.products import Call, cut_stack

_MOST_AXES = 3


def convolution_call(
    operands: Sequence[Dense], out: Dense, config: Mapping[str, ConfigValue], posts: Sequence[PostOp] = ()
) -> Call | None:
    """
    A convolution of arrays in any order; None where it has no such problem. Operands of `posts` are aligned to the result, with
    extents of 1 where they are broadcast.
    """
    x, weight = operands
    axes = len(x.shape) - 2
    if not 1 <= axes <= _MOST_AXES or 0 in (*x.shape, *weight.shape, *out.shape):
        return None
    strides, dilations = (_numbers(config, name, axes, 1) for name in ("strides", "dilations"))
    pads = _numbers(config, "pads", 2 * axes, 0)
    if min(pads) < 0:
        return None
    windows = Windows(strides, tuple(n - 1 for n in dilations), pads[:axes], pads[axes:])
    groups = config.get("groups", 1)
    assert isinstance(groups, int)
    filters = weight
    if groups > 1:  # of a weight in C order
        filters = Dense.in_order((groups, weight.shape[0] // groups, *weight.shape[1:]), weight.dtype)
    problem = Problem(x, filters, out, windows, tuple(posts))
    taps = 1
    for extent in weight.shape[1:]:
        taps *= extent
    return cut_stack(problem, taps)


def _numbers(config: Mapping[str, ConfigValue], name: str, count: int, otherwise: int) -> tuple[int, ...]:
    found = config.get(name)
    return tuple(int(n) for n in found) if isinstance(found, tuple) and found else (otherwise,) * count
