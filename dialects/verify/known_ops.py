"""Invariants of single ops that held once: of most ops types and properties decide, and passes leave most ops as they were."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import cast

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.dialects.memref import LoadOp, StoreOp
from xdsl.ir import Attribute, Operation, SSAValue

from fuse_opt.dialects.fused import OutlinedOp, YieldOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.shapes import are_sizes_asked_for
from fuse_opt.dialects.interfaces.stored_values import is_stored

_Signature = tuple[
    type[Operation], tuple[Attribute, ...], tuple[Attribute, ...], frozenset[tuple[str, Attribute]], object
]
_VERIFIED: set[tuple[bool, _Signature]] = set()
_HELD: dict[tuple[object, ...], tuple[Attribute, ...]] = {}
"""The same by the ids of types and properties, which take their time to hash; they are held, so that the ids stay theirs."""
_REMEMBERED = 1 << 16
_OF_TYPES_ALONE = frozenset({"xdsl.dialects.arith", "xdsl.dialects.math", "xdsl.dialects.vector"})
"""Modules of xDSL whose ops without regions look at nothing but types and properties; to import them takes long."""


def verify_op(op: Operation, branches: bool, check: Callable[[], None]) -> None:
    """
    The op's own invariants, which `check` works out; an op `branches` that has successors. Those of most ops follow from little,
    and passes leave most ops as they were: what held once is not worked out again, which is most of the time of a pipeline
    over a large graph.
    """
    attributes = () if branches else _attributes(op)
    asked = are_sizes_asked_for()
    key = (type(op), asked, len(op.operands), tuple(op.properties), *map(id, attributes))
    if attributes and key in _HELD:
        return
    signature = _signature(op)
    if signature is None or (asked, signature) not in _VERIFIED:
        check()
        if signature is None or any(map(is_stored, (*op.operands, *op.results))):
            return  # a constant operand may decide of what is stored
        _make_room(_VERIFIED)
        _VERIFIED.add((asked, signature))
    if attributes:
        _make_room(_HELD)
        _HELD[key] = attributes


def _attributes(op: Operation) -> tuple[Attribute, ...]:
    """The types and properties of an op of which these are all that decides, wherever it stands; none of any other op."""
    if op.regions or not (_is_graph_op(type(op)) and _follows_from_types(type(op))):
        return ()
    return (*(v.type for v in op.operands), *(v.type for v in op.results), *op.properties.values())


def _make_room(known: set[tuple[bool, _Signature]] | dict[tuple[object, ...], tuple[Attribute, ...]]) -> None:
    if len(known) >= _REMEMBERED:
        known.clear()


def _signature(op: Operation) -> _Signature | None:
    """Types and properties of an op whose invariants follow from these alone; None for any other op."""
    class_ = type(op)
    if class_ is FuncOp:
        return _signature_of_function(cast(FuncOp, op))
    if class_ is ModuleOp:
        return _signature_of_module(cast(ModuleOp, op))
    if op.successors or not (
        _is_closed_kernel(op) if isinstance(op, OutlinedOp) else not op.regions and _follows_from_types(class_)
    ):
        return None
    around = None
    if class_ is YieldOp and not (isinstance(op.parent_op(), OutlinedOp) and op.next_op is None):
        return None
    if class_ is ReturnOp:
        function = op.parent_op()
        if not isinstance(function, FuncOp) or op.next_op is not None:
            return None
        around = function.properties.get("function_type")
    operands, results = tuple(v.type for v in op.operands), tuple(v.type for v in op.results)
    if not operands and any(_is_large(value) for value in op.properties.values()):
        return None  # not to keep the numbers of a program's constants for ever
    return class_, operands, results, frozenset(op.properties.items()), around


def _signature_of_function(function: FuncOp) -> _Signature | None:
    """
    Of a function with a body that is not empty, the types that its body begins with stand for it. That the body uses
    nothing from outside was seen with dominance.
    """
    if len(function.regions) != 1 or function.operands or function.results or function.successors:
        return None
    block = function.regions[0].first_block
    parent = function.parent_op()
    if block is None or parent is None:
        return None
    return FuncOp, (), tuple(block.arg_types), frozenset(function.properties.items()), type(parent)


def _signature_of_module(module: ModuleOp) -> _Signature | None:
    """The symbols of a module stand for its body. That it uses nothing from outside was seen with dominance."""
    if len(module.regions) != 1 or module.operands or module.results or module.successors:
        return None
    block = module.body.first_block
    if block is None or block is not module.body.last_block:
        return None
    symbols = tuple(op.get_attr_or_prop("sym_name") for op in block.ops)
    around = (module.attributes.get("sym_name"), symbols)
    return ModuleOp, (), tuple(block.arg_types), frozenset(module.properties.items()), around


def _is_large(value: Attribute) -> bool:
    return isinstance(value, DenseIntOrFPElementsAttr) and len(value.data.data) > 1024


@cache
def _follows_from_types(class_: type[Operation]) -> bool:
    """Whether types and properties decide about ops of a class without regions; traits may ask for more."""
    if class_ in (YieldOp, ReturnOp, LoadOp, StoreOp) or class_.__module__ in _OF_TYPES_ALONE:
        return True
    return issubclass(class_, GraphOp) and class_.traits.traits == GraphOp.traits.traits


def _is_closed_kernel(kernel: OutlinedOp) -> bool:
    """
    Whether a kernel's body is one block of graph ops that use nothing from outside, with types that fit the kernel's.
    What else must hold of a kernel follows from its types and properties.
    """
    body = kernel.body
    block, last = body.first_block, body.last_block
    if block is None or block is not last or not isinstance(end := block.last_op, YieldOp):
        return False
    if [v.type for v in block.args] != [v.type for v in kernel.operands]:
        return False
    if [v.type for v in end.operands] != [v.type for v in kernel.results]:
        return False
    inside: set[SSAValue] = set(block.args)
    for op in block.ops:
        if not inside.issuperset(op.operands) or not (op is end or (_is_graph_op(type(op)) and not op.regions)):
            return False
        inside.update(op.results)
    return True


@cache
def _is_graph_op(class_: type[Operation]) -> bool:
    return issubclass(class_, GraphOp)
