"""A stand-in for NVRTC's library, as ctypes would show it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class _Function:
    """A function whose result's type can be declared."""

    restype: Any = None

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)


class NvrtcLibrary:
    """It says `log` of a source and gives its options as the cubin; sources with `error` in them it refuses."""

    def __init__(self, log: str) -> None:
        self.log = log
        self.programs: dict[int, bytes] = {}
        self._said = self._cubin = b""

    def __getattr__(self, name: str) -> _Function:
        function = _Function(getattr(self, name.replace("nvrtc", "_", 1)))
        setattr(self, name, function)
        return function

    def _GetErrorString(self, status: int) -> bytes:
        return b"NVRTC_ERROR_COMPILATION"

    def _Version(self, major: Any, minor: Any) -> int:
        major._obj.value, minor._obj.value = 13, 0
        return 0

    def _GetNumSupportedArchs(self, count: Any) -> int:
        count._obj.value = 2
        return 0

    def _GetSupportedArchs(self, found: Any) -> int:
        found[0], found[1] = 80, 90
        return 0

    def _CreateProgram(self, program: Any, source: bytes, *rest: Any) -> int:
        program._obj.value = len(self.programs) + 1
        self.programs[program._obj.value] = source
        return 0

    def _CompileProgram(self, program: Any, count: int, options: Any) -> int:
        refused = b"error" in self.programs[program.value]
        self._said = b"kernels.cu(1): error: no" if refused else self.log.encode()
        self._cubin = b" ".join(options[k] for k in range(count))
        return 6 if refused else 0

    def _GetProgramLogSize(self, program: Any, size: Any) -> int:
        size._obj.value = len(self._said) + 1
        return 0

    def _GetProgramLog(self, program: Any, to: Any) -> int:
        to.value = self._said
        return 0

    def _GetCUBINSize(self, program: Any, size: Any) -> int:
        size._obj.value = len(self._cubin)
        return 0

    def _GetCUBIN(self, program: Any, to: Any) -> int:
        to.raw = self._cubin
        return 0

    _GetPTXSize, _GetPTX = _GetCUBINSize, _GetCUBIN

    def _DestroyProgram(self, program: Any) -> int:
        del self.programs[program._obj.value]
        return 0
