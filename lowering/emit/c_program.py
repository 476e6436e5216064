"""C text around kernels: the loops of a program, which threads share, and a function for each segment of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fuse_opt.lowering.c.names import global_identifier
from fuse_opt.lowering.program import BufferRef, Launch, Loop, Segment

_HEAD = """\
typedef void (*fuse_parallel_for_t)(void (*task)(void *, long, long), void *arg, long count, long grain);
"""
_WIDTH = 110


def segments_text(segments: Iterable[Segment]) -> str:
    """
    For each segment its loops, `void FUNCTION_loop_NUMBER(void *buffers, long begin, long end)`, counted over its phases,
    and the function `void FUNCTION(char *const *buffers, fuse_parallel_for_t parallel_for)` that runs them in order.
    """
    parts: list[str] = []
    for segment in segments:
        loops = [loop for phase in segment.phases for loop in phase]
        parts += [_loop(f"{segment.function}_loop_{number}", loop) for number, loop in enumerate(loops)]
        parts.append(_function(segment.function, segment.phases))
    return "\n".join([_HEAD, *parts]) if parts else ""


def _loop(name: str, loop: Loop) -> str:
    lines = [f"void {name}(void *arg, long begin, long end) {{\n", "  char *const *buffers = arg;\n"]
    if not loop.whole:
        lines += [_call("  ", launch, "begin", "end") for launch in loop.bundles[0]]
    elif len(loop.bundles) == 1:
        lines.append("  (void)begin, (void)end;\n")
        lines += [_call("  ", launch, "0", str(launch.tasks)) for launch in loop.bundles[0]]
    else:
        lines.append("  for (; begin < end; begin++) switch (begin) {\n")
        for number, bundle in enumerate(loop.bundles):
            lines.append(f"    case {number}:\n")
            lines += [_call("      ", launch, "0", str(launch.tasks)) for launch in bundle]
            lines.append("      break;\n")
        lines.append("  }\n")
    return "".join([*lines, "}\n"])


def _call(indent: str, launch: Launch, begin: str, end: str) -> str:
    pointers = [f"(void *)({_address(ref)})" for ref in launch.buffers]
    return _wrapped(indent, f"{global_identifier(launch.kernel)}(", [*pointers, begin, end], ");")


def _function(name: str, phases: Sequence[Sequence[Loop]]) -> str:
    lines = [f"void {name}(char *const *buffers, fuse_parallel_for_t parallel_for) {{\n"]
    if not any(loop.tasks > loop.grain for phase in phases for loop in phase):
        lines.append("  (void)parallel_for;\n")
    number = 0
    for phase in phases:
        if number:
            lines.append("  // Barrier.\n")
        for loop in phase:
            task = f"{name}_loop_{number}"
            if loop.tasks > loop.grain:
                lines.append(f"  parallel_for({task}, (void *)buffers, {loop.tasks}, {loop.grain});\n")
            else:
                lines.append(f"  {task}((void *)buffers, 0, {loop.tasks});\n")
            number += 1
    return "".join([*lines, "}\n"])


def _address(ref: BufferRef) -> str:
    return f"buffers[{ref.buffer}] + {ref.offset}" if ref.offset else f"buffers[{ref.buffer}]"


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
