"""Verifies a module op by op, so that the op at fault is known: xDSL's own `verify` prints the whole module instead."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, Operation, Region
from xdsl.irdl import IRDLOperation, VerificationContext
from xdsl.traits import IsTerminator, NoTerminator, SymbolTable
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.verify.dominance import DominanceError, verify_dominance
from fuse_opt.dialects.verify.frozen_arguments import FrozenError, verify_frozen_arguments
from fuse_opt.dialects.verify.known_ops import verify_op
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
            verify_op(op, branches, op.verify_)
        except OpVerifyError:
            raise
        except VerifyException as error:
            op = _blame(op)
            raise OpVerifyError(_named(_of_property(str(error), op), op), op) from error
        except Exception as error:  # a verifier of another project that takes for granted what does not hold
            reason = f"{type(error).__name__}: {error}"
            raise OpVerifyError(f"'{op.name}' is not valid: its verifier ends with {reason}", op) from error


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
