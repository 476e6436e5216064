"""Budgets of memory: the passes with the least recomputation for which the arena fits, by trying them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from fuse_opt.dialects.analysis.storage import Storage, analyse_storage, functions_of, value_name
from fuse_opt.dialects.fused import OutlinedOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.passes.memory.packing.live_bytes import live_bytes, peak_of
from fuse_opt.passes.recompute.stages import Measure, Run, Trial, arena_of
from fuse_opt.passes.recompute.trials import Trials
from fuse_opt.passes.remarks import RefusedError

UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def parse_budget(text: str) -> int:
    """Bytes, of a text such as 64MiB. Raises ValueError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(\w+)\s*", text, re.ASCII)
    if match is None or match[2] not in UNITS:
        raise ValueError(
            f"budget: expected a number with one of the units {', '.join(UNITS)}, as in 64MiB, got '{text}'"
        )
    return int(float(match[1]) * UNITS[match[2]])


class OverBudget(RefusedError):
    """Nothing that is tried keeps a budget; `least` bytes are kept, and no byte less."""

    def __init__(self, message: str, op: Operation, least: int) -> None:
        super().__init__(message, op)
        self.least = least


def within_budget(
    module: ModuleOp,
    passes: Sequence[ModulePass],
    budget: int,
    run: Run,
    measure: Measure | None = None,
    known: Iterable[Trials] = (),
) -> list[ModulePass]:
    """
    The passes, with as little recomputation as the budget needs: as they are where that is enough, else whatever it takes of
    pointwise ops, then reductions, then products. The module is not changed. Raises RefusedError where no pass recomputes or
    plans, and OverBudget for a budget that nothing tried keeps; that says what is alive at once, and where one op alone needs
    more, which. `measure` says how many bytes the arena of a trial has. Trials of the same program that are `known` go on.
    """
    trials = next((each for each in known if each.are_of(module, passes)), None) or Trials(module, passes, run, measure)
    if (found := trials.within(budget)) is not None:
        return found.passes
    raise over_budget(trials, budget)


def over_budget(trials: Trials, budget: int) -> OverBudget:
    """The refusal of a budget that nothing tried keeps."""
    needs = [max(map(_largest_need, functions_of(each.module)), key=lambda need: need.nbytes) for each in trials.made()]
    if (need := min(needs, key=lambda each: each.nbytes)).nbytes > budget:
        return _below(need, budget, trials.least)
    return _over(trials.least, budget)


@dataclass(frozen=True)
class _Need:
    """What one op has in the arena at once, whatever the order: what it reads, writes and works in."""

    op: Operation
    nbytes: int
    values: tuple[str, ...]


def _largest_need(function: FuncOp) -> _Need:
    storages = analyse_storage(function)
    needs = [_Need(function, 0, ())]
    for op in function.body.block.ops:
        if not isinstance(op, OutlinedOp):
            continue
        own = dict.fromkeys(storages.of(value) for value in (*op.operands, *op.results))
        inner = sorted((each for each in own if each.kind == "intermediate"), key=lambda each: -each.nbytes)
        names = [f"{value_name(_own_value(op, each))} ({each.nbytes} bytes)" for each in inner]
        if workspace := op.workspace_bytes():
            names.append(f"its workspace ({workspace} bytes)")
        needs.append(_Need(op, sum(each.nbytes for each in inner) + workspace, tuple(names)))
    return max(needs, key=lambda need: need.nbytes)


def _own_value(op: OutlinedOp, storage: Storage) -> SSAValue:
    """By which of its values an op knows a storage."""
    return next(value for value in (*op.operands, *op.results) if value in storage.values)


def _below(need: _Need, budget: int, least: Trial) -> OverBudget:
    """The refusal of a budget that no order and no recomputation between kernels can keep."""
    ops = need.op.ops() if isinstance(need.op, OutlinedOp) else []
    opaque = [op for op in ops if isinstance(op, OpaqueOp)]
    name = (opaque or ops or [need.op])[-1].name
    message = (
        f"budget of {budget} bytes: '{name}' needs {need.nbytes} bytes at once: {', '.join(need.values[:4])}; nothing in the "
        f"order or recomputation changes that; the least budget is {least.arena}B"
    )
    return OverBudget(message, need.op, least.arena)


def _over(best: Trial, budget: int) -> OverBudget:
    """The refusal, at the op at which the best plan has the most bytes alive."""
    function = max(functions_of(best.module), key=arena_of)
    storages = analyse_storage(function)
    inner = [each for each in storages.storages if each.kind == "intermediate"]
    _, step = peak_of(live_bytes([(each.birth, each.death, each.nbytes) for each in inner], storages.steps))
    op = list(function.body.block.ops)[step]
    alive = sorted((each for each in inner if each.birth <= step < each.death), key=lambda each: -each.nbytes)
    names = ", ".join(f"{value_name(each.values[0])} ({each.nbytes} bytes)" for each in alive[:4])
    more = f" and {len(alive) - 4} more" if len(alive) > 4 else ""
    if inside := best.arena - best.planned:
        more += f", and kernels work in {inside} bytes"
    message = (
        f"budget of {budget} bytes: the least that order, in-place results and recomputation reach is {best.arena} bytes, as "
        f"'{op.name}' has alive {names}{more}; give a budget of {best.arena}B or more"
    )
    return OverBudget(message, op, best.arena)
