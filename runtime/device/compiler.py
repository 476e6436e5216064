"""Compilers of CUDA C: nvcc, and NVRTC behind the same interface; both give a cubin and what ptxas says of its kernels."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import shlex
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fuse_opt.runtime.device.installation import find_cuda_library, include_folders, toolkits
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.host.compiler_process import NeverEnds, printable, run_compiler

_FLAGS = ("--cubin", "-Xptxas", "-v", "-diag-suppress=186")
"""186: a comparison of what has no sign with 0; the sign comes with the type."""
_MESSAGE_LINES = 20


class CudaCompileError(RuntimeError):
    """The compiler refused a source or could not be run; the text is the first lines of what it said."""


class KernelRefused(CudaCompileError):
    """A compiler that works refused a source."""


@dataclass(frozen=True)
class Cubin:
    """Machine code for one architecture."""

    data: bytes
    log: str
    """What the compiler said, with the resources of each kernel; see `kernel_resources`."""


class CudaCompiler(Protocol):
    """What programs are compiled by."""

    @property
    def version(self) -> str:
        """All of the compiler that its output depends on."""
        ...

    @property
    def architectures(self) -> tuple[int, ...]:
        """Those that it knows, such as 90; none where it does not say."""
        ...

    def build(self, source: str, arch: str) -> Cubin:
        """The cubin of a source, or its PTX for an `arch` such as "compute_90". Raises CudaCompileError."""
        ...


@dataclass(frozen=True)
class KernelResources:
    """What ptxas says of a kernel; bytes but for the registers of a thread."""

    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    shared: int


_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_COUNTS = {
    "registers": re.compile(r"Used (\d+) registers"),
    "stack": re.compile(r"(\d+) bytes stack frame"),
    "spill_stores": re.compile(r"(\d+) bytes spill stores"),
    "spill_loads": re.compile(r"(\d+) bytes spill loads"),
    "shared": re.compile(r"(\d+) bytes smem"),
}


def kernel_resources(log: str) -> dict[str, KernelResources]:
    """By kernel: its resources, from what `-Xptxas -v` prints."""
    parts = _ENTRY.split(log)
    found: dict[str, KernelResources] = {}
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        counts = {key: int(match[1]) if (match := wanted.search(text)) else 0 for key, wanted in _COUNTS.items()}
        found[name] = KernelResources(**counts)
    return found


_OF_90_ALONE = "wgmma"
"""What is in the text of kernels that need all that processors of 9.0 have, which newer ones do not (PTX ISA, sm_90a)."""


def compile_cuda(compiler: CudaCompiler, source: str, arch: str, cache: DiskCache) -> Cubin:
    """The cubin of a source, from `cache` where it is there. Raises CudaCompileError, and OSError from the cache."""
    arch = f"{arch}a" if arch == "sm_90" and _OF_90_ALONE in source else arch
    key = ("cuda", source, arch, compiler.version)
    built: list[Cubin] = []

    def made() -> Cubin:
        if not built:
            built.append(compiler.build(source, arch))
        return built[0]

    data = cache.get_or_build(key, ".cubin", lambda path: _written(path, made().data))
    log = cache.get_or_build(key, ".log", lambda path: _written(path, made().log.encode() + b"\n"))
    return Cubin(data.read_bytes(), log.read_text(encoding="utf-8", errors="replace"))


def supported_arch(compiler: CudaCompiler, arch: str) -> str:
    """
    The architecture of a device, or where the compiler is older than the device the newest one that it knows, as PTX,
    which the driver compiles for any later one.
    """
    known, number = compiler.architectures, int(arch.removeprefix("sm_"))
    older = [each for each in known if each < number]
    return arch if number in known or not older else f"compute_{max(older)}"


_EMPTY = 'extern "C" __global__ void empty() {\n}\n'


def compile_kernels(compiler: CudaCompiler, source: str, arch: str, cache: DiskCache) -> Cubin:
    """
    As `compile_cuda`, but a refusal of this source is told from a compiler that refuses everything, for want of a host
    compiler say. Raises KernelRefused too.
    """
    try:
        return compile_cuda(compiler, source, arch, cache)
    except CudaCompileError as error:
        compile_cuda(compiler, _EMPTY, arch, cache)
        raise KernelRefused(str(error)) from error


def _written(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def find_cuda_compiler() -> CudaCompiler | None:
    """
    nvcc, else NVRTC, else None. `$FUSE_OPT_NVCC` names the command of nvcc (it may hold arguments), else it is looked
    for on the search path and under `$CUDA_HOME`, `$CUDA_PATH` and /usr/local/cuda. `$FUSE_OPT_CUDA_COMPILER` says
    `nvcc` or `nvrtc` to have that one alone. Raises `ValueError` for anything else.
    """
    wanted = os.environ.get("FUSE_OPT_CUDA_COMPILER", "")
    if wanted not in ("", "nvcc", "nvrtc"):
        raise ValueError(f"FUSE_OPT_CUDA_COMPILER={wanted!r}: expected 'nvcc' or 'nvrtc'")
    found: CudaCompiler | None = None
    if wanted != "nvrtc":
        found = _find_nvcc()
    return _find_nvrtc() if found is None and wanted != "nvcc" else found


@dataclass(frozen=True)
class Nvcc:
    """The compiler of the CUDA toolkit, which needs a C++ compiler beside it."""

    command: tuple[str, ...]
    version: str

    def build(self, source: str, arch: str) -> Cubin:
        with tempfile.TemporaryDirectory(prefix="fuse-opt-") as folder:
            text, cubin = Path(folder, "kernels.cu"), Path(folder, "kernels.cubin")
            text.write_text(source, encoding="utf-8")
            flags = ("--ptx", *_FLAGS[3:]) if arch.startswith("compute_") else _FLAGS
            log = _run([*self.command, *flags, f"-arch={arch}", "-o", str(cubin), str(text)])
            return Cubin(_ended(cubin.read_bytes(), arch), log)

    @property
    def architectures(self) -> tuple[int, ...]:
        return _nvcc_architectures(self.command)


def _ended(data: bytes, arch: str) -> bytes:
    """PTX ends with a zero byte for the driver."""
    return data + b"\0" if arch.startswith("compute_") and not data.endswith(b"\0") else data


def _find_nvcc() -> Nvcc | None:
    if chosen := os.environ.get("FUSE_OPT_NVCC"):
        try:
            command = tuple(shlex.split(chosen))
        except ValueError as error:
            raise CudaCompileError(f"FUSE_OPT_NVCC={chosen!r}: expected a command, got {error}") from error
    else:
        places = os.pathsep.join(str(home / "bin") for home in toolkits())
        found = shutil.which("nvcc") or shutil.which("nvcc", path=places)
        if found is None:
            return None
        command = (found,)
    try:
        return Nvcc(command, _nvcc_version(command))
    except CudaCompileError:
        if chosen:
            raise
        return None


@functools.cache
def _nvcc_version(command: tuple[str, ...]) -> str:
    return _run([*command, "--version"])


@functools.cache
def _nvcc_architectures(command: tuple[str, ...]) -> tuple[int, ...]:
    try:
        said = _run([*command, "--list-gpu-arch"])
    except CudaCompileError:
        return ()
    return tuple(int(number) for number in re.findall(r"\bcompute_(\d+)\b", said))


def _run(command: list[str]) -> str:
    """All that a command says. Raises CudaCompileError where it fails, or does not end."""
    try:
        done = run_compiler(command)
    except (NeverEnds, ValueError) as error:
        raise CudaCompileError(str(error)) from None
    except OSError as error:
        raise CudaCompileError(f"'{command[0]}' could not be run: {error.strerror}") from error
    text = printable(done.output) + done.messages
    if done.status == 0:
        return text
    raise CudaCompileError(_refusal(command[0], text))


def _refusal(name: str, text: str) -> str:
    """Errors alone where there are any: ptxas says much more than what is wrong."""
    lines = text.splitlines()
    errors = [line for line in lines if "error" in line] or lines
    return f"'{name}' failed: " + "\n".join(errors[:_MESSAGE_LINES])


_BUILTINS = {
    "__builtin_inff()": "__int_as_float(0x7f800000)",
    "__builtin_nanf(x)": "__int_as_float(0x7fc00000)",
    "__builtin_inf()": "__longlong_as_double(0x7ff0000000000000LL)",
    "__builtin_nan(x)": "__longlong_as_double(0x7ff8000000000000LL)",
}
"""What nvcc has from its host compiler, and NVRTC has not."""


class Nvrtc:
    """The compiler as a library: it needs neither a process nor a C++ compiler, and is faster for small programs."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Raises AttributeError where functions are missing."""
        self._library = library
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "nvrtcVersion")
        self._includes = tuple(str(folder) for folder in include_folders())
        self.version = f"NVRTC {major.value}.{minor.value} {' '.join(self._includes)}"

    def build(self, source: str, arch: str) -> Cubin:
        program = ctypes.c_void_p()
        create = self._library.nvrtcCreateProgram
        self._check(create(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None), "nvrtcCreateProgram")
        try:
            options = [f"--gpu-architecture={arch}", "--ptxas-options=-v", "--diag-suppress=186"]
            options += [f"--define-macro={name}={meaning}" for name, meaning in _BUILTINS.items()]
            options += [f"--include-path={folder}" for folder in self._includes]
            given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            status = self._library.nvrtcCompileProgram(program, len(options), given)
            log = printable(self._text("ProgramLog", program).rstrip(b"\0"))
            if status:
                raise CudaCompileError(_refusal("NVRTC", log))
            what = "PTX" if arch.startswith("compute_") else "CUBIN"
            return Cubin(_ended(self._text(what, program), arch), log)
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    @property
    def architectures(self) -> tuple[int, ...]:
        count = ctypes.c_int()
        self._check(self._library.nvrtcGetNumSupportedArchs(ctypes.byref(count)), "nvrtcGetNumSupportedArchs")
        found = (ctypes.c_int * count.value)()
        self._check(self._library.nvrtcGetSupportedArchs(found), "nvrtcGetSupportedArchs")
        return tuple(found)

    def _text(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)), f"nvrtcGet{what}Size")
        text = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._library, f"nvrtcGet{what}")(program, text), f"nvrtcGet{what}")
        return text.raw

    def _check(self, status: int, name: str) -> None:
        if status:
            raise CudaCompileError(f"{name} failed: {self._library.nvrtcGetErrorString(status).decode()}")


@functools.cache
def _find_nvrtc() -> Nvrtc | None:
    if (library := find_cuda_library("nvrtc")) is None:
        return None
    # It opens its other half by name alone, and finds that where it is loaded already.
    find_cuda_library("nvrtc-builtins", ctypes.RTLD_GLOBAL)
    try:
        return Nvrtc(library)
    except (AttributeError, CudaCompileError):
        return None
