"""The dialect `fused` as a whole."""

from __future__ import annotations

from xdsl.ir import Dialect

from fuse_opt.dialects.fused.kernel import KernelOp, YieldOp
from fuse_opt.dialects.fused.partition import PartitionOp

FUSED = Dialect("fused", [KernelOp, PartitionOp, YieldOp])
