"""Each kernel of a program on its own operands: what a target computes against the reference, in units of the last place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from xdsl.dialects.builtin import ModuleOp

from fuse_opt.lowering.program import BufferRef, LibraryCall, Program
from fuse_opt.lowering.reference.interpreter import evaluate_op, logical_array
from fuse_opt.runtime.cpu.stepwise import Look, WatchedProgram
from fuse_opt.runtime.emulation.program import EmulatedProgram
from fuse_opt.tools.watching.bounds import allowed_differences
from fuse_opt.tools.watching.units import distances, ulps

if TYPE_CHECKING:
    from fuse_opt.lowering.emit.traced import TracedKernel, TracedProgram

Array = npt.NDArray[Any]

TARGETS: Mapping[str, str] = {"c": "cpu", "cuda": "cuda"}
"""What kernels may be checked against, and the target that a program is compiled for."""


@dataclass(frozen=True)
class Worst:
    """The element that is the furthest beyond its bound, or the furthest from the reference."""

    result: int
    index: tuple[int, ...]
    got: Any
    expected: Any
    ulps: float
    allowed: float
    """In the same units; 0: it must be equal."""
    differing: int
    """Elements of all results that are not equal."""
    beyond: int
    """Of these, those that are further from the reference than they may be."""


@dataclass(frozen=True)
class CheckedKernel:
    """A kernel, what it was given and what came out of it."""

    traced: TracedKernel
    ran: str
    """What ran it: generated code, or the implementation that was called."""
    operands: tuple[Array, ...]
    """By the indices of their types."""
    expected: tuple[Array, ...]
    got: tuple[Array, ...]
    worst: Worst | None
    """None where all is as the reference has it."""

    @property
    def passed(self) -> bool:
        return self.worst is None or not self.worst.beyond


class _Stopped(Exception):
    """Enough was seen."""


@dataclass
class _Watcher:
    """Looks at operands before a kernel's first step, and at results after its last one."""

    program: TracedProgram
    found: Callable[[CheckedKernel], bool]
    """Is told of each kernel; whether to go on."""
    _before: dict[int, list[Array]] = field(default_factory=dict[int, list[Array]])
    _kept: dict[BufferRef, Array] = field(default_factory=dict[BufferRef, Array])
    """Values that a kernel names and does not read, so that their memory may be another's when it runs."""

    def __post_init__(self) -> None:
        self._first = {each.steps.start: each for each in self.program.kernels if each.steps}
        self._last = {each.steps.stop - 1: each for each in self.program.kernels if each.steps}
        self._unread = {
            ref
            for each in self.program.kernels
            for ref, value in zip(each.operands, each.kernel.operands, strict=True)
            if value not in each.kernel.read_operands()
        }

    def before(self, step: int, look: Look) -> None:
        if step == 0:
            for ref in self._unread:
                if self.program.program.buffers[ref.buffer].kind != "arena":
                    self._kept[ref] = look(ref).copy()
        if (each := self._first.get(step)) is not None:
            read = set(each.kernel.read_operands())
            self._before[step] = [
                look(ref).copy() if value in read else self._kept[ref]
                for ref, value in zip(each.operands, each.kernel.operands, strict=True)
            ]

    def after(self, step: int, look: Look) -> None:
        if (each := self._last.get(step)) is None:
            return
        results = [look(ref).copy() for ref in each.results]
        self._kept.update((ref, a) for ref, a in zip(each.results, results, strict=True) if ref in self._unread)
        operands = self._before.pop(each.steps.start)
        if not self.found(_checked(each, self.program.program, operands, results)):
            raise _Stopped


def _checked(
    each: TracedKernel, program: Program, operands: Sequence[Array], results: Sequence[Array]
) -> CheckedKernel:
    kernel = each.kernel
    given = [logical_array(a, value.type) for a, value in zip(operands, kernel.operands, strict=True)]
    got = [logical_array(a, value.type) for a, value in zip(results, kernel.results, strict=True)]
    with np.errstate(all="ignore"):
        expected = evaluate_op(kernel, given)
    allowed = allowed_differences(kernel, given, expected, got) if _differ(got, expected) else []
    called = [step for number in each.steps if isinstance(step := program.steps[number], LibraryCall)]
    ran = called[0].implementation if called else "generated"
    return CheckedKernel(each, ran, tuple(given), tuple(expected), tuple(got), _worst(got, expected, allowed))


def _differ(got: Sequence[Array], expected: Sequence[Array]) -> bool:
    return any(bool(distances(a, b).any()) for a, b in zip(got, expected, strict=True))


def _worst(got: Sequence[Array], expected: Sequence[Array], allowed: Sequence[Array]) -> Worst | None:
    worst: Worst | None = None
    score, differing, beyond = -1.0, 0, 0
    for number, most in enumerate(allowed):
        gap = distances(got[number], expected[number])
        differing, beyond = differing + int((gap > 0).sum()), beyond + int((gap > most).sum())
        if not gap.size:
            continue
        with np.errstate(all="ignore"):
            share = np.where(gap > 0, np.where(np.isinf(most), 0.0, gap / np.maximum(most, 1e-300)), -1.0)
        at = tuple(int(n) for n in np.unravel_index(int(share.argmax()), gap.shape))
        if share[at] > score:
            score = float(share[at])
            far, limit = (float(ulps(each, expected[number])[at]) for each in (gap, most))
            worst = Worst(number, at, got[number][at], expected[number][at], far, limit, 0, 0)
    return None if worst is None else replace(worst, differing=differing, beyond=beyond)


def check_each(
    module: ModuleOp,
    function: str | None,
    arrays: Sequence[Array],
    against: str,
    found: Callable[[CheckedKernel], bool],
    changed: Callable[[Program], Program] = lambda program: program,
) -> None:
    """
    Runs a function of a module that passes have planned, kernel by kernel, and tells `found` of each; it says whether to go on.
    `against` is a key of TARGETS; arrays are those of all arguments but prepared ones, by their indices. `changed` may put
    another text in the place of the program's. Raises what compiling raises, and EmulationError.
    """
    from fuse_opt.lowering.emit.traced import trace_program

    program = trace_program(module, function, TARGETS[against])
    try:
        if (second := program.prepare) is not None and program.program.prepare is not None:
            preparation = program.program.prepare
            arrays = _with_places(arrays, preparation.arguments)
            results = _run(second, [arrays[number] for number in preparation.frozen], against, found, changed)
            for place, array in zip(preparation.arguments, results, strict=True):
                arrays[place] = array
        _run(program, arrays, against, found, changed)
    except _Stopped:
        return


def _with_places(arrays: Sequence[Array], places: Sequence[int]) -> list[Array]:
    """The arrays with places between them for those that are computed."""
    found = list(arrays)
    for place in places:
        found.insert(place, np.empty(0))
    return found


def _run(
    traced: TracedProgram,
    arrays: Sequence[Array],
    against: str,
    found: Callable[[CheckedKernel], bool],
    changed: Callable[[Program], Program],
) -> list[Array]:
    program = changed(traced.program)
    watcher = _Watcher(traced, found)
    if against == "c":
        watched = WatchedProgram(program)
        watched.before, watched.after = watcher.before, watcher.after
        result: Any = watched(*(array.copy() for array in arrays))
        return [*result] if isinstance(result, tuple) else [result]  # pyright: ignore[reportUnknownArgumentType]
    emulated = EmulatedProgram(program)
    axes = [buffer.axes for buffer in program.arguments]
    given = [array if order is None else array.transpose(order) for array, order in zip(arrays, axes, strict=True)]
    results = emulated.run(
        given,
        before=lambda step, memory: watcher.before(step, memory.array),
        after=lambda step, memory: watcher.after(step, memory.array),
    )
    return list(_in_callers_axes(results, program))


def _in_callers_axes(results: Sequence[Array], program: Program) -> Iterator[Array]:
    for array, result in zip(results, program.results, strict=True):
        order = result.axes
        yield array if order is None else array.transpose([order.index(axis) for axis in range(len(order))])
