"""Figures of a function behind its passes, each with what is counted and the remarks that explain it: the one list of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from fuse_opt.dialects.analysis.bare_ops import is_creation
from fuse_opt.dialects.analysis.kernel_access import dispatched_ops
from fuse_opt.dialects.analysis.storage import ARENA, aliased_operand, value_name
from fuse_opt.dialects.analysis.stored_values import FALLBACK
from fuse_opt.dialects.fused import RECOMPUTED, KernelOp, OutlinedOp, PartitionOp
from fuse_opt.dialects.implementation.queries import called_implementation
from fuse_opt.dialects.implementation.selection import generated_kind
from fuse_opt.dialects.interfaces.structured_op import FusionKind, StructuredOp
from fuse_opt.dialects.scalar import cost
from fuse_opt.passes.remarks import Remark, location


@dataclass(frozen=True)
class Counted:
    """A figure's value, and where what is counted stands, where that helps."""

    value: int
    places: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figure:
    """What is counted in a function, and which remarks explain it."""

    doc: str
    count: Callable[[FuncOp], Counted | None]
    """None where it is not known, as nobody has planned memory."""
    explains: Callable[[Remark], bool]
    unit: str = ""


def _outlined(function: FuncOp) -> list[OutlinedOp]:
    """Kernels and partitions; not those that move nothing, for which nothing runs."""
    found = (op for op in function.body.block.ops if isinstance(op, OutlinedOp))
    return [op for op in found if aliased_operand(op) is None]


def _is_called(op: OutlinedOp) -> bool:
    return isinstance(op, PartitionOp) or (isinstance(op, KernelOp) and called_implementation(op) is not None)


def _is_left(op: OutlinedOp) -> bool:
    """Whether nothing but the reference runs it."""
    if not isinstance(op, KernelOp):
        return False
    nameless = bool(dispatched_ops(op)) and op.implementation is None and not generated_kind(op)
    return op.schedule_kind() == "reference" or nameless


def _is_copy(op: OutlinedOp) -> bool:
    """Whether it moves elements and computes nothing."""
    inside = [inner for inner in op.ops() if not is_creation(inner)]
    return bool(inside) and all(map(_moves, inside))


def _moves(op: Operation) -> bool:
    if not isinstance(op, StructuredOp) or op.stored_value() is not None:
        return False
    return op.fusion_kind() <= FusionKind.INJECTIVE and cost(op.body()) == 0


def _counted(ops: Iterable[Operation]) -> Counted:
    found = list(ops)
    return Counted(len(found), tuple(f"{_name(op)} at {location(op)}" for op in found))


def _name(op: Operation) -> str:
    return value_name(op.results[0]) if op.results else f"'{op.name}'"


def _fallbacks(function: FuncOp) -> Counted:
    dense = [op for op in function.walk() if FALLBACK in op.attributes]
    return _counted([*(op for op in _outlined(function) if _is_left(op)), *dense])


def _planned(entry: str) -> Callable[[FuncOp], Counted | None]:
    def count(function: FuncOp) -> Counted | None:
        plan = function.attributes.get(ARENA)
        size = plan.data.get(entry) if isinstance(plan, DictionaryAttr) else None
        if isinstance(size, IntegerAttr):
            return Counted(size.value.data)
        return None if _outlined(function) else Counted(0)

    return count


def _says(*codes: str) -> Callable[[Remark], bool]:
    return lambda remark: remark.code in codes


def _keeps_apart(remark: Remark) -> bool:
    return remark.message.startswith("not fused")


FIGURES = {
    "kernels": Figure(
        "kernels that generated code runs",
        lambda function: Counted(sum(not (_is_called(op) or _is_left(op)) for op in _outlined(function))),
        _keeps_apart,
    ),
    "library_calls": Figure(
        "kernels and partitions that a library runs",
        lambda function: _counted(filter(_is_called, _outlined(function))),
        _says("selected", "kept", "partition", "generated"),
    ),
    "fallbacks": Figure(
        "kernels that the reference runs, and values made dense for an op that knows no other",
        _fallbacks,
        _says("fallback", "host", "several-ops", "unknown-extents"),
    ),
    "copies": Figure(
        "kernels that move elements and compute nothing",
        lambda function: _counted(filter(_is_copy, _outlined(function))),
        lambda remark: _keeps_apart(remark) or remark.code in ("converted", "assigned"),
    ),
    "inplace": Figure(
        "results that take over the memory of an operand",
        lambda function: Counted(sum(len(op.inplace_pairs()) for op in _outlined(function))),
        _says("inplace", "inplace-dropped", "still-read", "other-index", "caller-owned", "size", "library"),
    ),
    "recomputed": Figure(
        "graph ops that are computed again",
        lambda function: Counted(sum(RECOMPUTED in op.attributes for op in function.walk())),
        _says("recomputed", "slower", "many-ops", "no-fewer-bytes"),
    ),
    "arena": Figure(
        "bytes of the arena", _planned("size"), _says("peak", "planned", "still-read", "kept", "slower"), "bytes"
    ),
    "lower_bound": Figure(
        "the most bytes alive at once", _planned("lower_bound"), _says("peak", "planned", "still-read"), "bytes"
    ),
}
"""By name."""
