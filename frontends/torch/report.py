"""What became of the graphs that torch.compile gave: reports, and how much of them is code of compiled programs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from fuse_opt.frontends.torch.importer.imported import Counts

_log = logging.getLogger("fuse_opt.torch")


@dataclass(frozen=True)
class GraphReport:
    """What became of one graph."""

    kind: str
    """"inference", "forward" or "backward"."""
    counts: Counts
    """Nodes, views, copies, and calls of PyTorch by overload, with the reasons for them."""
    stats: Any
    """Those of the compiled program."""
    seconds: float
    """What compiling took."""
    symbols: tuple[str, ...] = ()
    """The extents that calls bring, where it is one program for all of them."""
    saved: int = 0
    """Bytes that a forward graph keeps for its backward graph."""
    left: str | None = None
    """Why PyTorch runs the graph as it was traced; None where it is a program."""

    def __str__(self) -> str:
        external = sum(self.counts.external.values())
        lines = [
            f"{self.kind}: {self.counts.nodes} nodes, {self.counts.views} of them views, {external} calls of PyTorch, "
            f"{self.stats.kernels} kernels, arena {self.stats.arena_bytes} bytes (bound {self.stats.lower_bound_bytes}), "
            f"compiled in {self.seconds:.2f} s"
        ]
        if self.symbols:
            lines.append(f"  remark: [torch] sized: one program for all values of {', '.join(self.symbols)}")
        if self.saved:
            lines[0] += f", keeps {self.saved} bytes for its backward graph"
        if self.left is not None:
            lines.append(f"  remark: [torch] left to PyTorch: {self.left}")
        for name, count in sorted(self.counts.external.items()):
            lines.append(f"  remark: [torch] external: {count} x {name}: {self.counts.reasons[name]}")
        lines += [f"  remark: [torch] copied: argument {name} is not dense in memory" for name in self.counts.copies]
        return "\n".join(lines)


@dataclass
class Reports:
    """The graphs compiled while it was collected."""

    graphs: list[GraphReport] = field(default_factory=list[GraphReport])


_COLLECTED: ContextVar[Reports | None] = ContextVar("fuse_opt_torch_reports", default=None)


@contextmanager
def collect_reports() -> Generator[Reports]:
    """Gathers a report for each graph that is compiled in its body; they are logged (`fuse_opt.torch`) in any case."""
    reports = Reports()
    token = _COLLECTED.set(reports)
    try:
        yield reports
    finally:
        _COLLECTED.reset(token)


def report(found: GraphReport) -> None:
    """Logs and counts what became of a graph."""
    _log.info("%s", found)
    if found.left is None:
        count(found.counts.native, sum(found.counts.external.values()))
    else:
        count(0, found.counts.nodes - found.counts.views)
    if (collected := _COLLECTED.get()) is not None:
        collected.graphs.append(found)


class _Coverage:
    """Nodes counted since somebody asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._native = self._left = 0

    def add(self, native: int, left: int) -> None:
        with self._lock:
            self._native += native
            self._left += left

    def take(self) -> tuple[int, int]:
        with self._lock:
            found = self._native, self._left
            self._native = self._left = 0
        return found


_COVERAGE = _Coverage()


def count(native: int, left: int) -> None:
    """Adds nodes of a graph that are code of a program, and nodes that PyTorch runs."""
    _COVERAGE.add(native, left)


def last_coverage() -> tuple[int, int]:
    """
    Of the graphs compiled since the last call of this function: the nodes that are code of programs, and those that PyTorch
    runs, views apart. All nodes of a graph that PyTorch runs as it was traced are of the second kind.
    """
    return _COVERAGE.take()
