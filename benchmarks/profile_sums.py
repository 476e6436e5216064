"""Whether kernels of a profile add up to a call: `python benchmarks/profile_sums.py [FILE.mlir ...] [--repeat 30]`.

For each program (the examples, and the gradients of benchmarks/recompute.py where jax is installed) the seconds of all kernels,
each in its fastest call, and of an ordinary call, taken in turns, of one thread; and which share of the call that is shown its
kernels take. Calls of less than a millisecond do not count. Ends with 1 where the sum of another one is more than 5 % beside.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import fuse_opt
from fuse_opt.tools.commands.measuring import example_inputs
from fuse_opt.tools.compiler.api import limit_threads

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
BESIDE = 0.05
COUNTS = 1e-3


def programs(files: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Names and sources."""
    for path in map(Path, files or sorted(map(str, EXAMPLES.glob("*.mlir")))):
        yield path.stem, path
    if not files and find_spec("jax") is not None:
        import jax
        from recompute import PROGRAMS

        from fuse_opt.frontends import stablehlo

        for name, lowered in PROGRAMS.items():
            yield f"gradient of {name}", stablehlo.load(lowered(jax))


def main(argv: Sequence[str] | None = None) -> int:
    """Prints a line for each program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE.mlir", help="(default: all)")
    parser.add_argument("--repeat", type=int, default=30)
    given = parser.parse_args(argv)
    limit_threads(1)
    beside = 0
    print("program                      kernels us   call us   ratio   covered")
    for name, source in programs(given.files):
        program = fuse_opt.compile(source)
        found = program.profile(*example_inputs(program.module), repeat=given.repeat)
        ratio = found.seconds / found.call_least
        counts = found.call_least >= COUNTS
        beside += counts and abs(ratio - 1) > BESIDE
        figures = f"{1e6 * found.seconds:10.1f}{1e6 * found.call_least:10.1f}{ratio:8.3f}{found.covered:10.3f}"
        print(f"{name:28}{figures}{'' if counts else '   short'}", flush=True)
    return int(beside > 0)


if __name__ == "__main__":
    sys.exit(main())
