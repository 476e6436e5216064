"""Let storage kinds flow through a function, and make values dense where an op cannot run on what is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from fuse_opt.dialects.analysis.storage import byte_size
from fuse_opt.dialects.analysis.stored_values import FALLBACK
from fuse_opt.dialects.graph.sparse.expansion import fallback_operands, operands_in_the_way
from fuse_opt.dialects.graph.sparse.storage import ToStorageOp
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.stored_rules import StoredRule
from fuse_opt.dialects.interfaces.stored_values import holds_stored, is_stored
from fuse_opt.dialects.types.storage_kinds import StorageKind, stored_as
from fuse_opt.passes.decisions.choices import Choices, choosing
from fuse_opt.passes.remarks import RefusedError, remark
from fuse_opt.passes.rewrite_pass import RewritePass

_APART = "apart"
"""What is chosen for a composite op that is taken apart, so that its parts run on what is stored."""


@dataclass(frozen=True)
class AssignStoragePass(RewritePass):
    """Gives results the storage kinds that follow from operands, and converts operands of ops that have no way to run on them.

    ```mlir
    %0 = graph.relu %a : (tensor<4x8xf32, #graph.csr<capacity = 9>>) -> tensor<4x8xf32>
    %1 = graph.exp %0 : (tensor<4x8xf32>) -> tensor<4x8xf32>
    ```
    becomes
    ```mlir
    %0 = graph.relu %a : (tensor<4x8xf32, #graph.csr<capacity = 9>>) -> tensor<4x8xf32, #graph.csr<capacity = 9>>
    %2 = graph.to_storage %0 {graph.fallback} : (tensor<4x8xf32, #graph.csr<capacity = 9>>) -> tensor<4x8xf32>
    %1 = graph.exp %2 : (tensor<4x8xf32>) -> tensor<4x8xf32>
    ```
    A pointwise op keeps a pattern where it is 0 at 0; what an op does with stored operands is asked of the op. Composite ops
    that have no way of their own are taken apart; of one that has a way but for some operands, these are made dense. Each
    value is made dense once, in front of the first op that needs it, and each such conversion is a remark `fallback` with its
    bytes. What is written as dense and got a kind is made dense again for ops that mean what is not 0 of a dense operand, but
    all that is stored of another, and where a result is written with less room. Results of the function stay as they are
    written. That a result gets a kind, or a composite op is taken apart, is a
    decision; what is not decided runs on dense copies, but for ops to which zeros that are stored are other than absent ones.

    Ensures: every op on stored values has a way to run on them, so that `lower-storage` can take these apart.
    """

    name = "assign-storage"

    forbid_fallback: bool = False
    """An op that has no way to run on stored operands is an error."""

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        if functions := functions_with_stored(op):
            with choosing(self.name, op) as choices:
                for function in functions:
                    assign_storage(function, self.name, choices, self.forbid_fallback)


def functions_with_stored(module: ModuleOp) -> list[FuncOp]:
    """The functions in which some value is of a storage kind."""
    found = (op for op in module.walk() if isinstance(op, FuncOp) and not op.is_declaration)
    return [function for function in found if holds_stored(function)]


def assign_storage(function: FuncOp, pass_name: str, choices: Choices, forbid_fallback: bool = False) -> None:
    """Makes every op of a function run on what is stored, with remarks of a pass. Raises RefusedError and DecisionError."""
    _Assignment(function, pass_name, choices, forbid_fallback).run()


class _Assignment:
    """The change of one function."""

    def __init__(self, function: FuncOp, pass_name: str, choices: Choices, forbid_fallback: bool) -> None:
        self._function = function
        self._pass_name = pass_name
        self._choices = choices
        self._forbid_fallback = forbid_fallback
        self._dense: dict[SSAValue, SSAValue] = {}
        self._given: set[SSAValue] = set()
        """Values that are written as dense and got a kind."""
        self._made: set[Operation] = set()
        """Ops of composite ones, for which these are decided."""

    def run(self) -> None:
        waiting = list(reversed(list(self._function.body.block.ops)))
        while waiting:
            op = waiting.pop()
            if isinstance(op, ReturnOp):
                self._return(op)
            elif any(map(is_stored, op.operands)):
                if not isinstance(op, GraphOp):
                    raise RefusedError(f"'{op.name}' takes dense operands; put graph.to_storage before it", op)
                waiting.extend(reversed(self._assign(op)))

    def _assign(self, op: GraphOp) -> Sequence[Operation]:
        """Makes an op run on its operands; returns the ops that it was replaced by."""
        self._keep_as_written(op)
        if not any(map(is_stored, op.operands)):
            return ()
        rule = op.written_rule()
        falls_back = rule is None and (not isinstance(op, CompositeOp) or bool(operands_in_the_way(op)))
        if rule is None and isinstance(op, CompositeOp) and not falls_back and self._takes(op, _APART):
            return self._expand(op)
        if falls_back:
            self._fall_back(op, fallback_operands(op))
            self._keep_as_written(op)  # it has a way now, but perhaps another meaning
        elif rule is None or not (rule.means_stored or self._takes(op, _new_kinds(op, rule))):
            self._make_dense(op, [number for number, value in enumerate(op.operands) if is_stored(value)])
        rule = op.written_rule() if any(map(is_stored, op.operands)) else None
        for result, type_ in zip(list(op.results), () if rule is None else rule.results, strict=rule is not None):
            if stored_as(type_) is not None and not is_stored(result) and not isinstance(op, ToStorageOp):
                self._given.add(Rewriter.replace_value_with_new_type(result, type_))
        return ()

    def _keep_as_written(self, op: GraphOp) -> None:
        """
        Makes those operands dense again to which a kind was given, where the op means what is not zero of a dense one, but of
        a stored one all that is stored; or where a result would not be stored as it is written, or have no room for what they
        bring.
        """
        given = [] if op in self._made else [number for number, value in enumerate(op.operands) if value in self._given]
        rule = op.written_rule() if given else None
        if given and rule is None and _differs(op, rule):
            self._fall_back(op, given)
        elif rule is not None and (rule.means_stored or _differs(op, rule)):
            self._make_dense(op, given)

    def _takes(self, op: GraphOp, choice: str) -> bool:
        """Whether an op runs on what is stored, so that this comes of it; there is nothing to choose where nothing does."""
        if not choice or op in self._made:
            return True
        is_wanted = not self._choices.replays or self._choices.told_one(op, choice) is not None
        return is_wanted and self._choices.take(op, choice)

    def _make_dense(self, op: GraphOp, numbers: Sequence[int]) -> None:
        for number in numbers:
            value = op.operands[number]
            if value not in self._dense:
                self._dense[value] = self._converted(value, op, fallback=False)
            op.operands[number] = self._dense[value]

    def _fall_back(self, op: GraphOp, numbers: Sequence[int]) -> None:
        for number in numbers:
            value = op.operands[number]
            kind = stored_as(value.type)
            assert kind is not None
            message = f"has no way to run on operand {number} stored as {kind.storage_kind}: it is made dense"
            if self._forbid_fallback:
                raise RefusedError(
                    f"'{op.name}' {message}, and fallbacks are forbidden; convert it by graph.to_storage", op
                )
            if value not in self._dense:
                self._dense[value] = self._converted(value, op)
                remark(self._pass_name, op, "fallback", message, bytes=byte_size(self._dense[value]) or 0)
            op.operands[number] = self._dense[value]

    def _converted(self, value: SSAValue, before: Operation, fallback: bool = True) -> SSAValue:
        conversion = ToStorageOp.of(value, None)
        if fallback:
            conversion.attributes[FALLBACK] = UnitAttr()
        conversion.location = before.location
        conversion.result.name_hint = value.name_hint
        self._function.body.block.insert_op_before(conversion, before)
        return conversion.result

    def _expand(self, op: CompositeOp) -> Sequence[Operation]:
        """Puts the ops of the decomposition in the place of a composite."""
        expansion = op.expansion()
        copies: dict[SSAValue, SSAValue] = dict(zip(expansion.block.args, op.operands, strict=True))
        made: list[Operation] = []
        for source in expansion.block.ops:
            copy = source.clone(copies)
            copy.location = op.location
            self._function.body.block.insert_op_before(copy, op)
            made.append(copy)
        self._made.update(made)
        for result, value in zip(op.results, expansion.results, strict=True):
            new = copies[value]
            if is_stored(new) and not is_stored(result):
                new = self._converted(new, op, fallback=False)
            new.name_hint = result.name_hint or new.name_hint
            result.replace_all_uses_with(new)
        Rewriter.erase_op(op)
        return made

    def _return(self, op: ReturnOp) -> None:
        """Results as the function's type has them."""
        for number, (value, type_) in enumerate(zip(op.operands, self._outputs(), strict=True)):
            if is_stored(value) and stored_as(type_) is None:
                op.operands[number] = self._dense.get(value) or self._converted(value, op, fallback=False)

    def _outputs(self) -> Sequence[Attribute]:
        return self._function.function_type.outputs.data


def _differs(op: GraphOp, rule: StoredRule | None) -> bool:
    """Whether a result is written as stored and does not follow so from the operands, or with a smaller capacity."""
    for number, value in enumerate(op.results):
        written, found = stored_as(value.type), None if rule is None else stored_as(rule.results[number])
        if written is not None and (type(found) is not type(written) or _room(found) > _room(written)):
            return True
    return False


def _room(kind: StorageKind | None) -> int:
    return 0 if kind is None else kind.capacity.data


def _new_kinds(op: GraphOp, rule: StoredRule) -> str:
    """The kinds that results get, which nobody has written; "-" stands for a dense one."""
    if isinstance(op, ToStorageOp):
        return ""
    kinds = [stored_as(type_) for type_ in rule.results]
    is_new = [kind is not None and not is_stored(value) for kind, value in zip(kinds, op.results, strict=True)]
    return ",".join("-" if kind is None else kind.storage_kind for kind in kinds) if any(is_new) else ""
