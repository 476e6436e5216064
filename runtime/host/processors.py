"""How many processors work for this process at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_ROOT = Path("/")


def usable_processors(root: Path = _ROOT) -> int:
    """Those that this process may run on, and no more than the time that its control groups, as of a container, let it have."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([count, *_quotas(root)]))


def _quotas(root: Path) -> Iterator[int]:
    """Processors that have as much time as each control group of this process may take, rounded up; of Linux, either version."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        mounted = root / "sys/fs/cgroup" / controllers
        own = mounted / path.lstrip("/")
        for folder in (own, *own.parents):  # a group has no more than those that it is in
            if folder.is_relative_to(mounted):
                yield from _quota(folder)


def _quota(folder: Path) -> Iterator[int]:
    with suppress(OSError, ValueError):
        quota, period = map(int, (folder / "cpu.max").read_text().split())
        yield -(-quota // period)
    with suppress(OSError, ValueError):
        quota, period = (int((folder / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
        if quota > 0:
            yield -(-quota // period)
