"""Decodes token by token by one program: caches in buffers with room, which are doubled where there is none left.

python examples/decoding/decode.py [TOKENS]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fuse_opt


def decode(count: int) -> NDArray[Any]:
    """The last token's values after so many steps; says what a step writes."""
    program = fuse_opt.compile(Path(__file__).with_name("step.mlir"))
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(shape, np.float32) * np.float32(0.1) for shape in ((64, 192), (192,), (64, 64))]
    x, caches = rng.standard_normal((1, 64), np.float32), [np.zeros((4, 8, 16), np.float32) for _ in range(2)]
    for token in range(count):
        if caches[0].shape[1] == token:
            caches = [np.concatenate((cache, np.zeros_like(cache)), 1) for cache in caches]
        x, *caches = program(x, np.array(token), *caches, *weights)
    print(f"{count} tokens, room for {caches[0].shape[1]}; a step writes {program.stats.bytes_written} bytes")
    return x


if __name__ == "__main__":
    decode(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
