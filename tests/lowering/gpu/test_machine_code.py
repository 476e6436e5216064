"""Kernels of every schedule and element type compiled by nvcc through the runtime's own call: registers, spills, warnings."""

from __future__ import annotations

import subprocess
from collections import Counter
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import pytest
from cuda_on_cpu import NVCC, kernels_text, needs_nvcc
from cuda_running import EXAMPLES
from draws import MULTIPLIER
from ir_testing import apply, function, kernels, parse
from kernel_budgets import Kernel
from sass import instructions as all_instructions
from sass import memory_instructions
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Operation

from fuse_opt.dialects import gpu
from fuse_opt.lowering.emit.cuda import build_cuda_program, emit_cuda
from fuse_opt.lowering.program import GridLaunch, Segment
from fuse_opt.runtime.device.compiler import (
    CudaCompileError,
    KernelResources,
    compile_cuda,
    find_cuda_compiler,
    kernel_resources,
)
from fuse_opt.runtime.device.installation import find_cuda_library
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

ARCHITECTURES = ("sm_80", "sm_90")
REGISTERS_OF_AN_SM = 1 << 16
BLOCKS = {"pointwise": 6, "row": 4, "column": 4, "split": 4, "tile": 6, "pack": 4}
"""By schedule: blocks of 256 threads that an SM is to hold, so that there are enough loads under way."""


def softmax(rows: int, columns: int, kind: str) -> str:
    t = f"tensor<{rows}x{columns}x{kind}>"
    return f"func.func @f(%x: {t}) -> {t} {{ %r = graph.softmax %x {{axis = -1 : i64}} : ({t}) -> {t} func.return %r : {t} }}"


def layer_norm(rows: int, columns: int, kind: str, given: str = "") -> str:
    t, v = f"tensor<{rows}x{columns}x{kind}>", f"tensor<{columns}x{kind}>"
    return f"""func.func @f(%x: {t}{given}, %scale: {v}, %bias: {v}) -> {t} {{
      %s = graph.gelu %x : ({t}) -> {t}
      %r = graph.layer_norm %s, %scale, %bias {{axis = -1 : i64, epsilon = 1.0e-05 : f64}} : ({t}, {v}, {v}) -> {t}
      func.return %r : {t}
    }}"""


def pointwise(elements: int, kind: str) -> str:
    t = f"tensor<{elements}x{kind}>"
    last = "gelu" if kind[0] in "bf" else "abs"
    return f"""func.func @f(%x: {t}, %y: {t}) -> {t} {{
      %a = graph.add %x, %y : ({t}, {t}) -> {t}
      %b = graph.multiply %a, %y : ({t}, {t}) -> {t}
      %r = graph.{last} %b : ({t}) -> {t}
      func.return %r : {t}
    }}"""


def reduction(op: str, rows: int, columns: int, axis: int, kind: str) -> str:
    x, r = f"tensor<{rows}x{columns}x{kind}>", f"tensor<{(columns, rows)[axis]}x{kind}>"
    line = f"graph.{op} %x {{axes = array<i64: {axis}>}} : ({x}) -> {r}"
    return f"func.func @f(%x: {x}) -> {r} {{ %r = {line} func.return %r : {r} }}"


def transpose(rows: int, columns: int, kind: str) -> str:
    x, r = f"tensor<{rows}x{columns}x{kind}>", f"tensor<{columns}x{rows}x{kind}>"
    return f"""func.func @f(%x: {x}, %y: {r}) -> {r} {{
      %t = graph.permute_dims %x {{axes = array<i64: 1, 0>}} : ({x}) -> {r}
      %s = graph.add %t, %y : ({r}, {r}) -> {r}
      %r = graph.relu %s : ({r}) -> {r}
      func.return %r : {r}
    }}"""


def broadcast(rows: int, columns: int) -> str:
    t, v, c = f"tensor<{rows}x{columns}xf32>", f"tensor<{columns}xf32>", f"tensor<{rows}x1xf32>"
    return f"""func.func @f(%x: {t}, %v: {v}, %c: {c}) -> {t} {{
      %a = graph.multiply %x, %v : ({t}, {v}) -> {t}
      %r = graph.maximum %a, %c : ({t}, {c}) -> {t}
      func.return %r : {t}
    }}"""


SMALL = """func.func @f(%x: tensor<40xf32>, %y: tensor<7x9xf16>) -> (tensor<40xf32>, tensor<7x9xf16>, tensor<7xf16>) {
  %a = graph.exp %x : (tensor<40xf32>) -> tensor<40xf32>
  %b = graph.tanh %y : (tensor<7x9xf16>) -> tensor<7x9xf16>
  %c = graph.sum %y {axes = array<i64: 1>} : (tensor<7x9xf16>) -> tensor<7xf16>
  func.return %a, %b, %c : tensor<40xf32>, tensor<7x9xf16>, tensor<7xf16>
}"""

FLOATS = ("f32", "f16", "bf16", "f64")
DTYPES = (*FLOATS, "i8", "i32", "i64")

TEXTS: dict[str, str] = {
    **{f"pointwise_{kind}": pointwise(1 << 20, kind) for kind in DTYPES},
    "pointwise_odd": pointwise(1001, "f32"),
    "pointwise_tail": pointwise((1 << 20) + 77, "f32"),
    "broadcast": broadcast(4096, 1023),
    "broadcast_aligned": broadcast(4096, 1024),
    **{f"warp_{kind}": softmax(8192, 128, kind) for kind in FLOATS},
    "thread": softmax(1 << 18, 12, "f32"),
    "few_threads": softmax(1 << 18, 20, "f32"),
    **{f"block_{columns}": softmax(512, columns, "f32") for columns in (1024, 8192, 50000, 100000)},
    "block_half": softmax(512, 4096, "f16"),
    "block_double": softmax(512, 2048, "f64"),
    **{f"norm_{kind}": layer_norm(2048, 1024, kind) for kind in FLOATS},
    "norm_wide": layer_norm(2048, 8192, "bf16"),
    "norm_in_place": layer_norm(2048, 768, "f32", " {graph.donated}"),
    **{f"column_{kind}": reduction("sum", 256, 20000, 0, kind) for kind in ("f32", "f16", "f64", "i8", "i64")},
    **{f"column_parts_{kind}": reduction("sum", 4096, 1000, 0, kind) for kind in ("f32", "bf16", "i64")},
    **{f"split_{op}": reduction(op, 2, 1 << 22, 1, "f32") for op in ("sum", "max")},
    **{f"split_sum_{kind}": reduction("sum", 2, 1 << 22, 1, kind) for kind in ("bf16", "f64", "i8", "i32")},
    **{f"transpose_{kind}": transpose(2048, 1000, kind) for kind in DTYPES},
    "small": SMALL,
}  # fmt: skip


@cache
def module() -> tuple[ModuleOp, dict[str, set[str]]]:
    """All functions on buffers, and the schedules of each one's kernels."""
    functions: list[Operation] = []
    kinds: dict[str, set[str]] = {}
    for name, text in TEXTS.items():
        found = apply(
            parse(text),
            [*DEFAULT_PIPELINE, "fuse-horizontal", "schedule-kernels"] if text is SMALL else DEFAULT_PIPELINE,
        )
        kinds[name] = {kernel.schedule_kind() or "" for kernel in kernels(found)}
        body = function(found)
        body.detach()
        body.sym_name = StringAttr(name)
        functions.append(body)
    return apply(ModuleOp(functions), "convert-fused-to-gpu"), kinds


@cache
def schedules() -> dict[str, tuple[str, int]]:
    """By kernel of the device: a schedule and the threads of a block."""
    whole, kinds = module()
    found: dict[str, tuple[str, int]] = {}
    for name in TEXTS:
        (kind,) = kinds[name]
        for step in build_cuda_program(whole, name).steps:
            assert isinstance(step, Segment), f"{name} is not run by kernels"
            for launch in step.launches:
                assert isinstance(launch, GridLaunch)
                for each in (launch, launch.unaligned):
                    if each is not None:
                        found[each.kernel] = kind, prod(each.block)
    return found


BUDGETS = Path(__file__).with_name("sample_budgets.tsv")
"""By program and launch, and whether for arrays that begin anywhere: at most so many instructions an element and registers,
loads of at least so many bits, and so many bytes of them under way on a processor, by nvcc 13.0 for sm_90."""


def measured() -> dict[tuple[str, ...], tuple[float, int, int, int]]:
    """What the table has, of the machine code that is."""
    whole, compiler = module()[0], find_cuda_compiler()
    assert compiler is not None
    made = compile_cuda(compiler, kernels_text(whole), "sm_90", DiskCache())
    code, resources = all_instructions(made.data), kernel_resources(made.log)
    found: dict[tuple[str, ...], tuple[float, int, int, int]] = {}
    for name in TEXTS:
        steps = build_cuda_program(whole, name).steps
        launches = [each for step in steps if isinstance(step, Segment) for each in step.launches]
        for number, launch in enumerate(launches):
            assert isinstance(launch, GridLaunch)
            for word, each in (("aligned", launch), ("anywhere", launch.unaligned)):
                if each is not None:
                    kernel = Kernel(each, code[each.kernel], resources[each.kernel])
                    counts = kernel.resources.registers, kernel.widest_load, kernel.bytes_in_flight()
                    found[name, str(number), word] = round(kernel.instructions_an_element, 2), *counts
    return found


@needs_nvcc
def test_every_sample_is_within_its_budget() -> None:
    """A kernel that needs more is a decision, which is written into the table: run this file as a program."""
    table = {tuple(line.split("\t")[:3]): line.split("\t")[3:] for line in BUDGETS.read_text().splitlines()[1:]}
    found = measured()
    assert found.keys() == table.keys()
    for key, (instructions, registers, widest, under_way) in found.items():
        most, kept, bits, least = map(float, table[key])
        assert instructions <= 1.05 * most, f"{key}: {instructions} instructions an element, {most} in the table"
        assert registers <= kept + 4 and widest >= bits, f"{key}: {registers} registers, loads of {widest} bits"
        assert under_way >= 0.7 * least, f"{key}: {under_way} bytes of loads under way, {least:.0f} in the table"


@cache
def built(text: str, arch: str) -> tuple[dict[str, KernelResources], dict[str, Counter[str]]]:
    """By kernel: what ptxas says of it, and its memory instructions."""
    compiler = find_cuda_compiler()
    assert compiler is not None
    made = compile_cuda(compiler, text, arch, DiskCache())
    assert "warning" not in made.log, made.log
    return kernel_resources(made.log), memory_instructions(made.data)


def compiled(text: str, arch: str) -> dict[str, KernelResources]:
    return built(text, arch)[0]


@needs_nvcc
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_schedule(arch: str, record_property: Any) -> None:
    resources = compiled(kernels_text(module()[0]), arch)
    kernels_of = schedules()
    assert resources.keys() == kernels_of.keys()
    for name, (kind, threads) in kernels_of.items():
        found = resources[name]
        assert (found.stack, found.spill_stores, found.spill_loads) == (0, 0, 0), f"{name} ({kind}): {found}"
        blocks = 4 if name.endswith("_unaligned") else BLOCKS[kind]
        bound = min(255, REGISTERS_OF_AN_SM // (blocks * 256)) if threads <= 256 else REGISTERS_OF_AN_SM // threads
        assert found.registers <= bound, (
            f"{name} ({kind}, {threads} threads): {found.registers} registers, {bound} allowed"
        )
    counts = Counter(kind for kind, _ in kernels_of.values())
    listed = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    record_property("cuda layer", f"A (nvcc {arch}): {len(kernels_of)} kernels, {listed}")


@needs_nvcc
@pytest.mark.parametrize("arch", (70, 75, 86, 89, 100, 120) if MULTIPLIER > 1 else (75,))
def test_every_schedule_compiles_for_other_processors(arch: int) -> None:
    if (compiler := find_cuda_compiler()) is None or arch not in compiler.architectures:
        pytest.skip(f"the compiler does not know sm_{arch}")
    found = compiled(kernels_text(module()[0]), f"sm_{arch}")
    assert found.keys() == schedules().keys()
    assert not any((each.stack, each.spill_stores, each.spill_loads) != (0, 0, 0) for each in found.values()), found


def test_the_texts_have_every_schedule() -> None:
    assert {kind for kind, _ in schedules().values()} >= {"pointwise", "row", "column", "split", "tile", "pack"}
    said = [str(op.attributes["fused.schedule"]) for op in module()[0].walk() if isinstance(op, gpu.FuncOp)]
    for variant in (
        "row, warp",
        "row, block",
        "row, shared",
        "row, stream",
        "column: 32",
        "row, thread",
        "split, launch",
        "tile, 64",
    ):
        assert any(variant in text for text in said), variant


def kernel_names(function: str) -> list[str]:
    """The kernels of a function in the order of their launches."""
    steps = build_cuda_program(module()[0], function).steps
    return [launch.kernel for step in steps if isinstance(step, Segment) for launch in step.launches]


@needs_nvcc
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_aligned_kernels_move_16_bytes_at_a_time(arch: str) -> None:
    """One 128-bit load for each operand and one store, and two floats converted at once."""
    _, instructions = built(kernels_text(module()[0]), arch)
    for kind in DTYPES:
        (name,) = kernel_names(f"pointwise_{kind}")
        found = instructions[name]
        assert (found["LDG.128"], found["STG.128"]) == (2, 1), (kind, found)
        assert (found["F2FP"] > 0) == (kind in ("f16", "bf16")), (kind, found)
    for program in ("warp_f32", "block_1024", "block_half", "norm_f32", "norm_bf16", "norm_in_place", "block_50000"):
        (name,) = kernel_names(program)
        assert instructions[name]["LDG.128"] and instructions[name]["STG.128"], (program, instructions[name])
    assert instructions[kernel_names("split_sum")[0]]["LDG.128"]


@needs_nvcc
def test_no_kernel_has_memory_of_its_own_threads() -> None:
    """Buffers of a thread are registers: no local loads and stores in the machine code."""
    for arch in ARCHITECTURES:
        for name, found in built(kernels_text(module()[0]), arch)[1].items():
            assert not any(mnemonic.startswith(("LDL", "STL")) for mnemonic in found), (arch, name, found)


@needs_nvcc
def test_text_of_the_command_has_no_warnings_in_plain_nvcc() -> None:
    (path,) = (path for path in EXAMPLES if path.stem == "transformer_block")
    text = emit_cuda(apply(parse(path.read_text()), DEFAULT_PIPELINE))
    command = [str(NVCC), "-cubin", "-arch=sm_90", "-Xptxas", "-v", "-o", "/dev/null", "-x", "cu", "-"]
    result = subprocess.run(command, input=text, capture_output=True, text=True)
    assert result.returncode == 0 and "warning" not in result.stderr, result.stderr
    resources = kernel_resources(result.stderr)
    assert resources and all(found.spill_stores == found.stack == 0 for found in resources.values())


@needs_nvcc
@pytest.mark.skipif(find_cuda_library("nvrtc") is None, reason="no NVRTC")
def test_nvrtc_compiles_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = kernels_text(module()[0])
    expected = compiled(text, "sm_90")
    monkeypatch.setenv("FUSE_OPT_CUDA_COMPILER", "nvrtc")
    assert compiled(text, "sm_90") == expected


@needs_nvcc
def test_refused_text_is_an_error_with_the_line(tmp_path: Any) -> None:
    compiler = find_cuda_compiler()
    assert compiler is not None
    with pytest.raises(
        CudaCompileError, match=r"'\S*nvcc' failed: .*kernels.cu\(2\): error: identifier \"y\" is undefined"
    ):
        compile_cuda(
            compiler, "__global__ void f(float *x) {\n  x[0] = y;\n}\n", "sm_90", DiskCache(tmp_path / "cache")
        )


if __name__ == "__main__":
    rows = ("\t".join([*key, *map(str, counts)]) for key, counts in measured().items())
    head = "\t".join(("program", "launch", "arrays", "instructions", "registers", "bits", "bytes under way"))
    BUDGETS.write_text("\n".join([head, *rows]) + "\n")
