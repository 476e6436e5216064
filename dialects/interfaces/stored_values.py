"""Which functions have values of storage kinds: `lower-storage` takes these apart, and other passes leave them alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Block, Operation, SSAValue

from fuse_opt.dialects.types.storage_kinds import StorageKind


def is_stored(value: SSAValue) -> bool:
    """Whether a value is of a storage kind."""
    type_ = value.type
    return isinstance(type_, TensorType) and isinstance(cast("TensorType[Attribute]", type_).encoding, StorageKind)


def holds_stored(function: Operation) -> bool:
    """Whether a function has values of storage kinds, so that only what knows them looks at it."""
    blocks = [block for region in function.regions for block in region.blocks]
    return any(is_stored(value) for block in blocks for value in (*block.args, *results_by_type(block)))


def results_by_type(block: Block) -> Iterable[SSAValue]:
    """A result of each type that ops of a block have, by the identity of types: many results share one."""
    found: dict[int, SSAValue] = {}
    op = block.first_op
    while op is not None:  # xDSL's iterator over ops takes twice as long
        for value in op.results:
            found[id(value.type)] = value
        op = op.next_op
    return found.values()
