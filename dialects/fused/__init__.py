"""The `fused` dialect: kernels and the decisions about them.

May import dialects/types, dialects/interfaces.
"""

from fuse_opt.dialects.fused.dialect import FUSED
from fuse_opt.dialects.fused.kernel import (
    DIRECTIVES,
    NOT_IN_ARENA,
    RECOMPUTED,
    STOP_FUSION,
    USE_IMPLEMENTATION,
    KernelOp,
    OutlinedOp,
    YieldOp,
    directives,
)
from fuse_opt.dialects.fused.partition import PARTITION, PLANNED, PartitionOp, walk_open

__all__ = [
    "DIRECTIVES",
    "FUSED",
    "NOT_IN_ARENA",
    "PARTITION",
    "PLANNED",
    "RECOMPUTED",
    "STOP_FUSION",
    "USE_IMPLEMENTATION",
    "KernelOp",
    "OutlinedOp",
    "PartitionOp",
    "YieldOp",
    "directives",
    "walk_open",
]
