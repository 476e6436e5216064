"""Convolutions as problems of oneDNN, in plain strides: channels innermost, or [N, C, spatial...] as programs have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from fuse_opt.lowering.program import ConfigValue
from fuse_opt.runtime.backends.onednn.primitives import PostOp, Problem, Windows
from fuse_opt.runtime.backends.onednn.products import Call, cut_matrix, cut_stack
from fuse_opt.runtime.backends.onednn.tensors import Dense

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
    if groups == 1 and (product := _as_product(x, weight, out, windows, posts)) is not None:
        return cut_matrix(product)
    return cut_stack(Problem(x, filters, out, windows, tuple(posts)), prod(weight.shape[1:]))


def _as_product(x: Dense, weight: Dense, out: Dense, windows: Windows, posts: Sequence[PostOp]) -> Problem | None:
    """
    Windows of one element, one at each where channels are innermost, as a product of positions by filters: its panels are of 64
    columns, whatever their number, and it is cut by rows. None for others.
    """
    single = set(windows.strides) == {1} and not any((*windows.before, *windows.after)) and prod(weight.shape[2:]) == 1
    if not single or not all(map(_is_channels_last, (x, out))):
        return None
    rows, (filters, channels, *_) = prod(x.shape) // x.shape[1], weight.shape
    matrix = replace(weight.permuted((1, 0, *range(2, len(weight.shape)))), shape=(channels, filters))
    found: list[PostOp] = []
    for post in posts:
        if (operand := post.operand) is not None:
            own = operand.shape[0], *operand.shape[2:]
            if own != (1,) * len(own) and own != (out.shape[0], *out.shape[2:]):
                return None
            operand = Dense.in_order((prod(own), operand.shape[1]), operand.dtype)
        found.append(replace(post, operand=operand))
    src, dst = Dense.in_order((rows, channels), x.dtype), Dense.in_order((rows, filters), out.dtype)
    return Problem(src, replace(matrix, strides=matrix.strides[:2]), dst, None, tuple(found))


def _is_channels_last(tensor: Dense) -> bool:
    turned = tensor.permuted((0, *range(2, len(tensor.shape)), 1))
    return turned == Dense.in_order(turned.shape, tensor.dtype)


def _numbers(config: Mapping[str, ConfigValue], name: str, count: int, otherwise: int) -> tuple[int, ...]:
    found = config.get(name)
    return tuple(int(n) for n in found) if isinstance(found, tuple) and found else (otherwise,) * count


def integer_convolution_call(
    operands: Sequence[Dense], out: Dense, config: Mapping[str, ConfigValue], posts: Sequence[PostOp] = ()
) -> Call | None:
    """One of bytes, whose shapes have channels last, and those of filters the result's behind its own."""
    x, weight = operands
    rank = len(out.shape)
    last = (0, rank - 1, *range(1, rank - 1))
    turned = weight.permuted((rank - 1, rank - 2, *range(rank - 2)))
    return convolution_call((x.permuted(last), turned), out.permuted(last), config, posts)
