"""The backend `gpu`: what it takes by types and shapes alone, its text, and its calls on the stand-in driver."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
from cuda_gpu_op_scenarios import OPS, SCENARIOS, TAKE
from cuda_gpu_op_scenarios import __file__ as SCENARIO_FILE
from draws import MULTIPLIER
from ir_testing import kernels, parse
from stand_in_driver import needs_stand_in, run_python, run_script

from fuse_opt.dialects.implementation.offers import find_offer
from fuse_opt.dialects.implementation.queries import opaque_op
from fuse_opt.dialects.implementation.site import Site
from fuse_opt.lowering.program import BufferRef, LibraryCall
from fuse_opt.passes.devices.gpu_attach_device import make_for
from fuse_opt.runtime.backends.gpu_near import divisor
from fuse_opt.runtime.backends.gpu_ops import PARTS, gpu_source, kernel_names
from fuse_opt.runtime.backends.gpu_places import Places, index, take
from fuse_opt.runtime.device.compiler import compile_cuda, find_cuda_compiler, kernel_resources
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.tools.compiler.api import optimize


@needs_stand_in
def test_scenarios_on_the_stand_in_driver() -> None:
    assert run_script("cuda_gpu_op_scenarios.py").keys() == SCENARIOS.keys()


@needs_stand_in
def test_results_do_not_depend_on_the_order_of_blocks_and_threads() -> None:
    script, names = str(SCENARIO_FILE), ["parts_of_lines", "long_rows", "long_lines"]
    result = run_python([script, *names], FAKE_CUDA_ORDER="7")
    assert result.returncode == 0, result.stdout + result.stderr


@needs_stand_in
def test_programs_on_memory_of_a_caller() -> None:
    said = run_script("cuda_caller_scenarios.py")
    assert said == {"pieces_on_streams": "6 graphs, 6 launches", "context_of_others": "1 pieces"}, said


def refusal(op: str, text: str) -> str | None:
    """What the backend says of the only op of a function."""
    (found,) = [each for each in parse(text).walk() if each.name == op]
    offer = find_offer(op, f"gpu.{op.partition('.')[2]}")
    assert offer is not None
    return offer.refusal(Site.of(found))  # pyright: ignore[reportArgumentType]


def function(op: str, attributes: str, operands: str, result: str) -> str:
    types = [f"tensor<{each}>" for each in operands.split()]
    arguments = ", ".join(f"%a{k}: {t}" for k, t in enumerate(types))
    names = ", ".join(f"%a{k}" for k in range(len(types)))
    return (
        f"func.func @main({arguments}) -> tensor<{result}> {{\n"
        f"  %r = {op} {names} {{{attributes}}} : ({', '.join(types)}) -> tensor<{result}>\n"
        f"  func.return %r : tensor<{result}>\n}}"
    )


def test_what_it_leaves_to_the_host() -> None:
    assert len(OPS) == 29
    assert refusal("graph.take", TAKE) is None
    assert refusal("graph.take", function("graph.take", "", "0x4xf32 3xi64", "3x4xf32")) == "empty"
    assert refusal("graph.take", function("graph.take", "", "?x4xf32 3xi64", "3x4xf32")) == "extent-unknown"
    deep = "2x2x2x2x2x2x2x2x2x2xf32"
    backwards = "axis = 0 : i64"
    places = "1x2x1x2x1x2x1x2x1x2xi64"
    assert (
        refusal(
            "graph.take_along_axis",
            function("graph.take_along_axis", backwards, f"{deep} {places}", "1x2x2x2x2x2x2x2x2x2xf32"),
        )
        == "form"
    )
    assert (
        refusal("graph.cumulative_sum", function("graph.cumulative_sum", "axis = 0 : i64", "4xbf16", "4xbf16")) is None
    )


def call(op: str, *refs: tuple[tuple[int, ...], str], **config: int | tuple[int, ...]) -> LibraryCall:
    *inputs, out = (BufferRef(k, 0, shape, dtype) for k, (shape, dtype) in enumerate(refs))
    return LibraryCall(f"gpu.{op}", f"graph.{op}", tuple(inputs), (out,), config, lambda inputs, outputs, config: None)


def test_places_are_as_few_axes_as_can_be() -> None:
    rows = take(call("take", ((50, 6, 4), "f32"), ((3, 5), "i64"), ((3, 5, 6, 4), "f32"))).collapsed()
    assert rows == Places((15, 24), (0, 1), rows.named, (24, 1)) and rows.named[0].steps == (1, 0)
    assert rows.named[0].weight == 24
    apart = index(call("index", ((5, 6, 7), "f32"), ((3, 1), "i64"), ((4,), "i64"), ((3, 4, 6), "f32"), axes=(0, 2)))
    assert apart.extents == (3, 4, 6) and apart.x_steps == (0, 0, 7)
    assert [(each.axis, each.weight, each.steps) for each in apart.named] == [(0, 42, (1, 0, 0)), (2, 1, (0, 1, 0))]
    assert take(call("take", ((5,), "f32"), ((), "i64"), ((), "f32"))).collapsed().extents == ()


def test_divisors_are_products() -> None:
    for n in (1, 2, 3, 7, 64, 1021, 65537, 2**30 - 35, 2**31 - 1):
        packed, shift = divisor(n)
        assert packed & 0xFFFFFFFF == n and packed < 1 << 64
        for x in {0, 1, n - 1, n, min(7 * n - 1, 2**31 - 1), 2**31 - 1, 123456789}:
            assert ((x << 1) * (packed >> 32) >> 32) >> shift == x // n


def test_it_is_chosen_for_cuda_alone() -> None:
    module = parse(TAKE)
    assert [k.implementation and k.implementation.data for k in kernels(optimize(module)) if opaque_op(k)] == [
        "fuse.take"
    ]
    module = parse(TAKE)
    make_for(module, "cuda")
    assert [k.implementation and k.implementation.data for k in kernels(optimize(module)) if opaque_op(k)] == [
        "gpu.take"
    ]


def test_every_kernel_is_in_one_part() -> None:
    names = [name for part in PARTS for name in kernel_names(part)]
    assert len(names) == len(set(names)) == 67
    assert all(gpu_source(part).count("__global__") == len(kernel_names(part)) for part in PARTS)


ARCHITECTURES = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
FEW = [("sm_75", "orders"), ("sm_90", "sparse"), ("sm_90", "positions")]
"""Running totals take twenty seconds: they are compiled where all cases run, as the others are for all."""
LIKE_OTHERS = ("signed char", "short", "int", "unsigned short", "unsigned", "u64")
"""Types of elements that need no more registers than others of their kernels: compiled where all cases run."""


SMALLER = re.compile(r"gpu_(near_(1_1|2_1|4_1|8_1|2_4|8_2)|read_[124]|rows_[24])\b")
"""Kernels of texts that others have of more bytes a thread, in more registers: compiled where all cases run."""


def sampled_text(part: str) -> tuple[str, set[str]]:
    """The text of a part, and its kernels; in a run at every change they are fewer, and choose between few types."""
    text, names = gpu_source(part), set(kernel_names(part))
    if MULTIPLIER > 1:
        return text, names
    for name in LIKE_OTHERS:
        text = re.sub(rf"(case \d+:) BODY\({name}\);", r"\1", text)
    kept = [line for line in text.splitlines() if not (line.startswith("extern") and SMALLER.search(line))]
    return "\n".join(kept), {name for name in names if not SMALLER.fullmatch(name)}


@pytest.mark.parametrize(("arch", "part"), [*product(ARCHITECTURES, PARTS)] if MULTIPLIER > 1 else FEW)
def test_the_text_compiles_without_spills(arch: str, part: str, tmp_path: Path) -> None:
    if (compiler := find_cuda_compiler()) is None:
        pytest.skip("no compiler of CUDA C")
    if int(arch.removeprefix("sm_")) not in compiler.architectures:
        pytest.skip(f"the compiler does not know {arch}")
    text, names = sampled_text(part)
    found = kernel_resources(compile_cuda(compiler, text, arch, DiskCache(tmp_path)).log)
    assert found.keys() == names, found
    # Bytes: over the call that divides numbers of 64 bits, and in a few kernels that are held to 48 registers, by nvcc 13.0.
    kept = {"sm_75": 0, "sm_90": 0, "sm_100": 160}.get(arch, 52)
    assert not any(max(each.spill_stores, each.stack) > kept for each in found.values()), found
