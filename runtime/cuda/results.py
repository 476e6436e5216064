"""The results of a call on a device: arrays that kernels write to directly, and what has to be copied when they have run."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuse_opt.lowering.program import NUMPY_NAMES, Program, Result
from fuse_opt.lowering.program.float_formats import type_name
from fuse_opt.runtime.buffers import result_pool
from fuse_opt.runtime.call_arrays import check_apart, check_target, out_arrays, shared
from fuse_opt.runtime.cuda.arguments import Argument, Staging, as_bytes, overlap
from fuse_opt.runtime.device.arrays import DeviceArray, Kind, device_array, new_array, reshaped
from fuse_opt.runtime.device.driver import Device
from fuse_opt.runtime.device.driver_library import THREAD_STREAM
from fuse_opt.runtime.device.graphs import RunCounts
from fuse_opt.runtime.device.memory import DevicePool

Array = NDArray[Any]

_RECYCLED = 64 << 10


@dataclass(slots=True)
class Outcome:
    """What a call hands out, and how it gets there."""

    arrays: list[Any] = field(default_factory=list[Any])
    """By result: what the caller gets."""
    addresses: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Buffers of the program with the addresses that they have in this call."""
    downloads: list[tuple[Array, int]] = field(default_factory=list[tuple[Array, int]])
    """Host arrays in C order, each with the number of the buffer that it gets."""
    copies: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    """An address, the number of the buffer that is copied to it, and bytes."""
    strided: list[tuple[Array, Array]] = field(default_factory=list[tuple[Array, Array]])
    """Arrays of the caller with the arrays in C order that they get."""

    @property
    def direct(self) -> bool:
        """Whether all is done when the kernels have run."""
        return not self.downloads and not self.copies


class Results:
    """What a program gives to its callers."""

    def __init__(self, program: Program, device: Device, stream: Any, staging: Staging, counts: RunCounts) -> None:
        self._program = program
        self._device = device
        self._stream = stream
        self._staging = staging
        self._counts = counts
        self._pools: dict[tuple[int, int], DevicePool] = {}

    def prepare(self, arguments: Sequence[Argument], out: Sequence[Any] | None, stream: int) -> Outcome:
        """
        Arrays for all results, of the host where all arguments are the host's, else of the first device array's library;
        `stream` is the one that they will be used on. Raises ValueError where `out` does not fit, and CudaMemoryError.
        """
        results, outcome = self._program.results, Outcome()
        out = None if out is None else out_arrays(out, len(results))
        kind: Kind | None = next((a.given.kind for a in arguments if isinstance(a.given, DeviceArray)), None)
        targets = [None if out is None else self._target(n, out[n]) for n in range(len(results))]
        taken = [t for t in targets if isinstance(t, DeviceArray)]
        _check_targets(targets)
        for number, (result, target) in enumerate(zip(results, targets, strict=True)):
            if isinstance(target, np.ndarray) or (target is None and kind is None):
                outcome.arrays.append(self._to_host(result, target, arguments, outcome))
            else:
                array = self._to_device(result, target, kind or "array", arguments, taken, outcome, stream)
                outcome.arrays.append(array if out is None else out[number])
        return outcome

    def finish(self, outcome: Outcome, arguments: Sequence[Argument], table: Sequence[int]) -> None:
        """
        Enqueues the copies behind the kernels, those back to donated arguments that were copied included, and waits for
        them where some are to the host. Raises CudaError.
        """
        driver = self._device.driver
        with self._device.errors(f"running '{self._program.name}'"):
            moved = self._move_sources(outcome, table)
            for number, argument in enumerate(arguments):
                if self._program.buffers[number].donated and argument.on_device and argument.pending:
                    given = argument.given
                    assert isinstance(given, DeviceArray)
                    self._copy(given.address, argument.address, given.nbytes)
            for address, number, nbytes in outcome.copies:
                self._copy(address, moved.get(number, int(table[number])), nbytes)
            for array, number in outcome.downloads:
                if array.nbytes:
                    driver.memcpy_dtoh_async(as_bytes(array), moved.get(number, int(table[number])), self._stream)
                    self._counts.bytes_to_host += array.nbytes
            if outcome.downloads:
                self._stream.synchronize()
                self._counts.synchronizations += 1
        for target, array in outcome.strided:
            np.copyto(target, array)

    def _move_sources(self, outcome: Outcome, table: Sequence[int]) -> dict[int, int]:
        """Copies buffers that an earlier copy would overwrite, such as those of donated memory, and says where they are then."""
        moved: dict[int, int] = {}
        written: list[tuple[int, int]] = []
        reads = [*outcome.copies, *((0, number, array.nbytes) for array, number in outcome.downloads)]
        for target, number, nbytes in reads:
            source = int(table[number])
            if any(source < start + size and start < source + nbytes for start, size in written):
                moved[number] = self._staging.address(number)
                self._copy(moved[number], source, nbytes)
            if target:
                written.append((target, nbytes))
        return moved

    def _copy(self, target: int, source: int, nbytes: int) -> None:
        if nbytes:
            self._device.driver.memcpy_dtod_async(target, source, nbytes, self._stream)
            self._counts.bytes_on_device += nbytes

    def _target(self, number: int, array: Any) -> DeviceArray | Array:
        """The caller's array for a result. Raises ValueError where it does not fit."""
        result = self._program.results[number]
        dtype = np.dtype(NUMPY_NAMES[result.dtype])
        found = device_array(array, self._stream.handle)
        if found is None:
            return check_target(number, array, result.shape, dtype)
        if not found.fits(result.dtype) or found.shape != result.shape:
            wanted = f"{type_name(dtype)} {list(result.shape)}"
            raise ValueError(f"out[{number}]: expected {wanted}, got {found.dtype} {list(found.shape)}")
        if (place := self._device.other_place(found.device, found.address)) is not None:
            raise ValueError(
                f"out[{number}]: expected an array on device {self._device.number}, got one on device {place}"
            )
        if not found.writeable:
            raise ValueError(f"out[{number}] cannot be written to")
        if not found.contiguous:
            raise ValueError(
                f"out[{number}]: expected an array in C order, got a strided one; copy it from one in C order"
            )
        return found

    def _to_host(self, result: Result, target: Array | None, arguments: Sequence[Argument], outcome: Outcome) -> Array:
        buffer = self._program.buffers[result.index]
        if buffer.kind == "result" and not result.copied:
            outcome.addresses.append((result.index, self._staging.address(result.index)))
        dtype = np.dtype(NUMPY_NAMES[result.dtype])
        array = target
        if array is None:
            given = arguments[result.index].given if buffer.kind == "argument" else None
            if isinstance(given, np.ndarray) and not result.copied:
                array = given.reshape(-1).view(dtype).reshape(result.shape)
                array = given if array.shape == given.shape and array.dtype == given.dtype else array
            else:
                array = _host_array(result.shape, dtype)
        ready = array if array.flags.c_contiguous and array.flags.aligned else np.empty(result.shape, dtype)
        if ready is not array:
            outcome.strided.append((array, ready))
        outcome.downloads.append((ready, result.index))
        return array

    def _to_device(
        self, result: Result, target: DeviceArray | None, kind: Kind, arguments: Sequence[Argument],
        targets: Sequence[DeviceArray], outcome: Outcome, stream: int,
    ) -> Any:  # fmt: skip
        buffer = self._program.buffers[result.index]
        given = arguments[result.index].given if buffer.kind == "argument" else None
        if target is None and isinstance(given, DeviceArray) and not result.copied:
            return reshaped(given, result.shape, result.dtype)
        own = direct = buffer.kind == "result" and not result.copied
        if target is None:
            array = new_array(kind, self._device.number, result.shape, result.dtype, self.pool(stream).allocate)
            target = device_array(array, self._stream.handle)
            assert target is not None
        else:
            direct = own and self._usable(target, arguments, targets)
        if direct:
            outcome.addresses.append((result.index, target.address))
            return target.owner
        if own:
            outcome.addresses.append((result.index, self._staging.address(result.index)))
        outcome.copies.append((target.address, result.index, target.nbytes))
        return target.owner

    def _usable(self, target: DeviceArray, arguments: Sequence[Argument], targets: Sequence[DeviceArray]) -> bool:
        """Whether kernels may write to it while they run."""
        if target.address % target.itemsize or any(argument.overlaps(target) for argument in arguments):
            return False
        return not any(other is not target and overlap(other, target) for other in targets)

    def pool(self, stream: int) -> DevicePool:
        """Of a stream: what is dropped may still be in use on it, so it is used again on it alone."""
        key = stream, threading.get_ident() if stream == THREAD_STREAM else 0
        if key not in self._pools:
            self._pools[key] = DevicePool(self._device, f"a result of '{self._program.name}'")
        return self._pools[key]


def _check_targets(targets: Sequence[DeviceArray | Array | None]) -> None:
    """Raises `ValueError` where two results would be in the same memory."""
    check_apart([t if isinstance(t, np.ndarray) else np.empty(0) for t in targets])
    placed = [(number, t) for number, t in enumerate(targets) if isinstance(t, DeviceArray) and t.nbytes]
    placed.sort(key=lambda item: item[1].address)
    for (one, a), (two, b) in pairwise(placed):
        if overlap(a, b):
            raise shared(min(one, two), max(one, two))


def _host_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return result_pool.empty(shape, dtype) if nbytes >= _RECYCLED else np.empty(shape, dtype)
