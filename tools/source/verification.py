"""Verifies a module op by op, so that the op at fault is known: xDSL's own `verify` prints the whole module instead."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import cast

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.dialects.memref import LoadOp, StoreOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import IRDLOperation, VerificationContext
from xdsl.traits import IsTerminator, NoTerminator, SymbolTable
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.fused import OutlinedOp, YieldOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.stored_values import is_stored
from fuse_opt.dialects.verify.dominance import DominanceError, verify_dominance
from fuse_opt.dialects.verify.frozen_arguments import FrozenError, verify_frozen_arguments
from fuse_opt.dialects.verify.memory_plan import verify_plans
from fuse_opt.dialects.verify.plan_contents import PlanError
from fuse_opt.dialects.verify.symbols import SymbolError, verify_symbols


class OpVerifyError(VerifyException):
    """`op` breaks an invariant."""

    def __init__(self, message: str, op: Operation) -> None:
        super().__init__(message)
        self.op = op


def verify(module: Operation) -> None:
    """
    What `module.verify()` checks, dominance, frozen arguments, symbols, and the memory plans that the module states. Raises
    OpVerifyError.

    Nested ops come first, without recursion: of several faults the innermost of the textually first is reported.
    """
    try:
        verify_dominance(module)
        _verify_ops(module)
        verify_frozen_arguments(module)
        verify_symbols(module)
        verify_plans(module)
    except (DominanceError, FrozenError, SymbolError, PlanError) as error:
        raise OpVerifyError(str(error), error.op) from None


def _verify_ops(module: Operation) -> None:
    terminates: dict[type[Operation], bool] = {}
    for op in _innermost_first(module):
        try:
            branches = len(op.successors) > 0
            _verify_place(op, branches, terminates)
            for region in op.regions:
                _verify_region(op, region)
            _verify_op(op, branches)
        except OpVerifyError:
            raise
        except VerifyException as error:
            op = _blame(op)
            raise OpVerifyError(_named(_of_property(str(error), op), op), op) from error
        except Exception as error:  # a verifier of another project that takes for granted what does not hold
            reason = f"{type(error).__name__}: {error}"
            raise OpVerifyError(f"'{op.name}' is not valid: its verifier ends with {reason}", op) from error


_Signature = tuple[
    type[Operation], tuple[Attribute, ...], tuple[Attribute, ...], frozenset[tuple[str, Attribute]], object
]
_VERIFIED: set[_Signature] = set()
_HELD: dict[tuple[object, ...], tuple[Attribute, ...]] = {}
"""The same by the ids of types and properties, which take their time to hash; they are held, so that the ids stay theirs."""
_REMEMBERED = 1 << 16
_OF_TYPES_ALONE = frozenset({"xdsl.dialects.arith", "xdsl.dialects.math", "xdsl.dialects.vector"})
"""Modules of xDSL whose ops without regions look at nothing but types and properties; to import them takes long."""


def _verify_op(op: Operation, branches: bool) -> None:
    """
    The op's own invariants. Those of most ops follow from little, and passes leave most ops as they were: what held
    once is not worked out again, which is most of the time of a pipeline over a large graph.
    """
    attributes = () if branches else _attributes(op)
    key = (type(op), len(op.operands), tuple(op.properties), *map(id, attributes))
    if attributes and key in _HELD:
        return
    signature = _signature(op)
    if signature is None or signature not in _VERIFIED:
        op.verify_()
        if signature is None or any(map(is_stored, (*op.operands, *op.results))):
            return  # a constant operand may decide of what is stored
        _make_room(_VERIFIED)
        _VERIFIED.add(signature)
    if attributes:
        _make_room(_HELD)
        _HELD[key] = attributes


def _attributes(op: Operation) -> tuple[Attribute, ...]:
    """The types and properties of an op of which these are all that decides, wherever it stands; none of any other op."""
    if op.regions or not (_is_graph_op(type(op)) and _follows_from_types(type(op))):
        return ()
    return (*(v.type for v in op.operands), *(v.type for v in op.results), *op.properties.values())


def _make_room(known: set[_Signature] | dict[tuple[object, ...], tuple[Attribute, ...]]) -> None:
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


def _innermost_first(root: Operation) -> Iterator[Operation]:
    pending: list[tuple[Operation, Iterator[Operation]]] = [(root, _nested(root))]
    while pending:
        op, nested = pending[-1]
        for inner in nested:
            if inner.regions:
                pending.append((inner, _nested(inner)))
                break
            yield inner
        else:
            pending.pop()
            yield op


def _nested(op: Operation) -> Iterator[Operation]:
    return (inner for region in op.regions for block in region.blocks for inner in block.ops)


def _verify_place(op: Operation, branches: bool, terminates: dict[type[Operation], bool]) -> None:
    """Terminators end blocks, only they do, and they branch within their region: an op `branches` that has successors."""
    block = op.parent
    region = None if block is None else block.parent
    if block is None or region is None:
        if branches:
            raise OpVerifyError(f"'{op.name}' has successors but stands in no block", op)
        return
    if branches:
        if block.last_op is not op:
            raise OpVerifyError(f"'{op.name}' has successors and must be the last op of its block", op)
        if any(successor.parent is not region for successor in op.successors):
            raise OpVerifyError(f"'{op.name}' branches to a block of another region", op)
    if block.last_op is not op:
        return
    if (is_terminator := terminates.get(type(op))) is None:
        is_terminator = terminates[type(op)] = op.has_trait(IsTerminator)
    if not is_terminator and not (region.first_block is region.last_block and _needs_no_terminator(region)):
        raise OpVerifyError(f"'{op.name}' ends its block but is no terminator", op)


def _verify_region(op: Operation, region: Region) -> None:
    for block in region.blocks:
        if block.parent is not region:
            raise OpVerifyError(f"'{op.name}' holds a block that belongs to another region", op)
        _verify_block(op, region, block)


def _verify_block(op: Operation, region: Region, block: Block) -> None:
    if block.is_empty and not _needs_no_terminator(region):
        raise OpVerifyError(f"'{op.name}' has an empty block; expected at least a terminator", op)
    for inner in block.ops:
        if inner.parent is not block:
            raise OpVerifyError(f"'{inner.name}' belongs to another block than the one it stands in", inner)


def _needs_no_terminator(region: Region) -> bool:
    parent = region.parent
    return parent is None or parent.has_trait(NoTerminator)


def _blame(op: Operation) -> Operation:
    """The op to name when `op` does not verify: of two symbols of one name the second one, not what holds them."""
    if not op.has_trait(SymbolTable, value_if_unregistered=False):
        return op
    seen: set[str] = set()
    for symbol in _nested(op):
        name = symbol.get_attr_or_prop("sym_name")
        if isinstance(name, StringAttr):
            if name.data in seen:
                return symbol
            seen.add(name.data)
    return op


def _of_property(message: str, op: Operation) -> str:
    """The message, beginning with the property or attribute whose constraint gives it: xDSL's own names none."""
    if not isinstance(op, IRDLOperation):
        return message
    definition = op.get_irdl_definition()
    for held, known in ((op.properties, definition.properties), (op.attributes, definition.attributes)):
        for name, of in known.items():
            try:
                if name in held:
                    of.constr.verify(held[name], VerificationContext())
            except VerifyException as error:
                if str(error) == message:
                    return f"property '{name}': {message}"
    return message


def _named(message: str, op: Operation) -> str:
    """The message with the op's name in front, unless it names the op already."""
    return message if op.name in message else f"'{op.name}' {message[:1].lower()}{message[1:]}"
