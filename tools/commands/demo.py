"""The main job in one command: compile a program, check it against the reference, and show what every stage did.

`python -m fuse_opt.tools.commands.demo [FILE] [--repeat N]`; without FILE it takes `examples/transformer_block.mlir` of the
checkout.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuse_opt.lowering.program import ProgramStats

_MIB = 1 << 20


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the demo; returns 1 when the result is not that of the reference."""
    parser = argparse.ArgumentParser(prog="fuse-opt demo", description=__doc__)
    default = Path(__file__).resolve().parent.parent / "examples" / "transformer_block.mlir"
    parser.add_argument("file", nargs="?", type=Path, default=default)
    parser.add_argument("--repeat", type=int, default=15, help="timed calls of each variant")
    options = parser.parse_args(argv)
    if not options.file.is_file():
        print(f"demo: error: no such file: {options.file}", file=sys.stderr)
        return 2
    return _run(options.file, max(options.repeat, 1))


def _run(path: Path, repeat: int) -> int:
    from fuse_opt.lowering.emit import build_program
    from fuse_opt.tools.commands.measuring import check_against_reference, example_inputs, interleave
    from fuse_opt.tools.compiler.api import compile as compile_program

    print(f"fuse-opt: {path.name}")
    fused = compile_program(path)
    unfused = compile_program(path, pipeline="unfused")
    # What was decided does not depend on whether a C compiler is here to carry it out.
    _show_counts(build_program(fused.module).stats, build_program(unfused.module).stats)
    inputs = example_inputs(path, seed=0)
    error = check_against_reference(path, fused, inputs)
    if fused.source:
        stats = fused.stats
        regions = f"{stats.parallel_regions} parallel region{'' if stats.parallel_regions == 1 else 's'}"
        shared = f"{regions} with {stats.barriers} barriers"
        print(f"  foreign calls  {stats.foreign_calls} a run, {shared}; C compiled in {stats.compile_s:.2f} s")
        times = interleave({"fused": fused, "unfused": unfused}, inputs, repeat)
        for name, row in times.items():
            figures = " ".join(f"{seconds * 1e3:8.2f}" for seconds in (row.minimum, row.median, row.maximum))
            print(f"  time {name:<9} {figures} ms  min/median/max")
        ratio = times["unfused"].median / times["fused"].median
        print(f"  fused is {ratio:.2f} times as fast as one kernel per op ({repeat} interleaved calls of each)")
    else:
        print("  time           not measured: no C compiler works here, so the NumPy reference ran the program")
    good = error <= 1e-4
    print(
        f"  check          largest difference from the reference {error:.1e} of its range: {'ok' if good else 'WRONG'}"
    )
    return 0 if good else 1


def _show_counts(fused: ProgramStats, unfused: ProgramStats) -> None:
    print(f"  kernels        {unfused.launches} -> {fused.launches}, beside {fused.library_calls} library calls")
    moved = [(s.bytes_read + s.bytes_written) / _MIB for s in (unfused, fused)]
    print(f"  bytes moved    {moved[0]:.1f} -> {moved[1]:.1f} MiB by kernels and library calls")
    arenas = [s.arena_bytes / _MIB for s in (unfused, fused)]
    bound = fused.lower_bound_bytes
    gap = fused.arena_bytes / bound - 1 if bound else 0.0
    print(f"  arena          {arenas[0]:.2f} -> {arenas[1]:.2f} MiB, {100 * gap:.1f} % above its lower bound")


if __name__ == "__main__":
    sys.exit(main())
