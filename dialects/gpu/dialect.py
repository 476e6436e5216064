"""The gpu dialect: upstream's, plus what GPU kernels and a *program* of launches need.

Everything that upstream's `gpu` parses and prints stays as it is: its classes are reused here, except `gpu.func` and
`gpu.return`, which are replaced together because `gpu.return` names the class of its parent. Added are

- for kernels: workgroup and private buffers on `gpu.func`, `gpu.shuffle`, `#gpu.address_space<...>`;
- for programs, on any device: `gpu.arena`, `gpu.library_call`, `gpu.bulk` and `gpu.size`. A slot of the arena is upstream's
  `memref.view` with a constant byte shift.

```mlir
%arena = gpu.arena {alignment = 64 : i64} : memref<4096xi8>
gpu.bulk 0 {
  %shift = arith.constant 1024 : index
  %c = memref.view %arena[%shift][] : memref<4096xi8> to memref<8x2xf32>
  gpu.library_call "numpy.matmul"(%a, %b) outs(%c) {operation = "graph.matmul"}
    : (memref<8x4xf32>, memref<4x2xf32>) outs(memref<8x2xf32>)
}
```

`GPU` is registered by this project's driver and `register` function *instead of* upstream's dialect. It must never be
published through the `xdsl.universe` entry point: xDSL merges all installed universes and raises on a dialect name that
occurs twice, so a second `gpu` there would break every xDSL tool of that environment, whatever its input
("Duplicate definition of gpu").
"""

from __future__ import annotations

from xdsl.dialects import gpu as upstream
from xdsl.dialects.gpu import (
    AllocOp,
    AllReduceOp,
    AllReduceOpAttr,
    AllReduceOpEnum,
    AsyncTokenType,
    BarrierOp,
    BlockDimOp,
    BlockIdOp,
    DeallocOp,
    DimensionAttr,
    DimensionEnum,
    GlobalIdOp,
    GridDimOp,
    HostRegisterOp,
    HostUnregisterOp,
    LaneIdOp,
    LaunchFuncOp,
    LaunchOp,
    LoopDimMapAttr,
    MemcpyOp,
    ModuleOp,
    NumSubgroupsOp,
    ProcessorAttr,
    ProcessorEnum,
    SetDefaultDeviceOp,
    SubgroupIdOp,
    SubgroupSizeOp,
    TerminatorOp,
    ThreadIdOp,
    WaitOp,
    YieldOp,
)
from xdsl.ir import (
    Dialect,
    Operation,
)

from fuse_opt.dialects.gpu.kernels import (
    AddressSpaceAttr,
    AddressSpaceEnum,
    FuncOp,
    ReturnOp,
    ShuffleModeAttr,
    ShuffleModeEnum,
    ShuffleOp,
)
from fuse_opt.dialects.gpu.program import LAUNCHES, ArenaOp, BulkOp, LibraryCallOp, SizeOp

_OURS: tuple[type[Operation], ...] = (FuncOp, ReturnOp, ShuffleOp, ArenaOp, LibraryCallOp, BulkOp, SizeOp)
_NAMES = frozenset(op.name for op in _OURS)

GPU = Dialect(
    "gpu",
    [*(op for op in upstream.GPU.operations if op.name not in _NAMES), *_OURS],
    [*upstream.GPU.attributes, AddressSpaceAttr, ShuffleModeAttr],
)

__all__ = [
    "GPU",
    "LAUNCHES",
    "AddressSpaceAttr",
    "AddressSpaceEnum",
    "AllReduceOp",
    "AllReduceOpAttr",
    "AllReduceOpEnum",
    "AllocOp",
    "ArenaOp",
    "AsyncTokenType",
    "BarrierOp",
    "BlockDimOp",
    "BlockIdOp",
    "BulkOp",
    "DeallocOp",
    "DimensionAttr",
    "DimensionEnum",
    "FuncOp",
    "GlobalIdOp",
    "GridDimOp",
    "HostRegisterOp",
    "HostUnregisterOp",
    "LaneIdOp",
    "LaunchFuncOp",
    "LaunchOp",
    "LibraryCallOp",
    "LoopDimMapAttr",
    "MemcpyOp",
    "ModuleOp",
    "NumSubgroupsOp",
    "ProcessorAttr",
    "ProcessorEnum",
    "ReturnOp",
    "SetDefaultDeviceOp",
    "ShuffleModeAttr",
    "ShuffleModeEnum",
    "ShuffleOp",
    "SizeOp",
    "SubgroupIdOp",
    "SubgroupSizeOp",
    "TerminatorOp",
    "ThreadIdOp",
    "WaitOp",
    "YieldOp",
]
