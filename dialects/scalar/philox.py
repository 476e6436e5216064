"""Philox-4x32-10 over scalar primitives: 128 random bits from a counter and a key, with no state between them.

Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3". Words of 32 bits are held in i64, whose
products wrap: the same bits on every backend.
"""

from __future__ import annotations

from fuse_opt.dialects.scalar import expr as sc
from fuse_opt.dialects.scalar.expr import Scalar
from fuse_opt.dialects.types.dtypes import I64

Words = tuple[Scalar, Scalar, Scalar, Scalar]

MASK = 0xFFFFFFFF
_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


def philox(counter: Words, key: tuple[int, int]) -> Words:
    """Four random words for a counter of four words, each in `[0, 2**32)`."""
    for number in range(_ROUNDS):
        k0, k1 = ((k + number * weyl) & MASK for k, weyl in zip(key, _WEYL, strict=True))
        first, second = counter[0] * _MULTIPLIERS[0], counter[2] * _MULTIPLIERS[1]
        counter = (_high(second) ^ counter[1] ^ k0, second & MASK, _high(first) ^ counter[3] ^ k1, first & MASK)
    return counter


def words_at(position: Scalar, offset: Scalar | None, seed: int) -> Words:
    """The random words of a position of the stream that an offset and a seed, each of 64 bits, choose."""
    zero = sc.constant(0, I64)
    high = (zero, zero) if offset is None else (offset & MASK, _high(offset))
    return philox((position & MASK, _high(position), *high), (seed & MASK, seed >> 32 & MASK))


def _high(x: Scalar) -> Scalar:
    return sc.shift_right(x, 32) & MASK
