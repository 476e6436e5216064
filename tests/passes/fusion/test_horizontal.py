"""Packs: small kernels that do not depend on each other as parts of one, on the reference, in C and in CUDA."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import CudaOnCpu, needs_cxx, needs_nvcc
from ir_testing import Array, apply, assert_same_bits, evaluate, function, kernels, optimized, parse, random_arguments
from ir_testing import text_of as printed
from kernel_resources import check_resources
from xdsl.dialects.builtin import DictionaryAttr, ModuleOp, StringAttr

from fuse_opt.dialects.analysis.kernel_access import kernel_access
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.lowering.emit import build_program
from fuse_opt.passes.decisions.steering import limit_fuel, record_decisions, replay_decisions
from fuse_opt.passes.fusion.fuse_horizontal import FuseHorizontalPass
from fuse_opt.passes.remarks import collect
from fuse_opt.runtime.cpu.program import CpuProgram
from fuse_opt.runtime.cpu.stepwise import StepwiseProgram
from fuse_opt.runtime.host.c_compiler import find_c_compiler

FUSED = "decompose,cse,fuse-injective,fuse-elementwise,fuse-row,fuse-horizontal"
SCHEDULED = "wrap-kernels,schedule-kernels,infer-inplace,plan-memory,bulk-launches"
needs_cc = pytest.mark.skipif(find_c_compiler() is None, reason="no C compiler")


def program(lines: Sequence[str], arguments: dict[str, str], results: dict[str, str]) -> str:
    """A function of these lines; arguments and results by name, with their types."""
    given = ", ".join(f"%{name}: {kind}" for name, kind in arguments.items())
    types = ", ".join(results.values())
    names = ", ".join(f"%{name}" for name in results)
    return f"func.func @main({given}) -> ({types}) {{\n" + "\n".join(lines) + f"\nfunc.return {names} : {types}\n}}"


def tensor(*extents: int) -> str:
    return f"tensor<{''.join(f'{n}x' for n in extents)}f32>"


def chains(lengths: Sequence[int]) -> str:
    lines: list[str] = []
    for k, length in enumerate(lengths):
        t = tensor(length)
        lines += [
            f"%a{k} = graph.sigmoid %x{k} : ({t}) -> {t}",
            f"%b{k} = graph.multiply %a{k}, %x{k} : ({t}, {t}) -> {t}",
            f"%c{k} = graph.add %b{k}, %a{k} : ({t}, {t}) -> {t}",
            f"%d{k} = graph.square %c{k} : ({t}) -> {t}",
        ]
    types = [tensor(length) for length in lengths]
    return program(lines, {f"x{k}": t for k, t in enumerate(types)}, {f"d{k}": t for k, t in enumerate(types)})


def softmaxes(shapes: Sequence[tuple[int, int]]) -> str:
    types = [tensor(*extents) for extents in shapes]
    lines = [f"%r{k} = graph.softmax %x{k} {{axis = -1 : i64}} : ({t}) -> {t}" for k, t in enumerate(types)]
    return program(lines, {f"x{k}": t for k, t in enumerate(types)}, {f"r{k}": t for k, t in enumerate(types)})


def adam(shapes: Sequence[tuple[int, ...]]) -> str:
    """One step for each parameter; parameters and moments are given up, the rate and constants are shared."""
    s = "tensor<f32>"
    lines = [
        f"%{n} = graph.constant dense<{v}> : {s}"
        for n, v in {"b1": 0.9, "b2": 0.99, "e": "0.000001", "c1": 0.1, "c2": 0.01}.items()
    ]
    arguments, results = {"lr": s}, dict[str, str]()
    for k, extents in enumerate(shapes):
        t = tensor(*extents)
        lines += [
            f"%m0_{k} = graph.multiply %m{k}, %b1 : ({t}, {s}) -> {t}",
            f"%m1_{k} = graph.multiply %g{k}, %c1 : ({t}, {s}) -> {t}",
            f"%nm{k} = graph.add %m0_{k}, %m1_{k} : ({t}, {t}) -> {t}",
            f"%gg{k} = graph.square %g{k} : ({t}) -> {t}",
            f"%v0_{k} = graph.multiply %v{k}, %b2 : ({t}, {s}) -> {t}",
            f"%v1_{k} = graph.multiply %gg{k}, %c2 : ({t}, {s}) -> {t}",
            f"%nv{k} = graph.add %v0_{k}, %v1_{k} : ({t}, {t}) -> {t}",
            f"%av{k} = graph.abs %nv{k} : ({t}) -> {t}",
            f"%sq{k} = graph.sqrt %av{k} : ({t}) -> {t}",
            f"%de{k} = graph.add %sq{k}, %e : ({t}, {s}) -> {t}",
            f"%up{k} = graph.divide %nm{k}, %de{k} : ({t}, {t}) -> {t}",
            f"%st{k} = graph.multiply %up{k}, %lr : ({t}, {s}) -> {t}",
            f"%np{k} = graph.subtract %p{k}, %st{k} : ({t}, {t}) -> {t}",
        ]
        arguments |= {f"{n}{k}": f"{t} {{graph.donated}}" for n in "pmv"} | {f"g{k}": t}
        results |= {f"n{n}{k}": t for n in "pmv"}
    return program(lines, arguments, results)


def mixed() -> str:
    """Rows for warps and for blocks, long ones, elements, a sum that takes over what the row reads, and a view."""
    shapes = {"a": (900,), "b": (3, 40), "c": (5, 300), "d": (4, 9000), "f": (4, 1), "h": (30, 7)}
    arguments = {name: tensor(*extents) for name, extents in shapes.items()}
    arguments["f"] += " {graph.donated}"
    lines = [
        "%ra = graph.exp %a : (tensor<900xf32>) -> tensor<900xf32>",
        *(f"%r{n} = graph.softmax %{n} {{axis = -1 : i64}} : ({arguments[n]}) -> {arguments[n]}" for n in "bcd"),
        "%s = graph.sum %e {axes = array<i64: 1>, keepdims = true} : (tensor<4x33xf32>) -> tensor<4x1xf32>",
        "%rf = graph.add %f, %s : (tensor<4x1xf32>, tensor<4x1xf32>) -> tensor<4x1xf32>",
        "%t = graph.permute_dims %h {axes = array<i64: 1, 0>} : (tensor<30x7xf32>) -> tensor<7x30xf32>",
        "%rh = graph.negative %t : (tensor<7x30xf32>) -> tensor<7x30xf32>",
    ]
    results = {f"r{n}": tensor(*shapes[n]) for n in "abcdf"} | {"rh": tensor(7, 30)}
    return program(lines, arguments | {"e": tensor(4, 33)}, results)


PROGRAMS = {
    "chains": chains([900 + 7 * k % 200 for k in range(32)]),
    "equal_chains": chains([1000] * 8),
    "softmaxes": softmaxes([(4, 100)] * 32),
    "adam": adam([(8, 3 + k) if k % 2 else (40 + 13 * k,) for k in range(20)]),
    "mixed": mixed(),
}


def packed(name: str) -> ModuleOp:
    return optimized(PROGRAMS[name], f"{FUSED}{{max-elements=65536}},{SCHEDULED}")


def arguments_of(name: str) -> list[Array]:
    return random_arguments(parse(PROGRAMS[name]), 1)


def assert_close(actual: Any, expected: Sequence[Array]) -> None:
    for number, (a, b) in enumerate(zip(actual, expected, strict=True)):
        np.testing.assert_allclose(a, b, 2e-4, 2e-5, err_msg=f"result {number}")


@pytest.mark.parametrize("name", PROGRAMS)
def test_independent_kernels_become_one_pack(name: str) -> None:
    module = packed(name)
    assert [kernel.schedule_kind() for kernel in kernels(module)] == ["pack"]
    arguments = arguments_of(name)
    assert_same_bits(evaluate(module, arguments), evaluate(parse(PROGRAMS[name]), arguments), name)


@pytest.mark.sampled(3)
@needs_cc
@pytest.mark.parametrize("name", PROGRAMS)
def test_pack_in_c(name: str) -> None:
    compiled = CpuProgram(build_program(packed(name)))
    assert compiled.stats.launches == 1
    assert_close(compiled(*(a.copy() for a in arguments_of(name))), evaluate(parse(PROGRAMS[name]), arguments_of(name)))


@needs_cc
def test_every_split_of_a_packs_tasks_gives_the_same() -> None:
    lengths = [70000, 900, 20000, 1100, 64]
    text = chains(lengths)
    task_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_long, ctypes.c_long)
    rng = random.Random(1)
    counts: list[int] = []

    def in_pieces(task: Any, argument: int, count: int, grain: int) -> None:
        assert grain == 1
        counts.append(count)
        cuts = sorted({0, count, *rng.sample(range(count), count // 3)})
        pieces = list(pairwise(cuts))
        rng.shuffle(pieces)
        for begin, end in pieces:
            task(argument, begin, end)

    callback = ctypes.CFUNCTYPE(None, task_type, ctypes.c_void_p, ctypes.c_long, ctypes.c_long)(in_pieces)
    program = build_program(optimized(text, f"{FUSED}{{max-elements=100000}},{SCHEDULED}"))
    compiled = StepwiseProgram(program, parallel_for=ctypes.cast(callback, ctypes.c_void_p).value)
    arguments = random_arguments(parse(text), 1)
    expected = evaluate(parse(text), arguments)
    for _ in range(5):
        assert_close(compiled(*arguments), expected)
    assert min(counts) > 20


@pytest.fixture(scope="module")
def on_cuda() -> ModuleOp:
    functions = [function(packed(name)) for name in PROGRAMS]
    for name, found in zip(PROGRAMS, functions, strict=True):
        found.detach()
        found.sym_name = StringAttr(name)
    return apply(ModuleOp(list(functions)), "convert-fused-to-gpu")


@needs_cxx
def test_pack_in_cuda(on_cuda: ModuleOp) -> None:
    shim = CudaOnCpu(on_cuda)
    for name in PROGRAMS:
        expected = evaluate(parse(PROGRAMS[name]), arguments_of(name))
        for backwards in (False, True) if name == "mixed" else (False,):
            assert_close(shim.run(name, arguments_of(name), backwards), expected)


@needs_nvcc
def test_nvcc_compiles_a_pack_without_spills(tmp_path: Path) -> None:
    check_resources(apply(packed("mixed"), "convert-fused-to-gpu"), tmp_path)


def one_kernel(body: str, kind: str | None = None) -> KernelOp:
    [kernel] = kernels(parse(body))
    if kind is not None:
        kernel.schedule = DictionaryAttr({"kind": StringAttr(kind)})
    return kernel


TWO_PARTS = """func.func @main(%x: tensor<8xf32>, %y: tensor<8xf32>, %z: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %r:2 = fused.kernel(%a = %x : tensor<8xf32>, %b = %y : tensor<8xf32>, %c = %z : tensor<8xf32>)
      -> (tensor<8xf32>, tensor<8xf32>) {
    %d = graph.exp %a : (tensor<8xf32>) -> tensor<8xf32>
    %e = graph.add %b, %c : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    %f = graph.slice %c {starts = array<i64: 3>, stops = array<i64: 4>} : (tensor<8xf32>) -> tensor<1xf32>
    %g = graph.multiply %e, %f : (tensor<8xf32>, tensor<1xf32>) -> tensor<8xf32>
    fused.yield %d, %g : tensor<8xf32>, tensor<8xf32>
  }
  func.return %r#0, %r#1 : tensor<8xf32>, tensor<8xf32>
}"""


def test_a_part_takes_over_no_operand_that_another_part_reads() -> None:
    """In one pass the first result may have the memory of %b, which is read at the same index only; in a pack not."""
    assert kernel_access(one_kernel(TWO_PARTS)).replaceable == (frozenset({0, 1}), frozenset({0, 1}))
    access = kernel_access(one_kernel(TWO_PARTS, "pack"))
    assert access.scheme == "pack"
    assert access.replaceable == (frozenset({0}), frozenset({1}))


def test_few_parts_of_one_size_are_one_pass_and_many_are_a_pack() -> None:
    for count, kind in ((2, "pointwise"), (3, "pointwise"), (4, "pack")):
        module = optimized(chains([64] * count), f"{FUSED},wrap-kernels,schedule-kernels")
        assert [kernel.schedule_kind() for kernel in kernels(module)] == [kind], count


def test_limits_make_several_kernels_and_a_second_run_changes_nothing() -> None:
    text = chains([50 + k % 3 for k in range(200)])
    module = optimized(text, FUSED)
    sizes = [(len(kernel.operands), len(kernel.results)) for kernel in kernels(module)]
    assert sum(results for _, results in sizes) == 200 and len(sizes) == 2
    assert all(8 * (operands + results) <= 4096 and results <= 128 for operands, results in sizes)
    once = printed(module)
    assert printed(apply(module, "fuse-horizontal")) == once
    few = optimized(text, FUSED.replace("fuse-horizontal", "fuse-horizontal{max-ops=40 max-results=7 max-operands=9}"))
    assert {len(kernel.results) for kernel in kernels(few)} == {7, 4}
    once = printed(few)
    assert printed(apply(few, "fuse-horizontal{max-ops=40 max-results=7 max-operands=9}")) == once


def test_levels_keep_what_depends_apart_and_see_through_views() -> None:
    """Two chains of two kernels each, a view between those of one; the matmul keeps its own kernel out of fusion."""
    t = "tensor<4x4xf32>"
    lines = [
        f"%a = graph.exp %x : ({t}) -> {t}",
        f"%b = graph.reshape %a {{shape = array<i64: 16>}} : ({t}) -> tensor<16xf32>",
        "%c = graph.tanh %b : (tensor<16xf32>) -> tensor<16xf32>",
        f"%d = graph.sin %x : ({t}) -> {t}",
        f"%e = graph.matmul %d, %d : ({t}, {t}) -> {t}",
        f"%f = graph.cos %d : ({t}) -> {t}",
    ]
    module = optimized(program(lines, {"x": t}, {"c": "tensor<16xf32>", "e": t, "f": t}), "fuse-horizontal")
    assert [[op.name for op in kernel.ops()] for kernel in kernels(module)] == [
        ["graph.exp", "graph.sin"],
        ["graph.tanh", "graph.cos"],
    ]


def test_must_inplace_stays_possible() -> None:
    t = "tensor<8xf32>"
    lines = [
        f"%a = graph.exp %x : ({t}) -> {t}",
        f"%b = graph.sum %x {{axes = array<i64: 0>}} : ({t}) -> tensor<f32>",
        f"%c = graph.tanh %x {{must_inplace}} : ({t}) -> {t}",
        f"%d = graph.exp %y {{must_inplace}} : ({t}) -> {t}",
    ]
    arguments = {"x": f"{t} {{graph.donated}}", "y": f"{t} {{graph.donated}}"}
    text = program(lines, arguments, {"a": t, "b": "tensor<f32>", "c": t, "d": t})
    module = optimized(text, f"fuse-horizontal,{SCHEDULED}")
    assert sorted(len(kernel.results) for kernel in kernels(module)) == [1, 1, 2]
    given = random_arguments(parse(text), 1)
    assert_same_bits(evaluate(module, given), evaluate(parse(text), given))


def test_refusals_are_remarks() -> None:
    t, large = "tensor<8xf32>", "tensor<70000xf32>"
    lines = [
        f"%a = graph.exp %x : ({t}) -> {t}",
        f"%b = graph.exp %y : ({large}) -> {large}",
        f"%c = graph.tanh %x {{no_fuse}} : ({t}) -> {t}",
        f'%d = graph.sin %x {{fuse_group = "g"}} : ({t}) -> {t}',
        f"%e = graph.max %y {{axes = array<i64: 0>}} : ({large}) -> tensor<f32>",
    ]
    text = program(lines, {"x": t, "y": large}, {"a": t, "b": large, "c": t, "d": t, "e": "tensor<f32>"})
    with collect() as remarks:
        module = optimized(text, "fuse-horizontal")
    assert not kernels(module)
    assert [r.code for r in remarks] == ["large", "no-fuse", "fuse-group", "large"]


def test_decisions_are_recorded_replayed_and_counted() -> None:
    text = chains([40, 50, 60])
    with record_decisions() as decisions:
        once = printed(optimized(text, FUSED))
    assert [d.pass_name for d in decisions].count("fuse-horizontal") == 1
    with replay_decisions(decisions):
        assert printed(optimized(text, FUSED)) == once
    with limit_fuel(len(decisions) - 1):
        assert len(kernels(optimized(text, FUSED))) == 3


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="option 'max-elements': expected 0 or more, got -1"):
        FuseHorizontalPass(max_elements=-1)
    text = chains([40, 50])
    assert len(kernels(optimized(text, FUSED.replace("fuse-horizontal", "fuse-horizontal{except=square}")))) == 2
