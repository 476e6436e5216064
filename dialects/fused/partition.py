"""`fused.partition`: ops that a backend runs together, by one call; nothing else looks into it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation
from xdsl.irdl import irdl_op_definition, prop_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.fused.kernel import OutlinedOp

PARTITION = "partition"
"""How a partition runs, where a kernel has the kind of its schedule."""

MEMORY = ("private", "workspace")
"""Where values inside of a partition may lie."""


@irdl_op_definition
class PartitionOp(OutlinedOp):
    """
    Ops that a backend runs together, by one call; nothing looks into it but that backend.

    ```mlir
    %r = fused.partition(%a = %x : tensor<8x4xf32>) -> (tensor<8x4xf32>) attributes {backend = "mine", memory = "private"} {
      %s = graph.relu %a : (tensor<8x4xf32>) -> tensor<8x4xf32>
      fused.yield %s : tensor<8x4xf32>
    }
    ```
    """

    name = "fused.partition"
    backend = prop_def(StringAttr)
    """Whose it is."""
    memory = prop_def(StringAttr)
    """Where values inside lie: in memory of the backend (`private`), or in a slot of the arena (`workspace`)."""

    NAMES_IMPLEMENTATION: ClassVar[bool] = False

    def schedule_kind(self) -> str | None:
        return PARTITION

    def drop_decisions(self) -> None:
        """Forgets what was decided about it beside whose it is."""
        for name in [name for name in self.properties if name not in ("backend", "memory", "workspace")]:
            del self.properties[name]

    def _verify_decisions(self) -> None:
        for name in ("implementation", "inplace", "schedule", "segment"):
            if name in self.properties:
                raise VerifyException(
                    f"'{self.name}' property '{name}': expected none, as its backend decides; remove it"
                )
        if self.memory.data not in MEMORY:
            raise VerifyException(
                f"'{self.name}' property 'memory': expected {' or '.join(MEMORY)}, got '{self.memory.data}'"
            )
        if (self.memory.data == "workspace") != (self.workspace is not None):
            raise VerifyException(
                f"'{self.name}' property 'workspace': expected bytes where memory is \"workspace\", and there alone"
            )
        super()._verify_decisions()


def walk_open(op: Operation) -> Iterator[Operation]:
    """An op and those nested in it, in order, as `walk` has them, but none inside of partitions."""
    stack = [op]
    while stack:
        found = stack.pop()
        yield found
        if not isinstance(found, PartitionOp):
            stack.extend(
                inner
                for region in reversed(found.regions)
                for block in reversed(list(region.blocks))
                for inner in reversed(list(block.ops))
            )
