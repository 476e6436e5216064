"""Give every result of a kernel its place in one arena, so that no two values that live at once share a byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from fuse_opt.dialects.analysis.storage import (
    ARENA,
    MOST_BYTES,
    Storage,
    StorageMap,
    analyse_storage,
    byte_size,
    directed_results,
    forget_places,
    functions_of,
    value_name,
)
from fuse_opt.dialects.fused import NOT_IN_ARENA, OutlinedOp, PartitionOp
from fuse_opt.dialects.interfaces.properties import int_array, int_value
from fuse_opt.dialects.types.extents import may_exceed
from fuse_opt.dialects.types.size import Size
from fuse_opt.passes.decisions.choices import Choices, choosing
from fuse_opt.passes.memory.decided_slots import Entry, decided_slots, kept_pairs, storage_entry, told_slots
from fuse_opt.passes.memory.inplace_rules import InplaceRules
from fuse_opt.passes.memory.inside_partitions import Clock
from fuse_opt.passes.memory.packing.live_bytes import live_bytes, peak_of
from fuse_opt.passes.memory.packing.packing import ORDERS, STRATEGIES, Buffer, Problem, Solution, pack
from fuse_opt.passes.memory.pinned_slots import PINNED, pinned_offsets
from fuse_opt.passes.memory.place_orders import plan_orders
from fuse_opt.passes.memory.workspaces import Workspace, plan_alignment, workspaces_of
from fuse_opt.passes.options import check_counts, tunable
from fuse_opt.passes.remarks import RefusedError, is_collecting, remark

_WIDEST = 8
"""Bytes of the widest element type: the least alignment of a slot."""

_Pairs = dict[Operation, list[tuple[int, int]]]


@dataclass(frozen=True)
class PlanMemoryPass(ModulePass):
    """Writes a slot for each kernel result, and the arena's size on the function.

    ```mlir
    func.func @f(%x: tensor<64xf32>) -> tensor<64xf32> {
      %a = fused.kernel(%0 = %x : tensor<64xf32>) -> (tensor<64xf32>) { ... }
      %b = fused.kernel(%1 = %a : tensor<64xf32>) -> (tensor<64xf32>) { ... }
      func.return %b : tensor<64xf32>
    ```
    becomes
    ```mlir
    func.func @f(%x: tensor<64xf32>) -> tensor<64xf32>
        attributes {fused.arena = {alignment = 64, lower_bound = 256, method = "peak-death-size", size = 256}} {
      %a = fused.kernel(...) -> (tensor<64xf32>) attributes {slots = array<i64: 0>} { ... }
      %b = fused.kernel(...) -> (tensor<64xf32>) attributes {slots = array<i64: -1>} { ... }
    ```
    Where bytes are sizes, as of `?`, slots are numbers of places, which have sizes: `places = [#graph.size<96*n>]` on the
    function, in the stead of `size` and `lower_bound`; and `orders = [array<i64: 0, 1>]` say which place lies below which, in
    pairs. A place begins where the highest right below it ends, in the order with the smallest arena at the sizes of a call.
    `bounds` are places that are in use at once: no arena is smaller. Orders of the method `universal` are as small for all sizes.

    -1 is the slot of what lives outside of the arena: in the caller's result buffers or in a donated argument. An arena
    as large as the lower bound is proven optimal. In-place pairs that are not legal any more are dropped; so are the legal
    ones between values of the arena where the arena is smaller without them.

    The `workspace` of a kernel, bytes that its implementation asks for, gets a place of its own for that step, which is
    written as `workspace_slot = 256 : i64`. Offsets are multiples of 64 bytes then, whatever the alignment.

    Values inside of a partition with `memory = "planned"` get places of their own, too, written as `inner_slots` on it. They
    live between two of its ops, beside all that the partition reads and returns.

    `pinned_slots = array<i64: 128, -1>` on a kernel fixes the offset of its first result by hand.

    Requires: nothing; ops outside of kernels stay without memory. Ensures: `verify_plans` accepts the functions.
    """

    name = "plan-memory"

    alignment: int = 64
    """Offsets and sizes are multiples of so many bytes: a power of two, 64 for CPUs, 256 for GPUs."""
    strategy: str = field(default="auto", metadata=tunable("skyline-time"))
    """The order in which values are placed: `auto` tries several until one is proven optimal, `exact` searches long."""

    peak_limit: int | None = None
    """Bytes that the arena may have; a larger one is an error that names what is alive at its peak."""

    def __post_init__(self) -> None:
        if self.alignment < _WIDEST or self.alignment & (self.alignment - 1):
            wanted = f"expected a power of two from {_WIDEST} bytes on"
            raise ValueError(f"option 'alignment': {wanted}, got {self.alignment}")
        if self.strategy not in STRATEGIES:
            raise ValueError(f"option 'strategy': expected one of {', '.join(STRATEGIES)}, got '{self.strategy}'")
        check_counts(self)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        with choosing(self.name, op) as choices:
            for function in functions_of(op):
                self._plan(function, choices)

    def _plan(self, function: FuncOp, choices: Choices) -> None:
        _refuse_endless(function)
        kept = _legal_pairs(function)
        if not any(isinstance(op, OutlinedOp) for op in function.body.block.ops):
            function.attributes.pop(ARENA, None)
            return
        if sized := [s for s in kept.rules.classes.storage_map().storages if isinstance(s.nbytes, Size)]:
            self._plan_places(function, kept, sized[0])
            return
        plan = self._solve(function, kept.rules.classes.storage_map(), kept.pairs, self.strategy)
        if plan.solution.arena > plan.solution.lower_bound and kept.optional(plan.storages):
            fewer = kept.without_optional(plan.storages)
            storages = analyse_storage(function, fewer)
            trial = self._solve(
                function, storages, fewer, method if (method := plan.solution.method) in ORDERS else self.strategy
            )
            if trial.solution.arena < plan.solution.arena:
                other = self._solve(function, storages, fewer, self.strategy)
                message = "in-place pairs are dropped: the arena is smaller without them"
                numbers = {"arena": other.solution.arena, "arena_with": plan.solution.arena}
                remark(self.name, function, "inplace-dropped", message, numbers=numbers)
                plan = other
        if choices.is_asked:
            plan = self._decided(function, kept.pairs, plan, choices)
        if self.peak_limit is not None and not choices.is_out_of_fuel and plan.solution.arena > self.peak_limit:
            raise RefusedError(_over_limit(plan, self.peak_limit), function)
        if plan.solution.arena >= MOST_BYTES:
            message = f"the arena needs {plan.solution.arena} bytes; expected fewer than 2**63"
            raise RefusedError(f"'{self.name}': {message}", function)
        _write(function, plan)
        if is_collecting():
            _report(function, plan)

    def _plan_places(self, function: FuncOp, kept: _LegalPairs, sized: Storage) -> None:
        """Places in the stead of offsets, as bytes are sizes; those that a call has follow from these."""
        storages = kept.rules.classes.storage_map()
        about = f"{value_name(sized.values[0])} has {sized.nbytes} bytes"
        if pinned_offsets(function, storages, plan_alignment(function, self.alignment)):
            raise RefusedError(f"'{self.name}' {PINNED}: expected no offsets by hand, as {about}", function)
        chosen = [storage for storage in storages.storages if storage.kind == "intermediate"]
        if workspaces_of(function) or Clock(function).inside:
            forget_places(function)
            message = f"has no places: {about}, beside workspaces or values inside of partitions"
            remark(self.name, function, "sized", message, flip="numbers for all extents")
            return
        alignment = plan_alignment(function, self.alignment)
        plan, pairs = plan_orders([(s.nbytes, s.birth, s.death) for s in chosen], alignment), kept.pairs
        if plan.worst > 1.0 and kept.optional(storages):
            fewer = kept.without_optional(storages)
            others = analyse_storage(function, fewer)
            apart = [storage for storage in others.storages if storage.kind == "intermediate"]
            trial = plan_orders([(s.nbytes, s.birth, s.death) for s in apart], alignment)
            if plan.is_larger_than(trial):
                message = "in-place pairs are dropped: the arena is smaller without them"
                remark(self.name, function, "inplace-dropped", message, worst=plan.worst, worst_without=trial.worst)
                plan, pairs, storages, chosen = trial, fewer, others, apart
        numbers = {storage.number: place for place, storage in enumerate(chosen)}
        for op in function.body.block.ops:
            if isinstance(op, OutlinedOp):
                op.slots = int_array([numbers.get(storages.of(one).number, NOT_IN_ARENA) for one in op.results])
                flat = [number for pair in pairs.get(op, ()) for number in pair]
                op.inplace = int_array(flat) if flat else None
        function.attributes[ARENA] = DictionaryAttr({"method": StringAttr(plan.method), **plan.orders.entries()})
        message = f"has places for any sizes: {about}"
        figures = {"worst": round(plan.worst, 4), "mean": round(plan.mean, 4)}
        remark(
            self.name, function, "places", message, places=len(chosen), orders=len(plan.orders.orders),
            method=plan.method, sizes_tried=len(plan.points), numbers=figures,
        )  # fmt: skip

    def _decided(self, function: FuncOp, legal: _Pairs, best: _Plan, choices: Choices) -> _Plan:
        """The plan as far as it is decided, or as a file says in place of it. Raises DecisionError."""
        kernels = [op for op in function.body.block.ops if isinstance(op, OutlinedOp)]
        told = told_slots(kernels, choices) if choices.replays else None
        pairs = kept_pairs(legal, best.pairs, told, choices)
        is_best = pairs == {kernel: found for kernel, found in best.pairs.items() if found}
        layout = best.layout if is_best else self._layout(function, analyse_storage(function, pairs), pairs)
        solved = best.solution if is_best else None
        solution = decided_slots(layout.entries(), layout.alignment, solved, told, layout.storages, choices)
        return _Plan(layout, solution)

    def _solve(self, function: FuncOp, storages: StorageMap, pairs: _Pairs, strategy: str) -> _Plan:
        layout = self._layout(function, storages, pairs)
        try:
            return _Plan(layout, pack(Problem(layout.buffers, layout.alignment), strategy))
        except ValueError as error:
            raise RefusedError(f"'{self.name}' {PINNED}: {error}", function) from None

    def _layout(self, function: FuncOp, storages: StorageMap, pairs: _Pairs) -> _Layout:
        """What a plan has to find room for."""
        chosen = [storage for storage in storages.storages if storage.kind == "intermediate"]
        alignment = plan_alignment(function, self.alignment)
        pins = pinned_offsets(function, storages, alignment)
        clock = Clock(function)
        buffers = [Buffer(s.nbytes, clock.at(s.birth), clock.at(s.death), pins.get(s.number)) for s in chosen]
        spaces = workspaces_of(function)
        buffers += [Buffer(space.nbytes, clock.at(space.step), clock.at(space.step + 1)) for space in spaces]
        buffers += [Buffer(one.nbytes, one.birth, one.death) for one in clock.inside]
        return _Layout(pairs, storages, chosen, spaces, clock, alignment, tuple(buffers))


def _refuse_endless(function: FuncOp) -> None:
    """Raises RefusedError for a value of more bytes than offsets count."""
    for op in function.body.block.ops:
        for value in op.results if isinstance(op, OutlinedOp) else ():
            if not may_exceed(MOST_BYTES, byte_size(value) or 0):
                problem = f"has the type {value.type}; expected fewer than 2**63 bytes"
                raise RefusedError(f"'{op.name}': {value_name(value)} {problem}", op)


@dataclass(frozen=True)
class _Layout:
    """What needs room: storages, then workspaces, then values inside of partitions, a buffer each."""

    pairs: _Pairs
    storages: StorageMap
    chosen: Sequence[Storage]
    spaces: Sequence[Workspace]
    clock: Clock
    alignment: int
    buffers: tuple[Buffer, ...]

    def entries(self) -> list[Entry]:
        """The buffers as decisions call them."""
        buffers = iter(self.buffers)
        found = [storage_entry(storage.values, next(buffers)) for storage in self.chosen]
        found += [Entry(space.kernel, "workspace", 0, next(buffers), space.name) for space in self.spaces]
        inside = Counter[Operation]()
        for one in self.clock.inside:
            name, op = value_name(one.value), one.partition
            found.append(Entry(op, "inside", inside[op], next(buffers), name))
            inside[op] += 1
        return found


class _Plan:
    """Where everything is."""

    def __init__(self, layout: _Layout, solution: Solution) -> None:
        self.layout = layout
        self.solution = solution
        self.pairs, self.storages, self.spaces, self.clock = layout.pairs, layout.storages, layout.spaces, layout.clock
        self.alignment = layout.alignment
        offsets = iter(solution.offsets)
        self.offsets: dict[int, int] = {storage.number: next(offsets) for storage in layout.chosen}
        """By number of the storage."""
        self.places: dict[OutlinedOp, int] = {space.kernel: next(offsets) for space in layout.spaces}
        """By kernel, where its workspace is."""
        self.inside: dict[SSAValue, int] = {one.value: next(offsets) for one in layout.clock.inside}
        """By value inside of a partition, its offset."""


@dataclass
class _LegalPairs:
    rules: InplaceRules
    pairs: _Pairs = field(default_factory=dict[Operation, list[tuple[int, int]]])

    def optional(self, storages: StorageMap) -> set[tuple[Operation, int]]:
        """The results whose pairs could be dropped: both values are the arena's, and no directive asks for it."""
        found: set[tuple[Operation, int]] = set()
        for kernel, pairs in self.pairs.items():
            must = directed_results(kernel, "must_inplace")
            for result, _ in pairs:
                if result not in must and storages.of(kernel.results[result]).kind == "intermediate":
                    found.add((kernel, result))
        return found

    def without_optional(self, storages: StorageMap) -> _Pairs:
        dropped = self.optional(storages)
        return {k: [pair for pair in pairs if (k, pair[0]) not in dropped] for k, pairs in self.pairs.items()}


def _legal_pairs(function: FuncOp) -> _LegalPairs:
    """The kernels' in-place pairs that hold for the program as it is now."""
    rules = InplaceRules(function)
    kept = _LegalPairs(rules)
    for step, kernel in rules.kernels:
        if not (pairs := kernel.inplace_pairs()):
            continue
        at = rules.at(step, kernel)
        must = directed_results(kernel, "must_inplace")
        taken: set[int] = set()
        for result, operand in pairs:
            reason = at.refuse(result, operand)
            memory = id(at.memory[operand])
            name = value_name(kernel.operands[operand])
            if reason is None and memory not in taken:
                taken.add(memory)
                kept.pairs.setdefault(kernel, []).append((result, operand))
                continue
            why = "is taken over by another result, too" if reason is None else reason.message
            code = "taken-twice" if reason is None else reason.code
            if result in must:
                raise RefusedError(f"'{must[result].name}' must_inplace cannot be kept: {name} {why}", must[result])
            remark(PlanMemoryPass.name, kernel, code, f"in-place pair dropped: {name} {why}", result=result)
        for result, operand in kept.pairs.get(kernel, ()):
            at.take(result, operand)
    return kept


def _write(function: FuncOp, plan: _Plan) -> None:
    for op in function.body.block.ops:
        if not isinstance(op, OutlinedOp):
            continue
        homes = [plan.storages.of(result) for result in op.results]
        op.slots = int_array([plan.offsets.get(storage.number, NOT_IN_ARENA) for storage in homes])
        place = plan.places.get(op)
        op.workspace_slot = None if place is None else int_value(place)
        if isinstance(op, PartitionOp):
            inside = op.values_inside()
            op.inner_slots = int_array([plan.inside[value] for value in inside]) if inside else None
        flat = [number for pair in plan.pairs.get(op, ()) for number in pair]
        op.inplace = int_array(flat) if flat else None
    function.attributes[ARENA] = DictionaryAttr(
        {
            "alignment": int_value(plan.alignment),
            "lower_bound": int_value(plan.solution.lower_bound),
            "method": StringAttr(plan.solution.method),
            "size": int_value(plan.solution.arena),
        }
    )


def _report(function: FuncOp, plan: _Plan) -> None:
    solution = plan.solution
    message = "is optimal" if solution.arena == solution.lower_bound else "may not be the smallest possible"
    counts = {"workspaces": len(plan.spaces), "inside": len(plan.inside)}
    more = {name: count for name, count in counts.items() if count}
    remark(
        PlanMemoryPass.name, function, "planned", f"the arena {message}",
        arena=solution.arena, lower_bound=solution.lower_bound, gap=round(solution.gap, 6),
        storages=len(plan.offsets), method=solution.method, numbers=more,
    )  # fmt: skip
    step, names = _at_peak(plan)
    if names:
        remark(PlanMemoryPass.name, function, "peak", f"at step {step} there live {names}", step=step)


def _at_peak(plan: _Plan) -> tuple[int, str]:
    """The step at which most bytes live, and what lives there, largest first."""
    storages, clock = [s for s in plan.storages.storages if s.kind == "intermediate"], plan.clock
    lives = [(clock.at(s.birth), clock.at(s.death), s.nbytes) for s in storages]
    lives += [(clock.at(space.step), clock.at(space.step + 1), space.nbytes) for space in plan.spaces]
    lives += [(one.birth, one.death, one.nbytes) for one in clock.inside]
    _, time = peak_of(live_bytes(lives, clock.at(plan.storages.steps)))
    step = clock.step_of(time)
    alive = [(s.nbytes, s.number, value_name(s.values[0])) for s in storages if s.birth <= step < s.death]
    alive += [(space.nbytes, len(storages), space.name) for space in plan.spaces if space.step == step]
    inside = [one for one in clock.inside if one.birth <= time < one.death]
    alive += [(one.nbytes, len(storages) + 1, value_name(one.value)) for one in inside]
    largest = sorted(alive, key=lambda found: (-found[0], found[1]))
    names = ", ".join(f"{name} ({nbytes} bytes)" for nbytes, _, name in largest[:8])
    return step, names + (f" and {len(largest) - 8} more" if len(largest) > 8 else "")


def _over_limit(plan: _Plan, limit: int) -> str:
    solution, (step, names) = plan.solution, _at_peak(plan)
    if solution.lower_bound <= limit:
        remedy = (
            f"only {solution.lower_bound} bytes live at once, but no placement in less was found; try strategy=exact"
        )
    else:
        remedy = f"at step {step} there live {names}; run order-for-memory, fuse less, or give up arguments with graph.donated"
    return f"'{PlanMemoryPass.name}' peak-limit: the arena needs {solution.arena} bytes, the limit is {limit}: {remedy}"
