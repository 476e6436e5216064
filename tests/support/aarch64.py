"""Generated C on a machine that is not here: compiled for aarch64 by clang, and run by an emulator.

The emulator's memory is laid out so that what reads or writes past the end of a buffer fails: each ends at a page that does
not exist. Linking takes a C library for the target, which the package `ziglang` has.
"""

from __future__ import annotations

import importlib.util
import shutil
import struct
import subprocess
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from fuse_opt.lowering.program import NUMPY_NAMES, Array, BufferRef, LibraryCall, Program

CLANG = ("clang", "--target=aarch64-linux-gnu", "-march=armv8.2-a")
MEANING = ("-fwrapv", "-fno-strict-aliasing", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off")
WARNINGS = ("-fopenmp-simd", "-Wall", "-Wextra", "-Werror", "-Wno-pass-failed", "-Wno-tautological-compare")
"""Without two: a loop that stays scalar is no fault, and x == x is what a test for NaN is on integers."""

IMAGE, STACK, THREAD, RETURN, BUFFERS = 0x1000000, 0x20000000, 0x30000000, 0x31000000, 0x40000000
STACK_BYTES = 8 << 20
PAGE = 0x1000

LOOP = """
void fuse_serial(void (*task)(void *, long, long), void *arg, long count, long grain) {
  (void)grain;
  for (long i = count - 1; i >= 0; --i) task(arg, i, i + 1);
}
void *memcpy(void *, const void *, unsigned long);
void *memset(void *, int, unsigned long);
void *const fuse_library[] = {(void *)memcpy, (void *)memset};
"""


@cache
def missing_compiler() -> str:
    """Why nothing can be compiled for aarch64; "" where it can."""
    if shutil.which("clang") is None:
        return "there is no clang"
    done = subprocess.run([*CLANG, "-c", "-x", "c", "-", "-o", "-"], input=b"int x;", capture_output=True)
    return "" if done.returncode == 0 else "this clang does not know aarch64"


@cache
def missing_emulator() -> str:
    """Why nothing can be run; "" where it can."""
    absent = [name for name in ("unicorn", "ziglang") if importlib.util.find_spec(name) is None]
    return f"needs the packages {' and '.join(absent)}: pip install {' '.join(absent)}" if absent else ""


def compile_object(source: str, path: Path, *flags: str) -> None:
    """Compiles the text for aarch64; every warning fails."""
    command = [*CLANG, *flags, *MEANING, *WARNINGS, "-c", "-x", "c", "-", "-o", str(path)]
    done = subprocess.run(command, input=source.encode(), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[:4000]


def link(source: str, folder: Path) -> Path:
    """A program for the emulator, with a loop that runs tasks one by one from the last to the first."""
    ziglang = importlib.util.find_spec("ziglang")
    assert ziglang is not None and ziglang.origin is not None
    compile_object(source + LOOP, folder / "program.o", "-O3")
    (folder / "main.c").write_text("int main(void) { return 0; }")
    zig = [
        str(Path(ziglang.origin).parent / "zig"),
        "cc",
        "-target",
        "aarch64-linux-musl",
        "-static",
        "-Wl,--no-gc-sections",
    ]
    done = subprocess.run(
        [*zig, str(folder / "main.c"), str(folder / "program.o"), "-o", str(folder / "program"), "-lm"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder / "program"


class Machine:
    """A processor with a program in memory."""

    def __init__(self, program: Path) -> None:
        unicorn: Any = import_module("unicorn")
        arm: Any = import_module("unicorn.arm64_const")
        self._arm, self._unicorn = arm, unicorn
        self.memory: Any = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        self.memory.ctl_set_cpu_model(arm.UC_CPU_ARM64_MAX)
        self.symbols = self._load(program.read_bytes())
        for address, size in ((STACK, STACK_BYTES), (THREAD, 0x10000), (RETURN, PAGE)):
            self.memory.mem_map(address, size)
        self.memory.reg_write(arm.UC_ARM64_REG_TPIDR_EL0, THREAD + 0x8000)
        vectors = self.memory.reg_read(arm.UC_ARM64_REG_CPACR_EL1) | 3 << 20
        self.memory.reg_write(arm.UC_ARM64_REG_CPACR_EL1, vectors)
        self._next = BUFFERS

    def _load(self, data: bytes) -> dict[str, int]:
        """Puts the segments of an ELF file where it wants them; gives its symbols."""
        programs, sections = struct.unpack_from("<QQ", data, 32)
        program_size, program_count, section_size, section_count = struct.unpack_from("<4H", data, 54)
        rows = [struct.unpack_from("<2I6Q", data, programs + k * program_size) for k in range(program_count)]
        loaded = [row for row in rows if row[0] == 1]
        first = min(row[3] for row in loaded) & ~0xFFFF
        last = (max(row[3] + row[6] for row in loaded) + 0xFFFF) & ~0xFFFF
        self.memory.mem_map(first, last - first)
        for _, _, offset, address, _, size, _, _ in loaded:
            self.memory.mem_write(address, data[offset : offset + size])
        tables = [struct.unpack_from("<2I4Q2I2Q", data, sections + k * section_size) for k in range(section_count)]
        symbols: dict[str, int] = {}
        for table in (table for table in tables if table[1] == 2):
            names = tables[table[6]][4]
            for k in range(table[5] // 24):
                name, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", data, table[4] + 24 * k)
                if name and section:
                    symbols[data[names + name : data.index(b"\0", names + name)].decode()] = value
        return symbols

    def place(self, data: bytes, alignment: int) -> int:
        """The address of a copy of the bytes, which ends where memory does as far as its alignment allows."""
        size = max(-(-len(data) // PAGE), 1) * PAGE
        self.memory.mem_map(self._next, size)
        address = (self._next + size - len(data)) & -alignment
        self._next += size + PAGE
        if data:
            self.memory.mem_write(address, data)
        return address

    def read(self, address: int, count: int) -> bytes:
        return bytes(self.memory.mem_read(address, count)) if count else b""

    def call(self, name: str, *arguments: int) -> None:
        arm = self._arm
        for number, argument in enumerate(arguments):
            self.memory.reg_write(arm.UC_ARM64_REG_X0 + number, argument)
        self.memory.reg_write(arm.UC_ARM64_REG_SP, STACK + STACK_BYTES - 64)
        self.memory.reg_write(arm.UC_ARM64_REG_LR, RETURN)
        try:
            self.memory.emu_start(self.symbols[name], RETURN)
        except self._unicorn.UcError as error:
            at = self.memory.reg_read(arm.UC_ARM64_REG_PC)
            raise AssertionError(f"'{name}' failed at {at:#x}: {error}") from error


class EmulatedProgram:
    """A program whose generated kernels run in the emulator; routines of libraries run here."""

    def __init__(self, program: Program, folder: Path) -> None:
        self.program = program
        self._file = link(program.source, folder)

    def __call__(self, *arrays: Array) -> list[Array]:
        machine, program = Machine(self._file), self.program
        memory: list[bytearray] = []
        alignments: list[int] = []
        for number, buffer in enumerate(program.buffers):
            element = np.dtype(NUMPY_NAMES[buffer.dtype])
            data = arrays[number] if buffer.kind == "argument" else buffer.data
            count = prod(buffer.shape) * element.itemsize
            memory.append(bytearray(b"\xff" * count if data is None else np.ascontiguousarray(data).tobytes()))
            alignments.append(64 if buffer.kind in ("arena", "constant") else element.itemsize)
        addresses = [machine.place(bytes(data), align) for data, align in zip(memory, alignments, strict=True)]
        table = machine.place(struct.pack(f"<{len(addresses)}Q", *addresses), 8)

        def fetch() -> None:
            for data, address in zip(memory, addresses, strict=True):
                data[:] = machine.read(address, len(data))

        for step in program.steps:
            if isinstance(step, LibraryCall):
                fetch()
                _call(step, memory)
                for data, address in zip(memory, addresses, strict=True):
                    if data:
                        machine.memory.mem_write(address, bytes(data))
            else:
                machine.call(step.function, table, machine.symbols["fuse_serial"])
        fetch()
        for number, buffer in enumerate(program.arguments):
            assert buffer.donated or memory[number] == arrays[number].tobytes(), f"argument {number} is written"
        return [_view(memory, BufferRef(r.index, 0, r.shape, r.dtype)).copy() for r in program.results]


def _call(step: LibraryCall, memory: Sequence[bytearray]) -> None:
    inputs, outputs = ([_view(memory, ref) for ref in refs] for refs in (step.inputs, step.outputs))
    step.run(inputs, outputs, step.config)


def _view(memory: Sequence[bytearray], ref: BufferRef) -> Array:
    element = np.dtype(NUMPY_NAMES[ref.dtype])
    if not prod(ref.shape):
        return np.empty(ref.shape, element)
    return np.frombuffer(memory[ref.buffer], element, prod(ref.shape), ref.offset).reshape(ref.shape)
