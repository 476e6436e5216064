"""Arrays of a kernel's own that stacks have no room for lie in memory that each thread has once.

    %panels = memref.alloca() : memref<524288xf32>

becomes

    %panels = memref.alloca() {fused.of_thread} : memref<524288xf32>

for the largest ones of a function, while all together are more than `MOST_ON_STACK`. Whose thread runs a task is not known:
stacks of workers have 8 MiB, those of a caller's threads may have 2 MiB, and what goes beyond ends the process. Nothing that a
kernel calls comes back to it in the same thread, so that one array for all of its calls there is enough.
"""

from __future__ import annotations

from xdsl.dialects import memref
from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Block

from fuse_opt.lowering.hints import LASTING, MOST_ON_STACK, OF_THREAD, array_bytes


def fit_stack(body: Block) -> None:
    """Marks arrays of a kernel's function. Those of parts of which one is run alone are counted as if all were."""
    arrays = [op for op in body.walk() if isinstance(op, memref.AllocaOp) and LASTING not in op.attributes]
    total = sum(array_bytes(op.memref.type) for op in arrays)
    for op in sorted(arrays, key=lambda op: -array_bytes(op.memref.type)):  # stable: of equal ones the first
        if total <= MOST_ON_STACK:
            return
        op.attributes[OF_THREAD] = UnitAttr()
        total -= array_bytes(op.memref.type)
