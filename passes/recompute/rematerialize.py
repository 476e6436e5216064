"""Compute values again where they are read late, in place of keeping them in memory until then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from math import inf

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from fuse_opt.dialects.analysis.storage import functions_of, value_name
from fuse_opt.dialects.fused import RECOMPUTED
from fuse_opt.passes.decisions.steering import Steering, Step, steer
from fuse_opt.passes.devices.device import find_device
from fuse_opt.passes.memory.packing.stabbing import Stabbing
from fuse_opt.passes.options import check_counts, tunable
from fuse_opt.passes.recompute.cloning import clone, erase_unread
from fuse_opt.passes.recompute.known_ops import is_repeatable, knowing, work_seconds
from fuse_opt.passes.recompute.proposals import Clones, Cut, Proposal, clones_of
from fuse_opt.passes.recompute.times import Memory, Times
from fuse_opt.passes.remarks import collect, is_collecting, remark
from fuse_opt.passes.rewrite_pass import RewritePass

MOST_SWEEPS = 16
"""Looks at a whole function; two or three find what there is, of what is free and of what is not."""

PATIENCE = 2
"""Looks that take time after which no fewer bytes are alive at once, before there are no more of them."""

SEARCHED = 1
"""The number of products of which it is searched which to keep."""


@dataclass(frozen=True)
class RematerializePass(RewritePass):
    """Pointwise ops, broadcasts and views are computed once more for readers that come much later.

    ```mlir
    %h = graph.add %p, %bias : ...        // %p comes from a product
    %t = graph.tanh %h : ...
    %y = graph.matmul %t, %w : ...
    ...                                   // %h and %t are kept in memory
    %u = graph.multiply %t, %t : ...      // of the backward half
    %v = graph.multiply %h, %u : ...
    ```
    becomes, so that `%h` alone is kept,
    ```mlir
    ...
    %t_1 = graph.tanh %h {recompute = 17 : i64} : ...
    %u = graph.multiply %t_1, %t_1 : ...
    %v = graph.multiply %h, %u : ...
    ```
    Of what comes before an op that no loop holds, such as a product, and is read behind it, the fewest bytes are kept from which
    pointwise ops give all of it. That is done where it saves bytes, as long as the whole function is not slower by the cost
    model: what one saves in stores and loads, others may take in work. What takes time is done as long as fewer bytes are alive
    at once, as far as two further looks show.

    `recompute` numbers what clones are for; `cse` and fusion leave clones apart from what they stand for. Random numbers follow
    from their position and are the same again. Run it when there are primitive ops, and before fusion.

    Requires: nothing. Ensures: values stay, bit for bit; ops with directives are not computed again.
    """

    name = "rematerialize"

    max_ops: int = 32
    """Ops that are computed again for a reader at most."""
    smallest_bytes: int = field(default=65536, metadata=tunable(4096, 1048576))
    """Smaller values are kept."""
    target: int = 0
    """Bytes that may be kept over an op: where no more are, all is left as it is."""
    slower: float = field(default=0.0, metadata=tunable(1e-4))
    """Seconds that a function may take longer, by the cost model."""
    rows: bool = False
    """Whether reductions may be computed again, too."""
    products: int = 0
    """Which calls may be, such as products: of this many in their order one is kept; with 1 those that keep the target with
    the least work, in a program of which nothing is computed again yet; with 0 all."""
    device: str = "cpu"
    """What the cost model computes with: a device's name, such as cpu or h100, or the path of a .toml file like theirs."""

    def __post_init__(self) -> None:
        check_counts(self)
        if not self.slower >= 0:
            raise ValueError(f"option 'slower': expected 0 or more seconds, got {self.slower}")
        find_device(self.device)

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        with knowing():
            self._sweep(op)

    def _sweep(self, op: ModuleOp) -> None:
        before: dict[FuncOp, _Sweep | None] = dict.fromkeys(functions_of(op))
        free = replace(self, slower=0.0, rows=False, products=0)
        is_searched = self.products == SEARCHED and any(RECOMPUTED in each.attributes for each in op.walk())
        scripts: list[Mapping[FuncOp, _Script]] = []
        left: int | None = None
        """Sweeps that take time and are still to be made; None as long as there is something that is free."""
        for _ in range(MOST_SWEEPS):
            steering = steer(self.name, op, None)
            sweeps, changed = list[_Sweep](), False
            if steering is not None and steering.steps is not None:
                sweeps = [_Sweep(self, function, steering, before[function]) for function in before]
                changed = any([sweep.replay() for sweep in sweeps])
            elif is_searched:
                break  # a search would go on from what it found
            elif left is None:
                sweeps = [_Sweep(free, function, steering, before[function]) for function in before]
                changed = any([sweep.run() for sweep in sweeps])
                if not changed and self != free:
                    left, scripts = self._worthwhile(op, before)
            if left is not None:
                sweeps = [_Sweep(self, function, steering, before[function]) for function in before]
                script: Mapping[FuncOp, _Script] = scripts.pop(0) if scripts else {}
                changed = left > 0 and any([sweep.run(script.get(sweep.function)) for sweep in sweeps])
                if not all(sweep.is_whole for sweep in sweeps):
                    scripts.clear()  # without fuel it goes on from something else
                left -= 1
            if not changed:
                for sweep in sweeps:
                    sweep.report(are_enough=left is not None and left < 0)
                break
            before = {sweep.function: sweep for sweep in sweeps}

    def _worthwhile(
        self, op: ModuleOp, before: Mapping[FuncOp, _Sweep | None]
    ) -> tuple[int, list[Mapping[FuncOp, _Script]]]:
        """
        How many sweeps at the cost of time lead to the fewest bytes that are alive at once, as far as it is seen on a copy: what
        one computes again, further ones go on to compute again for the sake of values at other calls, and no fewer are kept.
        What each of them made there is known then.
        """
        if self.products == SEARCHED:
            return MOST_SWEEPS, []  # it knows when to stop
        copy = op.clone()
        known = dict(zip(functions_of(copy), before.values(), strict=True))
        scripts: list[Mapping[FuncOp, _Script]] = []
        lowest, best = inf, 0
        with collect():
            for number in range(MOST_SWEEPS):
                sweeps = [_Sweep(self, function, None, known[function]) for function in known]
                most = max((sweep.times.most() for sweep in sweeps), default=0)
                if most < lowest:
                    lowest, best = most, number
                elif number - best >= PATIENCE:
                    break
                if not any([sweep.run() for sweep in sweeps]):
                    break
                scripts.append({function: sweep.script for function, sweep in zip(before, sweeps, strict=True)})
                known = {sweep.function: sweep for sweep in sweeps}
        return best, scripts[:best]


@dataclass(frozen=True)
class _Script:
    """What a sweep makes of a function, for a copy of it."""

    clones: list[tuple[int, tuple[int, ...], tuple[int, ...], dict[str, float]]]
    """Their time, the places of ops and readers in the block, and the numbers of remarks."""
    balance: float
    """Seconds that may still be lost then."""


class _Sweep:
    """Looks at each value of a function over one call that it is kept over, that of the most bytes alive."""

    def __init__(
        self, options: RematerializePass, function: FuncOp, steering: Steering | None, before: _Sweep | None
    ) -> None:
        self.options = options
        self.function = function
        self.steering = steering
        self.balance = options.slower + (0.0 if before is None else before.gained)
        """Seconds that may still be lost."""
        self.peak: float = inf
        """The most bytes of a call, where it is searched what to keep."""
        self._peak_before = before.peak if before is not None and before.options == options else inf
        self._before = before
        self._times: Times | None = None
        self.is_whole = True
        """Whether all that it chose is made."""
        self.refused: list[tuple[Proposal, str, str, str]] = []

    @property
    def times(self) -> Times:
        """Those of the function before anything is made."""
        if self._times is None:
            known = None if self._before is None else self._before._times
            self._times = Times(self.function, self.options.rows, self.options.products, known)
        return self._times

    @property
    def gained(self) -> float:
        """Seconds that the function is faster than it was."""
        return self.balance - self.options.slower

    def run(self, script: _Script | None = None) -> bool:
        """Whether anything is computed again: what a script says, or what is chosen."""
        self.script = self._choice() if script is None else script
        self.balance = self.script.balance
        ops = list(self.function.body.block.ops)
        made: list[Clones] = []
        for time, places, reading, numbers in self.script.clones:
            clones = Clones(time, tuple(ops[k] for k in places), tuple(ops[k] for k in reading), ())
            if self._make(clones, numbers):
                made.append(clones)
        erase_unread(made)
        self.is_whole = len(made) == len(self.script.clones)
        return bool(made)

    def _choice(self) -> _Script:
        chosen = [proposal for proposal in self._by_gain(self._proposals()) if self._takes(proposal)]
        place = self.times.place
        clones = [
            (each.time, tuple(map(place.__getitem__, each.ops)), tuple(map(place.__getitem__, each.readers)), numbers)
            for proposal in chosen
            for numbers in (_numbers(proposal),)
            for each in proposal.clones
        ]
        return _Script(clones, self.balance)

    def replay(self) -> bool:
        """Makes what decisions say; whether any was for the function. Raises DecisionError."""
        assert self.steering is not None and self.steering.steps is not None
        steps = self.steering.steps.get(self.times.block, [])
        checked = list(map(self._checked, steps))  # all of them first, as when they were decided
        made = [clones for clones in checked if self._make(clones, {})]
        erase_unread(made)
        return bool(steps)

    def _proposals(self) -> list[Proposal]:
        options, times = self.options, self.times
        device, loads = find_device(options.device), times.loads(whole=options.products == SEARCHED)
        if options.products == SEARCHED:
            self.peak = max(loads.values(), default=0)
            if self.peak >= self._peak_before:
                return []  # what was computed again last has not helped
        memories = [memory for memory in dict.fromkeys(times.memory.values()) if self._may_be_dropped(memory)]
        seconds_of = cache(partial(work_seconds, device=device))
        alive = Stabbing([(memory.made + 1, memory.last) for memory in memories], times.end)
        found: list[Proposal] = []
        for at in sorted(loads, key=lambda at: -loads[at]):
            if loads[at] <= options.target:
                break
            if wanted := alive.take(at):
                in_caches = loads[at] <= device.cache_bytes
                cut = Cut(times, at, [memories[k] for k in wanted], device, seconds_of, in_caches, options.max_ops)
                if options.products == SEARCHED:
                    cut.keep(options.target, loads)
                found += cut.proposals()
        return found

    def _may_be_dropped(self, memory: Memory) -> bool:
        kept = memory.free or memory.barred or memory.made + 1 >= memory.last
        return not kept and (memory.nbytes or 0) >= self.options.smallest_bytes

    def _by_gain(self, proposals: Sequence[Proposal]) -> list[Proposal]:
        """Those that save bytes, the fastest for what they save first."""
        saving = [each for each in proposals if each.nbytes > 0 and each.byte_time > 0]
        return sorted(saving, key=lambda each: -each.seconds / each.nbytes)

    def _takes(self, proposal: Proposal) -> bool:
        if proposal.count() > self.options.max_ops:
            message = f"more than {self.options.max_ops} ops would be computed again for a reader"
            self.refused.append((proposal, "many-ops", message, "a larger max-ops"))
            return False
        if self.balance + proposal.seconds < 0:
            lost = -proposal.seconds - self.balance
            message = f"it would take {-proposal.seconds * 1e6:.3g} us to compute them again"
            self.refused.append((proposal, "slower", message, f"slower={self.options.slower + lost:.3g}"))
            return False
        self.balance += proposal.seconds
        return True

    def _make(self, clones: Clones, numbers: dict[str, float]) -> bool:
        """Makes the clones while there is fuel."""
        if (steering := self.steering) is not None:
            if (limit := steering.exhausted()) is not None:
                message = f"not computed again: the fuel for {limit} decision{'' if limit == 1 else 's'} is used up"
                remark(RematerializePass.name, clones.ops[-1], "fuel", message, flip="more fuel", fuel=limit)
                return False
            steering.made(steering.describe(clones.ops, clones.readers))
        if is_collecting():
            names = " and ".join(dict.fromkeys(f"'{reader.name}'" for reader in clones.readers))
            message = f"is computed again for {names}, with {len(clones.ops) - 1} ops before it"
            remark(RematerializePass.name, clones.ops[-1], "recomputed", message, numbers=numbers)
        clone(clones)
        return True

    def _checked(self, step: Step) -> Clones:
        """What a decision of a file says. Raises DecisionError."""
        decision, times = step.decision, self.times
        if not decision.readers or decision.word != "for":
            raise decision.error("expected 'for' and the ops that read what is computed again")
        for op, ref in zip(step.ops, decision.ops, strict=True):
            if op.parent is not times.block or not is_repeatable(op):
                why = "it has directives or several results, or the caller runs it"
                raise decision.error(f"{ref} cannot be computed again: {why}", ref)
            for memory in (times.memory[value] for value in op.operands if value in times.memory):
                if memory.barred:
                    raise decision.error(
                        f"{ref} reads {value_name(memory.value)}, which may be overwritten by then", ref
                    )
        made = {op.results[0] for op in step.ops}
        for reader, ref in zip(step.readers, decision.readers, strict=True):
            if reader.parent is not times.block or made.isdisjoint(reader.operands):
                raise decision.error(f"{ref} reads none of what is computed again", ref)
        return clones_of(times, step.ops, step.readers, ())

    def report(self, are_enough: bool = False) -> None:
        """Says what is not computed again, and why: with `are_enough` nothing more is."""
        if are_enough and is_collecting():
            message = "no fewer bytes are alive at once where they are computed again"
            more = [each for each in self._by_gain(self._proposals()) if self._takes(each)]
            self.refused += [(each, "no-fewer-bytes", message, "") for each in more]
        for proposal, code, message, flip in self.refused:
            op = proposal.clones[0].ops[-1]
            count = len(proposal.dropped)
            kept = f"{'a value is' if count == 1 else f'{count} values are'} kept for later readers: {message}"
            remark(RematerializePass.name, op, code, kept, flip=flip, numbers=_numbers(proposal))


def _numbers(proposal: Proposal) -> dict[str, float]:
    return {"bytes_saved": proposal.nbytes, "time_saved_us": round(proposal.seconds * 1e6, 3)}
