"""A law of every program in C that tests build: what a launch reads is there, and nobody else touches it meanwhile.

Loops of a phase run at a time, launches of a loop one after the other: so what is read was given, or written in an earlier phase
or earlier in the same loop, and what is written is nothing that another loop of the phase reads or writes. A kernel whose
traffic is told wrong would come too early: its values are wrong now and then, or always.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fuse_opt.dialects.types.size import Size
from fuse_opt.lowering.emit import c as emission
from fuse_opt.lowering.program import BufferRef, Launch, LibraryCall, Loop, Program

MOST_LAUNCHES = 400
"""Of a program that is looked at: of more each costs a look at all before."""
_GIVEN = ("argument", "constant")


class _Memory:
    """Stretches of buffers."""

    def __init__(self) -> None:
        self._stretches: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)

    def add(self, refs: Iterable[BufferRef]) -> None:
        for ref in refs:
            self._stretches[ref.buffer].append((ref.offset, ref.offset + ref.nbytes))

    def meets(self, ref: BufferRef) -> bool:
        begin, end = ref.offset, ref.offset + ref.nbytes
        return begin == end or any(begin < last and first < end for first, last in self._stretches[ref.buffer])


def faults(program: Program) -> Iterator[str]:
    """What the program's launches do against the law, as texts."""
    written = _Memory()
    for step in program.steps:
        if isinstance(step, LibraryCall):
            written.add(step.outputs)
            if step.epilogue is not None:
                written.add(_stored(step.epilogue))
            continue
        for phase in step.phases:
            for loop in phase:
                yield from _of_loop(program, loop, written, [other for other in phase if other is not loop])
            for loop in phase:
                written.add(ref for launch in _launches(loop) for ref in _stored(launch))
    results = {
        number for number, buffer in enumerate(program.buffers) if buffer.kind == "result" and 0 not in buffer.shape
    }
    stored = {number for number in results if written.meets(BufferRef(number, 0, (1,), "i8"))}
    yield from (f"{program.buffers[number].name} is never written" for number in sorted(results - stored))


def _of_loop(program: Program, loop: Loop, before: _Memory, others: list[Loop]) -> Iterator[str]:
    own, beside = _Memory(), _Memory()
    for other in others:
        beside.add(ref for launch in _launches(other) for ref in _stored(launch))
    for launch in _launches(loop):
        own.add(_stored(launch))
        for ref in _loaded(launch):
            is_given = program.buffers[ref.buffer].kind in _GIVEN
            if not (is_given or before.meets(ref) or own.meets(ref)):
                yield f"{launch.kernel} reads {ref}, which nobody wrote"
            if beside.meets(ref):
                yield f"{launch.kernel} reads {ref} while another loop of its phase writes it"
        yield from (f"{launch.kernel} and another loop write {ref}" for ref in _stored(launch) if beside.meets(ref))


def _launches(loop: Loop) -> Iterator[Launch]:
    return (launch for bundle in loop.bundles for launch in bundle)


def _loaded(launch: Launch) -> list[BufferRef]:
    return [launch.buffers[place] for place in launch.loads or ()]


def _stored(launch: Launch) -> list[BufferRef]:
    return [launch.buffers[place] for place in launch.stores or ()]


def _is_known(program: Program) -> bool:
    """Whether all places and extents are numbers, and launches are few."""
    extents = [extent for step in program.steps for ref in _refs(step) for extent in (ref.offset, *ref.shape)]
    numbers = not any(isinstance(extent, Size) for extent in extents)
    count = sum(len(step.launches) for step in program.steps if not isinstance(step, LibraryCall))
    return numbers and program.sizes is None and count <= MOST_LAUNCHES


def _refs(step: Any) -> list[BufferRef]:
    if isinstance(step, LibraryCall):
        return [*step.inputs, *step.outputs]
    return [ref for launch in step.launches for ref in launch.buffers]


def watch() -> None:
    """Has each program in C that is built from here on looked at."""
    name = "_program"
    build: Callable[..., Program] = getattr(emission, name)

    def watched(*arguments: Any, **more: Any) -> Program:
        program = build(*arguments, **more)
        if _is_known(program):
            found = list(faults(program))
            assert not found, "\n".join(found)
        return program

    setattr(emission, name, watched)
