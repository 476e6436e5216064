"""How decisions call ops: by name and number, counted as they are met, and by the name of a result."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, Operation, SSAValue

from fuse_opt.dialects.analysis.bare_ops import bare_source, is_creation, sweep_functions
from fuse_opt.dialects.fused import OutlinedOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.passes.decisions.text import Decision, OpRef

_NAMED = 8
"""Ops that a message lists."""


@dataclass
class Numbering:
    """Which run of a pass it is, and how the ops of its functions are called."""

    runs: Counter[str] = field(default_factory=Counter[str])
    numbers: dict[Operation, int] = field(default_factory=dict[Operation, int])
    counts: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    places: dict[Operation, tuple[str, Block]] = field(default_factory=dict[Operation, tuple[str, Block]])
    named: dict[Operation, list[Operation]] = field(default_factory=dict[Operation, list[Operation]])
    """By op of a block, the ops that decisions may name."""
    _functions: dict[str, None] = field(default_factory=dict[str, None])
    sources: dict[Operation, list[Operation]] = field(default_factory=dict[Operation, list[Operation]])
    _called: dict[tuple[str, str], list[Operation]] | None = None
    """By function and reference, in all forms: the ops that it may mean. None until it is asked for: who records does not."""

    def enter(self, pass_name: str, module: Operation) -> int:
        """Notes the ops there are, and gives the number of this run of the pass."""
        for noted in (self.places, self.named, self.sources, self._functions):
            noted.clear()
        self._called = None
        for block in sweep_functions(module, stored=True):
            function = _function_name(block)
            self._functions[function] = None
            for outer in block.ops:
                self.named[outer] = _named_ops(outer)
                for op in self.named[outer]:
                    self.places[op] = function, block
                    if op not in self.numbers:
                        self.numbers[op] = self.counts[function, op.name]
                        self.counts[function, op.name] += 1
        self.runs[pass_name] += 1
        return self.runs[pass_name] - 1

    def moved(self, ops: Mapping[Operation, Operation]) -> Numbering:
        """One that goes on with copies of the ops."""
        numbers = {ops[op]: number for op, number in self.numbers.items() if op in ops}
        return Numbering(Counter(self.runs), numbers, Counter(self.counts))

    def _names(self) -> dict[tuple[str, str], list[Operation]]:
        if self._called is None:
            self._called = {}
            for op, (function, _) in self.places.items():
                whole = self.reference(op)
                for ref in dict.fromkeys(
                    (whole, replace(whole, name=None), replace(whole, number=None), OpRef(op.name))
                ):
                    self._called.setdefault((function, str(ref)), []).append(op)
        return self._called

    def reference(self, op: Operation) -> OpRef:
        """How an op is called."""
        return OpRef(op.name, self.numbers[op], _result_name(op))

    def sources_of(self, op: Operation) -> list[Operation]:
        """The bare ops whose results an op reads."""
        if op not in self.sources:
            self.sources[op] = [source for value in op.operands if (source := _origin(value)) is not None]
        return self.sources[op]

    def resolve(self, decision: Decision, ref: OpRef) -> Operation:
        """The op that is meant. Raises DecisionError."""
        function = decision.function
        if function not in self._functions:
            raise decision.error(f"there is no function {function}")
        called = self._names()
        found = called.get((function, str(ref)), [])
        if not found and ref.name is not None:
            found = called.get((function, str(replace(ref, number=None))), [])
        if len(found) == 1:
            return found[0]
        same = found or called.get((function, ref.op), [])
        there_is = ", ".join(str(self.reference(op)) for op in same[:_NAMED]) or "no op of that name"
        more = f" and {len(same) - _NAMED} more" if len(same) > _NAMED else ""
        problem = f"'{ref}' is ambiguous" if found else f"there is no '{ref}'"
        raise decision.error(f"{problem} in {function} at this pass: there is {there_is}{more}", ref)


def _named_ops(op: Operation) -> list[Operation]:
    """
    The ops that decisions may name: graph ops without the constants that every kernel copies, unless a kernel holds only such;
    of another dialect the op itself.
    """
    if not isinstance(op, GraphOp | OutlinedOp):
        return [op]
    ops: list[Operation] = [*op.ops()] if isinstance(op, OutlinedOp) else [op]
    named = [inner for inner in ops if not is_creation(inner)]
    return named or (ops if isinstance(op, OutlinedOp) else [])


def _origin(value: SSAValue) -> Operation | None:
    """The bare op that makes the value, in a kernel or outside; None for an argument of the function."""
    owner = bare_source(value).owner
    return owner if isinstance(owner, Operation) else None


def _function_name(block: Block) -> str:
    """`@main`, or `@module::@main` in a named module."""
    names: list[str] = []
    op = block.parent_op()
    while op is not None:
        name = op.get_attr_or_prop("sym_name")
        if isinstance(name, StringAttr):
            names.append("@" + (name.data if re.fullmatch(r"[\w$.-]+", name.data) else json.dumps(name.data)))
        op = op.parent_op()
    return "::".join(reversed(names))


def _result_name(op: Operation) -> str | None:
    return next((result.name_hint for result in op.results if result.name_hint is not None), None)
