"""Loop distribution: a loop whose iterations are long chains becomes several, with what they share in memory of a block.

    scf.parallel (%i) { %t = tanh(load %x[%i]); %e = exp(%t); store log(%e), %y[%i] }

becomes, over a block of iterations,

    scf.parallel (%i) { store tanh(load %x[%i]), %kept[%i] }
    scf.parallel (%i) { ... }

A processor overlaps the iterations that its window of instructions holds. A chain of several transcendental functions fills
it, and then costs the latency of its instructions instead of their number. Where to cut follows from a model of both:
`sqrt(n**2 + (l n / window)**2)` cycles for n instructions of which the longest chain takes l cycles, the least sum over all
cuts (Kennedy and McKinley 1990 cut for other ends). Reorder buffers of processors that have wide vectors hold 224 to 512, but
their schedulers about 100 that wait for operands: of windows of 100, 150 and 300 the middle one was the fastest or equal in
twelve loops. Iterations are independent, so loops may be cut anywhere; loads are repeated, and no cut comes behind a store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot, inf
from typing import cast

from xdsl.dialects import arith, func, math, memref, scf
from xdsl.dialects.builtin import BFloat16Type, Float32Type, Float64Type, IndexType
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from fuse_opt.dialects.fused.knobs import WINDOW
from fuse_opt.dialects.types.extents import estimate
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.inner_ops import inner_of
from fuse_opt.lowering.loops.strip_mining import BLOCK, BlockLoops, constant, counted, is_within, iterations

LONGEST = 160
"""Operations of a part."""
FEWEST = 64
"""Iterations that are worth it."""
GAIN = 0.85
"""Of the cost of the whole: what the parts may cost."""
CUT, KEPT = 5.0, 2.0
"""What another loop costs, and each value that is stored and loaded."""

_CHEAP = (1.0, 4.0)
_LONG = (28.0, 85.0)
_COSTS: Mapping[type[Operation], tuple[float, float]] = {
    math.AbsFOp: (1, 1),
    math.CopySignOp: (1, 1),
    math.FmaOp: _CHEAP,
    math.FloorOp: _CHEAP,
    math.CeilOp: _CHEAP,
    math.TruncOp: _CHEAP,
    math.RoundEvenOp: _CHEAP,
    math.ExpOp: (18, 56),
    math.Exp2Op: (18, 56),
    math.TanhOp: (20, 75),
    math.SinOp: (24, 80),
    math.CosOp: (24, 80),
    math.PowFOp: (90, 150),
    math.SqrtOp: (10, 20),
    math.RsqrtOp: (16, 30),
    arith.DivfOp: (6, 13),
    arith.MaximumfOp: (3, 6),
    arith.MinimumfOp: (3, 6),
}
"""Instructions for a vector, and their latency."""
_CALLS = {
    "fo_mad_": _CHEAP,
    "fo_round_": (6.0, 8.0),
    "fo_clean_": (6.0, 8.0),
    "fo_exact_": (1.0, 2.0),
    "fo_divided_": (3.0, 12.0),
    "fo_rooted_": (2.0, 8.0),
    "fo_max_": (3.0, 6.0),
    "fo_min_": (3.0, 6.0),
    "fo_shared_": (15.0, 60.0),
}


@dataclass(frozen=True, slots=True)
class _Model:
    """What is asked of cuts, and of the processor."""

    gain: float
    """Of the cost of the whole: what the parts may cost."""
    window: int


def distribute_loops(
    body: Block, tasks: Extent, cut: str = "modelled", window: int = cast("int", WINDOW.usual)
) -> None:
    """
    Rewrites the function of a kernel in place; loops without constant bounds are over some of so many tasks. `cut` and `window`
    are the schedule's entries.
    """
    gain = {"modelled": GAIN, "never": 0.0, "always": 1.0}[cut]
    blocks = BlockLoops(body)
    for op in inner_of(body, scf.ParallelOp):
        if len(op.body.block.args) == 1 and not op.initVals:
            _distribute(op, estimate(tasks), blocks, _Model(gain, window))


def instructions(body: Block) -> float:
    """What the model counts of the innermost loops over neighbours, for a vector."""
    return sum(work_of(loop.body.block) for loop in inner_of(body, scf.ParallelOp))


def work_of(block: Block) -> float:
    """The same of the body of one loop."""
    return sum(_cost(op)[0] for op in list(block.ops)[:-1])


def _distribute(loop: scf.ParallelOp, tasks: int, blocks: BlockLoops, model: _Model) -> None:
    count = iterations(loop)
    if constant(loop.step[0]) != 1 or (tasks if count is None else count) < FEWEST:
        return
    steps = _steps(loop.body.block)
    cuts = _cuts(steps, model) if steps else ()
    if not cuts:
        return
    size = BLOCK if count is None else min(count, BLOCK)
    if count is None or count > BLOCK:
        loop = blocks.in_blocks(loop, count is not None and count % BLOCK == 0)
    _Parts(loop, blocks, size, steps).build(cuts)


def _cost(op: Operation) -> tuple[float, float]:
    if isinstance(op, func.CallOp):
        callee = op.callee.string_value()
        return next((cost for prefix, cost in _CALLS.items() if callee.startswith(prefix)), _LONG)
    return _COSTS.get(type(op), _LONG if op.name.startswith("math.") else _CHEAP)


def _steps(block: Block) -> list[Operation]:
    """What is computed, in order, without what every part may do again; nothing where the loop does anything else."""
    repeated: set[SSAValue] = {block.args[0]}
    steps: list[Operation] = []
    stored = False
    for op in list(block.ops)[:-1]:
        stored = stored or isinstance(op, memref.StoreOp)
        if not (
            isinstance(op, memref.LoadOp | memref.StoreOp)
            or (op.name.startswith(("arith.", "math.")) and not op.regions)
            or (isinstance(op, func.CallOp) and len(op.results) == 1)
        ):
            return []
        if not stored and _is_repeated(op, block, repeated):
            repeated.update(op.results)
        else:
            steps.append(op)
    return steps


def _is_repeated(op: Operation, block: Block, repeated: set[SSAValue]) -> bool:
    """Loads, their addresses and what widens them for nothing."""
    match op:
        case memref.LoadOp() | arith.ConstantOp():
            pass
        case arith.AddiOp() | arith.SubiOp() | arith.MuliOp() if isinstance(op.result.type, IndexType):
            pass
        case arith.ExtFOp() if isinstance(op.input.type, BFloat16Type):
            pass
        case _:
            return False
    return all(value in repeated or not is_within(value, block) for value in op.operands)


def _cuts(steps: Sequence[Operation], model: _Model) -> tuple[int, ...]:
    """The steps that a part begins with, but the first: those of the least cost, where that is worth it."""
    kept = _kept(steps)
    end = len(steps)
    best, before = [0.0] + [inf] * end, [0] * (end + 1)
    for first in range(end):
        start = best[first] + (CUT + KEPT * kept[first] if first else 0.0)
        if start == inf:
            continue
        for stop, cost in enumerate(_costs(steps[first : first + LONGEST], model.window), first + 1):
            if start + cost < best[stop]:
                best[stop], before[stop] = start + cost, first
    *_, whole = _costs(steps, model.window)
    if not best[end] < model.gain * whole:
        return ()
    cuts = [before[end]]
    while cuts[-1]:
        cuts.append(before[cuts[-1]])
    return tuple(reversed(cuts[:-1]))


def _costs(steps: Sequence[Operation], window: int) -> list[float]:
    """Of the first step, the first two, ..."""
    ready: dict[SSAValue, float] = {}
    instructions = longest = 0.0
    costs: list[float] = []
    for op in steps:
        number, latency = _cost(op)
        done = latency + max((ready.get(value, 0.0) for value in op.operands), default=0.0)
        ready.update((result, done) for result in op.results)
        instructions, longest = instructions + number, max(longest, done)
        costs.append(hypot(instructions, longest * instructions / window))
    return costs


def _kept(steps: Sequence[Operation]) -> list[float]:
    """By step: how many values a part that begins there takes from before; infinite where that cannot be."""
    position = {op: number for number, op in enumerate(steps)}
    changes = [0] * (len(steps) + 1)
    barred = [0] * (len(steps) + 1)
    for number, op in enumerate(steps):
        for result in op.results:
            last = max((position.get(use.operation, number) for use in result.uses), default=number)
            target = changes if isinstance(result.type, Float32Type | Float64Type) else barred
            if last > number:
                target[number + 1] += 1
                target[last + 1] -= 1
    stored = next((number for number, op in enumerate(steps) if isinstance(op, memref.StoreOp)), len(steps))
    counts: list[float] = []
    kept, bars = 0, 0
    for number in range(len(steps)):
        kept, bars = kept + changes[number], bars + barred[number]
        counts.append(inf if bars or number > stored else float(kept))
    return counts


@dataclass
class _Parts:
    """The loops that take a loop's place."""

    loop: scf.ParallelOp
    blocks: BlockLoops
    size: int
    steps: Sequence[Operation]

    def build(self, cuts: Sequence[int]) -> None:
        ends = [*cuts, len(self.steps)]
        parts = [self.steps[first:end] for first, end in zip([0, *cuts], ends, strict=True)]
        kept = self._memory(parts)
        for part in parts:
            stores = [value for op in part for value in op.results if value in kept]
            Rewriter.insert_op(self._part(part, stores, kept), InsertPoint.before(self.loop))
        Rewriter.erase_op(self.loop)

    def _memory(self, parts: Sequence[Sequence[Operation]]) -> dict[SSAValue, SSAValue]:
        """By value that a later part needs: a buffer that holds nothing else from its part to its last use."""
        place = {op: number for number, part in enumerate(parts) for op in part}
        kept: dict[SSAValue, SSAValue] = {}
        busy: dict[Attribute, list[int]] = {}
        for op, number in place.items():
            for value in op.results:
                last = max((place[use.operation] for use in value.uses), default=number)
                if last == number:
                    continue
                known = busy.setdefault(value.type, [])
                free = next((k for k, until in enumerate(known) if until < number), len(known))
                known[free : free + 1] = [last]
                kept[value] = self.blocks.buffer(value.type, self.size, free, "kept")
        return kept

    def _part(
        self, part: Sequence[Operation], stores: Sequence[SSAValue], kept: Mapping[SSAValue, SSAValue]
    ) -> scf.ParallelOp:
        old = self.loop.body.block
        block = Block(arg_types=[old.args[0].type])
        block.args[0].name_hint = old.args[0].name_hint
        loop = scf.ParallelOp(
            list(self.loop.lowerBound), list(self.loop.upperBound), list(self.loop.step), Region(block)
        )
        at = counted(loop)
        values: dict[SSAValue, SSAValue] = {old.args[0]: block.args[0]}
        for needed in self._needed(part, kept):  # all of it first: nothing is loaded behind a store
            if needed in kept:
                load = memref.LoadOp.get(kept[needed], [at])
                load.res.name_hint = needed.name_hint
                block.add_op(load)
                values[needed] = load.res
            elif isinstance(needed.owner, Operation):
                block.add_op(needed.owner.clone(values))
        for op in part:
            block.add_op(op.clone(values))
        for value in stores:
            block.add_op(memref.StoreOp.get(values[value], kept[value], [at]))
        block.add_op(scf.ReduceOp())
        return loop

    def _needed(self, part: Sequence[Operation], kept: Mapping[SSAValue, SSAValue]) -> list[SSAValue]:
        """What the part needs of the old loop and does not compute, in the order to make it."""
        old = self.loop.body.block
        known: set[SSAValue] = {old.args[0], *(value for op in part for value in op.results)}
        found: list[SSAValue] = []
        pending = [value for op in reversed(part) for value in reversed(op.operands)]
        while pending:
            value = pending[-1]
            if value in known or not is_within(value, old):
                pending.pop()
                continue
            inputs = [] if value in kept or not isinstance(value.owner, Operation) else list(value.owner.operands)
            if missing := [v for v in inputs if v not in known and is_within(v, old)]:
                pending += reversed(missing)
                continue
            known.add(value)
            found.append(pending.pop())
        return found
