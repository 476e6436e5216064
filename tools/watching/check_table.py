"""What `--check-each` says: a row for each kernel, and all of the first one beyond its bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuse_opt.dialects.fused import KernelOp, OutlinedOp
from fuse_opt.lowering.kernel.naming import kernel_comment
from fuse_opt.tools.watching.check_each import CheckedKernel
from fuse_opt.tools.watching.kernel_files import write_kernel

_LONGEST_OPS = 60
_HEADS = ("kernel", "against", "run by", "ULP", "allowed", "differ", "of", "")


@dataclass
class CheckTable:
    """Collects what is found of kernels."""

    folder: Path
    """Where kernels that are beyond their bounds are written."""
    go_on: bool = False
    """Whether to look at the kernels behind the first one that is."""
    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    faults: list[str] = field(default_factory=list[str])

    def watcher(self, against: str) -> Callable[[CheckedKernel], bool]:
        """What is told of each kernel that runs on `against`, and says whether to go on."""

        def found(checked: CheckedKernel) -> bool:
            self.rows.append(_row(checked, against))
            if checked.passed:
                return True
            self.faults.append(_fault(checked, against, write_kernel(checked, against, self.folder)))
            return self.go_on

        return found

    @property
    def passed(self) -> bool:
        return not self.faults

    def text(self) -> str:
        """The table, and what is wrong."""
        cells = [_HEADS, *(_cells(row) for row in self.rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(_HEADS))]
        lines = [
            "  ".join(
                c.rjust(w) if 3 <= k < 7 else c.ljust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True))
            )
            for row in cells
        ]
        targets = ", ".join(dict.fromkeys(row["against"] for row in self.rows)) or "nothing"
        wrong = sum(not row["passed"] for row in self.rows)
        verdict = f"{wrong} beyond the bound" if wrong else "all within their bounds"
        ending = f"{len(self.rows)} kernels against {targets}: {verdict}"
        return "\n".join([*(line.rstrip() for line in lines), *self.faults, ending])


def _row(checked: CheckedKernel, against: str) -> dict[str, Any]:
    worst = checked.worst
    return {
        "kernel": checked.traced.name,
        "against": against,
        "run_by": checked.ran,
        "ops": ops_text(checked.traced.kernel),
        "ulp": 0.0 if worst is None else worst.ulps,
        "allowed": None if worst is None else worst.allowed,
        "differing": 0 if worst is None else worst.differing,
        "elements": sum(array.size for array in checked.expected),
        "passed": checked.passed,
    }


def ops_text(kernel: OutlinedOp) -> str:
    """The ops of a kernel and where they come from."""
    text = kernel_comment(kernel) if isinstance(kernel, KernelOp) else ", ".join(op.name for op in kernel.ops())
    return text if len(text) <= _LONGEST_OPS else f"{text[:_LONGEST_OPS]}..."


def _cells(row: dict[str, Any]) -> Sequence[str]:
    allowed = "-" if row["allowed"] is None else f"{row['allowed']:.4g}"
    counts = f"{row['ulp']:.4g}", allowed, str(row["differing"]), str(row["elements"])
    return (row["kernel"], row["against"], row["run_by"], *counts, "" if row["passed"] else "BEYOND")


def _fault(checked: CheckedKernel, against: str, command: str) -> str:
    worst, kernel = checked.worst, checked.traced.kernel
    assert worst is not None
    index = ", ".join(map(str, worst.index))
    owner = kernel.yielded()[worst.result].owner
    made = getattr(owner, "name", "the kernel's own operand")
    return (
        f"{checked.traced.name}: {worst.beyond} of {worst.differing} elements that differ are beyond the bound; the worst is "
        f"result {worst.result} ({made}) at [{index}]: {against} gives {worst.got}, the reference {worst.expected}, "
        f"{worst.ulps:.6g} ULP apart, allowed {worst.allowed:.4g}\n"
        f"  ops: {ops_text(kernel)}\n  to see it again: {command}"
    )
