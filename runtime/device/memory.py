"""Memory of results on a device, used again once it is dropped, without a call of the driver."""

from __future__ import annotations

import weakref
from collections import deque
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
        self._idle: dict[int, list[Any]] = {}
        self._idle_bytes = 0
        self._returned: deque[tuple[int, Any]] = deque()
        self._block: Any = None

    def allocate(self, nbytes: int) -> Any:
        """A block with any content, as PyCUDA's arrays want it. Raises CudaMemoryError."""
        self._settle()
        size = _size_class(nbytes)
        blocks = self._idle.get(size)
        if blocks:
            self._idle_bytes -= size
            memory = blocks.pop()
        else:
            memory = self._device.allocate(size, self._what)
        block = self._holder()(int(memory))
        weakref.finalize(block, self._returned.append, (size, memory)).atexit = False
        return block

    def _holder(self) -> Any:
        """A class that PyCUDA takes for device memory."""
        if self._block is None:
            base = self._device.driver.PointerHolderBase

            def start(self: Any, address: int) -> None:
                base.__init__(self)
                self.address = address

            def address(self: Any) -> int:
                return self.address

            methods = {"__init__": start, "get_pointer": address, "__int__": address, "__index__": address}
            self._block = type("DeviceBlock", (base,), methods)
        return self._block

    def _settle(self) -> None:
        """Files what was dropped; too much of it goes back to the device."""
        while self._returned:
            size, memory = self._returned.popleft()
            if self._idle_bytes + size <= _MOST_IDLE_BYTES:
                self._idle.setdefault(size, []).append(memory)
                self._idle_bytes += size


def _size_class(nbytes: int) -> int:
    """`nbytes` rounded up by at most an eighth, to 512 at least."""
    step = max(1 << (max(nbytes, 1).bit_length() - 4), 512) if nbytes else 512
    return -(-max(nbytes, 1) // step) * step
