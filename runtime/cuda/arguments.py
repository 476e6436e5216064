"""The arguments of a call on a device: taken where they are, or copied to memory that the program keeps for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuse_opt.lowering.program import NUMPY_NAMES, Buffer, BufferRef, Program
from fuse_opt.lowering.program.float_formats import recognized, type_name
from fuse_opt.runtime.call_arrays import as_array, both_used, expected_argument, misfit, not_reusable
from fuse_opt.runtime.device.arrays import DeviceArray, contiguous_copy, device_array
from fuse_opt.runtime.device.driver import Device
from fuse_opt.runtime.device.graphs import RunCounts

Array = NDArray[Any]


@dataclass(slots=True)
class Argument:
    """An array as it was given, and the address that the kernels get for it."""

    given: DeviceArray | Array
    address: int

    @property
    def on_device(self) -> bool:
        return isinstance(self.given, DeviceArray)

    @property
    def pending(self) -> bool:
        """Whether it has to be copied to its address first."""
        return not isinstance(self.given, DeviceArray) or self.given.address != self.address

    def overlaps(self, other: DeviceArray | Array) -> bool:
        """Whether the arrays may have memory in common."""
        given = self.given
        if isinstance(given, DeviceArray) and isinstance(other, DeviceArray):
            return overlap(given, other)
        if isinstance(given, DeviceArray) or isinstance(other, DeviceArray):
            return False
        return np.may_share_memory(given, other)


def overlap(a: DeviceArray, b: DeviceArray) -> bool:
    return a.address < b.address + b.nbytes and b.address < a.address + a.nbytes


def as_bytes(array: Array) -> Array:
    """The memory of an array in C order; NumPy exports no buffers of every type."""
    return array.reshape(-1).view(np.uint8)


class Staging:
    """Device memory of a program for arrays that cannot be used where they are: a block a buffer, made when first needed."""

    def __init__(self, program: Program, device: Device) -> None:
        self._program = program
        self._device = device
        self._blocks: dict[int, Any] = {}

    def address(self, number: int) -> int:
        """Of the block of a buffer. Raises CudaMemoryError."""
        if number not in self._blocks:
            buffer = self._program.buffers[number]
            nbytes = BufferRef(number, 0, buffer.shape, buffer.dtype).nbytes
            self._blocks[number] = self._device.allocate(nbytes, f"{buffer.kind} '{buffer.name}'")
        return int(self._blocks[number])


class Arguments:
    """What a program asks of its arguments."""

    def __init__(self, program: Program, device: Device, stream: Any, staging: Staging, counts: RunCounts) -> None:
        self._name = program.name
        self._buffers = program.arguments
        self._types = [np.dtype(NUMPY_NAMES[buffer.dtype]) for buffer in self._buffers]
        self._donated = [number for number, buffer in enumerate(self._buffers) if buffer.donated]
        self._device = device
        self._stream = stream
        self._staging = staging
        self._counts = counts

    def adopt(self, arrays: Sequence[Any]) -> list[Argument]:
        """The arrays with their addresses; nothing is copied yet. Raises TypeError and ValueError for those that do not fit."""
        if len(arrays) != len(self._buffers):
            raise TypeError(f"'{self._name}' takes {len(self._buffers)} arguments, got {len(arrays)}")
        found: list[Argument] = []
        for number, (array, buffer) in enumerate(zip(arrays, self._buffers, strict=True)):
            given = device_array(array, self._stream.handle)
            if given is None:
                found.append(Argument(self._on_host(number, array, buffer), self._staging.address(number)))
            else:
                given = self._on_device(number, given, buffer)
                aligned = given.address % self._types[number].itemsize == 0
                found.append(Argument(given, given.address if aligned else self._staging.address(number)))
        for number in self._donated:
            self._check_donated(number, found)
        return found

    def upload(self, arguments: Sequence[Argument]) -> None:
        """Enqueues the copies of those that are elsewhere. Raises CudaError."""
        driver = self._device.driver
        for number, argument in enumerate(arguments):
            if not argument.pending or not argument.given.nbytes:
                continue
            with self._device.errors(f"argument {number} ('{self._buffers[number].name}')"):
                if isinstance(given := argument.given, DeviceArray):
                    driver.memcpy_dtod_async(argument.address, given.address, given.nbytes, self._stream)
                    self._counts.bytes_on_device += given.nbytes
                else:
                    driver.memcpy_htod_async(argument.address, as_bytes(given), self._stream)
                    self._counts.bytes_to_device += given.nbytes

    def _on_host(self, number: int, value: Any, buffer: Buffer) -> Array:
        array = (
            value
            if type(value) is np.ndarray
            else as_array(value, self._types[number], expected_argument(number, buffer))
        )
        dtype = self._types[number]
        array = recognized(array, dtype)
        if array.dtype != dtype or array.shape != buffer.shape:
            raise misfit(number, buffer, type_name(array.dtype), array.shape, array.dtype != dtype)
        usable = array.flags.c_contiguous and array.flags.aligned
        if buffer.donated and not (usable and array.flags.writeable):
            raise not_reusable(number, buffer)
        return array if usable else np.array(array, order="C")

    def _on_device(self, number: int, given: DeviceArray, buffer: Buffer) -> DeviceArray:
        if not given.fits(buffer.dtype) or given.shape != buffer.shape:
            got = str(np.dtype(NUMPY_NAMES[given.dtype])) if given.dtype in NUMPY_NAMES else given.dtype
            raise misfit(number, buffer, got, given.shape, not given.fits(buffer.dtype))
        if (place := self._device.other_place(given.device, given.address)) is not None:
            raise ValueError(
                f"argument {number} ('{buffer.name}'): expected an array on device {self._device.number}, "
                f"got one on device {place}"
            )
        if buffer.donated and not (given.contiguous and given.writeable):
            raise not_reusable(number, buffer)
        if given.contiguous:
            return given
        if (copy := contiguous_copy(given)) is None:
            raise ValueError(f"argument {number} ('{buffer.name}'): expected an array in C order; copy it to one first")
        return copy

    def _check_donated(self, number: int, found: Sequence[Argument]) -> None:
        for other, argument in enumerate(found):
            if other != number and argument.overlaps(found[number].given):
                raise both_used(number, other)
