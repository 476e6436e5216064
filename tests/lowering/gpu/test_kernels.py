"""From fused kernels to CUDA: every kernel run on the CPU against the reference, compiled by nvcc, and looked at."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from cuda_on_cpu import ORDERS, CudaOnCpu, kernels_text, needs_cxx, needs_nvcc
from ir_testing import Array, apply, assert_same_bits, evaluate, function, parse, random_arguments, text_of
from kernel_resources import check_resources, compiled
from narrow_floats import decode, name_of
from program_generator import random_program
from xdsl.dialects.builtin import ModuleOp, StringAttr, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from fuse_opt.dialects import gpu
from fuse_opt.dialects.verify.dominance import verify_dominance
from fuse_opt.lowering.emit.cuda import build_cuda_program, emit_cuda
from fuse_opt.lowering.program import GridLaunch, Segment
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

EXAMPLES = sorted((Path(__file__).resolve().parents[3] / "examples").glob("*.mlir"))
SEEDS = range(8)
MLIR_OPT = shutil.which("mlir-opt-22")


def softmax(rows: int, columns: int, kind: str = "f32") -> str:
    t = f"tensor<{rows}x{columns}x{kind}>"
    return f"func.func @f(%x: {t}) -> {t} {{ %r = graph.softmax %x {{axis = -1 : i64}} : ({t}) -> {t} func.return %r : {t} }}"


def layer_norm(rows: int, columns: int, donated: str = "") -> str:
    t, v = f"tensor<{rows}x{columns}xf32>", f"tensor<{columns}xf32>"
    return f"""func.func @f(%x: {t} {donated}, %scale: {v}, %bias: {v}) -> {t} {{
      %s = graph.gelu %x : ({t}) -> {t}
      %r = graph.layer_norm %s, %scale, %bias {{axis = -1 : i64, epsilon = 1.0e-05 : f64}} : ({t}, {v}, {v}) -> {t}
      func.return %r : {t}
    }}"""


def reduce(op: str, extents: Sequence[int], axes: Sequence[int], kind: str) -> str:
    x = f"tensor<{''.join(f'{n}x' for n in extents)}{kind}>"
    r = f"tensor<{''.join(f'{n}x' for axis, n in enumerate(extents) if axis not in axes)}{kind}>"
    numbers = ", ".join(map(str, axes))
    line = f"graph.{op} %x {{axes = array<i64: {numbers}>}} : ({x}) -> {r}"
    return f"func.func @f(%x: {x}) -> {r} {{ %r = {line} func.return %r : {r} }}"


def several_reductions(rows: int, columns: int) -> str:
    """Two reductions in one loop, one after them, stores of both kinds, and memory that is given up for both."""
    x, r = f"tensor<{rows}x{columns}xf32>", f"tensor<{rows}x1xf32>"
    reduced = "{axes = array<i64: 1>, keepdims = true}"
    return f"""func.func @f(%x: {x} {{graph.donated}}, %old: {r} {{graph.donated}}) -> ({x}, {r}, {r}) {{
      %max = graph.max %x {reduced} : ({x}) -> {r}
      %min = graph.min %x {reduced} : ({x}) -> {r}
      %range = graph.subtract %max, %min : ({r}, {r}) -> {r}
      %shifted = graph.subtract %x, %min : ({x}, {r}) -> {x}
      %scaled = graph.divide %shifted, %range : ({x}, {r}) -> {x}
      %sum = graph.sum %scaled {reduced} : ({x}) -> {r}
      %mixed = graph.add %old, %sum : ({r}, {r}) -> {r}
      %out = graph.multiply %scaled, %old : ({x}, {r}) -> {x}
      func.return %out, %mixed, %range : {x}, {r}, {r}
    }}"""


POINTWISE = """func.func @f(%x: tensor<{n}xf32>, %y: tensor<{n}xf32> {{graph.donated}}, %s: tensor<f32>) -> tensor<{n}xf32> {{
  %a = graph.add %x, %y : (tensor<{n}xf32>, tensor<{n}xf32>) -> tensor<{n}xf32>
  %b = graph.multiply %a, %s : (tensor<{n}xf32>, tensor<f32>) -> tensor<{n}xf32>
  func.return %b : tensor<{n}xf32>
}}"""

TRANSPOSE = """func.func @f(%x: tensor<5x7x33xf16>, %b: tensor<7x1xf16>) -> (tensor<33x5x7xf16>, tensor<1155xf16>) {
  %y = graph.multiply %x, %b : (tensor<5x7x33xf16>, tensor<7x1xf16>) -> tensor<5x7x33xf16>
  %t = graph.permute_dims %y {axes = array<i64: 2, 0, 1>} : (tensor<5x7x33xf16>) -> tensor<33x5x7xf16>
  %f = graph.reshape %t {shape = array<i64: 1155>} : (tensor<33x5x7xf16>) -> tensor<1155xf16>
  %g = graph.negative %f : (tensor<1155xf16>) -> tensor<1155xf16>
  func.return %t, %g : tensor<33x5x7xf16>, tensor<1155xf16>
}"""

CONSTANTS = """func.func @f(%x: tensor<3xi32>) -> (tensor<3xi32>, tensor<3xi32>, tensor<3xi32>, tensor<0xi32>) {
  %c = graph.constant dense<[1, -2, 30]> : tensor<3xi32>
  %y = graph.floor_divide %c, %x : (tensor<3xi32>, tensor<3xi32>) -> tensor<3xi32>
  %e = graph.slice %y {starts = array<i64: 0>, stops = array<i64: 0>, steps = array<i64: 1>} : (tensor<3xi32>) -> tensor<0xi32>
  %f = graph.negative %e : (tensor<0xi32>) -> tensor<0xi32>
  func.return %y, %c, %x, %f : tensor<3xi32>, tensor<3xi32>, tensor<3xi32>, tensor<0xi32>
}"""

LIBRARY = """func.func @f(%x: tensor<8x33xf32>, %w: tensor<33x70xf32>) -> tensor<8xf32> {
  %a = graph.exp %x : (tensor<8x33xf32>) -> tensor<8x33xf32>
  %h = graph.matmul %a, %w : (tensor<8x33xf32>, tensor<33x70xf32>) -> tensor<8x70xf32>
  %t = graph.tanh %h : (tensor<8x70xf32>) -> tensor<8x70xf32>
  %r = graph.sum %t {axes = array<i64: 1>} : (tensor<8x70xf32>) -> tensor<8xf32>
  func.return %r : tensor<8xf32>
}"""

PROGRAMS: dict[str, str] = {
    **{f"softmax_{r}x{c}": softmax(r, c) for r, c in [
        (1, 1), (3, 1), (2, 33), (1030, 40), (1026, 64), (1024, 512), (4, 128), (3, 1000), (270, 300), (2, 1536),
        (1, 5000), (2, 40000),
    ]},
    "softmax_half": softmax(6, 777, "f16"),
    "softmax_double": softmax(2, 100, "f64"),
    "layer_norm": layer_norm(7, 768),
    "layer_norm_in_place": layer_norm(7, 700, "{graph.donated}"),
    "layer_norm_in_warps": layer_norm(1031, 96, "{graph.donated}"),
    **{f"several_{r}x{c}": several_reductions(r, c) for r, c in [(3, 2), (5, 300), (1030, 50), (1032, 100), (2, 9000)]},
    "all": reduce("all", (5, 300), (1,), "i1"),
    "any": reduce("any", (1024, 5), (1,), "i1"),
    "sum_bytes": reduce("sum", (3, 500), (1,), "i8"),
    "max_bytes": reduce("max", (3, 500), (1,), "ui8"),
    "sum_long": reduce("sum", (2, 3000), (0, 1), "i64"),
    "prod_doubles": reduce("prod", (4, 70), (1,), "f64"),
    "sum_two_axes": reduce("sum", (4, 9, 5, 30), (1, 3), "f32"),
    "max_first_axis": reduce("max", (90, 12), (0,), "f32"),
    "sum_of_nothing": reduce("sum", (4, 0), (1,), "f32"),
    **{f"pointwise_{n}": POINTWISE.format(n=n) for n in (1, 256, 1000, 1 << 20, (1 << 20) + 77)},
    "transpose": TRANSPOSE,
    "constants": CONSTANTS,
    "library": LIBRARY,
}  # fmt: skip


def combined(texts: dict[str, str], pipeline: str | Sequence[str] = DEFAULT_PIPELINE) -> ModuleOp:
    """One module on buffers of the texts' functions, each called as its key."""
    functions: list[Operation] = []
    for name, text in texts.items():
        module = parse(text)
        for op in module.body.block.ops:
            if isinstance(op, FuncOp):
                op.properties.pop(
                    "arg_attrs", None
                )  # frozen arguments have a second function, of the name of the first
        found = function(apply(module, pipeline))
        found.detach()
        found.sym_name = StringAttr(name)
        functions.append(found)
    return apply(ModuleOp(functions), "convert-fused-to-gpu")


@cache
def programs() -> ModuleOp:
    return combined(PROGRAMS)


@cache
def random_programs() -> ModuleOp:
    return combined({f"main_{seed}": text_of(random_program(seed)) for seed in SEEDS})


@pytest.fixture(scope="module")
def on_cpu() -> CudaOnCpu:
    return CudaOnCpu(programs())


TOLERANCES = {"float16": 3e-3, "bf16": 2.4e-2, "float32": 3e-5, "float64": 1e-12}
ROUGHLY = {"bf16": 0.1, "f8E4M3FN": 0.25, "f8E5M2": 0.5}


def assert_close(actual: Sequence[Array], expected: Sequence[Array], about: str) -> None:
    for number, (a, b) in enumerate(zip(actual, expected, strict=True)):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), about
        tolerance = TOLERANCES.get(name_of(a.dtype), 0.0)
        np.testing.assert_allclose(
            decode(a), decode(b), tolerance, tolerance, err_msg=f"result {number} {about}", equal_nan=True
        )


@pytest.mark.sampled(30)
@needs_cxx
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("order", ORDERS.values(), ids=list(ORDERS))
def test_program(name: str, order: int, on_cpu: CudaOnCpu) -> None:
    module = parse(PROGRAMS[name])
    arguments = random_arguments(module, 1)
    assert_close(on_cpu.run(name, arguments, order), evaluate(module, arguments), name)


@needs_cxx
def test_random_programs() -> None:
    on_cpu = CudaOnCpu(random_programs())
    for seed in SEEDS:
        name, module = f"main_{seed}", parse(text_of(random_program(seed)))
        arguments = random_arguments(module, seed)
        expected = evaluate(module, arguments)
        for order in (0, 1):
            actual = on_cpu.run(name, arguments, order)
            for a, b in zip(actual, expected, strict=True):
                assert (a.dtype, a.shape) == (b.dtype, b.shape), name
                tolerance = ROUGHLY.get(name_of(a.dtype), 2e-2)
                a, b = decode(a), decode(b)
                if a.dtype.kind == "f":  # chains of ops magnify what roundings differ in
                    np.testing.assert_allclose(a.astype(float), b.astype(float), tolerance, tolerance, err_msg=name)
                else:
                    assert_same_bits([a], [b], name)


@needs_nvcc
def test_nvcc_compiles_the_programs_without_spills(tmp_path: Path) -> None:
    check_resources(programs(), tmp_path)


@needs_nvcc
def test_nvcc_compiles_the_examples_without_spills(tmp_path: Path) -> None:
    texts = {path.stem: path.read_text() for path in EXAMPLES}
    check_resources(combined(texts), tmp_path)


@needs_nvcc
def test_nvcc_compiles_random_programs(tmp_path: Path) -> None:
    compiled(kernels_text(random_programs()), tmp_path)


@needs_cxx
def test_the_shim_notices_a_missing_barrier() -> None:
    module = combined({"f": softmax(3, 1000)})
    for op in list(module.walk()):
        if isinstance(op, gpu.BarrierOp):
            op.detach()
    (result,) = CudaOnCpu(module).run("f", random_arguments(parse(softmax(3, 1000)), 1))
    assert np.isnan(result).any()


@pytest.mark.skipif(MLIR_OPT is None, reason="no mlir-opt-22")
def test_mlir_accepts_the_kernels() -> None:
    assert MLIR_OPT is not None
    kernels = [op.clone() for op in programs().body.block.ops if isinstance(op, gpu.ModuleOp)]
    module = ModuleOp(kernels, {"gpu.container_module": UnitAttr()})
    result = subprocess.run([MLIR_OPT], input=text_of(module), capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.sampled(5)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_keep_the_laws(path: Path) -> None:
    module = apply(parse(path.read_text()), DEFAULT_PIPELINE)
    before = text_of(module)
    text = emit_cuda(module)
    assert text_of(module) == before, "emission changed the module"
    assert emit_cuda(module) == text, "not deterministic"
    apply(module, "convert-fused-to-gpu")
    verify_dominance(module)
    once = text_of(module)
    assert text_of(parse(once)) == once
    assert text_of(parse(text_of(module, generic=True))) == once
    assert emit_cuda(module) == text
    assert text_of(apply(module, "convert-fused-to-gpu")) == once, "not idempotent"


def launches(text: str) -> list[GridLaunch]:
    program = build_cuda_program(apply(parse(text), DEFAULT_PIPELINE))
    steps = [step for step in program.steps if isinstance(step, Segment)]
    return [launch for step in steps for launch in step.launches if isinstance(launch, GridLaunch)]


def shape_of(text: str) -> tuple[int, tuple[int, ...]]:
    (launch,) = launches(text)
    assert launch.grid[1:] == (1, 1)
    return launch.grid[0], launch.block


def test_grids() -> None:
    assert shape_of(POINTWISE.format(n=1000)) == (8, (128, 1, 1))
    assert shape_of(POINTWISE.format(n=1 << 22)) == (1 << 13, (128, 1, 1))
    assert shape_of(POINTWISE.format(n=(1 << 22) + 1)) == ((1 << 13) + 1, (128, 1, 1))
    assert shape_of(softmax(8192, 512)) == (1024, (32, 8, 1))
    assert shape_of(softmax(8192, 1024)) == (8192, (64, 1, 1)), "rows of f32 that are written again"
    assert shape_of(softmax(8192, 771)) == (8192, (128, 1, 1))
    assert shape_of(softmax(1000, 1024)) == (1000, (128, 1, 1)), "too few rows for a warp each"
    assert shape_of(softmax(8192, 1536)) == (8192, (64, 1, 1)), "whole turns of few threads"
    assert shape_of(softmax(8192, 4096)) == (8192, (256, 1, 1))
    assert shape_of(softmax(8192, 16384)) == (8192, (512, 1, 1))
    assert shape_of(softmax(1 << 29, 8)) == (1 << 21, (256, 1, 1))
    assert launches(reduce("sum", (0, 5), (1,), "f32")) == []


def test_more_rows_than_a_grid_has_blocks_are_taken_in_turns() -> None:
    module = apply(parse(softmax(1 << 33, 2048)), DEFAULT_PIPELINE)
    text = emit_cuda(module)
    assert "<<<(2147483647, 1, 1), (128, 1, 1)>>>" in text
    assert "block < 8589934592LL; block += 2147483647" in text


def test_large_buffers_are_indexed_by_64_bits() -> None:
    module = apply(parse(POINTWISE.format(n=1 << 30)), DEFAULT_PIPELINE)
    text = emit_cuda(module)
    assert "long long first = (long long)blockIdx.x * 512 + (long long)threadIdx.x;" in text
    assert "(int)blockIdx.x" not in text


def test_pointwise_text() -> None:
    text = emit_cuda(apply(parse(POINTWISE.format(n=1000)), DEFAULT_PIPELINE))
    assert (
        text.split("// graph.add")[1].split("\n", 1)[1]
        == """\
// schedule: pointwise, 128 threads, an element each
extern "C" __global__ void __launch_bounds__(128) kernel_add_multiply(const float *__restrict__ x,
    float *__restrict__ y, const float *__restrict__ s) {
  int i = (int)blockIdx.x * 128 + (int)threadIdx.x;
  float s_1 = s[0];
  if (i < 1000) {
    float x_1 = x[i];
    float y_1 = y[i];
    float a = x_1 + y_1;
    float b = a * s_1;
    y[i] = b;
  }
}

// Program f
// argument x: f32 [1000]
// argument y: f32 [1000], its memory is given up
// argument s: f32 []
// segment 0:
//   kernel_add_multiply<<<(8, 1, 1), (128, 1, 1)>>>(x, y, s)
// result 0: f32 [1000] is y
"""
    )


def test_row_text() -> None:
    text = emit_cuda(apply(parse(reduce("sum", (300, 2048), (1,), "f32")), DEFAULT_PIPELINE))
    _, vectors, elements = text[: text.index("// Program")].split('extern "C"')
    for kernel in (vectors, elements):
        assert kernel.count("__syncthreads();") == 1
        assert kernel.count("__shfl_xor_sync") == 5 + 3
        assert "if (thread == 0) {\n    r[block] = " in kernel
        assert "__shared__ __align__(16) float r_slots[8];" in kernel
    assert "kernel_sum_unaligned(" in elements and "size_t" not in text
    assert (
        """\
//   kernel_sum<<<(300, 1, 1), (256, 1, 1)>>>(x, r)
//   or, unless these begin at multiples of 16 bytes: x
//   kernel_sum_unaligned<<<(300, 1, 1), (256, 1, 1)>>>(x, r)
"""
        in text
    )
    assert "for (int vector = thread; vector < 512; vector += 256) {" in vectors
    assert "for (int column = thread; column < 2048; column += 256) {" in elements


def test_reductions_of_one_stage_share_a_barrier_and_stages_take_turns() -> None:
    text = emit_cuda(apply(parse(several_reductions(300, 2048)), DEFAULT_PIPELINE))
    for kernel in text[: text.index("// Program")].split('extern "C"')[1:]:
        assert kernel.count("__shared__") == 3
        assert kernel.count("__syncthreads();") == 3, "one a stage, one before the memory of a row is overwritten"


MATH = """func.func @f(%x: tensor<4x{n}x{t}>) -> tensor<4x{n}x{t}> {{
  %a = graph.sigmoid %x : (tensor<4x{n}x{t}>) -> tensor<4x{n}x{t}>
  %b = graph.tanh %a : (tensor<4x{n}x{t}>) -> tensor<4x{n}x{t}>
  %c = graph.sqrt %b : (tensor<4x{n}x{t}>) -> tensor<4x{n}x{t}>
  %d = graph.divide %c, %a : (tensor<4x{n}x{t}>, tensor<4x{n}x{t}>) -> tensor<4x{n}x{t}>
  %r = graph.exp %d : (tensor<4x{n}x{t}>) -> tensor<4x{n}x{t}>
  func.return %r : tensor<4x{n}x{t}>
}}"""


@pytest.mark.parametrize(
    ("kind", "math", "called"),
    [
        ("f32", "strict", {"sigmoid_f32", "tanh_f32"}),
        ("f32", "fast", {"fast_sigmoid_f32", "tanh_f32", "fast_exp_f32", "fast_sqrt_f32", "fast_divide_f32"}),
        ("f64", "fast", set[str]()),
        ("bf16", "fast", {"fast_sigmoid_f32", "fast_tanh_f32", "fast_sqrt_f32", "fast_divide_f32", "fast_exp_f32"}),
        ("bf16", "strict", {"fast_sigmoid_f32", "narrow_tanh_f32", "fast_sqrt_f32", "fast_divide_f32", "fast_exp_f32"}),
    ],
)
def test_approximations_are_taken_where_nobody_sees_them_or_asks_for_them(
    kind: str, math: str, called: set[str]
) -> None:
    passes = [text.replace("schedule-kernels", f"schedule-kernels{{math={math}}}") for text in DEFAULT_PIPELINE]
    text = emit_cuda(apply(parse(MATH.format(n=64, t=kind)), passes))
    kernel = text[text.index('extern "C"') :]
    found = set(re.findall(r"fo_((?:fast_|narrow_)?(?:sigmoid|exp|tanh|sqrt|divide)\w*)\(", kernel))
    assert found == called, found


def turned_halves(rows: int, half: int, kind: str) -> str:
    """As in a rotary embedding."""
    x, part = f"tensor<{rows}x{2 * half}x{kind}>", f"tensor<{rows}x{half}x{kind}>"
    return f"""func.func @f(%x: {x}) -> {x} {{
      %a = graph.slice %x {{starts = array<i64: 0, 0>, stops = array<i64: {rows}, {half}>}} : ({x}) -> {part}
      %b = graph.slice %x {{starts = array<i64: 0, {half}>, stops = array<i64: {rows}, {2 * half}>}} : ({x}) -> {part}
      %c = graph.negative %b : ({part}) -> {part}
      %d = graph.concat %c, %a {{axis = 1 : i64}} : ({part}, {part}) -> {x}
      %r = graph.add %d, %x : ({x}, {x}) -> {x}
      func.return %r : {x}
    }}"""


@needs_cxx
@pytest.mark.parametrize(("kind", "half", "vectors"), [("f32", 32, 3), ("f32", 6, 1), ("bf16", 64, 3), ("bf16", 12, 1)])
def test_halves_are_read_by_vectors_where_each_lies_in_one(kind: str, half: int, vectors: int) -> None:
    text = turned_halves(2**19 // half, half, kind)
    module = combined({"f": text})
    kernel = kernels_text(module).partition("_unaligned(")[0]
    assert len(re.findall(r"fo_vector<\w+, \d> vector\d* = ", kernel)) == vectors
    arguments = random_arguments(parse(text), 1)
    assert_close(CudaOnCpu(module).run("f", arguments), evaluate(parse(text), arguments), text)


THREE = """func.func @f(%x: tensor<65536xf32>) -> tensor<65536xf32> {
  %a = graph.exp %x : (tensor<65536xf32>) -> tensor<65536xf32>
  %b = graph.tanh %a : (tensor<65536xf32>) -> tensor<65536xf32>
  %c = graph.exp %b : (tensor<65536xf32>) -> tensor<65536xf32>
  func.return %c : tensor<65536xf32>
}"""


def test_what_lies_in_the_arena_is_known_to_be_aligned() -> None:
    """Only what reads arguments or writes results has a kernel for others; the first and the last one here share it."""
    program = build_cuda_program(apply(parse(THREE), "wrap-kernels"))
    launches = [launch for step in program.steps if isinstance(step, Segment) for launch in step.launches]
    first, middle, last = (launch for launch in launches if isinstance(launch, GridLaunch))
    assert middle.unaligned is None and program.source.count("kernel_tanh") == 2
    assert (first.aligned, last.aligned) == ((0,), (1,)) and first.unaligned and last.unaligned
    assert first.unaligned.kernel == last.unaligned.kernel == "kernel_exp_unaligned"
    assert program.stats.kernels == 2
    assert first.at([32, 4]) is first and first.at([36, 64]) is first.unaligned


def test_arena_and_constants_are_aligned() -> None:
    program = build_cuda_program(apply(parse(LIBRARY), DEFAULT_PIPELINE))
    assert program.arena_alignment == 256
    unplanned = apply(parse(LIBRARY), "wrap-kernels")
    text = text_of(apply(unplanned, "convert-fused-to-gpu"))
    assert "gpu.arena {alignment = 256 : i64}" in text
