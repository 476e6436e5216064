"""A kernel that went wrong as files: itself, its operands, what the reference gives, and the command that shows it again."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, TensorType, UnitAttr
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.printer import Printer

from fuse_opt.dialects.analysis.storage import DONATED
from fuse_opt.dialects.fused import OutlinedOp
from fuse_opt.dialects.graph.movement.layouts import ToLayoutOp
from fuse_opt.dialects.interfaces.layouts import encoding
from fuse_opt.dialects.interfaces.shapes import tensor
from fuse_opt.dialects.types.encodings import OrderAttr, with_encoding
from fuse_opt.lowering.program.float_formats import is_narrow, widen
from fuse_opt.tools.watching.check_each import CheckedKernel

_REPLAYED = "plan-memory"
"""The pipeline of the command: the kernel stays what it is."""


def write_kernel(checked: CheckedKernel, against: str, folder: Path) -> str:
    """
    Writes `kernel.mlir`, `inputs.npz` and `expected.npz` to a folder below `folder`, which has the kernel's name, and returns the
    command that checks this kernel alone. Raises OSError.
    """
    place = folder / checked.traced.name
    place.mkdir(parents=True, exist_ok=True)
    output = StringIO()
    Printer(stream=output).print_op(kernel_module(checked.traced.kernel))
    (place / "kernel.mlir").write_text(f"{output.getvalue()}\n", encoding="utf-8")
    np.savez(place / "inputs.npz", **{f"arg{number}": _saved(a) for number, a in enumerate(checked.operands)})
    np.savez(place / "expected.npz", **{f"arr_{number}": _saved(a) for number, a in enumerate(checked.expected)})
    words = ["fuse-run", place / "kernel.mlir", "--inputs", place / "inputs.npz", "-p", _REPLAYED]
    command = shlex.join([*map(str, words), "--check-each", "--against", against])
    (place / "command.txt").write_text(f"{command}\n", encoding="utf-8")
    return command


def _saved(array: Any) -> Any:
    """As NumPy can read it back; numbers of types that it does not know in f32, which holds them all."""
    return widen(array) if is_narrow(array.dtype) else array


def kernel_module(kernel: OutlinedOp, donated: Collection[int] | None = None) -> ModuleOp:
    """
    A module with a function of the kernel alone, with its decisions but for places in memory; `donated` are the operands that it
    may overwrite, those of its pairs in place where nothing is said.
    """
    block = Block(arg_types=[_callers_type(value) for value in kernel.operands])
    given: list[SSAValue] = []
    for argument, value in zip(block.args, kernel.operands, strict=True):
        given.append(
            argument if argument.type == value.type else _added(block, ToLayoutOp.of(argument, encoding(value)))
        )
    copy = kernel.clone(dict(zip(kernel.operands, given, strict=True)))
    copy.drop_places()
    copy.segment = None
    copy.location = kernel.location
    block.add_op(copy)
    results: list[SSAValue] = [
        value if _callers_type(value) == value.type else _added(block, ToLayoutOp.of(value, None))
        for value in copy.results
    ]
    block.add_op(func.ReturnOp(*results))
    types = [value.type for value in block.args], [value.type for value in results]
    overwritten = {operand for _, operand in kernel.inplace_pairs()} if donated is None else set(donated)
    marks = [DictionaryAttr({DONATED: UnitAttr()} if n in overwritten else {}) for n in range(len(block.args))]
    function = func.FuncOp("main", types, Region(block), arg_attrs=ArrayAttr(marks) if overwritten else None)
    return ModuleOp([function])


def _callers_type(value: SSAValue) -> Attribute:
    """That of an array of the caller's: in an order of its axes, but in no other layout."""
    found = encoding(value)
    return value.type if found is None or isinstance(found, OrderAttr) else with_encoding(tensor(value), None)


def _added(block: Block, op: ToLayoutOp) -> SSAValue:
    block.add_op(op)
    assert isinstance(op.result.type, TensorType)
    return op.result
