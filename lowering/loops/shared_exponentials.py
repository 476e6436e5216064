"""Exponentials of one argument share its reduction and their polynomials: exp(x), exp(-x), expm1, tanh and sigmoid.

    %t = tanh(%x); %n = negf(%x); %e = exp(%n)

becomes

    %n = negf(%x); %t = @fo_shared_tanh(%n, %x); %e = @fo_shared_exp(%n)

With x = n log(2) + r, cosh(r) - 1 and sinh(r) have half the coefficients of exp(r) each, and together they are exp(r) and
exp(-r). What the functions have in common is written in each of them and computed once: C compilers merge it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, func, math
from xdsl.dialects.builtin import Float32Type, Float64Type
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from fuse_opt.lowering.inner_ops import inner_ops
from fuse_opt.lowering.loops.fast_math import Helpers, sigmoid_argument

_WORDS: dict[type[Operation], str] = {math.ExpOp: "exp", math.ExpM1Op: "expm1", math.TanhOp: "tanh"}
_MAGNITUDE = 0
"""The sign of the argument -|x|."""


@dataclass(frozen=True, slots=True)
class _Function:
    """An op that is a function of `sign` times the root of its argument."""

    op: Operation
    word: str
    argument: SSAValue
    root: SSAValue
    sign: int

    @property
    def is_directed(self) -> bool:
        """Whether exp of the argument is large on one side of zero."""
        return self.word in ("exp", "expm1") and self.sign != _MAGNITUDE


def share_exponentials(body: Block, helpers: Helpers, *, fast: bool = False) -> None:
    """Rewrites the function of a kernel in place, and adds to `helpers` what it calls from then on; `fast` says that what is
    left becomes the functions of `fast_math`."""
    groups: dict[tuple[Block | None, SSAValue], list[_Function]] = {}
    for op in inner_ops(body):
        if (function := _function(op)) is not None:
            groups.setdefault((op.parent, function.root), []).append(function)
    for found in groups.values():
        # What one group became may be the argument of the next.
        group = [again for each in found if each.op.parent is not None and (again := _function(each.op)) is not None]
        if group and _is_worth(group, fast):
            _Sharing(helpers, group, _base(group)).rewrite()


def _function(op: Operation) -> _Function | None:
    if len(op.results) != 1 or not isinstance(op.results[0].type, Float32Type | Float64Type):
        return None
    if isinstance(op, arith.DivfOp):
        word, argument = "sigmoid", sigmoid_argument(op)
    else:
        word, argument = _WORDS.get(type(op)), op.operands[0] if op.operands else None
    if word is None or argument is None:
        return None
    root, sign = _without_sign(argument)
    if word == "exp" and sign < 0 and isinstance(root.owner, math.AbsFOp):
        root, sign = _without_sign(root.owner.operand)[0], _MAGNITUDE
    return _Function(op, word, argument, root, sign)


def _without_sign(value: SSAValue) -> tuple[SSAValue, int]:
    sign = 1
    while isinstance(value.owner, arith.NegfOp):
        value, sign = value.owner.operand, -sign
    return value, sign


def _is_worth(group: Sequence[_Function], fast: bool) -> bool:
    """Whether two functions at least are made without sharing, by more operations than with it."""
    directed = any(each.is_directed for each in group)
    few = fast and directed and isinstance(group[0].root.type, Float32Type)
    made = {(each.word, abs(each.sign) if few else each.sign) for each in group if each.word.startswith("exp")}
    if any(each.word == "tanh" for each in group) and not few:
        made.add(("tanh", 1))
    for each in group:
        if each.word == "sigmoid" and fast and any(o.word == "exp" and o.sign == -each.sign for o in group):
            made.discard(("exp", _MAGNITUDE))
    return len(made) > 1


def _base(group: Sequence[_Function]) -> _Function:
    """The function of whose argument the others are made."""
    directed = [function for function in group if function.is_directed]
    exponentials = [function for function in group if function.word == "exp"]
    return next((each for each in directed if each.word == "expm1"), (directed or exponentials)[0])


@dataclass(frozen=True, slots=True)
class _Sharing:
    """The functions of one root in a block, in order, as calls with the argument of one of them."""

    helpers: Helpers
    group: Sequence[_Function]
    base: _Function

    def rewrite(self) -> None:
        self._put_base_first()
        rest: list[_Function] = []
        for function in self.group:
            if function.word == "exp" and function.sign == _MAGNITUDE:
                rest.append(function)
            elif (word := self._word(function)) is not None:
                self._call(word, function)
        for function in rest:
            if function.op.results[0].first_use is None:
                _erase_unused(function.op)
            else:
                self._call("exp_magnitude" if self.base.is_directed else "exp", function)

    def _word(self, function: _Function) -> str | None:
        """Which helper is the function; none for a sigmoid made of the shared exponential."""
        same = function.sign == self.base.sign
        match function.word:
            case "tanh":
                return "tanh"
            case "expm1":
                return "expm1" if same else None
            case "sigmoid" if not self.base.is_directed:
                return None
            case word:
                return word if same else f"{word}_negated"

    def _call(self, word: str, function: _Function) -> None:
        op, kind = function.op, self.base.argument.type
        arguments = [self.base.argument, *([function.argument] if word == "tanh" else [])]
        helper = f"fo_shared_{word if self.base.is_directed else f'nonpositive_{word}'}_{kind}"
        self.helpers.setdefault(helper, ((kind,) * len(arguments), kind))
        call = func.CallOp(helper, arguments, [kind])
        call.res[0].name_hint = op.results[0].name_hint
        operands = list(op.operands)
        Rewriter.replace_op(op, call)
        for operand in operands:
            if isinstance(operand.owner, Operation):
                _erase_unused(operand.owner)

    def _put_base_first(self) -> None:
        """Moves what the argument is made of the root by before the first function."""
        first, value = self.group[0].op, self.base.argument
        moved: list[Operation] = []
        while value is not self.base.root and isinstance(value.owner, arith.NegfOp | math.AbsFOp):
            if value.owner.parent is first.parent and not value.owner.is_before_in_block(first):
                moved.append(value.owner)
            value = value.owner.operand
        for op in reversed(moved):
            op.detach()
            Rewriter.insert_op(op, InsertPoint.before(first))


def _erase_unused(op: Operation) -> None:
    """Erases the op where nothing uses it, and of what it is computed from what nothing else uses."""
    pending = [op]
    while pending:
        op = pending.pop()
        if op.parent is None or op.regions or any(result.first_use is not None for result in op.results):
            continue
        if not op.name.startswith(("arith.", "math.")):
            continue
        pending += [operand.owner for operand in op.operands if isinstance(operand.owner, Operation)]
        Rewriter.erase_op(op)
