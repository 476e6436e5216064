"""Where values of a traced graph lie in memory, and what is asked of its nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from xdsl.ir import SSAValue

from fuse_opt.dialects.types.size import Size
from fuse_opt.frontends.torch.fx.api import ELEMENTS, as_list, is_tensor, torch
from fuse_opt.frontends.torch.fx.strides import View, storage_view
from fuse_opt.frontends.torch.importer.imported import Memory, ShapeOnly, Variable

NUMBERS = (int, float, bool, str, Size)
"""What is known of a graph before it runs, and no tensor."""


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
    frozen: bool = False
    base: Root | None = None
    """The root whose memory it is in another guise: what a view gave that only PyTorch can make."""

    @property
    def owner(self) -> Root:
        """The root that the memory belongs to."""
        found = self
        while found.base is not None:
            found = found.base
        return found


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


def device_of(values: Iterable[Any]) -> Any:
    """
    The device that a graph of these values is compiled for: the one CUDA device that some of its tensors are on, else the
    processor. Tensors elsewhere are PyTorch's. Raises NotImplementedError where there are several CUDA devices.
    """
    tensors = [item for value in values for item in tensors_of(value)]
    found = sorted({str(tensor.device) for tensor in tensors if tensor.device.type == "cuda"})
    if len(found) > 1:
        raise NotImplementedError(f"tensors on {', '.join(found)}: expected one CUDA device; compile a graph for each")
    return torch.device(found[0] if found else "cpu")


def is_on(meta: Any, device: Any) -> bool:
    """Whether a tensor is on a device."""
    return meta.device.type == device.type and (meta.device.index or 0) == (device.index or 0)


def is_readable(meta: Any, view: View | None, device: Any) -> bool:
    """
    Whether kernels of a device can read the tensor: of an element type and shape that the dialect has, as it is in memory.
    """
    if view is None or meta.dtype not in ELEMENTS or not is_on(meta, device):
        return False
    return not (meta.is_neg() or meta.is_conj())


STRIDED_VIEWS = frozenset(
    f"aten.{name}"
    for name in (
        "view.default", "_unsafe_view.default", "_reshape_alias.default", "alias.default", "detach.default",
        "unsqueeze.default", "squeeze.default", "squeeze.dim", "squeeze.dims", "expand.default", "permute.default",
        "transpose.int", "t.default", "slice.Tensor", "select.int", "split.Tensor", "split_with_sizes.default",
        "unbind.int", "diagonal.default", "unfold.default", "as_strided.default",
    )
)  # fmt: skip
"""
The views that are other strides over the elements of their first argument. No other view is taken for one: there are those
that change what the bytes mean (`view.dtype`, `view_as_real`, `_neg_view`, `_conj`), and those of other packages.
"""


def is_strided_view(target: Any, source: Any, result: Any) -> bool:
    """Whether the result of an operator is the memory of its first argument under other strides, and nothing else."""
    if str(target) not in STRIDED_VIEWS or source.layout != torch.strided or result.layout != torch.strided:
        return False
    return _meaning(source) == _meaning(result)


def _meaning(value: Any) -> tuple[Any, ...]:
    return value.dtype, value.device, value.is_neg(), value.is_conj()


_UNSAFE_VIEWS = frozenset(
    f"aten.{name}" for name in ("_unsafe_view", "unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk")
)
"""Operators that give views of their first argument, of which their schemas say nothing: eager PyTorch never needs to know."""


def shared_arguments(target: Any) -> list[int]:
    """The positions of the arguments whose memory a result of the operator lies in, where it does not write to them."""
    if str(getattr(target, "overloadpacket", None)) in _UNSAFE_VIEWS:
        return [0]
    schema = getattr(target, "_schema", None)
    if schema is None or schema.is_mutable or not any(r.alias_info is not None for r in schema.returns):
        return []
    return [position for position, argument in enumerate(schema.arguments) if argument.alias_info is not None]


_SHAPES = {"aten.max_pool2d_with_indices_backward": "self"}
"""By operator the argument of which PyTorch's kernels for the CPU look at the shape alone."""


def shape_only(target: Any, args: Sequence[Any], metas: Callable[[Any], Any]) -> tuple[Any, ShapeOnly] | None:
    """The node among the arguments, and no other one of them, that lends its shape alone, and what takes its place; or None."""
    if not isinstance(target, torch._ops.OpOverload) or (name := _SHAPES.get(str(target.overloadpacket))) is None:
        return None
    place = next(place for place, argument in enumerate(target._schema.arguments) if argument.name == name)
    if place >= len(args) or list(args).count(args[place]) > 1 or not is_tensor(meta := metas(args[place])):
        return None
    is_known = all(isinstance(extent, int) for extent in meta.shape)
    if not is_known or meta.device.type != "cpu" or not meta.is_contiguous():
        return None  # its strides say in which order those of the result are
    return args[place], ShapeOnly(tuple(meta.shape), meta.dtype)


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
        case ShapeOnly(shape, _):
            return f"[{'x'.join(map(str, shape))}]"
        case list() | tuple():
            return "[" + ", ".join(shown(item) for item in cast(Sequence[Any], argument)) + "]"
        case _:
            return str(argument)
