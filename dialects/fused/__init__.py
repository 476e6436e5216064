"""The `fused` dialect: kernels and the decisions about them.

May import dialects/types, dialects/interfaces.
"""

from fuse_opt.dialects.fused.kernel import (
    DIRECTIVES,
    FUSED,
    NOT_IN_ARENA,
    STOP_FUSION,
    USE_IMPLEMENTATION,
    KernelOp,
    YieldOp,
    directives,
)

__all__ = [
    "DIRECTIVES",
    "FUSED",
    "NOT_IN_ARENA",
    "STOP_FUSION",
    "USE_IMPLEMENTATION",
    "KernelOp",
    "YieldOp",
    "directives",
]
