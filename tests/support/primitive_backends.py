"""Scalar primitives as functions that can be called: by NumPy, in C, and in CUDA text on the CPU.

Each primitive is printed as a C or CUDA function of scalars at every type it accepts; loops over arrays call it.
"""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from xdsl.dialects import func
from xdsl.dialects.builtin import FunctionType
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.scalar import PRIMITIVES, Primitive, Scalar
from fuse_opt.dialects.types.dtypes import BOOL, DTYPES, DType, Kind
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.c.language import CUDA, C, CLanguage
from fuse_opt.lowering.c.printer import FunctionText, print_function, print_translation_unit
from fuse_opt.lowering.kernel.scalar_to_arith import constant_op, emit_body, value_type
from fuse_opt.lowering.reference.scalar import NUMPY_DTYPES, evaluate_body
from fuse_opt.runtime.emulation.translation import SHIM
from fuse_opt.runtime.host.c_compiler import find_c_compiler

Array = npt.NDArray[Any]

COMPUTED = tuple(dtype for dtype in DTYPES if dtype.compute is dtype and not dtype.storage_only)
"""The types in which scalar bodies are evaluated."""
WHOLE = tuple(dtype for dtype in DTYPES if dtype.kind in (Kind.INT, Kind.UINT))
CXX = shutil.which("g++")


def body_of(function: Primitive, dtype: DType) -> Scalar:
    """The primitive on operands of the type."""
    if function.name == "select":
        return sc.where(sc.operand(0, BOOL), sc.operand(1, dtype), sc.operand(2, dtype))
    return sc.apply(function.name, *(sc.operand(k, dtype) for k in range(function.arity)))


def bodies() -> Iterator[tuple[str, Scalar]]:
    """A name and a body for every primitive at every type that it accepts, and casts between all types."""
    for function in PRIMITIVES.values():
        for dtype in COMPUTED:
            if function.name == "cast":
                sources = [source for source in COMPUTED if source is not dtype]
                yield from ((f"cast_{source}_{dtype}", sc.cast(sc.operand(0, source), dtype)) for source in sources)
            elif function.name == "bitcast":
                sources = [s for s in COMPUTED if s is not dtype and s.bits == dtype.bits and BOOL not in (s, dtype)]
                yield from (
                    (f"bitcast_{source}_{dtype}", sc.bitcast(sc.operand(0, source), dtype)) for source in sources
                )
            elif dtype.kind in function.kinds:
                yield f"{function.name}_{dtype}", body_of(function, dtype)


BODIES = dict(bodies())


class Sink:
    """Puts the ops of a body into a block."""

    def __init__(self, block: Block) -> None:
        self.block = block

    def add(self, op: Operation) -> SSAValue:
        self.block.add_op(op)
        return op.results[0]

    def constant(self, value: float, dtype: DType) -> SSAValue:
        return self.add(constant_op(value, dtype))

    def index_constant(self, value: Extent) -> SSAValue:
        raise AssertionError(f"a body of scalars has no extents; got {value}")

    def call(self, helper: str, arguments: Sequence[SSAValue], result: Attribute) -> SSAValue:
        return self.add(func.CallOp(helper, list(arguments), [result]))


def printed(name: str, language: CLanguage) -> FunctionText:
    """The body of that name as a function of its operands."""
    body = BODIES[name]
    block = Block(arg_types=[value_type(arg.dtype) for arg in body.args])
    result = emit_body(Sink(block), body, block.args, lambda axis: block.args[axis])
    block.add_op(func.ReturnOp(result))
    types = FunctionType.from_lists(list(block.arg_types), [value_type(body.dtype)])
    return print_function(func.FuncOp(f"w_{name}", types, Region(block)), language)


C_TYPES = {dtype: C.types[str(value_type(dtype))] for dtype in COMPUTED}


def loops() -> str:
    """`loop_NAME(n, y, a0, ...)` for every body: the printed function applied to arrays."""
    lines: list[str] = []
    for name, body in BODIES.items():
        formals = "".join(f", const {C_TYPES[arg.dtype]} *a{k}" for k, arg in enumerate(body.args))
        actuals = ", ".join(f"a{k}[i]" for k in range(len(body.args)))
        head = f"void loop_{name}(long n, {C_TYPES[body.dtype]} *y{formals})"
        lines.append(f"{head} {{ for (long i = 0; i < n; i++) y[i] = w_{name}({actuals}); }}")
    return "\n".join(lines) + "\n"


def kernels() -> str:
    """CUDA text with a kernel that calls each primitive, for a compiler that makes no code for what nothing calls."""
    lines = [print_translation_unit([printed(name, CUDA) for name in BODIES], CUDA)]
    for name, body in BODIES.items():
        formals = "".join(f", const {C_TYPES[arg.dtype]} *a{k}" for k, arg in enumerate(body.args))
        actuals = ", ".join(f"a{k}[0]" for k in range(len(body.args)))
        head = f'extern "C" __global__ void k_{name}({C_TYPES[body.dtype]} *y{formals})'.replace("_Bool", "bool")
        lines.append(f"{head} {{ y[0] = w_{name}({actuals}); }}")
    return "\n".join(lines) + "\n"


def source(language: CLanguage) -> str:
    """A translation unit of all primitives and their loops; CUDA's is C++ over the shim of the tests."""
    text = print_translation_unit([printed(name, language) for name in BODIES], language)
    if language is C:
        return text + loops()
    return f'#include "{SHIM}"\n{text}\nextern "C" {{\n{loops().replace("_Bool", "bool")}}}\n'


def built(backend: str, folder: Path, extra: Sequence[str] = ()) -> Path:
    """The shared object of all primitives: C as programs are compiled, CUDA for the CPU and without -fwrapv."""
    if backend == "C":
        compiler = find_c_compiler()
        if compiler is None:
            pytest.skip("no C compiler")
        command, language, suffix = [compiler.path, *compiler.flags, "-Wall", "-Wextra"], C, "c"
    else:
        if CXX is None:
            pytest.skip("no g++ to run CUDA text on the CPU")
        command, language, suffix = [CXX, "-std=gnu++14", "-O0", "-ffp-contract=off", "-fPIC", "-shared"], CUDA, "cpp"
    text, library = folder / f"words.{suffix}", folder / f"words_{backend}.so"
    text.write_text(source(language))
    done = subprocess.run([*command, *extra, str(text), "-o", str(library), "-lm"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return library


class Backend:
    """Evaluates a body by name on arrays of the types of its operands."""

    def __init__(self, library: Path | None = None) -> None:
        self._library = None if library is None else ctypes.CDLL(str(library))

    def __call__(self, name: str, *arrays: Array) -> Array:
        body = BODIES[name]
        operands = [np.ascontiguousarray(a, NUMPY_DTYPES[arg.dtype]) for a, arg in zip(arrays, body.args, strict=True)]
        if self._library is None:
            return evaluate_body(body, operands, ())
        result: Array = np.empty(operands[0].shape, NUMPY_DTYPES[body.dtype])
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (result, *operands)]
        self._library[f"loop_{name}"](ctypes.c_long(result.size), *pointers)
        return result


def edges(dtype: DType) -> Array:
    """Numbers at which functions of the type change or overflow, both signs."""
    numpy_type = NUMPY_DTYPES[dtype]
    if dtype is BOOL:
        return np.array([False, True])
    if not dtype.is_float:
        info = np.iinfo(numpy_type)
        near = {0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 63, 64, 100, info.max // 2, info.max - 1, info.max}
        signed = near | {-n for n in near} | {info.min, info.min + 1}
        return np.array(sorted(n for n in signed if info.min <= n <= info.max), numpy_type)
    info = np.finfo(numpy_type)
    small = [0.0, info.smallest_subnormal, 3 * info.smallest_subnormal, info.tiny, info.eps, 1e-5, 0.1]
    medium = [0.5, 1 - info.epsneg, 1.0, 1 + info.eps, 1.5, 2.0, 2.5, 3.0, math.pi, 9.0, 88.5, 104.0, 127.5, 710.0]
    large = [255.5, 2.0**31, 2.0**32, 2.0**63, 2.0**64, 1e20, info.max / 2, info.max, np.inf, np.nan]
    values = np.array([*small, *medium, *large], numpy_type)
    return np.concatenate([values, -values])


def operands_of(body: Scalar) -> list[Array]:
    """Every combination of edges of the operands' types; of three floats a part of them."""
    sets = [edges(arg.dtype) for arg in body.args]
    if len(sets) == 3 and body.dtype.is_float:
        sets[2] = sets[2][::3]
    return [a.ravel() for a in np.meshgrid(*sets, indexing="ij")]


def different(got: Array, expected: Array, ulps: float, least: float = 0.0) -> Array:
    """Where values are further apart than so many units in the last place of the larger of them and `least`."""
    if got.dtype.kind != "f":
        return got != expected
    info = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        a, b = got.astype(np.longdouble), expected.astype(np.longdouble)
        size = np.maximum(np.maximum(np.abs(got), np.abs(expected)), max(float(info.tiny), least))
        unit = np.spacing(np.minimum(size, info.max).astype(got.dtype)).astype(np.longdouble)
        # One step past the largest number is the infinity.
        a, b = (np.where(np.isinf(v), np.copysign(np.longdouble(info.max) + unit, v), v) for v in (a, b))
        near = np.abs(a - b) <= ulps * unit
    same = (got == expected) & (np.signbit(got) == np.signbit(expected))
    signs = (np.signbit(got) == np.signbit(expected)) | ((got != 0) & (expected != 0))
    return ~(same | (np.isnan(got) & np.isnan(expected)) | (near & signs & np.bool_(ulps > 0)))
