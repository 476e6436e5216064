"""The measurements of torch_models.py, as a file of data and as text."""

from __future__ import annotations

import fcntl
import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

NOT_MEASURED = float("nan")
BOUND = 1e-4
"""Of the difference from eager in f32, relative to the largest element of each tensor."""


@dataclass(frozen=True)
class Worst:
    """The tensor that is furthest from eager's, relative to its scale. Differences are absolute."""

    tensor: str
    scale: float
    ours_eager: float
    ours_f64: float
    eager_f64: float


@dataclass
class Row:
    """What was measured of a model."""

    model: str
    mode: str
    batch: int
    dtype: str
    threads: int
    nodes: int
    external: dict[str, int]
    kernels: int
    arena_bytes: int
    bound_bytes: int
    errors: dict[str, float]
    """Of ours and of Inductor's from eager; `..._f64`: from the model in f64, of eager's, too; `..._normal`: see `measure`."""
    milliseconds: dict[str, list[float]]
    """Smallest, median and largest, by compiler."""
    ratios: dict[str, list[float]]
    """Times of others over ours, by round: smallest, median and largest."""
    first_call_s: dict[str, float]
    """Tracing and compiling, backward graphs included, and one call."""
    compile_s: float
    """Ours without what PyTorch does before."""
    worst: list[Worst] = field(default_factory=list[Worst])
    """Tensors further from eager's than the bound, the furthest first, at most four."""

    @property
    def key(self) -> tuple[str, int, int, str, str]:
        return self.dtype, self.threads, self.batch, self.model, self.mode

    def error(self, name: str) -> float:
        return self.errors.get(name, NOT_MEASURED)


def read(path: Path) -> list[Row]:
    entries: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8") or "[]") if path.exists() else []
    for entry in entries:
        entry["worst"] = [Worst(**item) for item in entry["worst"]]
    return [Row(**entry) for entry in entries]


def enter(path: Path, row: Row, models: Sequence[str]) -> None:
    """Puts a row in place of the one of the same model and settings; several processes may do so at once."""
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        rows = [other for other in read(path) if other.key != row.key] + [row]
        rows.sort(key=lambda r: (r.dtype != "float32", -r.batch, r.threads, models.index(r.model), r.mode))
        path.write_text(json.dumps([asdict(r) for r in rows], indent=1) + "\n", encoding="utf-8")


def text(rows: Iterable[Row]) -> str:
    """A table for each element type, batch size and number of threads."""
    parts: list[str] = []
    for (dtype, batch, threads), chosen in groupby(rows, key=lambda r: (r.dtype, r.batch, r.threads)):
        group = list(chosen)
        lines = [f"## {dtype}, batch {batch}, {threads} thread{'s' if threads > 1 else ''}", *_lines(group), ""]
        lines += [*_means(group), "", *_beyond(group)]
        if not parts:
            lines += ["", *_calls(group)]
        parts.append("\n".join(lines).rstrip())
    return "\n\n".join(parts)


def _lines(rows: Sequence[Row]) -> list[str]:
    head = f"{'model':10} {'mode':9} nodes calls kern.    arena    bound    error    f64   (eager, Inductor)   normal"
    lines = [head + "   ms: ours    eager Inductor  eager/ours Inductor/ours (min..max)  first call s (Inductor)"]
    for row in rows:
        ms, first = row.milliseconds, row.first_call_s
        ours, eager, inductor = (
            ms[label][1] if label in ms else NOT_MEASURED for label in ("fuse_opt", "eager", "inductor")
        )
        low, middle, high = row.ratios.get("inductor", [NOT_MEASURED] * 3)
        lines.append(
            f"{row.model:10} {row.mode:9} {row.nodes:5} {sum(row.external.values()):5} {row.kernels:5} "
            f"{row.arena_bytes:8} {row.bound_bytes:8}  {row.error('fuse_opt'):.1e} {row.error('fuse_opt_f64'):.1e} "
            f"({row.error('eager_f64'):.1e}, {row.error('inductor_f64'):.1e}) {row.error('fuse_opt_normal'):.1e}   "
            f"{ours:8.2f} {eager:8.2f} {inductor:8.2f}  {row.ratios['eager'][1]:10.3f} {middle:13.3f} "
            f"({low:.2f}..{high:.2f})  {first['fuse_opt']:10.1f} ({first.get('inductor', NOT_MEASURED):.1f})"
        )
    return lines


def _means(rows: Sequence[Row]) -> list[str]:
    lines: list[str] = []
    for mode in sorted({row.mode for row in rows}):
        chosen = [row for row in rows if row.mode == mode]
        for peer in ("eager", "inductor"):
            if measured := [row for row in chosen if peer in row.ratios]:
                mean = statistics.geometric_mean(row.ratios[peer][1] for row in measured)
                least = min(measured, key=lambda row: row.ratios[peer][1])
                lines.append(
                    f"geometric mean of {len(measured)} models, {mode}: time of {peer} / ours {mean:.3f}; "
                    f"least {least.ratios[peer][1]:.3f} ({least.model})"
                )
        firsts = [row.first_call_s for row in chosen if "inductor" in row.first_call_s]
        if found := [first["fuse_opt"] / first["inductor"] for first in firsts]:
            mean, most = statistics.geometric_mean(found), max(found)
            lines.append(f"first call, {mode}: ours / Inductor's {mean:.3f} (geometric mean), {most:.3f} (largest)")
    arena, bound = sum(row.arena_bytes for row in rows), sum(row.bound_bytes for row in rows)
    lines.append(f"arena bytes / lower bound, all graphs: {arena / max(bound, 1):.4f}")
    return lines


def _beyond(rows: Sequence[Row]) -> list[str]:
    """What to say of errors."""
    errors = [row.error("fuse_opt") for row in rows]
    if rows[0].dtype != "float32":
        found = [row.error("fuse_opt_f64") / row.error("eager_f64") for row in rows]
        worst = max(rows, key=lambda row: row.error("fuse_opt_f64") / row.error("eager_f64"))
        mean = statistics.geometric_mean(found)
        return [
            f"error from f64, ours / eager's: {mean:.2f} (geometric mean), {max(found):.2f} (largest, {worst.model})"
        ]
    lines = [
        f"within {BOUND:.0e} of eager: {sum(e <= BOUND for e in errors)} of {len(rows)}; largest {max(errors):.1e}"
    ]
    normal = [row.error("fuse_opt_normal") for row in rows if "fuse_opt_normal" in row.errors]
    if normal:
        lines.append(
            f"training with normal cotangents, within {BOUND:.0e} of eager: {sum(e <= BOUND for e in normal)} of "
            f"{len(normal)}; largest {max(normal):.1e}"
        )
    for row in rows:
        lines += [
            f"beyond {BOUND:.0e}, {row.model} {row.mode}: {w.tensor}, scale {w.scale:.1e}: ours - eager {w.ours_eager:.1e}, "
            f"ours - f64 {w.ours_f64:.1e}, eager - f64 {w.eager_f64:.1e}"
            for w in row.worst
        ]
    return lines


def _calls(rows: Sequence[Row]) -> list[str]:
    return [
        f"calls of PyTorch, {row.model} {row.mode}: " + ", ".join(f"{n} x {name}" for name, n in row.external.items())
        for row in rows
    ]
