"""How much of a product one task makes, and how many tasks are worth a thread."""

from __future__ import annotations

_TASKS_PER_THREAD = 4
TASK_WORK = 2_000_000
"""Operations that are worth a task of their own: some 50 microseconds."""
_CALL_WORK = 4_000
"""What a call of gemm costs besides its operations, in operations."""
_BLOCK_MULTIPLE = 32
"""Blocks are multiples of it, for whole tiles in every BLAS's inner loop."""


def choose_blocks(m: int, n: int, k: int, entries: int, threads: int) -> tuple[int, int]:
    """Rows and columns of the result of one task, where there are `entries` products of m times k by k times n."""
    pieces = min(-(-threads * _TASKS_PER_THREAD // entries), 2 * m * n * k // TASK_WORK)
    if threads == 1 or pieces < 2:
        return m, n
    best = (m, n)
    least = None
    for down in range(1, pieces + 1):
        rows, columns = _block(m, down), _block(n, -(-pieces // down))
        # Each block of rows reads all columns again, and the other way round.
        read = -(-m // rows) * n + -(-n // columns) * m
        count = -(-m // rows) * -(-n // columns)
        if (least is None or read < least) and 2 * count > pieces:
            best, least = (rows, columns), read
    return best


def _block(extent: int, pieces: int) -> int:
    size = -(-extent // pieces)
    return min(extent, -(-size // _BLOCK_MULTIPLE) * _BLOCK_MULTIPLE)


def choose_grain(work: int) -> int:
    """How many tasks of so many operations are worth a thread."""
    return max(1, TASK_WORK // (work + _CALL_WORK))
