"""What implementations took on a machine, as a person had it measured: a text, a line for each of a site.

```
{"fuse-opt-dispatch-table": 1, "machine": "AMD EPYC", "threads": 1}
{"site": "graph.matmul(8x256xf32, 256x1024xf32!) -> 8x1024xf32 + graph.add", "implementation": "fuse.matmul", "seconds": 1.9e-05}
```
Further keys of a line are for people. `fuse-tune dispatch` writes such files, `select-implementation=table="FILE"` reads them.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import cast

from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.kernel_access import dispatched_ops
from fuse_opt.dialects.fused import KernelOp, YieldOp
from fuse_opt.dialects.implementation.site import Site, Tensor

VERSION = 1
HEADER = "fuse-opt-dispatch-table"


@dataclass(frozen=True)
class CostTable:
    """Seconds by site and implementation; tables of the same text are equal."""

    digest: str
    """Of the text: what was worked out with another table does not hold."""
    times: Mapping[tuple[str, str], float] = field(compare=False, repr=False)
    problems: tuple[str, ...] = field(default=(), compare=False)
    """What is wrong with lines that were left out, with their numbers."""

    def seconds(self, site: str, implementation: str) -> float | None:
        """What an implementation took at a site; None where that was not measured."""
        return self.times.get((site, implementation))


def site_name(kernel: KernelOp, frozen: Collection[SSAValue] = ()) -> str:
    """
    The text by which times of a kernel's implementations are found: its opaque ops with types and properties, `!` behind what
    is frozen, then its other ops by name, with how often.
    """
    inside = {argument for argument, value in zip(kernel.block.args, kernel.operands, strict=True) if value in frozen}
    ops = dispatched_ops(kernel)
    opaque = [_opaque_text(Site.of(op, None, inside)) for op in ops]
    others = Counter(op.name for op in kernel.block.ops if op not in ops and not isinstance(op, YieldOp))
    return " + ".join((*opaque, *(name if count == 1 else f"{count} {name}" for name, count in others.items())))


def _opaque_text(site: Site) -> str:
    operands, results = (", ".join(map(_tensor_text, group)) for group in (site.operands, site.results))
    properties = ", ".join(f"{name} = {value}" for name, value in sorted(site.config.items()))
    return f"{site.name}({operands}) -> {results}" + (f" {{{properties}}}" if properties else "")


def _tensor_text(tensor: Tensor) -> str:
    return "x".join((*map(str, tensor.shape), tensor.dtype)) + ("!" if tensor.frozen else "")


def read_cost_table(path: str | Path) -> CostTable:
    """The table of a file; lines that say nothing are left out. Raises OSError, and ValueError for a file of another kind."""
    data = Path(path).read_bytes()
    lines = data.decode("utf-8", "replace").splitlines()
    header = _object(lines[0]) if lines else None
    if header is None or header.get(HEADER) != VERSION:
        raise ValueError(
            f'{path}:1:1: error: expected a first line with "{HEADER}": {VERSION}; fuse-tune dispatch writes it'
        )
    times: dict[tuple[str, str], float] = {}
    problems: list[str] = []
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        if (row := _row(line)) is None:
            problems.append(f"{path}:{number}: expected an object with site, implementation and seconds above 0")
        else:
            times[row[0], row[1]] = row[2]
    return CostTable(hashlib.sha256(data).hexdigest()[:16], times, tuple(problems))


def _object(line: str) -> dict[str, object] | None:
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, object]", found) if isinstance(found, dict) else None


def _row(line: str) -> tuple[str, str, float] | None:
    found = _object(line) or {}
    site, name, seconds = (found.get(key) for key in ("site", "implementation", "seconds"))
    if not (isinstance(site, str) and isinstance(name, str) and isinstance(seconds, int | float)):
        return None
    return (site, name, float(seconds)) if 0 < seconds < inf else None
