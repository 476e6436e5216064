"""Let results of kernels take over the memory of operands that are read for the last time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from fuse_opt.dialects.analysis.storage import aliased_operand, directed_results, functions_of, value_name
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.properties import int_array
from fuse_opt.passes.decisions.choices import Choices, choosing, result_meant, result_word
from fuse_opt.passes.memory.inplace_rules import InplaceRules, KernelRules, Reason
from fuse_opt.passes.memory.ordering.matching import largest_matching
from fuse_opt.passes.options import tunable
from fuse_opt.passes.remarks import RefusedError, is_collecting, remark

_PAIR = re.compile(r"(?:result\s+(\d{1,9})\s+)?over\s+operand\s+(\d{1,9})", re.ASCII)
"""How a decision writes a pair."""


@dataclass(frozen=True)
class InferInplacePass(ModulePass):
    """Chooses the in-place pairs (result, operand) of every kernel anew.

    ```mlir
    %r = fused.kernel(%a = %x : tensor<8xf32>) -> (tensor<8xf32>) { ... graph.exp %a ... }
    ```
    becomes, where nothing reads %x later and its memory is not the caller's,
    ```mlir
    %r = fused.kernel(%a = %x : tensor<8xf32>) -> (tensor<8xf32>) attributes {inplace = array<i64: 0, 0>} { ... }
    ```
    A pair needs: the operand's whole storage, with its views, is read for the last time; equal bytes; memory of the arena
    or of a donated argument; and every read of that storage in the kernel is of the element that the same instance of the
    result then overwrites. It takes bytes off the load at its step and adds none elsewhere, so no lower bound rises;
    `plan-memory` drops pairs again where a longer life at one address makes an arena larger.

    Directives: `must_inplace` (an error when no operand can be taken over), `no_inplace`, `keep_live`.

    Requires: nothing. Ensures: pairs that `plan-memory` keeps unless the program changes between.
    """

    name = "infer-inplace"

    donated_only: bool = field(default=False, metadata=tunable(True))
    """Take over nothing but donated arguments (and results that already live in one)."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        with choosing(self.name, op) as choices:
            for function in functions_of(op):
                self._infer(InplaceRules(function), choices)

    def _infer(self, rules: InplaceRules, choices: Choices) -> None:
        _refuse_bare_directives(rules.classes.ops)
        for step, kernel in rules.kernels:
            at = rules.at(step, kernel)
            pairs = _Chooser(at, self.donated_only, choices).choose()
            for result, operand in pairs:
                at.take(result, operand)
            flat = [number for pair in pairs for number in pair]
            chosen = int_array(flat) if flat else None
            if chosen != kernel.inplace:
                kernel.drop_places()  # they were planned for other pairs
            kernel.inplace = chosen


def _refuse_bare_directives(ops: Sequence[Operation]) -> None:
    for op in ops:
        if isinstance(op, GraphOp) and "must_inplace" in op.attributes and aliased_operand(op) is None:
            raise RefusedError(f"'{op.name}' carries must_inplace but is in no kernel; run wrap-kernels before", op)


class _Chooser:
    """The pairs of one kernel: as many results as can be matched with storages, those that must be first."""

    def __init__(self, rules: KernelRules, donated_only: bool, choices: Choices) -> None:
        self.rules = rules
        self.choices = choices
        self.kernel = rules.kernel
        self.donated_only = donated_only
        self.must = directed_results(rules.kernel, "must_inplace")

    def choose(self) -> list[tuple[int, int]]:
        candidates = {result: self._candidates(result) for result in self._results()}
        matching = largest_matching(candidates)
        for result in self.must:
            if result not in matching:
                raise self._conflict(result, candidates.get(result, []))
        if self.choices.replays:
            matching = self._told({result: matching[result] for result in self.must})
        chosen = [pair for pair in sorted(matching.items()) if self._takes(*pair)]
        for result, operand in chosen:
            taken = value_name(self.kernel.operands[operand])
            message = f"{value_name(self.kernel.results[result])} takes over the memory of {taken}"
            size = self.rules.sizes[result]
            remark(InferInplacePass.name, self.kernel, "inplace", message, result=result, operand=operand, bytes=size)
        if is_collecting():
            self._remark_refusals(matching)
        return chosen

    def _takes(self, result: int, operand: int) -> bool:
        """Whether there is fuel for a pair; what a directive asks for is no decision."""
        choice = f"{result_word(self.kernel, result)}over operand {operand}"
        return result in self.must or self.choices.take(self.kernel, choice, value=self.kernel.results[result])

    def _told(self, promised: Mapping[int, int]) -> dict[int, int]:
        """The pairs of a file beside those that directives ask for. Raises DecisionError."""
        pairs, memory = dict(promised), self.rules.memory
        taken = {id(memory[operand]) for operand in pairs.values()}
        for step in self.choices.told(self.kernel):
            decision = step.decision
            match = _PAIR.fullmatch(decision.choice)
            operand = int(match[2]) if match else len(memory)
            if match is None or operand >= len(memory):
                wanted = f"'over operand N' of {len(memory)} operands, or 'result M over operand N'"
                raise decision.choice_error(f"expected {wanted}, got '{decision.choice}'")
            result = result_meant(step, self.kernel, match[1])
            name = value_name(self.kernel.operands[operand])
            if (reason := self.rules.refuse(result, operand)) is not None:
                raise decision.choice_error(f"{name} {reason.message}")
            if result in pairs or id(memory[operand]) in taken:
                raise decision.choice_error(f"result {result} or {name} is of another pair already")
            pairs[result] = operand
            taken.add(id(memory[operand]))
        return pairs

    def _results(self) -> list[int]:
        return sorted(range(len(self.kernel.results)), key=lambda result: (result not in self.must, result))

    def _candidates(self, result: int) -> list[int]:
        """One operand for each storage that the result may take over, the best first."""
        found: dict[int, int] = {}
        for operand, memory in enumerate(self.rules.memory):
            if id(memory) in found or (not memory.donated and self.donated_only and result not in self.must):
                continue
            if self.rules.refuse(result, operand) is None:
                found[id(memory)] = operand
        returned = self.rules.classes.known(self.kernel.results[result]).returned
        return sorted(found.values(), key=lambda operand: self._cost(operand, returned))

    def _cost(self, operand: int, returned: bool) -> tuple[bool, int, int]:
        """Donated memory comes first: it costs the arena nothing.

        What a returned result takes over leaves the arena for the caller's buffer, so the longest life is best; else the
        shortest, which leaves the packing most freedom.
        """
        memory = self.rules.memory[operand]
        return not memory.donated, memory.birth if returned else -memory.birth, operand

    def _conflict(self, result: int, candidates: Sequence[int]) -> RefusedError:
        kernel = self.kernel
        about = f"'{self.must[result].name}' must_inplace cannot be kept for {value_name(kernel.results[result])}: "
        if candidates:
            names = ", ".join(value_name(kernel.operands[operand]) for operand in candidates)
            return RefusedError(about + f"{names} must also be taken over by another result", self.must[result])
        reasons = [f"{value_name(kernel.operands[o])} {r.message}" for o, r in self._refusals(result)]
        shown = "; ".join(reasons[:4]) + (f"; and {len(reasons) - 4} more" if len(reasons) > 4 else "")
        return RefusedError(about + (shown or "the kernel has no operand"), self.must[result])

    def _refusals(self, result: int) -> list[tuple[int, Reason]]:
        """Why the result takes over no operand; those of its size first."""
        size, memory = self.rules.sizes[result], self.rules.memory
        ranked = sorted(range(len(memory)), key=lambda operand: memory[operand].nbytes != size)
        refused = [(operand, self.rules.refuse(result, operand)) for operand in ranked]
        return [(operand, reason) for operand, reason in refused if reason is not None]

    def _remark_refusals(self, matching: Mapping[int, int]) -> None:
        for result in range(len(self.kernel.results)):
            if result in matching:
                continue
            refusals = [(operand, reason) for operand, reason in self._refusals(result) if reason.code != "size"]
            if not refusals:
                name, size = value_name(self.kernel.results[result]), self.rules.sizes[result]
                message = f"no operand has the {size} bytes of {name}"
                remark(InferInplacePass.name, self.kernel, "size", message, result=result, bytes=size)
            for operand, reason in refusals:
                name = value_name(self.kernel.operands[operand])
                remark(
                    InferInplacePass.name, self.kernel, reason.code, f"{name} {reason.message}",
                    result=result, operand=operand,
                )  # fmt: skip
