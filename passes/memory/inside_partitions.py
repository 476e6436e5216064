"""Values inside of partitions in a plan: when each of them lives, between the steps of the function's own values."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.storage import byte_size
from fuse_opt.dialects.fused import PartitionOp
from fuse_opt.passes.memory.packing.live_bytes import live_bytes, peak_of


@dataclass(frozen=True, slots=True)
class Inside:
    """A value that a partition makes and does not return, alive in [birth, death) of the clock's times."""

    partition: PartitionOp
    value: SSAValue
    nbytes: int
    birth: int
    death: int


class Clock:
    """
    Times of a plan: a step takes one, and a partition whose values inside are planned one more for each of its ops. What is
    alive at a partition's step is alive at all of its times.
    """

    def __init__(self, function: FuncOp) -> None:
        self._begins: list[int] = []
        """By step, its first time; behind the last step one more."""
        self.inside: list[Inside] = []
        time = 0
        for op in function.body.block.ops:
            self._begins.append(time)
            if isinstance(op, PartitionOp) and op.values_inside():
                self.inside.extend(_lives(op, time + 1))
                time += len(op.ops())
            time += 1
        self._begins.append(time)

    def at(self, step: int) -> int:
        """The first time of a step; steps behind the last one take a time each."""
        last = len(self._begins) - 1
        return self._begins[step] if step <= last else self._begins[last] + step - last

    def step_of(self, time: int) -> int:
        """The step to which a time belongs."""
        return bisect_right(self._begins, time) - 1


def peak_inside(partition: PartitionOp, alignment: int) -> int:
    """The most bytes of values inside that live at once, each rounded up."""
    lives = [(one.birth, one.death, -(-one.nbytes // alignment) * alignment) for one in _lives(partition, 0)]
    return peak_of(live_bytes(lives, len(partition.ops())))[0]


def _lives(partition: PartitionOp, begin: int) -> Iterator[Inside]:
    """Values that are planned inside, from the time of the op that makes them to that of the last one that reads them."""
    last: dict[SSAValue, int] = {}
    for number, op in enumerate(partition.ops()):
        last.update(dict.fromkeys((*op.results, *op.operands), number))
    births: dict[SSAValue, int] = {value: number for number, op in enumerate(partition.ops()) for value in op.results}
    for value in partition.values_inside():
        yield Inside(partition, value, byte_size(value) or 0, begin + births[value], begin + last[value] + 1)
