"""A program on the device that is there, with its arrays in the device's memory, and timed by the device's clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from fuse_opt.runtime.cuda.program import CudaProgram
from fuse_opt.runtime.device.driver import Device, open_device
from fuse_opt.tools.compiler.builders import Backend
from fuse_opt.tools.tuning.search.slots import Slots

Array = np.ndarray[Any, Any]


class _There:
    """A copy of an array in the device's memory."""

    def __init__(self, device: Device, array: Array) -> None:
        self._driver: Any = device.driver
        self._array = np.ascontiguousarray(array)
        self._memory = device.allocate(self._array.nbytes, "an array of a candidate")
        self.restore()
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (int(self._memory), False),
            "version": 3,
        }

    def restore(self) -> None:
        """Has it hold what it held at first."""
        if self._array.nbytes:
            self._driver.memcpy_htod(int(self._memory), self._array.reshape(-1).view(np.uint8))


class DeviceTimed(Slots):
    """Calls between two events; arguments that the program may overwrite are copied again before each."""

    def __init__(self, backend: Backend, arrays: Sequence[Array]) -> None:
        self._program = cast("CudaProgram", backend)
        self._device = device = open_device()
        found: Any = self._program(*map(np.array, arrays))
        results: list[Any] = [*found] if isinstance(found, tuple) else [found]
        with device.active():
            self._given = [_There(device, array) for array in arrays]
            self._out = [_There(device, array) for array in results]
        taken = zip(self._given, self._program.program.arguments, strict=True)
        self._restored = [array for array, buffer in taken if buffer.donated]
        self.begin(not self._restored)

    def call(self) -> float:
        """Of the device."""
        driver: Any = self._device.driver
        with self._device.active():
            for array in self._restored:
                array.restore()
            begin, end = driver.Event(), driver.Event()
            begin.record()
            for _ in range(self._batch):
                self._program(*self._given, out=self._out)
            end.record()
            end.synchronize()
            return 1e-3 * float(begin.time_till(end)) / self._batch
