"""Where values of a traced graph lie in memory, and what is asked of its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from xdsl.ir import SSAValue

from fuse_opt.frontends.torch_api import ELEMENTS, as_list, aten, is_tensor, torch
from fuse_opt.frontends.torch_graph import Memory, Variable, View
from fuse_opt.frontends.torch_layout import storage_view


@dataclass(eq=False)
class Root:
    """Memory that values lie in."""

    view: View | None
    """Its own layout; None for what is no strided tensor of known shape."""
    dtype: Any
    variable: str | None = None
    """What holds it when the program runs, if it is not memory that the program plans."""
    memory: SSAValue | None = None
    """Its elements in the order of memory; for others, what says that they are there."""
    computed: Any = None
    """The node whose value is to be written there."""
    buffer: int | None = None
    donated: bool = False


@dataclass(eq=False)
class Place:
    """Where a node's value lies."""

    root: Root
    view: View | None
    """In the root, in elements from its first."""


def own_view(meta: Any) -> View | None:
    """The layout of a tensor in memory that begins with its first element."""
    found = storage_view(meta)
    return None if found is None else View(found[0], found[1])


def is_readable(meta: Any, view: View | None) -> bool:
    """Whether kernels can read the tensor: of an element type and shape that the dialect has, as it is in memory."""
    if view is None or meta.dtype not in ELEMENTS or meta.device.type != "cpu":
        return False
    return not (meta.is_neg() or meta.is_conj())


def is_view(target: Any) -> bool:
    """Whether the results share the memory of the first argument, which is not written to."""
    if target is aten._unsafe_view.default:
        return True
    returns = target._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def has_effect(target: Any) -> bool:
    schema = getattr(target, "_schema", None)
    return schema is None or schema.is_mutable or not schema.returns


def is_ordered(target: Any) -> bool:
    """Whether calls have to stay in order: those that draw random numbers, have effects, or are unknown."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return True
    return has_effect(target) or torch.Tag.nondeterministic_seeded in target.tags


def tensors_of(meta: Any) -> list[Any]:
    return [item for item in as_list(meta) if is_tensor(item)]


def target_name(node: Any) -> str:
    return getattr(node.target, "__name__", str(node.target))


def shown(argument: Any) -> str:
    """An argument as the text of the program shows it."""
    match argument:
        case Memory(position, view):
            extents = "x".join(map(str, view.shape))
            return f"#{position}[{extents}]"
        case Variable(name, _):
            return name
        case list() | tuple():
            return "[" + ", ".join(shown(item) for item in cast(Sequence[Any], argument)) + "]"
        case _:
            return str(argument)
