"""Other ops for those that no library of a device takes: their values, and that the host runs nothing."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_on_cpu import needs_cxx
from ir_testing import evaluate, optimized, parse, random_arguments

from fuse_opt.lowering.emit.cuda import build_cuda_program
from fuse_opt.passes.devices.gpu_attach_device import make_for
from fuse_opt.runtime.emulation.program import EmulatedProgram
from fuse_opt.tools.compiler.api import optimize

DEVICE = "gpu-attach-device{device=h100}"
PIPELINE = f"{DEVICE},keep-on-device{{device=h100}}"


def function(op: str, attributes: str, operands: str, result: str) -> str:
    types = [f"tensor<{each}>" for each in operands.split()]
    arguments = ", ".join(f"%a{k}: {t}" for k, t in enumerate(types))
    names = ", ".join(f"%a{k}" for k in range(len(types)))
    line = f"%r = graph.{op} {names} {{{attributes}}} : ({', '.join(types)}) -> tensor<{result}>"
    return f"func.func @main({arguments}) -> tensor<{result}> {{\n{line}\nfunc.return %r : tensor<{result}>\n}}"


UNEVEN = "strides = array<i64: 2, 1>, pads = array<i64: 0, 2, 1, 0>, dilations = array<i64: 1, 2>"
GROUPED = "strides = array<i64: 2>, pads = array<i64: 1, 2>, groups = 2 : i64"
CONVOLUTIONS = {
    "conv": function("conv", UNEVEN, "2x3x7x9xf32 4x3x3x2xf32", "2x4x3x9xf32"),
    "conv of groups": function("conv", GROUPED, "1x4x8xf32 6x2x3xf32", "1x6x5xf32"),
    "conv_transpose": function("conv_transpose", UNEVEN, "2x4x3x9xf32 4x3x3x2xf32", "2x3x6x9xf32"),
    "conv_transpose, more": function(
        "conv_transpose", UNEVEN + ", output_padding = array<i64: 1, 1>", "2x4x3x9xf32 4x3x3x2xf32", "2x3x7x10xf32"
    ),
    "data": function(
        "conv_backward_data", UNEVEN + ", shape = array<i64: 7, 9>", "2x4x3x9xf32 4x3x3x2xf32", "2x3x7x9xf32"
    ),
    "data, a rest": function(
        "conv_backward_data", GROUPED + ", shape = array<i64: 9>", "1x6x5xf32 6x2x3xf32", "1x4x9xf32"
    ),
    "weight": function(
        "conv_backward_weight",
        UNEVEN + ", kernel_shape = array<i64: 3, 2>",
        "2x4x3x9xf32 2x3x7x9xf32",
        "4x3x3x2xf32",
    ),
}  # fmt: skip
STACKS = {
    "two axes": function("matmul", "", "3x1x5x7xf32 4x7x6xf32", "3x4x5x6xf32"),
    "turned": function("matmul", "transpose_lhs = true", "2x1x7x5xf64 1x3x7x6xf64", "2x3x5x6xf64"),
}
INTEGERS = {
    "rows": function("matmul", "", "5x70xi32 70x6xi32", "5x6xi32"),
    "bytes": function("matmul", "dtype = i32", "5x70xui8 70x6xi8", "5x6xi32"),
    "bytes that wrap": function("matmul", "", "5x70xi8 70x6xi8", "5x6xi8"),
    "turned": function("matmul", "transpose_lhs = true, transpose_rhs = true", "70x5xi16 6x70xi16", "5x6xi16"),
    "right turned": function("matmul", "transpose_rhs = true", "3x5x7xi64 3x6x7xi64", "3x5x6xi64"),
    "stacks": function("matmul", "", "3x1x5x7xui32 4x7x6xui32", "3x4x5x6xui32"),
    "a row": function("matmul", "", "7xi32 2x7x6xi32", "2x6xi32"),
    "a column": function("matmul", "", "2x5x7xi32 7xi32", "2x5xi32"),
    "a number": function("matmul", "", "7xi32 7xi32", "i32"),
    "nothing": function("matmul", "", "5x0xf32 0x6xf32", "5x6xf32"),
    "convolution": function(
        "conv_integer", "pads = array<i64: 1, 0, 0, 1>, groups = 2 : i64", "2x5x6x4xui8 2x3x2x6xi8", "2x5x5x6xi32"
    ),
}  # fmt: skip
ALL = {**CONVOLUTIONS, **STACKS, **INTEGERS}


def host_ops(text: str) -> int:
    module = parse(text)
    make_for(module, "cuda")
    return build_cuda_program(optimize(module)).stats.host_ops


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", ALL)
def test_values_are_the_same_and_the_host_runs_nothing(name: str) -> None:
    text = ALL[name]
    module = parse(text)
    arguments = random_arguments(module, 5)
    stages = f"{DEVICE},decompose,keep-on-device{{device=h100}}"
    kept, whole = optimized(text, stages), optimized(text, f"{DEVICE},default")
    assert str(kept) != str(optimized(text, f"{DEVICE},decompose"))
    (expected,) = evaluate(module, arguments)
    for found in (evaluate(kept, arguments)[0], evaluate(whole, arguments)[0]):
        if np.issubdtype(expected.dtype, np.integer):
            np.testing.assert_array_equal(found, expected)
        else:
            np.testing.assert_allclose(found, expected, 1e-5, 1e-5)
    assert host_ops(text) == 0


def test_products_of_integers_are_one_kernel_with_what_follows() -> None:
    text = INTEGERS["bytes"].replace(
        "func.return %r : tensor<5x6xi32>",
        "%f = graph.astype %r {dtype = f32} : (tensor<5x6xi32>) -> tensor<5x6xf32>\nfunc.return %f : tensor<5x6xf32>",
    )
    text = text.replace("-> tensor<5x6xi32> {", "-> tensor<5x6xf32> {")
    module = parse(text)
    make_for(module, "cuda")
    stats = build_cuda_program(optimize(module)).stats
    assert (stats.launches, stats.host_ops, stats.arena_bytes) == (1, 0, 0)


def test_what_a_library_takes_or_a_processor_runs_stays() -> None:
    even = function("conv", "pads = array<i64: 1, 1>", "1x4x8xf32 6x4x3xf32", "1x6x8xf32")
    assert str(optimized(even, PIPELINE)) == str(optimized(even, DEVICE))
    for text in ALL.values():
        assert str(optimized(text, "keep-on-device")) == str(parse(text))


@needs_cxx
@pytest.mark.parametrize("name", ["bytes", "stacks", "turned", "convolution"])
def test_kernels_of_products_of_integers(name: str) -> None:
    """Their CUDA C on the processor."""
    module = parse(INTEGERS[name])
    arguments = random_arguments(module, 7)
    (expected,) = evaluate(module, arguments)
    make_for(module, "cuda")
    (found,) = EmulatedProgram(build_cuda_program(optimize(module))).run(arguments)
    np.testing.assert_array_equal(found, expected)
