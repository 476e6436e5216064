"""Programs for numbers that share the kernels of one text for a range of extents."""

from __future__ import annotations

from dataclasses import replace

from fuse_opt.lowering.program import LibraryCall, Program, Segment


def without_empty_launches(program: Program) -> Program:
    """A program for some extents without the launches that it has for others: a grid has a block or more."""
    steps: list[Segment | LibraryCall] = []
    left_out = 0
    for step in program.steps:
        if isinstance(step, Segment):
            launches = tuple(launch for launch in step.launches if launch.tasks)
            left_out += len(step.launches) - len(launches)
            step = replace(step, launches=launches)
        steps.append(step)
    if not left_out:
        return program
    stats = replace(program.stats, launches=program.stats.launches - left_out)
    return replace(program, steps=tuple(steps), stats=stats)
