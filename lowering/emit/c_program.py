"""C text around kernels: the loops of a program, which threads share, and a function for each segment of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from fuse_opt.dialects.types.extents import may_exceed
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.lowering.c.names import global_identifier
from fuse_opt.lowering.program import BufferRef, Launch, Loop, Segment

_HEAD = """\
typedef void (*fuse_parallel_for_t)(void (*task)(void *, long, long), void *arg, long count, long grain);
"""
_WIDTH = 110


@dataclass(frozen=True)
class SizeTable:
    """Sizes of a program that runs for a range of extents: where it finds their numbers."""

    buffer: int
    """Of the program."""
    sizes: tuple[Size, ...]

    @cached_property
    def _places(self) -> dict[Size, int]:
        return {size: place for place, size in enumerate(self.sizes)}

    def text(self, extent: Extent) -> str:
        """An extent as the functions of the text have it."""
        return f"sizes[{self._places[extent]}]" if isinstance(extent, Size) else str(extent)


NO_SIZES = SizeTable(-1, ())


def segments_text(segments: Iterable[Segment], table: SizeTable = NO_SIZES) -> str:
    """
    For each segment its loops, `void FUNCTION_loop_NUMBER(void *buffers, long begin, long end)`, counted over its phases,
    and the function `void FUNCTION(char *const *buffers, fuse_parallel_for_t parallel_for)` that runs them in order.
    """
    parts: list[str] = []
    for segment in segments:
        loops = [loop for phase in segment.phases for loop in phase]
        parts += [_loop(f"{segment.function}_loop_{number}", loop, table) for number, loop in enumerate(loops)]
        parts.append(_function(segment.function, segment.phases, table))
    return "\n".join([_HEAD, *parts]) if parts else ""


def _loop(name: str, loop: Loop, table: SizeTable) -> str:
    lines = [f"void {name}(void *arg, long begin, long end) {{\n", "  char *const *buffers = arg;\n"]
    launches = [launch for bundle in loop.bundles for launch in bundle]
    if any(launch.sizes or any(isinstance(ref.offset, Size) for ref in launch.buffers) for launch in launches):
        lines += _sizes(table)
    if not loop.whole:
        lines += [_call("  ", launch, "begin", "end", table) for launch in loop.bundles[0]]
    elif len(loop.bundles) == 1:
        lines.append("  (void)begin, (void)end;\n")
        lines += [_call("  ", launch, "0", table.text(launch.tasks), table) for launch in loop.bundles[0]]
    else:
        lines.append("  for (; begin < end; begin++) switch (begin) {\n")
        for number, bundle in enumerate(loop.bundles):
            lines.append(f"    case {number}:\n")
            lines += [_call("      ", launch, "0", table.text(launch.tasks), table) for launch in bundle]
            lines.append("      break;\n")
        lines.append("  }\n")
    return "".join([*lines, "}\n"])


def _sizes(table: SizeTable) -> list[str]:
    return [f"  const long *sizes = (const long *)buffers[{table.buffer}];\n"] if table.sizes else []


def _call(indent: str, launch: Launch, begin: str, end: str, table: SizeTable) -> str:
    pointers = [f"(void *)({_address(ref, table)})" for ref in launch.buffers]
    sizes = [table.text(size) for size in launch.sizes]
    return _wrapped(indent, f"{global_identifier(launch.kernel)}(", [*pointers, *sizes, begin, end], ");")


def _function(name: str, phases: Sequence[Sequence[Loop]], table: SizeTable) -> str:
    lines = [f"void {name}(char *const *buffers, fuse_parallel_for_t parallel_for) {{\n"]
    if any(isinstance(loop.tasks, Size) for phase in phases for loop in phase):
        lines += _sizes(table)
    if not any(_is_shared(loop) for phase in phases for loop in phase):
        lines.append("  (void)parallel_for;\n")
    number = 0
    for phase in phases:
        if number:
            lines.append("  // Barrier.\n")
        for loop in phase:
            task = f"{name}_loop_{number}"
            tasks = table.text(loop.tasks)
            if _is_shared(loop):
                lines.append(f"  parallel_for({task}, (void *)buffers, {tasks}, {loop.grain});\n")
            else:
                lines.append(f"  {task}((void *)buffers, 0, {tasks});\n")
            number += 1
    return "".join([*lines, "}\n"])


def _is_shared(loop: Loop) -> bool:
    return may_exceed(loop.tasks, loop.grain)


def _address(ref: BufferRef, table: SizeTable) -> str:
    is_moved = isinstance(ref.offset, Size) or ref.offset != 0
    return f"buffers[{ref.buffer}] + {table.text(ref.offset)}" if is_moved else f"buffers[{ref.buffer}]"


def _wrapped(indent: str, start: str, items: list[str], end: str) -> str:
    """The items between start and end, over several lines where they do not fit one."""
    lines = [indent + start]
    for position, item in enumerate(items):
        text = item + (end if position + 1 == len(items) else ",")
        space = "" if lines[-1].endswith(start) else " "
        if len(lines[-1]) + len(space) + len(text) > _WIDTH and space:
            lines.append(f"{indent}    {text}")
        else:
            lines[-1] += space + text
    return "".join(f"{line}\n" for line in lines)
