"""How many processors work for this process at a time, and which instructions they have."""

from __future__ import annotations

import os
import re
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


def processor_features(named: tuple[str, ...], said: Path = Path("/proc/cpuinfo")) -> tuple[str, ...]:
    """Those of the named instruction sets that the processor has, as Linux says of x86; all where nothing is said of them."""
    try:
        flags = re.search(r"^flags\s*:(.*)$", said.read_text(), re.MULTILINE)
    except OSError:
        return named
    return named if flags is None else tuple(name for name in named if name in flags[1].split())


def is_avx2_alone(features: tuple[str, ...]) -> bool:
    """Whether a processor with these features, of "avx2" and "avx512f", has vectors of 256 bits and no wider ones."""
    return "avx2" in features and "avx512f" not in features
