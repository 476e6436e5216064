"""`fused.partition`: ops that a backend runs together, by one call; nothing else looks into it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, IntegerType, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import irdl_op_definition, opt_prop_def, prop_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.fused.kernel import OutlinedOp
from fuse_opt.dialects.interfaces.properties import ints
from fuse_opt.dialects.interfaces.shapes import is_static
from fuse_opt.dialects.interfaces.stored_values import holds_stored

PARTITION = "partition"
"""How a partition runs, where a kernel has the kind of its schedule."""

PLANNED = "planned"
MEMORY = ("private", "workspace", PLANNED)
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
    """
    Where values inside lie: in memory of the backend (`private`), in one slot of the arena that the backend divides
    (`workspace`), or each in a slot of its own (`planned`).
    """
    inner_slots = opt_prop_def(DenseArrayBase[IntegerType])
    """Byte offset in the arena of each of `values_inside`, where these are planned."""

    NAMES_IMPLEMENTATION: ClassVar[bool] = False

    def schedule_kind(self) -> str | None:
        return PARTITION

    def values_inside(self) -> list[SSAValue]:
        """What the ops make and the partition does not return, in order, where the plan places it; else nothing."""
        if self.memory.data != PLANNED:
            return []
        returned = set(self.yielded())
        return [value for op in self.ops() for value in op.results if value not in returned]

    def drop_places(self) -> None:
        super().drop_places()
        self.inner_slots = None

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
                f"'{self.name}' property 'memory': expected {', '.join(MEMORY[:-1])} or {MEMORY[-1]}, got '{self.memory.data}'"
            )
        if (self.memory.data == "workspace") != (self.workspace is not None):
            raise VerifyException(
                f"'{self.name}' property 'workspace': expected bytes where memory is \"workspace\", and there alone"
            )
        self._verify_inside()
        super()._verify_decisions()

    def _verify_inside(self) -> None:
        inside = self.values_inside()
        if (dynamic := next((value for value in inside if not is_static(value)), None)) is not None:
            raise VerifyException(
                f"'{self.name}' property 'memory': expected known extents inside where memory is planned, got "
                f"'{dynamic.type}'; write private"
            )
        if self.inner_slots is not None and (given := len(ints(self.inner_slots))) != len(inside):
            raise VerifyException(
                f"'{self.name}' property 'inner_slots': expected {len(inside)} offsets, one for each value that is planned "
                f"inside, got {given}; remove it and run plan-memory again"
            )


def walk_open(op: Operation) -> Iterator[Operation]:
    """
    An op and those nested in it, in order, as `walk` has them, but none inside of partitions, or of functions with values of
    storage kinds.
    """
    stack = [op]
    while stack:
        found = stack.pop()
        yield found
        if not isinstance(found, PartitionOp) and not (isinstance(found, FuncOp) and holds_stored(found)):
            stack.extend(
                inner
                for region in reversed(found.regions)
                for block in reversed(list(region.blocks))
                for inner in reversed(list(block.ops))
            )
