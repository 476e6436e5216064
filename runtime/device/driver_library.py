"""The driver library through ctypes, for what PyCUDA lacks, with the handles of its streams; and what goes wrong on devices."""

from __future__ import annotations

import ctypes
from typing import Any

DEFAULT_STREAM = 0
"""The handle of the stream that waits for all others, and they for it, but for those made not to."""
LEGACY_STREAMS = (DEFAULT_STREAM, 1)
"""All its handles."""
THREAD_STREAM = 2
"""The handle of each thread's own default stream."""
NON_BLOCKING = 1
"""The flag of a stream that is not ordered with the default one."""


class CudaError(RuntimeError):
    """A program could not be compiled for the device or run on it; the text is one line."""


class CudaUnavailable(CudaError):
    """This machine lacks what it takes to run on a device: PyCUDA, a driver, a device, or a compiler."""


class CudaMemoryError(CudaError, MemoryError):
    """The device has not as much free memory as was asked for."""


class DriverError(CudaError):
    """A function of the driver library failed."""


_DISABLE_TIMING = 2
_P, _I, _U = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint
_OUT = ctypes.POINTER(ctypes.c_void_p)
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuCtxGetCurrent": (_OUT,),
    "cuModuleLoadData": (_OUT, ctypes.c_char_p),
    "cuModuleUnload": (_P,),
    "cuModuleGetFunction": (_OUT, _P, ctypes.c_char_p),
    "cuFuncSetAttribute": (_P, _I, _I),
    "cuLaunchKernelEx": (_P, _P, _OUT, _OUT),
    "cuMemAlloc_v2": (_OUT, ctypes.c_size_t),
    "cuMemFree_v2": (_P,),
    "cuCtxGetDevice": (ctypes.POINTER(_I),),
    "cuDeviceGet": (ctypes.POINTER(_I), _I),
    "cuDeviceGetAttribute": (ctypes.POINTER(_I), _I, _I),
    "cuEventCreate": (_OUT, _U),
    "cuEventDestroy_v2": (_P,),
    "cuEventRecord": (_P, _P),
    "cuStreamWaitEvent": (_P, _P, _U),
    "cuStreamIsCapturing": (_P, ctypes.POINTER(_I)),
    "cuStreamBeginCapture_v2": (_P, _I),
    "cuStreamEndCapture": (_P, _OUT),
    "cuGraphCreate": (_OUT, _U),
    "cuGraphAddKernelNode_v2": (_OUT, _P, _OUT, ctypes.c_size_t, _P),
    "cuGraphInstantiateWithFlags": (_OUT, _P, ctypes.c_ulonglong),
    "cuGraphExecKernelNodeSetParams_v2": (_P, _P, _P),
    "cuGraphExecUpdate_v2": (_P, _P, _P),
    "cuGraphLaunch": (_P, _P),
    "cuGraphDestroy": (_P,),
    "cuGraphExecDestroy": (_P,),
    "cuPointerGetAttribute": (ctypes.POINTER(_I), _I, _P),
}
_OLDEST = "12.0"
"""Of whose drivers all these functions are."""
_DEVICE_ORDINAL = 9
"""The CUpointer_attribute that is the number of the device on which memory is."""


class DriverLibrary:
    """Functions of libcuda.so.1, those of graphs above all, which PyCUDA does not offer."""

    count = 0
    """Of devices."""

    def __init__(self) -> None:
        """Takes the library that PyCUDA has loaded. Raises OSError, and CudaUnavailable for one that is too old."""
        self._library = ctypes.CDLL("libcuda.so.1")
        for name, arguments in _SIGNATURES.items():
            function = getattr(self._library, name, None)
            if function is None:
                raise CudaUnavailable(
                    f"the driver{self._version()} lacks {name}: update it to one for CUDA {_OLDEST} or newer"
                )
            function.argtypes, function.restype = arguments, _I
            setattr(self, name, function)
        # Without declared arguments, which are objects of the driver's types already: a third of the time of a call. That of
        # cuLaunchKernel's eleven arguments would be more than twice that of these four.
        self.launch, self.current_context = self._library["cuLaunchKernelEx"], self._library["cuCtxGetCurrent"]
        self._describe = self._library.cuGetErrorString
        self._describe.argtypes = (_I, ctypes.POINTER(ctypes.c_char_p))

    def _version(self) -> str:
        found = ctypes.c_int()
        known = self._library.cuDriverGetVersion(ctypes.byref(found)) == 0
        return f" (for CUDA {found.value // 1000}.{found.value % 1000 // 10})" if known else ""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the driver library has no function '{name}' here")

    def check(self, name: str, *arguments: Any) -> None:
        """Calls a function. Raises DriverError where it fails."""
        if status := getattr(self, name)(*arguments):
            raise DriverError(f"{name}: {self.message(status)}")

    def message(self, status: int) -> str:
        text = ctypes.c_char_p()
        self._describe(status, ctypes.byref(text))
        return (text.value or b"unknown error").decode("utf-8", "replace")

    def is_capturing(self, stream: int) -> bool:
        """Whether somebody records what is enqueued on a stream. Raises DriverError."""
        status = ctypes.c_int()
        self.check("cuStreamIsCapturing", stream, ctypes.byref(status))
        return status.value != 0

    def device_of(self, address: int) -> int | None:
        """The number of the device on which memory is; None where there is one alone, or the driver does not know it."""
        if self.count == 1:
            return None
        number = ctypes.c_int()
        unknown = self.cuPointerGetAttribute(ctypes.byref(number), _DEVICE_ORDINAL, address)
        return None if unknown else number.value

    def new_event(self) -> int:
        """The handle of an event without a time. Raises DriverError."""
        event = ctypes.c_void_p()
        self.check("cuEventCreate", ctypes.byref(event), _DISABLE_TIMING)
        assert event.value is not None
        return event.value
