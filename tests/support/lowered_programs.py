"""Runs tensor programs both as generated C and on the reference, and compares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from ir_testing import apply, evaluate, parse, random_arguments, text_of
from narrow_floats import decode, name_of
from xdsl.dialects.builtin import FunctionType, ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.fused import KernelOp, YieldOp
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.dialects.scalar import ScalarTypeError
from fuse_opt.dialects.types.dtypes import DType
from fuse_opt.lowering.emit import build_program
from fuse_opt.lowering.program import Program
from fuse_opt.runtime.cpu.program import CpuProgram
from fuse_opt.runtime.host.c_compiler import find_c_compiler

Array = npt.NDArray[Any]

needs_compiler = pytest.mark.skipif(find_c_compiler() is None, reason="no working C compiler")

TOLERANCE = {"float16": 2e-3, "float32": 2e-5, "float64": 1e-12, "bf16": 1.6e-2, "f8E4M3FN": 0.25, "f8E5M2": 0.5}
"""By float type: relative to the larger of 1 and the value."""


def run(module: ModuleOp, arguments: Sequence[Array], **options: Any) -> list[Array]:
    """Results of the module's function as C."""
    return as_list(CpuProgram(build_program(module))(*arguments, **options))


def as_list(results: Any) -> list[Array]:
    """What a program answers, one result or several, as a list."""
    found: list[Array] = [*results] if type(results) is tuple else [results]
    return found


def assert_close(actual: Sequence[Array], expected: Sequence[Array], names: Sequence[str] = ()) -> None:
    """Integers are equal; floats are within TOLERANCE, NaN where NaN is expected."""
    assert len(actual) == len(expected)
    for number, (a, e) in enumerate(zip(actual, expected, strict=True)):
        about = names[number] if names else f"result {number}"
        assert (a.dtype, a.shape) == (e.dtype, e.shape), about
        tolerance = TOLERANCE.get(name_of(e.dtype), 0.0)
        a, e = decode(a), decode(e)
        if e.dtype.kind != "f":
            np.testing.assert_array_equal(a, e, err_msg=about)
            continue
        with np.errstate(all="ignore"):
            wide = e.astype(np.float64)
            allowed = tolerance * np.maximum(np.abs(wide), 1.0)
            fine = (a == e) | (np.isnan(a) & np.isnan(e)) | (np.abs(a.astype(np.float64) - wide) <= allowed)
        assert np.all(fine), f"{about}: {np.asarray(a)[~fine][:4]} instead of {np.asarray(e)[~fine][:4]}"


def check(text: str, seed: int = 0) -> Program:
    """Runs the text's function both ways on random arguments; the buffer-level IR must verify and read back."""
    module = parse(text)
    arguments = random_arguments(module, seed)
    expected = evaluate(module, [a.copy() for a in arguments])
    program = build_program(module)
    assert_close(as_list(CpuProgram(program)(*arguments)), expected)
    lowered = text_of(apply(module, ["convert-fused-to-loops"]))
    assert text_of(parse(lowered)) == lowered
    return program


class KernelList:
    """A function of many kernels, each with operands and a result of its own, for one compilation."""

    def __init__(self) -> None:
        self.block = Block()
        self.results: list[SSAValue] = []
        self.names: list[str] = []

    def add(
        self, op_type: type[StructuredOp], operands: Sequence[tuple[DType, Sequence[int]]], **properties: Attribute
    ) -> bool:
        """Adds a kernel of one op; whether the op accepts the operands."""
        types = [TensorType(element.attribute, extents) for element, extents in operands]
        body = Block(arg_types=types)
        try:
            op = op_type.build_op(*body.args, **properties)
            op.verify_()
        except (VerifyException, ScalarTypeError):
            return False
        body.add_ops([op, YieldOp.create(operands=op.results)])
        arguments = [self.block.insert_arg(type_, len(self.block.args)) for type_ in types]
        kernel = KernelOp(arguments, [op.results[0].type], Region(body))
        self.block.add_op(kernel)
        self.results.append(kernel.results[0])
        shapes = ", ".join(f"{element} {list(extents)}" for element, extents in operands)
        self.names.append(f"{op.name} { ({k: str(v) for k, v in properties.items()} or '') }({shapes})")
        return True

    def check(self, specials: bool) -> None:
        self.block.add_op(ReturnOp(*self.results))
        kind = FunctionType.from_lists([a.type for a in self.block.args], [r.type for r in self.results])
        module = ModuleOp([FuncOp("main", kind, Region(self.block))])
        module.verify()
        arguments = random_arguments(module, 1, specials=specials)
        with np.errstate(all="ignore"):
            expected = evaluate(module, arguments)
        assert_close(run(module, arguments), expected, self.names)


SOFTMAX = """
  %m = graph.max %a {axes = array<i64: AXIS>, keepdims = true} : (tensor<SHAPE>) -> tensor<KEPT>
  %s = graph.subtract %a, %m : (tensor<SHAPE>, tensor<KEPT>) -> tensor<SHAPE>
  %e = graph.exp %s : (tensor<SHAPE>) -> tensor<SHAPE>
  %t = graph.sum %e {axes = array<i64: AXIS>, keepdims = true} : (tensor<SHAPE>) -> tensor<KEPT>
  %d = graph.divide %e, %t : (tensor<SHAPE>, tensor<KEPT>) -> tensor<SHAPE>
"""


def softmax_program(shape: str, kept: str, axis: str, *, donated: bool = False) -> str:
    """A softmax as one kernel; `kept` is the shape with the axes of the sum left at extent 1."""
    body = SOFTMAX.replace("SHAPE", shape).replace("KEPT", kept).replace("AXIS", axis)
    given, in_place = (" {graph.donated}", "attributes {inplace = array<i64: 0, 0>}") if donated else ("", "")
    return f"""func.func @main(%x: tensor<{shape}>{given}) -> tensor<{shape}> {{
      %r = fused.kernel(%a = %x : tensor<{shape}>) -> (tensor<{shape}>) {in_place} {{
        {body}
        fused.yield %d : tensor<{shape}>
      }}
      func.return %r : tensor<{shape}>
    }}"""
