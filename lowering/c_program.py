"""C text around kernels: for each a task for the thread pool, for each segment of launches one exported function."""

from __future__ import annotations

from collections.abc import Iterable

from .c_names import global_identifier
from .program import BufferRef, Launch, Segment

_HEAD = """\
typedef void (*fuse_parallel_for_t)(void (*task)(void *, long, long), void *arg, long count, long grain);
"""
_WIDTH = 110


def segments_text(segments: Iterable[Segment]) -> str:
    """The functions that a runtime calls: `void name(char *const *buffers, fuse_parallel_for_t parallel_for)`."""
    tasks: dict[str, str] = {}
    functions: list[str] = []
    for segment in segments:
        for launch in segment.launches:
            if _is_shared(launch) and launch.kernel not in tasks:
                tasks[launch.kernel] = _task(launch)
        functions.append(_function(segment))
    return "\n".join([_HEAD, *tasks.values(), *functions]) if functions else ""


def _is_shared(launch: Launch) -> bool:
    """Whether there is enough to do for several threads."""
    return launch.tasks > launch.grain


def _task(launch: Launch) -> str:
    """The kernel as a task of the pool, whose argument is the addresses of the kernel's buffers."""
    name = global_identifier(launch.kernel)
    pointers = [f"b[{position}]" for position in range(len(launch.buffers))]
    call = _wrapped("  ", f"{name}(", [*pointers, "begin", "end"], ");")
    return f"static void task_{name}(void *arg, long begin, long end) {{\n  void *const *b = arg;\n{call}}}\n"


def _function(segment: Segment) -> str:
    lines = [f"void {segment.function}(char *const *buffers, fuse_parallel_for_t parallel_for) {{\n"]
    if not any(map(_is_shared, segment.launches)):
        lines.append("  (void)parallel_for;\n")
    for launch in segment.launches:
        name = global_identifier(launch.kernel)
        pointers = [_address(ref) for ref in launch.buffers]
        if _is_shared(launch):
            lines.append("  {\n")
            lines.append(_wrapped("    ", "void *arg[] = {", pointers, "};"))
            lines.append(f"    parallel_for(task_{name}, arg, {launch.tasks}, {launch.grain});\n  }}\n")
        else:
            arguments = [*(f"(void *)({pointer})" for pointer in pointers), "0", str(launch.tasks)]
            lines.append(_wrapped("  ", f"{name}(", arguments, ");"))
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
