"""Blocks of threads for attention: how many queries and keys they have at a time, by extents, types and the device."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from fuse_opt.dialects.analysis.contractions.attention import Attention
from fuse_opt.dialects.analysis.contractions.online_softmax import OnlineSoftmax
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import BF16, F16, F32
from fuse_opt.lowering.gpu.attention.matrices import SIDE, padded
from fuse_opt.lowering.gpu.attention.tiled import THREADS, WARPS
from fuse_opt.lowering.gpu.context import GpuLimits, usual
from fuse_opt.lowering.gpu.scope import WARP

MOST_GROUP_DEPTH = 128
"""Elements of a query, which are registers."""
MOST_TENSOR_SUMS = 128
"""Sums of a thread, which are registers, beside scores and matrices on their way to tensor cores."""
TENSOR_BLOCKS = ((2, 64), (1, 64), (1, 32), (1, 16))
"""Times 16 queries of a warp, and keys of a tile."""
GROUP_BLOCKS = ((1, 64, 2), (1, 64, 1))
"""Groups of four warps, keys of a tile, and blocks that a processor should have room for."""
GROUP_SIDE = 64
"""Queries of a group, and columns that its matrices are padded to multiples of."""
GROUP_REGISTERS = 40
"""Of a thread, beside those of queries, scores and sums."""
_REGISTERS = 1 << 16
"""Of a processor."""

LANES = 8
"""Threads that share rows of f32."""
GROUPS = THREADS // LANES
VECTOR = 4
MOST_SUMS = 64
"""The same of f32."""
REGISTER_BLOCKS = ((4, 64), (4, 32), (2, 32), (1, 32))
"""Rows of a thread, and keys of a tile."""
_RESERVED = 1 << 10
"""Bytes of shared memory that the system takes of each block, beside what blocks may ask for."""
_MOST_AT_ONCE = 3
"""Blocks of f32 on a processor, whose threads then have 168 registers; there should be two."""


@dataclass(frozen=True, slots=True)
class TensorBlock:
    """Tiles of 16 queries of a warp, and keys of a tile."""

    tiles: int
    keys: int
    groups: int = 0
    """Of four warps that multiply together; 0 where each multiplies alone."""
    at_once: int = 0
    """Blocks that a processor should have room for; 0 where nothing is said."""

    @property
    def warps(self) -> int:
        return WARPS * max(self.groups, 1)

    @property
    def threads(self) -> int:
        return self.warps * WARP

    @property
    def rows(self) -> int:
        return self.tiles * SIDE * self.warps

    def width(self, columns: int) -> int:
        """Columns of a matrix, with those that are added to it."""
        side = GROUP_SIDE if self.groups else SIDE
        return -(-columns // side) * side


def matrix_step(columns: int) -> int:
    """From row to row of a matrix for tensor cores: eight rows are in different banks."""
    return columns + 8


def tensor_block(online: OnlineSoftmax, limits: GpuLimits, fast: bool) -> TensorBlock | None:
    """
    The block for tensor cores; None where these do not compute what the ops say, or the device has none. It is lower where
    higher ones would leave processors without work.
    """
    of = online.of
    if not limits.multiplies_matrices or not _is_narrow(of, fast):
        return None
    depth, width = padded(of.first.depth), padded(of.second.columns)
    for tiles, keys in TENSOR_BLOCKS:
        block = TensorBlock(tiles, keys)
        size = 2 * (block.rows * matrix_step(depth) + 2 * keys * (matrix_step(depth) + matrix_step(width)))
        rows = usual(of.second.rows)
        blocks = usual(prod(of.first.batch)) * -(-rows // block.rows)
        smallest = tiles == 1 or (rows > block.rows // 2 and blocks >= limits.processors)
        if smallest and tiles * width // 2 <= MOST_TENSOR_SUMS and size <= limits.shared_memory:
            return block
    return None


def group_block(online: OnlineSoftmax, limits: GpuLimits, fast: bool) -> TensorBlock | None:
    """The same for products by four warps together; None where the device has none, or matrices would be padded by much."""
    of = online.of
    if not limits.multiplies_in_groups or not _is_narrow(of, fast):
        return None
    depth, columns, rows = of.first.depth, of.second.columns, usual(of.second.rows)
    for groups, keys, at_once in GROUP_BLOCKS:
        block = TensorBlock(1, keys, groups, at_once)
        deep, wide = block.width(depth), block.width(columns)
        if 3 * deep > 4 * depth or 3 * wide > 4 * columns or padded(depth) > MOST_GROUP_DEPTH:
            return None
        size = 2 * (block.rows * matrix_step(padded(depth)) + 2 * keys * (deep + wide))
        registers = wide // 2 + keys // 2 + padded(depth) // 4 + GROUP_REGISTERS
        fits = at_once * (size + _RESERVED) <= limits.shared_memory + _RESERVED
        smallest = groups == 1 or rows > block.rows // 2
        if smallest and fits and registers * block.threads * at_once <= _REGISTERS and registers < 256:
            return block
    return None


def _is_narrow(of: Attention, fast: bool) -> bool:
    """Whether all operands have one type of 16 bits, to which results are rounded, too."""
    kinds = {dtype(access.value) for access in (of.queries, of.keys, of.values)}
    results = {dtype(store.node.value) for store in of.epilogue.stores}
    return len(kinds) == 1 and kinds <= {F16, BF16} and (fast or results == kinds) and dtype(of.first_raw) is F32


@dataclass(frozen=True, slots=True)
class RegisterBlock:
    """Rows of a thread, and keys of a tile."""

    rows: int
    keys: int
    at_once: int
    """Blocks that a processor has room for."""


def register_block(online: OnlineSoftmax, limits: GpuLimits) -> RegisterBlock | None:
    """The block of threads for f32; None for other types, and where the tiles do not fit the device."""
    of = online.of
    kinds = {dtype(value) for value in (of.queries.value, of.keys.value, of.values.value, of.first_raw)}
    if kinds != {F32} or not limits.multiplies_matrices:
        return None
    depth, width = vector_step(of.first.depth), -(-of.second.columns // (LANES * VECTOR)) * LANES * VECTOR
    room = limits.shared_memory + _RESERVED
    for fewest in (2, 1):
        for rows, keys in REGISTER_BLOCKS:
            height = rows * GROUPS
            size = 4 * (height * depth + keys * (depth + width) + height * (keys + LANES))
            at_once = min(room // (size + _RESERVED), _MOST_AT_ONCE)
            smallest = rows == 1 or usual(of.second.rows) > height // 2
            if smallest and rows * width // LANES <= MOST_SUMS and at_once >= fewest:
                return RegisterBlock(rows, keys, at_once)
    return None


def vector_step(columns: int) -> int:
    """From row to row of a tile that is read by vectors: an odd number of them, as rows in different banks are apart."""
    return VECTOR * (-(-columns // VECTOR) | 1)
