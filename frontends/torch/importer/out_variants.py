"""Which kernels of PyTorch write to memory that they are given."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from fuse_opt.frontends.torch.fx.api import ELEMENTS, is_tensor, torch
from fuse_opt.frontends.torch.fx.strides import dense_order, storage_view


def out_overload(target: Any, metas: Sequence[Any]) -> tuple[Any, tuple[str, ...]]:
    """
    The overload of an operator that writes its results to given tensors without a copy, and the names of these arguments;
    None where there is none, or a result is no strided tensor of known shape that fills its memory.
    """
    found, names = _native_out(target)
    if found is None or len(names) != len(metas) or not all(_is_plannable(meta) for meta in metas):
        return None, ()
    return found, names


@cache
def _native_out(target: Any) -> tuple[Any, tuple[str, ...]]:
    if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return None, ()
    wanted = [(argument.name, str(argument.type)) for argument in target._schema.arguments]
    packet = target.overloadpacket
    for name in packet.overloads():
        candidate = getattr(packet, name)
        if torch.Tag.generated in candidate.tags:
            continue
        given = candidate._schema.arguments
        plain = [(argument.name, str(argument.type)) for argument in given if not argument.is_out]
        if plain == wanted and len(plain) < len(given):
            return candidate, tuple(argument.name for argument in given if argument.is_out)
    return None, ()


def _is_plannable(meta: Any) -> bool:
    if not is_tensor(meta) or meta.dtype not in ELEMENTS or meta.device.type != "cpu":
        return False
    view = storage_view(meta)
    return view is not None and dense_order(view[0], view[1]) is not None
