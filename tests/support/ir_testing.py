"""Tensor IR in tests: parse, print in both forms, run passes with everything verified, evaluate, compare bit by bit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from io import StringIO
from typing import Any

import numpy as np
import numpy.typing as npt
from narrow_floats import DTYPES as NARROW
from narrow_floats import decode, encode
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.printer import Printer

from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.dtypes import BOOL
from fuse_opt.lowering.reference.interpreter import entry_function, evaluate_function
from fuse_opt.lowering.reference.scalar import NUMPY_DTYPES
from fuse_opt.tools.compiler.pipeline import make_passes
from fuse_opt.tools.compiler.registry import get_dialects
from fuse_opt.tools.source.parsing import parse_module
from fuse_opt.tools.source.verification import verify

Array = npt.NDArray[Any]


def context() -> Context:
    ctx = Context()
    for name, factory in get_dialects().items():
        ctx.register_dialect(name, factory)
    return ctx


CONTEXT = context()

WHOLE = 9
"""A pipeline of more passes is none whose passes are under test."""


@lru_cache(128)
def _parsed(text: str) -> ModuleOp:
    module = parse_module(text, "test.mlir", CONTEXT)
    verify(module)
    return module


def parse(text: str) -> ModuleOp:
    """The verified module that the text describes, to be changed: a copy takes a tenth of what reading takes."""
    return _parsed(text).clone()


def text_of(module: ModuleOp, generic: bool = False) -> str:
    output = StringIO()
    Printer(output, print_generic_format=generic).print_op(module)
    return output.getvalue()


def apply(module: ModuleOp, passes: str | Sequence[str] | Sequence[ModulePass]) -> ModuleOp:
    """
    The module itself, after passes given as a pipeline; verified after each, dominance and memory plans too. A whole pipeline is
    verified at its end: `compile`, and the tests of the laws, verify it pass by pass.
    """
    chosen = [p for p in passes if isinstance(p, ModulePass)] or make_passes(passes)  # pyright: ignore[reportArgumentType]
    for number, pass_ in enumerate(chosen, 1):
        pass_.apply(CONTEXT, module)
        if number == len(chosen) or len(chosen) <= WHOLE:
            verify(module)
    return module


def optimized(text: str, pipeline: str | Sequence[str]) -> ModuleOp:
    return apply(parse(text), pipeline)


def function(module: ModuleOp) -> FuncOp:
    return entry_function(module)


def kernels(module: ModuleOp) -> list[KernelOp]:
    return [op for op in module.walk() if isinstance(op, KernelOp)]


def generated_kernels(module: ModuleOp) -> list[KernelOp]:
    """The kernels for which code is generated: without those that a library runs."""
    return [kernel for kernel in kernels(module) if not any(isinstance(op, OpaqueOp) for op in kernel.ops())]


def graph_ops(module: ModuleOp) -> list[GraphOp]:
    return [op for op in module.walk() if isinstance(op, GraphOp)]


def op_names(ops: Sequence[Operation]) -> list[str]:
    return [op.name.partition(".")[2] for op in ops]


def random_arguments(module: ModuleOp, seed: int, specials: bool = False) -> list[Array]:
    """Arguments of the entry function: normal floats, small and extreme integers; NaN, inf and -0.0 among `specials`."""
    rng = np.random.default_rng(seed)
    arrays: list[Array] = []
    for value in function(module).body.block.args:
        element, extents = dtype(value), shape(value)
        type_ = NUMPY_DTYPES[element]
        if element.is_float:
            array = np.asarray(rng.standard_normal(extents))
            if specials:
                chosen = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0], extents)
                array = np.where(rng.random(extents) < 0.2, chosen, array)
            array = np.asarray(encode(array, element.name)) if element.name in NARROW else array.astype(type_)
        elif element is BOOL:
            array = np.asarray(rng.integers(0, 2, extents)).astype(type_)
        else:
            limits = np.iinfo(type_)
            array = np.asarray(rng.integers(-5 if limits.min else 0, 6, extents)).astype(type_)
            extreme = rng.choice(np.array([limits.min, limits.max], type_), extents)
            array = np.where(rng.random(extents) < (0.2 if specials else 0.0), extreme, array).astype(type_)
        arrays.append(array)
    return arrays


def evaluate(module: ModuleOp, arguments: Sequence[Array]) -> list[Array]:
    return evaluate_function(function(module), list(arguments))


def assert_same_bits(actual: Sequence[Array], expected: Sequence[Array], about: str = "") -> None:
    """Equal types, shapes and bits, down to the sign of zero; every NaN equals every other."""
    assert len(actual) == len(expected), about
    for number, (a, b) in enumerate(zip(actual, expected, strict=True)):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), f"result {number} {about}"
        a, b = decode(a), decode(b)
        same = a == b
        if a.dtype.kind == "f":
            same = ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))
        if not np.all(same):
            first = np.argwhere(~np.asarray(same))[0]
            raise AssertionError(
                f"result {number} differs at {first.tolist()}: {a[tuple(first)]!r} != {b[tuple(first)]!r} {about}"
            )
