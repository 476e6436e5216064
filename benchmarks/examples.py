"""Every example fused and with one kernel per op, in turns: `python benchmarks/examples.py [--repeat N]`.

Prints kernels, bytes moved, the arena beside its lower bound, min/median/max milliseconds of both, and their ratio.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from fuse_opt.tools.commands.measuring import check_against_reference, example_inputs, interleave
from fuse_opt.tools.compiler.api import compile as compile_program

EXAMPLES = sorted((Path(__file__).resolve().parent.parent / "examples").glob("*.mlir"))
_MIB = 1 << 20


def measure(path: Path, repeat: int) -> str:
    """One line about one example."""
    programs = {"fused": compile_program(path), "unfused": compile_program(path, pipeline="unfused")}
    inputs = example_inputs(path)
    error = check_against_reference(path, programs["fused"], inputs)
    times = interleave(programs, inputs, repeat)
    fused, unfused = programs["fused"].stats, programs["unfused"].stats
    moved = [(s.bytes_read + s.bytes_written) / _MIB for s in (unfused, fused)]
    rows = [f"{t.minimum * 1e3:.2f}/{t.median * 1e3:.2f}/{t.maximum * 1e3:.2f}" for t in times.values()]
    ratio = times["unfused"].median / times["fused"].median
    return (
        f"{path.stem:<20} kernels {unfused.launches:>2} -> {fused.launches}  moved {moved[0]:6.1f} -> {moved[1]:6.1f} MiB  "
        f"arena/bound {fused.arena_bytes}/{fused.lower_bound_bytes}  fused {rows[0]} ms  unfused {rows[1]} ms  "
        f"ratio {ratio:.2f}  error {error:.1e}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=25, help="timed calls of each")
    repeat = parser.parse_args().repeat
    for path in EXAMPLES:
        print(measure(path, repeat), flush=True)


if __name__ == "__main__":
    main()
