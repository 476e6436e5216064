"""Which functions have values of storage kinds: `lower-storage` takes these apart, and other passes leave them alone."""

from __future__ import annotations

from typing import cast

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from fuse_opt.dialects.types.storage_kinds import StorageKind


def is_stored(value: SSAValue) -> bool:
    """Whether a value is of a storage kind."""
    type_ = value.type
    return isinstance(type_, TensorType) and isinstance(cast("TensorType[Attribute]", type_).encoding, StorageKind)


def holds_stored(function: Operation) -> bool:
    """Whether a function has values of storage kinds, so that only what knows them looks at it."""
    for block in (block for region in function.regions for block in region.blocks):
        if any(map(is_stored, block.args)):
            return True
        if any(is_stored(value) for op in block.ops for value in op.results):
            return True
    return False
