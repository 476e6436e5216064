"""The CUDA devices of this process: PyCUDA and, for what PyCUDA lacks, the same driver library through ctypes."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, Protocol

from fuse_opt.runtime.device.driver_library import (
    CudaError,
    CudaMemoryError,
    CudaUnavailable,
    DriverError,
    DriverLibrary,
)

_FORKED = (
    "this process was forked from one that had opened the CUDA device, which no process shares: start it by "
    "multiprocessing.get_context('spawn'), or fork before the first program for cuda"
)
_OUT_OF_MEMORY = 2
_FIGURES = {
    "processors": 16,
    "max_threads": 1,
    "processor_threads": 39,
    "static_shared": 8,
    "shared_memory": 97,
    "cache_bytes": 38,
}
"""What a device says of itself, by the names of device files: numbers of CUdevice_attribute."""
_MAJOR, _MINOR = 75, 76
"""Of the compute capability."""
_CLOCK, _BUS = 36, 37
"""Of memory: kHz, and bits. Data goes at both edges."""


class DeviceMemory(int):
    """The address of memory that is freed with this, in whatever thread that is: PyCUDA frees in one alone."""

    device: Device

    def __del__(self) -> None:
        if not sys.is_finalizing() and self.device.process == os.getpid():
            self.device.destroy(self.device.library.cuMemFree_v2, int(self))


class Reserve(Protocol):
    """Device memory that nobody uses now."""

    def give_back(self) -> None:
        """Frees it, or leaves it to the thread that can."""
        ...


@dataclass(frozen=True, eq=False)
class Device:
    """A device with the context that all programs of the process share there."""

    driver: Any
    """The module `pycuda.driver`."""
    library: DriverLibrary
    context: Any
    number: int
    name: str
    arch: str
    """What compilers call it, such as "sm_90"."""

    def figures(self) -> dict[str, int]:
        """
        What the driver knows of the device, by the names of device files: processors, threads, bytes of shared memory and of the
        second-level cache, and `bandwidth` in bytes a second; 0 for what it does not say. Raises DriverError.
        """
        handle = ctypes.c_int()
        self.library.check("cuDeviceGet", ctypes.byref(handle), self.number)

        def ask(attribute: int) -> int:
            value = ctypes.c_int()
            self.library.check("cuDeviceGetAttribute", ctypes.byref(value), attribute, handle.value)
            return value.value

        found = {name: ask(attribute) for name, attribute in _FIGURES.items()}
        found["capability"] = 10 * ask(_MAJOR) + ask(_MINOR)
        return {**found, "bandwidth": 2 * 1000 * ask(_CLOCK) * ask(_BUS) // 8}

    thread: int = field(default_factory=threading.get_ident)
    """The one that PyCUDA takes for the context's: objects that are dropped in another one it does not free."""
    dropped: deque[Any] = field(default_factory=deque[Any])
    """What was dropped elsewhere and waits for that thread."""
    reserves: weakref.WeakSet[Reserve] = field(default_factory=lambda: weakref.WeakSet[Reserve]())
    """Who keeps memory for later that may be given back."""
    streams: dict[int, list[Any]] = field(default_factory=dict[int, list[Any]])
    """By flags, those that nobody uses."""
    process: int = field(default_factory=os.getpid)
    """The one that opened it: a context does not live on in a process that is forked from it."""

    def drop(self, owned: Any) -> None:
        """
        Drops objects of PyCUDA's, here or where they can be freed. Where that thread has ended they are let go: memory is freed,
        page-locked memory is left to the end of the process.
        """
        if threading.get_ident() == self.thread:
            return
        self.dropped.append(owned)
        del owned
        if self.process == os.getpid() and all(each.ident != self.thread for each in threading.enumerate()):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.dropped.clear()

    def new_stream(self, owner: object, flags: int = 0) -> Any:
        """A stream of PyCUDA's: another one's when its owner is gone, as it is destroyed in no thread. Raises its errors."""
        idle = self.streams.setdefault(flags, [])
        try:
            stream = idle.pop()
        except IndexError:
            stream = self.driver.Stream(flags)
        weakref.finalize(owner, idle.append, stream).atexit = False
        return stream

    def new_event(self, owner: object) -> int:
        """The handle of an event without a time, which is destroyed with its owner. Raises DriverError."""
        event = self.library.new_event()
        weakref.finalize(owner, self.destroy, self.library.cuEventDestroy_v2, event).atexit = False
        return event

    def destroy(self, function: Callable[[Any], int], handle: Any) -> None:
        """Calls a function that destroys something, in whatever thread: there the context may not be current."""
        with suppress(self.driver.Error), self.active():
            function(handle)

    def other_place(self, given: int | None, address: int) -> int | None:
        """The number of another device on which memory is that is `given` to be on a device, or else the driver says so."""
        place = self.library.device_of(address) if given is None else given
        return None if place == self.number else place

    @contextmanager
    def active(self) -> Generator[None]:
        """Its context is the current one of this thread. Raises CudaUnavailable in a process that was forked."""
        if self.process != os.getpid():
            raise CudaUnavailable(_FORKED)
        self.context.push()
        if self.dropped and threading.get_ident() == self.thread:
            self.dropped.clear()
        try:
            yield
        finally:
            self.driver.Context.pop()

    def current_context(self) -> Callable[[], bool]:
        """
        What says whether its context is the current one of a thread, and nothing waits to be dropped: then there is no need to
        make it that. Not for several threads at once.
        """
        found = ctypes.c_void_p()
        ask, mine, dropped = (
            partial(self.library.current_context, ctypes.byref(found)),
            self.context.handle,
            self.dropped,
        )

        def is_current() -> bool:
            ask()
            return found.value == mine and not dropped

        return is_current

    @contextmanager
    def errors(self, what: str) -> Generator[None]:
        """PyCUDA's errors as one line that begins with `what`."""
        try:
            yield
        except self.driver.MemoryError as error:
            raise CudaMemoryError(f"{what}: {_line(error)}") from error
        except self.driver.Error as error:
            raise CudaError(f"{what}: {_line(error)}") from error

    def allocate(self, nbytes: int, what: str) -> DeviceMemory:
        """
        A block of at least one byte on the device, at a multiple of 256 bytes; for want of memory all that is only kept for
        later is given back first. Its context is the current one. Raises CudaMemoryError saying what it was to be for.
        """
        found = ctypes.c_void_p()
        for again in (False, True):
            if again:
                self._give_back()
            status = self.library.cuMemAlloc_v2(ctypes.byref(found), max(nbytes, 1))
            if status == 0:
                memory = DeviceMemory(found.value or 0)
                memory.device = self
                return memory
            if status != _OUT_OF_MEMORY:
                raise DriverError(f"{what}: cuMemAlloc_v2: {self.library.message(status)}")
        free, total = self.driver.mem_get_info()
        raise CudaMemoryError(
            f"{what}: expected {nbytes} bytes of device memory, got {free} free of {total}; "
            "use smaller shapes, or free what other programs hold"
        )

    def _give_back(self) -> None:
        """Frees what reserves and torch hold for later."""
        for reserve in list(self.reserves):
            reserve.give_back()
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()


def open_device(number: int | None = None) -> Device:
    """
    The device of a number, with its primary context, which torch and cupy use, too, or the context that PyCUDA has made current
    if it is of that device. Without a number the one whose context is current in the thread (PyCUDA's, torch's), else the first
    that was opened, else number 0. One object a device and process. Raises CudaUnavailable.
    """
    driver, library = _loaded()
    if number is None:
        number = _current_number(library)
    if number is None:
        number = next(iter(_DEVICES), 0)
    with _OPENING:
        if (device := _DEVICES.get(number)) is None:
            device = _DEVICES[number] = _opened(driver, library, number)
    if device.process != os.getpid():
        raise CudaUnavailable(_FORKED)
    return device


def device_problem(number: int | None = None) -> str | None:
    """Why no program can run on a device here."""
    try:
        open_device(number)
    except CudaUnavailable as error:
        return str(error)
    return None


_DEVICES: dict[int, Device] = {}
"""Those that are open, by number."""
_OPENING = threading.Lock()


@functools.cache
def _loaded() -> tuple[Any, DriverLibrary]:
    """PyCUDA's module of the driver, which is initialised and has a device, and the driver's library."""
    try:
        import_module("pycuda")
    except ImportError as error:
        raise CudaUnavailable("PyCUDA is not installed (pip install 'fuse-opt[cuda]')") from error
    try:
        driver: Any = import_module("pycuda.driver")
        library = DriverLibrary()
    except (ImportError, OSError, AttributeError) as error:
        raise CudaUnavailable(f"there is no usable CUDA driver ({_line(error)})") from error
    try:
        driver.init()
        library.count = driver.Device.count()
    except driver.Error as error:
        raise CudaUnavailable(f"there is no usable CUDA device ({_line(error)})") from error
    if library.count == 0:
        raise CudaUnavailable("there is no CUDA device: the driver counts 0")
    return driver, library


def _opened(driver: Any, library: DriverLibrary, number: int) -> Device:
    if not 0 <= number < library.count:
        raise CudaUnavailable(f"there is no CUDA device {number}: the driver counts {library.count}")
    try:
        device = driver.Device(number)
        current = driver.Context.get_current() if _current_number(library) == number else None
        context = current or device.retain_primary_context()
        major, minor = device.compute_capability()
        opened = Device(driver, library, context, number, device.name(), f"sm_{major}{minor}")
    except driver.Error as error:
        raise CudaUnavailable(f"there is no usable CUDA device ({_line(error)})") from error
    # In a child something waits to be dropped, so that no call takes the short way, which asks for nothing.
    os.register_at_fork(after_in_child=lambda: opened.dropped.append(None))
    return opened


def _current_number(library: DriverLibrary) -> int | None:
    """Of the device whose context is current in this thread."""
    current, number = ctypes.c_void_p(), ctypes.c_int()
    library.check("cuCtxGetCurrent", ctypes.byref(current))
    if not current.value:
        return None
    library.check("cuCtxGetDevice", ctypes.byref(number))
    return number.value


def _line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).partition("\n")[0]
