"""What a replayed plan keeps of memory: which value wrote which bytes last, in the arena and outside of it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import cast

from xdsl.dialects.builtin import DYNAMIC_INDEX, TensorType
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.interfaces.shapes import AnyTensor, tensor
from fuse_opt.dialects.types.dtypes import dtype_of
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.dialects.types.symbolic_shape import extents_of


class PlanError(VerifyException):
    """A memory plan is wrong, or not there; `op` is the op where it shows."""

    def __init__(self, message: str, op: Operation) -> None:
        super().__init__(message)
        self.op = op


@dataclass(eq=False, slots=True)
class Content:
    """What an op wrote, under all names that views give it, and where: `start` in the arena, or a buffer of its own."""

    value: SSAValue
    step: int
    nbytes: int
    start: int | None
    buffer: Buffer | None
    last_read: int = -1
    taken_over: bool = False
    """Another content begins in its place at the step of its last read."""
    is_workspace: bool = False
    """It is no value but what the implementation of the kernel that makes the value works in, at that step."""
    inner: tuple[int, int] | None = None
    """Of a value inside of a partition: the number of the op that makes it, and that of the last one that reads it."""


@dataclass(eq=False, slots=True)
class Buffer:
    """Memory outside of the arena, the content it holds now, and whether somebody provides it."""

    writable: bool
    provided: bool
    holds: Content | None = None
    first: Content | None = None


@dataclass
class ArenaBytes:
    """The arena's bytes as disjoint, sorted intervals, each of the content written to it last."""

    starts: list[int] = field(default_factory=list[int])
    ends: list[int] = field(default_factory=list[int])
    owners: list[Content] = field(default_factory=list[Content])

    def overlapping(self, start: int, end: int) -> Iterator[tuple[int, int, Content]]:
        low = bisect_right(self.ends, start)
        high = bisect_left(self.starts, end)
        for at in range(low, high):
            yield self.starts[at], self.ends[at], self.owners[at]

    def write(self, content: Content, start: int, end: int) -> None:
        low = bisect_right(self.ends, start)
        high = bisect_left(self.starts, end)
        starts, ends, owners = [start], [end], [content]
        if low < high and self.starts[low] < start:
            starts.insert(0, self.starts[low])
            ends.insert(0, start)
            owners.insert(0, self.owners[low])
        if low < high and self.ends[high - 1] > end:
            starts.append(end)
            ends.append(self.ends[high - 1])
            owners.append(self.owners[high - 1])
        self.starts[low:high], self.ends[low:high], self.owners[low:high] = starts, ends, owners


def same_memory(a: Content, b: Content) -> bool:
    if a.buffer is not None or b.buffer is not None:
        return a.buffer is b.buffer
    return a.start == b.start


def byte_size(value: SSAValue) -> Extent | None:
    """None where it is not known, a size where extents are sizes."""
    if (type_ := tensor_of(value)) is None or DYNAMIC_INDEX in (extents := extents_of(type_)):
        return None
    return prod(cast("tuple[int, ...]", extents)) * item_size(value)


def counted_bytes(value: SSAValue) -> int:
    """The same as a number: 0 where it is not known, 1 for a size, as places are counted then."""
    nbytes = byte_size(value)
    return 1 if isinstance(nbytes, Size) else nbytes or 0


def item_size(value: SSAValue) -> int:
    type_ = tensor_of(value)
    element = None if type_ is None else dtype_of(type_.element_type)
    return 1 if element is None else element.itemsize


def tensor_of(value: SSAValue) -> AnyTensor | None:
    """The type of a value that is a tensor."""
    return tensor(value) if isinstance(value.type, TensorType) else None


def name_of(value: SSAValue) -> str:
    if value.name_hint is not None:
        return f"%{value.name_hint}"
    if isinstance(value, OpResult):
        return f"result {value.index}"
    return f"argument {value.index}" if isinstance(value, BlockArgument) else "a value"


def made_at(content: Content) -> str:
    """Where a content comes from, as errors say it."""
    return "of the caller" if content.step < 0 else f"of step {content.step}"


def called(content: Content) -> str:
    name, owner = name_of(content.value), content.value.owner
    if content.inner is not None and isinstance(owner, Operation):
        return f"the result of '{owner.name}' inside of a partition"
    return f"the workspace of the kernel of {name}" if content.is_workspace else name


def byte_range(content: Content) -> tuple[int, int]:
    assert content.start is not None
    return content.start, content.start + content.nbytes


def place_of(content: Content) -> str:
    return "" if content.start is None else f" (bytes {content.start}..{content.start + content.nbytes})"
