"""Kernels of a cubin, launched through the driver library with arguments that lie in memory of ours."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fuse_opt.lowering.program import GridLaunch
from fuse_opt.runtime.device.driver import Device
from fuse_opt.runtime.device.driver_library import DriverError

_MOST_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES."""


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig: where a launch runs, and how many blocks and threads of it."""

    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    ]
    arguments: Any = None
    """Memory that is to live as long."""


@dataclass(frozen=True, slots=True)
class Start:
    """A launch for which all that the driver is called with is made."""

    call: Callable[[], int]
    """Enqueues it, with the arguments that lie in its memory by then; the driver's status."""
    config: LaunchConfig
    """Has the stream that `call` enqueues it on."""


class NodeParameters(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2: a launch as a node of a graph."""

    _fields_ = [
        ("function", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("pointers", ctypes.POINTER(ctypes.c_void_p)),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    ]


class Kernels:
    """A module of the driver's, which is unloaded with this object."""

    def __init__(self, device: Device, image: bytes) -> None:
        """Raises DriverError."""
        self._library = library = device.library
        self._module = module = ctypes.c_void_p()
        library.check("cuModuleLoadData", ctypes.byref(module), image)
        weakref.finalize(self, device.destroy, library.cuModuleUnload, module).atexit = False
        self._functions: dict[str, ctypes.c_void_p] = {}

    def start(
        self, launch: GridLaunch, memory: ctypes.Array[ctypes.c_char], begin: int, sizes: int | None = None
    ) -> Start:
        """
        A launch whose arguments lie in `memory`, 8 bytes each: pointers from `begin` on, sizes from `sizes` on, or behind these.
        Raises DriverError.
        """
        config = LaunchConfig(launch.grid, launch.block, launch.shared)
        config.arguments = memory
        first = ctypes.addressof(memory)
        behind = begin + 8 * len(launch.buffers)
        pointers = _pointers(launch, first + begin, first + (behind if sizes is None else sizes))
        return Start(
            partial(self._library.launch, ctypes.byref(config), self._function(launch), pointers, None), config
        )

    def node(self, launch: GridLaunch, arguments: int, sizes: int) -> NodeParameters:
        """The launch as a node of a graph, which takes the arguments that lie there when it is given this. Raises DriverError."""
        pointers = _pointers(launch, arguments, sizes)
        return NodeParameters(self._function(launch), launch.grid, launch.block, launch.shared, pointers)

    def launch(self, name: str, blocks: int, threads: int, arguments: Sequence[int], stream: int) -> None:
        """Enqueues a kernel whose arguments are all of 8 bytes. Raises DriverError."""
        values = (ctypes.c_uint64 * len(arguments))(*arguments)
        first = ctypes.addressof(values)
        pointers = (ctypes.c_void_p * len(arguments))(*(first + 8 * k for k in range(len(arguments))))
        config = LaunchConfig((blocks, 1, 1), (threads, 1, 1), 0, stream)
        if status := self._library.launch(ctypes.byref(config), self._found(name), pointers, None):
            raise DriverError(f"kernel '{name}' could not be launched: {self._library.message(status)}")

    def _function(self, launch: GridLaunch) -> Any:
        is_new = launch.kernel not in self._functions
        function = self._found(launch.kernel)
        if is_new and launch.shared:
            self._library.check("cuFuncSetAttribute", function, _MOST_SHARED, launch.shared)
        return function

    def _found(self, name: str) -> Any:
        if (function := self._functions.get(name)) is None:
            function = ctypes.c_void_p()
            self._library.check("cuModuleGetFunction", ctypes.byref(function), self._module, name.encode("ascii"))
            self._functions[name] = function
        return function


def _pointers(launch: GridLaunch, arguments: int, sizes: int) -> ctypes.Array[ctypes.c_void_p]:
    """Where each argument lies."""
    places = [arguments + 8 * k for k in range(len(launch.buffers))] + [sizes + 8 * k for k in range(len(launch.sizes))]
    return (ctypes.c_void_p * len(places))(*places)
