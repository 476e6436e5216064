"""Offsets in the arena that a person fixed: the attribute `pinned_slots` of a kernel."""

from __future__ import annotations

from xdsl.dialects.builtin import DenseArrayBase
from xdsl.dialects.func import FuncOp

from fuse_opt.dialects.analysis.storage import StorageMap, value_name
from fuse_opt.dialects.fused import OutlinedOp
from fuse_opt.passes.remarks import RefusedError

PINNED = "pinned_slots"
"""Offsets in bytes, one for each result of the kernel; -1 leaves one open."""


def pinned_offsets(function: FuncOp, storages: StorageMap, alignment: int) -> dict[int, int]:
    """By number of the storage, the offset at which a person wants it. Raises RefusedError for a wish that cannot hold."""
    found: dict[int, int] = {}
    for kernel in function.body.block.ops:
        if not isinstance(kernel, OutlinedOp) or PINNED not in kernel.attributes:
            continue
        for number, offset in enumerate(_offsets(kernel)):
            if offset < 0:
                continue
            home = storages.of(kernel.results[number])
            problem = None
            if home.kind != "intermediate":
                problem = "lives outside of the arena"
            elif offset % alignment:
                problem = f"cannot be at {offset}, which is no multiple of {alignment}"
            elif found.get(home.number, offset) != offset:
                problem = f"shares memory that is wanted at {found[home.number]}, too"
            if problem is not None:
                raise RefusedError(f"'fused.kernel' {PINNED}: {value_name(kernel.results[number])} {problem}", kernel)
            found[home.number] = offset
    return found


def _offsets(kernel: OutlinedOp) -> tuple[int, ...]:
    wanted = kernel.attributes[PINNED]
    offsets: tuple[int, ...] = ()
    if isinstance(wanted, DenseArrayBase):
        offsets = tuple(int(value) for value in wanted.iter_values())  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType, reportUnknownMemberType]
    if len(offsets) != len(kernel.results):
        expected = f"array<i64: ...> with an offset or -1 for each of its {len(kernel.results)} results"
        raise RefusedError(f"'fused.kernel' {PINNED}: expected {expected}, got {wanted}", kernel)
    return offsets
