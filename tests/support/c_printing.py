"""Shared by the tests of the C printer: MLIR text to C text to a loaded library."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects import arith, builtin, func, math, memref, scf
from xdsl.parser import Parser

from fuse_opt.dialects.gpu import GPU, FuncOp
from fuse_opt.lowering.c.headers.functions import c_helpers
from fuse_opt.lowering.c.language import C, CLanguage
from fuse_opt.lowering.c.printer import FunctionText, print_function
from fuse_opt.tools.bootstrap import find_nvcc

Array = np.ndarray[Any, Any]

CC = shutil.which("cc")
NVCC = find_nvcc()
needs_cc = pytest.mark.skipif(CC is None, reason="no C compiler")
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="no nvcc")

FLAGS = [
    *("-std=gnu11", "-O3", "-march=native", "-fPIC", "-shared", "-fopenmp-simd"),
    *("-fwrapv", "-fno-strict-aliasing", "-fno-math-errno", "-fno-trapping-math"),
    *("-Wall", "-Wextra", "-Werror"),
]

COUNT = 1000
NUMPY: dict[str, Any] = {
    "i1": np.bool_,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    **{f"ui{bits}": np.dtype(f"u{bits // 8}") for bits in (8, 16, 32, 64)},
    "f16": np.float16,
    "bf16": np.uint16,
    "f32": np.float32,
    "f64": np.float64,
}


def parse(text: str) -> builtin.ModuleOp:
    context = Context()
    for dialect in (arith.Arith, builtin.Builtin, func.Func, math.Math, memref.MemRef, scf.Scf, GPU):
        context.load_dialect(dialect)
    return Parser(context, text).parse_module()


def print_all(text: str, language: CLanguage = C) -> list[FunctionText]:
    ops = (op for op in parse(text).walk() if isinstance(op, func.FuncOp | FuncOp))
    return [print_function(op, language) for op in ops if op.body.blocks]


def print_one(text: str, language: CLanguage = C) -> FunctionText:
    (function,) = print_all(text, language)
    return function


def build(source: str, folder: Path, flags: Sequence[str] = FLAGS) -> ctypes.CDLL:
    assert CC is not None
    path = folder / "program.c"
    path.write_text(source)
    library = folder / "program.so"
    result = subprocess.run([CC, *flags, str(path), "-o", str(library), "-lm"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return ctypes.CDLL(str(library))


def run(library: ctypes.CDLL, name: str, *arguments: Array | int) -> None:
    values = [ctypes.c_long(a) if isinstance(a, int) else a.ctypes.data_as(ctypes.c_void_p) for a in arguments]
    function = getattr(library, name)
    function.restype = None
    function(*values)


def parallel(index: str, upper: str, body: str, init: str = "", kind: str = "") -> str:
    """An `scf.parallel` from 0 by 1 in its generic form."""
    operands = f"%c0, {upper}, %c1" + (f", {init}" if init else "")
    types = "index, index, index" + (f", {kind}" if init else "")
    segments = f"array<i32: 1, 1, 1, {int(bool(init))}>"
    return (
        f'"scf.parallel"({operands}) <{{operandSegmentSizes = {segments}}}> ({{\n'
        f"^bb0({index}: index):\n{body}\n}}) : ({types}) -> ({kind})"
    )


def combine(value: str, op: str, kind: str) -> str:
    return f"""scf.reduce({value} : {kind}) {{
      ^bb0(%lhs: {kind}, %rhs: {kind}):
        %both = {op} %lhs, %rhs : {kind}
        scf.reduce.return %both : {kind}
      }}"""


CONSTANTS = f"""
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = arith.constant {COUNT} : index"""

CALLEES = "\n".join(
    f"func.func private @{name}({types}) -> {result}"
    for name, types, result in (
        ("fo_rem_f32", "f32, f32", "f32"),
        ("fo_floordiv_i32", "i32, i32", "i32"),
        ("fo_cast_f32_u8", "f32", "ui8"),
    )
)


def nvcc(source: str, folder: Path, assembled: bool = True) -> str:
    """Compiles CUDA; gives what ptxas says of the kernels, where they are assembled: else only the language is asked about."""
    assert NVCC is not None
    path = folder / "program.cu"
    path.write_text(source)
    wanted = ["-cubin", "-Xptxas", "-v"] if assembled else ["-ptx", "-Xcicc", "-O0"]
    command = [NVCC, *wanted, "-arch=sm_90", "-Werror", "all-warnings", "-o", str(folder / "program.out")]
    result = subprocess.run([*command, str(path)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stderr


def build_helpers(
    names: Sequence[str], text: str, compiler: str, machine: str, folder: Path, level: str = "-O2"
) -> ctypes.CDLL:
    """The text behind the helpers that it calls, by a compiler that may use so much of the machine (see `BUILDS`)."""
    if shutil.which(compiler) is None:
        pytest.skip(f"no C compiler {compiler!r} on this machine")
    source, target = folder / "helpers.c", folder / "helpers.so"
    source.write_text(c_helpers(names) + text)
    flags = [level, "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-std=gnu11", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, *machine.split(), str(source), "-o", str(target)], check=True)
    return ctypes.CDLL(str(target))


BUILDS = [
    pytest.param("cc", "-march=native", id="native"),
    pytest.param("cc", "-mf16c", id="vectors of 8"),
    pytest.param("cc", "", id="one by one"),
    pytest.param("clang", "-march=native", id="clang"),
]
"""Compilers and what they may use of the machine: each chooses other code of the helpers."""
