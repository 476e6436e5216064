"""A pipeline cut at `rematerialize`: what is before it runs once, and what it does is weighed before the passes behind it run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass

from fuse_opt.dialects.analysis.storage import ARENA, functions_of
from fuse_opt.dialects.fused import RECOMPUTED
from fuse_opt.passes.decisions import Decision, record_decisions
from fuse_opt.passes.decisions.steering import Recorder
from fuse_opt.passes.devices.device import Device, find_device
from fuse_opt.passes.recompute.known_ops import KnownOps, knowing, work_seconds
from fuse_opt.passes.recompute.rematerialize import RematerializePass
from fuse_opt.passes.recompute.splitting.split_products import SplitProductsPass, reads_products_in_parts
from fuse_opt.passes.recompute.times import Times
from fuse_opt.passes.scheduling.schedule_kernels import ScheduleKernelsPass

Run = Callable[[ModuleOp, Sequence[ModulePass]], None]
"""Applies passes to a module."""
Measure = Callable[[ModuleOp], int]
"""Bytes of the arena of a program whose values have places in memory."""


@dataclass(frozen=True)
class Stage:
    """A module on its way through passes, with notes of what these decided."""

    module: ModuleOp
    notes: Recorder

    def behind(self, passes: Sequence[ModulePass], run: Run) -> Stage:
        """A copy of it behind further passes."""
        copy = self.module.clone()
        notes = self.notes.moved(dict(zip(self.module.walk(), copy.walk(), strict=True)))
        with record_decisions(recorder=notes):
            run(copy, passes)
        return Stage(copy, notes)


@dataclass(frozen=True, eq=False)
class Choice:
    """What is computed again with some options, before there are kernels."""

    passes: list[ModulePass]
    """The whole pipeline."""
    stage: Stage
    """Behind `rematerialize`."""
    known: KnownOps

    @cached_property
    def key(self) -> object:
        """What tells it from others that lead to something else."""
        again = [each for each in self.passes if isinstance(each, RematerializePass)][1:]
        kernels = [each for each in self.passes if isinstance(each, ScheduleKernelsPass | SplitProductsPass)]
        return (*again, *kernels), tuple(d for d in self.stage.notes.decisions if d.pass_name == RematerializePass.name)

    @cached_property
    def reads_products_in_parts(self) -> bool:
        """Whether products stay whole for a part that is read last."""
        return reads_products_in_parts(self.stage.module)

    @cached_property
    def seconds(self) -> float:
        """What is computed again takes, by the cost model."""
        with knowing(self.known):
            return sum(work_seconds(op, self._device) for op in self.stage.module.walk() if RECOMPUTED in op.attributes)

    @cached_property
    def work(self) -> float:
        """What all ops take, by the cost model, before there are kernels."""
        ops = (op for function in functions_of(self.stage.module) for op in function.body.block.ops)
        with knowing(self.known):
            return sum(work_seconds(op, self._device) for op in ops)

    @property
    def _device(self) -> Device:
        return find_device(next(each.device for each in self.passes if isinstance(each, RematerializePass)))

    @cached_property
    def alive(self) -> int:
        """About what the arena will be."""
        with knowing(self.known):
            return alive_bytes(self.stage.module)


@dataclass(frozen=True, eq=False)
class Trial:
    """What a choice of passes leads to, and what they decided."""

    choice: Choice
    module: ModuleOp
    decisions: list[Decision]
    measure: Measure

    @property
    def passes(self) -> list[ModulePass]:
        return self.choice.passes

    @property
    def seconds(self) -> float:
        """What is computed again takes, by the cost model."""
        return self.choice.seconds

    @property
    def work(self) -> float:
        """What all ops take, by the cost model, before there are kernels."""
        return self.choice.work

    @cached_property
    def arena(self) -> int:
        """Bytes of the largest arena."""
        return self.measure(self.module)

    @cached_property
    def planned(self) -> int:
        """The same without what kernels work in behind what is planned."""
        return planned_arena(self.module)


def alive_bytes(module: ModuleOp) -> int:
    """The most bytes that are alive over a call, or that one reads and makes, before there are kernels."""
    return max((Times(function).most() for function in functions_of(module)), default=0)


def planned_arena(module: ModuleOp) -> int:
    """Bytes of the largest arena that was planned for values."""
    return max(map(arena_of, functions_of(module)), default=0)


def arena_of(function: FuncOp) -> int:
    """Bytes of the arena that was planned for the values of a function."""
    plan = function.attributes.get(ARENA)
    size = plan.data.get("size") if isinstance(plan, DictionaryAttr) else None
    return size.value.data if isinstance(size, IntegerAttr) else 0
