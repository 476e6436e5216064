"""What runs of a program share on a device, also of its programs for several extents: these follow one another there."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from fuse_opt.lowering.program import Buffer
from fuse_opt.runtime.cuda.arguments import as_bytes
from fuse_opt.runtime.cuda.steps import Shared
from fuse_opt.runtime.device.compiler import Cubin
from fuse_opt.runtime.device.driver import Device
from fuse_opt.runtime.device.graphs import RunCounts
from fuse_opt.runtime.device.kernels import Kernels

_GROWTH = 3, 2
"""An arena that is too small for other extents grows so many times at least."""


class RunState:
    """
    Kernels, a stream, an arena and constants, and which stream ran last. An arena never moves: who was given one keeps it, and
    a larger one is another.
    """

    def __init__(self, name: str, device: Device, cubin: Cubin | None, counts: RunCounts) -> None:
        """On the current context, which is the device's. Raises CudaError."""
        self.device, self.counts, self._name = device, counts, name
        self.lock = threading.Lock()
        with device.errors(f"the module of '{name}'"):
            self.kernels = Kernels(device, cubin.data) if cubin else None
            # It waits for the default stream and the default stream for it, as arrays without a stream expect.
            self.stream: Any = device.new_stream(self)
            self.entered, self.done = (device.new_event(self) for _ in range(2))
        self.shared = Shared.of(device)
        self.last: int = self.stream.handle
        """The stream of the last run."""
        self._arena: tuple[int, Any] = (-1, None)
        self._constants: dict[int, Any] = {}

    def arena(self, nbytes: int) -> Any:
        """Memory of so many bytes or more. Raises CudaMemoryError."""
        known, memory = self._arena
        if known < nbytes:
            times, by = _GROWTH
            known = max(nbytes, known * times // by) if memory is not None else nbytes
            memory = self.device.allocate(known, f"the arena of '{self._name}'")
            self._arena = known, memory
        return memory

    def constants(self, buffers: Sequence[Buffer]) -> dict[int, Any]:
        """By buffer that is a constant, its memory."""
        for number, buffer in enumerate(buffers):
            if buffer.kind != "constant" or number in self._constants:
                continue
            assert buffer.data is not None
            memory = self.device.allocate(buffer.data.nbytes, f"constant '{buffer.name}'")
            if buffer.data.nbytes:
                self.device.driver.memcpy_htod(memory, as_bytes(buffer.data))
            self._constants[number] = memory
        return self._constants
