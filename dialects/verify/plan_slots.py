"""Where a plan puts what kernels write: slots are inside of the arena, aligned, and those of what they take over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, SSAValue

from fuse_opt.dialects.fused import OutlinedOp
from fuse_opt.dialects.types.extents import may_exceed
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.dialects.verify.plan_contents import (
    Buffer,
    Content,
    PlanError,
    byte_size,
    counted_bytes,
    item_size,
    made_at,
    name_of,
)
from fuse_opt.dialects.verify.plan_orders import Places, read_places

_WORKSPACE_ALIGNMENT = 64
"""Bytes: what a library may count on."""


@dataclass(frozen=True, slots=True)
class Arena:
    """What `fused.arena` of a function says, in bytes."""

    alignment: int
    size: int
    """Where it has places, how many these are: a place counts as a byte then."""
    bound: int
    places: Places | None = None
    """Where slots are numbers of places."""


def read_arena(function: FuncOp, kernel: OutlinedOp) -> Arena:
    """A function's arena, which `kernel` has slots in. Raises PlanError where it is missing or makes no sense."""
    attribute = function.attributes.get("fused.arena")
    if attribute is None:
        raise PlanError("'fused.kernel' has slots but its function has no fused.arena; run plan-memory", kernel)
    entries: Mapping[str, Attribute] = attribute.data if isinstance(attribute, DictionaryAttr) else {}
    if "places" in entries:
        found = read_places(function, dict(entries))
        return Arena(1, len(found.nbytes), 0, found)
    alignment, size = _entry(entries.get("alignment")), _entry(entries.get("size"))
    bound = _entry(entries.get("lower_bound"))
    if alignment is None or size is None or bound is None or not isinstance(entries.get("method"), StringAttr):
        wanted = "alignment, lower_bound and size (64-bit integers) and method (a string)"
        raise PlanError(f"'func.func' attribute fused.arena: expected {wanted}, got {attribute}", function)
    if alignment < 1 or alignment & (alignment - 1):
        raise PlanError(
            f"'func.func' attribute fused.arena: alignment {alignment} is no power of two; run plan-memory", function
        )
    if bound < 0 or size < bound:
        message = f"'func.func' attribute fused.arena: size {size} is below the lower bound {bound}"
        raise PlanError(f"{message}; run plan-memory", function)
    return Arena(alignment, size, bound)


def _entry(attribute: Attribute | None) -> int | None:
    return attribute.value.data if isinstance(attribute, IntegerAttr) else None


def place_result(
    arena: Arena, kernel: OutlinedOp, value: SSAValue, slot: int, old: Content | None, step: int
) -> Content:
    """What a result of a kernel is to hold, at its slot or, for -1, outside of the arena; `old` is what it takes over."""
    nbytes = None if byte_size(value) is None else counted_bytes(value)
    if arena.places is None and isinstance(byte_size(value), Size):
        nbytes = None  # planned where sizes were not asked for: nobody counts what it has
    elif arena.places is not None:
        _check_place(arena.places.nbytes, kernel, value, slot)
        nbytes = None if nbytes is None else min(nbytes, 1)
    if slot < 0:
        if slot != -1:
            wanted = f"expected an offset, or -1, at step {step}; run plan-memory"
            raise PlanError(f"'fused.kernel' slot {slot} of {name_of(value)}: {wanted}", kernel)
        if old is not None and old.start is not None:
            message = f"takes over {name_of(old.value)} {made_at(old)} at {old.start}, but has no slot; expected that"
            raise PlanError(f"'fused.kernel' {name_of(value)} of step {step} {message}", kernel)
        if old is not None:
            return Content(value, step, nbytes or 0, None, old.buffer)
        return Content(value, step, nbytes or 0, None, Buffer(True, nbytes is None))
    if nbytes is None:
        raise PlanError(f"'fused.kernel' {name_of(value)} has a slot but no static shape", kernel)
    if old is not None and old.start != slot:
        place = "is outside of the arena" if old.start is None else f"is at {old.start}"
        message = (
            f"takes over {name_of(old.value)} {made_at(old)}, which {place}, but its slot is {slot}; run plan-memory"
        )
        raise PlanError(f"'fused.kernel' {name_of(value)} of step {step} {message}", kernel)
    unit = max(arena.alignment, item_size(value))
    if arena.places is None and (slot % arena.alignment or slot % item_size(value)):
        raise PlanError(
            f"'fused.kernel' slot {slot} of {name_of(value)} is no multiple of {unit}, at step {step}; run plan-memory",
            kernel,
        )
    if slot + nbytes > arena.size:
        unit = "bytes" if arena.places is None else "places"
        message = f"{name_of(value)} at {slot}..{slot + nbytes} is not inside of the arena of {arena.size} {unit}"
        message += f" at step {step}"
        raise PlanError(f"'fused.kernel' {message}; run plan-memory", kernel)
    return Content(value, step, nbytes, slot, None)


def _check_place(places: Sequence[Extent], kernel: OutlinedOp, value: SSAValue, slot: int) -> None:
    """Raises PlanError where a value's place is not known to be large enough."""
    nbytes = byte_size(value)
    if nbytes is not None and 0 <= slot < len(places) and may_exceed(nbytes, places[slot]):
        message = f"{name_of(value)} has {nbytes} bytes, its place {slot} has {places[slot]}; run plan-memory"
        raise PlanError(f"'fused.kernel' {message}", kernel)


def place_workspace(arena: Arena, kernel: OutlinedOp, step: int) -> Content | None:
    """What the implementation works in; None where it asks for nothing."""
    if not (nbytes := kernel.workspace_bytes()):
        return None
    if (slot := kernel.workspace_offset()) is None:
        message = f"asks for a workspace of {nbytes} bytes at step {step}, but has no workspace_slot; run plan-memory"
        raise PlanError(f"'fused.kernel' {message}", kernel)
    if arena.places is not None:
        raise PlanError(
            f"'fused.kernel' has a workspace at step {step}, and the arena has places; run plan-memory", kernel
        )
    unit = max(arena.alignment, _WORKSPACE_ALIGNMENT)
    if slot % unit:
        message = f"workspace_slot {slot} is no multiple of {unit}, at step {step}; run plan-memory"
        raise PlanError(f"'fused.kernel' {message}", kernel)
    if slot + nbytes > arena.size:
        message = f"its workspace at {slot}..{slot + nbytes} is not inside of the arena of {arena.size} bytes"
        raise PlanError(f"'fused.kernel' {message} at step {step}; run plan-memory", kernel)
    return Content(kernel.results[0], step, nbytes, slot, None, is_workspace=True)
