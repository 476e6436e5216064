"""Whether the least budget that a refusal names is one: `python benchmarks/recompute_bounds.py [--cases 200] [--seed 0]`.

Random programs with a forward and a backward half are asked to fit into one byte. What the refusal names must be kept when it is
given, by a search that knows nothing of the first one, and no byte less, nor 0.97, 0.9, 0.8 and 0.6 of it. Prints where that does
not hold, and at the end how many programs there were, and the least budgets as parts of the arenas without a budget.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Sequence

from recompute_orders import program

from fuse_opt.tools.compiler.api import over_budget, trials

PARTS = (0.97, 0.9, 0.8, 0.6)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the cases; 1 where a refusal names another budget than the least."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(argv)
    parts: list[float] = []
    wrong = 0
    for seed in range(given.seed, given.seed + given.cases):
        text = program(random.Random(seed))
        first = trials(text)
        free, least = first.of().arena, over_budget(first, 1).least
        found = trials(text).within(least)
        lower = [
            each for each in (least - 1, *(int(p * least) for p in PARTS)) if trials(text).within(each) is not None
        ]
        parts.append(least / free)
        if found is None or found.arena > least or lower:
            wrong += 1
            print(f"seed {seed}: {least} is named, {'kept' if found else 'not kept'}; kept below: {lower}", flush=True)
    spread = f"{min(parts):.3f} {statistics.median(parts):.3f} {max(parts):.3f}"
    print(f"{len(parts)} programs, {wrong} with another least budget than the named one: part {spread}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
