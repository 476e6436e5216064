"""How wide vectors of loops are taken to be, whatever the machine's are, and what helpers hide of it from compilers."""

from __future__ import annotations

WIDTH = 16
"""Lanes of a masked vector: those of f32 in the widest vectors, or two of half of it."""
FEWEST_MASKED = 5
"""Elements of a loop for which a masked vector pays. A loop over accumulators, or over what is kept, may have fewer: who loads
several of them would wait for narrow stores."""
NARROWEST = 4
"""Bytes of an element in memory: machines with masks for fewer are few."""
HIDDEN_BITS = "fo_bits"
"""The helper that gives a mask which compilers do not know."""


def padded(count: int) -> int:
    """Elements of memory for so many, with room for whole vectors."""
    return -(-count // WIDTH) * WIDTH if count >= FEWEST_MASKED else count
