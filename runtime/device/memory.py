"""Memory of results on a device, used again once it is dropped, without a call of the driver."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Any, ClassVar

from fuse_opt.runtime.device.driver import Device

_MOST_IDLE_BYTES = 1 << 30
_LOOKED_AFTER = 256
"""Blocks that are taken until it is looked at whether too much is idle."""


class DeviceBlock(int):
    """
    An address, which PyCUDA takes for device memory as any integer; its memory comes back when it is gone. There is a class for
    each size of each pool, so that a block is nothing but its number: the class keeps the memory, also when the pool is gone.
    """

    free: ClassVar[deque[int]]
    """Addresses that come back: a deque, as blocks are dropped in any thread."""
    memory: ClassVar[dict[int, Any]]
    """By address, all that has been allocated and not given back."""

    def __del__(self) -> None:
        self.free.append(self + 0)


class DevicePool:
    """
    Blocks for arrays of PyCUDA's. What is dropped may still be in use on a stream, so a pool is for one stream: there, what
    comes later waits. Blocks are dropped in any thread, with any context or none; PyCUDA's own pools want theirs there.
    """

    def __init__(self, device: Device, what: str) -> None:
        self._device = device
        self._what = what
        self._classes: dict[int, type[DeviceBlock]] = {}
        """By size."""
        self._taken = 0
        device.reserves.add(self)

    def allocate(self, nbytes: int) -> DeviceBlock:
        """A block with any content, as PyCUDA's arrays want it. Raises CudaMemoryError."""
        return self.take(size_class(nbytes))

    def take(self, size: int) -> DeviceBlock:
        """The same, of a size that `size_class` gives."""
        self._taken += 1
        try:
            kind = self._classes[size]
            if self._taken < _LOOKED_AFTER:
                return kind(kind.free.pop())
        except LookupError:
            pass
        return self._take_slowly(size)

    def _take_slowly(self, size: int) -> DeviceBlock:
        """Looks for too much that is idle first, and allocates a block where none is left."""
        self._taken = 0
        if (kind := self._classes.get(size)) is None:
            kind = self._classes[size] = type("DeviceBlock", (DeviceBlock,), {"free": deque[int](), "memory": {}})
        self._drop_idle(_MOST_IDLE_BYTES)
        with suppress(IndexError):
            return kind(kind.free.pop())
        with self._device.active():
            memory = self._device.allocate(size, self._what)
        kind.memory[address := int(memory)] = memory
        return kind(address)

    def give_back(self) -> None:
        """Frees all that is idle, in whatever thread it is asked for."""
        self._drop_idle(0)

    def _drop_idle(self, most: int) -> None:
        """Frees what is idle beyond so many bytes, of sizes that were asked for last first."""
        dropped: list[Any] = []
        for size, kind in self._classes.items():
            most -= size * len(kind.free)
            with suppress(IndexError):  # another thread may give back what was dropped
                while most < 0 and kind.free:
                    dropped.append(kind.memory.pop(kind.free.popleft()))
                    most += size
        if dropped:
            self._device.drop(dropped)


def size_class(nbytes: int) -> int:
    """`nbytes` rounded up by at most an eighth, to 512 at least."""
    step = max(1 << (max(nbytes, 1).bit_length() - 4), 512) if nbytes else 512
    return -(-max(nbytes, 1) // step) * step
