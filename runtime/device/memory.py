"""Memory of results on a device, used again once it is dropped, without a call of the driver."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Any

from fuse_opt.runtime.device.driver import Device

_MOST_IDLE_BYTES = 1 << 30


class DevicePool:
    """
    Blocks for arrays of PyCUDA's. What is dropped may still be in use on a stream, so a pool is for one stream: there, what
    comes later waits. Blocks are dropped in any thread, with any context or none; PyCUDA's own pools want theirs there.
    """

    def __init__(self, device: Device, what: str) -> None:
        self._device = device
        self._what = what
        self._idle: dict[int, list[tuple[Any, int]]] = {}
        """By size: memory and where it is."""
        self._idle_bytes = 0
        self._returned: deque[tuple[int, Any, int]] = deque()
        device.reserves.add(self)

    def allocate(self, nbytes: int) -> DeviceBlock:
        """A block with any content, as PyCUDA's arrays want it. Raises CudaMemoryError."""
        return self.take(size_class(nbytes))

    def take(self, size: int) -> DeviceBlock:
        """The same, of a size that `size_class` gives."""
        if self._returned:
            self._settle()
        try:
            memory, address = self._idle[size].pop()
            self._idle_bytes -= size
        except LookupError:
            with self._device.active():
                memory = self._device.allocate(size, self._what)
            address = int(memory)
        block = DeviceBlock(address)
        block.memory, block.size, block.returned = memory, size, self._returned
        return block

    def _settle(self) -> None:
        """Files what was dropped; too much of it goes back to the device."""
        with suppress(IndexError):  # another thread may give back what was dropped
            while self._returned:
                size, memory, address = self._returned.popleft()
                if self._idle_bytes + size <= _MOST_IDLE_BYTES:
                    self._idle.setdefault(size, []).append((memory, address))
                    self._idle_bytes += size

    def give_back(self) -> None:
        """Frees all that is idle, in whatever thread it is asked for."""
        idle, self._idle, self._idle_bytes = self._idle, {}, 0
        dropped: list[Any] = [idle]
        with suppress(IndexError):
            while True:
                dropped.append(self._returned.popleft())
        self._device.drop(dropped)


class DeviceBlock(int):
    """An address, which PyCUDA takes for device memory as any integer; its memory comes back when it is gone."""

    memory: Any
    size: int
    returned: deque[tuple[int, Any, int]]

    def __del__(self) -> None:
        self.returned.append((self.size, self.memory, int(self)))


def size_class(nbytes: int) -> int:
    """`nbytes` rounded up by at most an eighth, to 512 at least."""
    step = max(1 << (max(nbytes, 1).bit_length() - 4), 512) if nbytes else 512
    return -(-max(nbytes, 1) // step) * step
