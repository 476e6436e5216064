"""Time of the layout solver: chains of sites with branches that join again, of 10,000 and 100,000 sites.

    python benchmarks/layouts.py [--sites 10000,100000]

Each site has three alternatives; a tenth of all read two earlier ones, one of them a few sites before, as in residual networks.
`random` reads any two earlier ones: what reductions leave of it is guessed, and bettered. Seconds are the processor's, without
garbage collection, as passes run.
"""

from __future__ import annotations

import argparse
import gc
import random
import time

from fuse_opt.passes.layouts.quadratic_assignment import Assignment, solve
from fuse_opt.tools.compiler.pipeline import collection_paused


def problem_of(sites: int, kind: str) -> Assignment:
    rng = random.Random(0)
    problem = Assignment()
    for node in range(sites):
        problem.node([float(rng.randint(0, 20)) for _ in range(3)])
        reads = [node - 1] if node else []
        if kind == "residual" and node % 10 == 9:
            reads.append(node - 4)
        if kind == "random" and node > 1:
            reads = rng.sample(range(max(0, node - 50), node), 2)
        for other in reads:
            cost = float(rng.randint(1, 12))
            problem.connect(other, node, [[0.0 if a == b else cost for b in range(3)] for a in range(3)])
    return problem


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", default="10000,100000")
    for sites in map(int, parser.parse_args().sites.split(",")):
        for kind in ("residual", "random"):
            problem = problem_of(sites, kind)
            gc.collect()
            started = time.process_time()
            with collection_paused():
                solution = solve(problem)
            seconds = time.process_time() - started
            print(f"{kind:9} {sites:7} sites: {seconds:.2f} s, {solution.guessed} guessed", flush=True)


if __name__ == "__main__":
    main()
