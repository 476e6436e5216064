"""Programs of torch_networks.py and torch_mixes.py for all sizes, called with large, odd, single and no elements."""

from __future__ import annotations

import random
from dataclasses import replace

from torch_mixes import random_mix
from torch_networks import random_network
from torch_programs import Program, other_sizes

NUMBERS = (0, 1, 1, 2, 3, 5, 7, 16, 17, 31, 33, 63, 64, 65, 100, 127, 129, 257, 384, 513, 1025, 2049)
MOST = 60_000
"""Elements of an argument."""


def any_size(seed: int) -> Program:
    """The program of a seed; one in three has its first call with other extents, too."""
    rng = random.Random(f"torch sizes {seed}")
    program = replace((random_network, random_mix)[seed % 2](seed), dynamic=True, sizes=())
    sizes = other_sizes(rng, program, NUMBERS, MOST)
    if not sizes or rng.random() < 2 / 3:
        return replace(program, sizes=sizes)
    first = tuple(replace(a, extents=extents) for a, extents in zip(program.arguments, sizes[0], strict=True))
    return replace(program, arguments=first, sizes=(*sizes[1:], tuple(a.extents for a in program.arguments)))
