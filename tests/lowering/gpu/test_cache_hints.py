"""`cache = "once"` in a kernel's schedule: what is read or written once is said to be, arguments of the kernel alone, and results
are the same; without it nothing is said."""

from __future__ import annotations

import re

import pytest
from cuda_on_cpu import CudaOnCpu, kernels_text, needs_cxx, needs_nvcc
from ir_testing import apply, assert_same_bits, parse, random_arguments
from xdsl.dialects.builtin import DictionaryAttr, ModuleOp, StringAttr

from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.fused.gpu_schedule import ENTRY
from fuse_opt.runtime.device.compiler import compile_cuda, find_cuda_compiler
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE


def unary(op: str, kind: str, *shape: int, attributes: str = "") -> str:
    t = f"tensor<{'x'.join(map(str, shape))}x{kind}>"
    return f"func.func @f(%x: {t}) -> {t} {{ %r = graph.{op} %x {attributes} : ({t}) -> {t} func.return %r : {t} }}"


BIAS = """func.func @f(%x: tensor<300x64xf32>, %b: tensor<64xf32>) -> tensor<300x64xf32> {
  %s = graph.add %x, %b : (tensor<300x64xf32>, tensor<64xf32>) -> tensor<300x64xf32>
  %r = graph.gelu %s : (tensor<300x64xf32>) -> tensor<300x64xf32>
  func.return %r : tensor<300x64xf32>
}"""
IN_PLACE = BIAS.replace("%x: tensor<300x64xf32>", "%x: tensor<300x64xf32> {graph.donated}")
TURNED = """func.func @f(%x: tensor<70x45xf32>, %y: tensor<45x70xf32>) -> tensor<45x70xf32> {
  %t = graph.permute_dims %x {axes = array<i64: 1, 0>} : (tensor<70x45xf32>) -> tensor<45x70xf32>
  %r = graph.add %t, %y : (tensor<45x70xf32>, tensor<45x70xf32>) -> tensor<45x70xf32>
  func.return %r : tensor<45x70xf32>
}"""
SOFTMAX = "{axis = -1 : i64}"
PROGRAMS = {
    "bias": BIAS,
    "in place": IN_PLACE,
    "turned": TURNED,
    "row in a warp": unary("softmax", "f32", 40, 256, attributes=SOFTMAX),
    "row in a block": unary("softmax", "bf16", 40, 2048, attributes=SOFTMAX),
    "odd row": unary("softmax", "f16", 12, 771, attributes=SOFTMAX),
    "long row": unary("softmax", "f32", 2, 70001, attributes=SOFTMAX),
    "bytes": unary("abs", "i8", 1000),
    "wide": unary("abs", "i64", 1001),
}


TOGETHER = "\n".join(text.replace("@f(", f"@f{number}(") for number, text in enumerate(PROGRAMS.values()))
"""As one module: a compiler takes longer to begin than for the kernels of most."""
_PLACES = re.compile(r"fo_(load|store)_once\((?:&|\((?:const )?fo_vector<[^>]*> \*\)\()(\w+)")


def converted(text: str, cache: str | None) -> ModuleOp:
    module = apply(parse(text), DEFAULT_PIPELINE)
    for op in module.walk():
        if cache and isinstance(op, KernelOp) and op.schedule is not None:
            entry = DictionaryAttr({"cache": StringAttr(cache)})
            op.schedule = DictionaryAttr({**op.schedule.data, ENTRY: entry})
    return apply(module, "convert-fused-to-gpu")


def told(text: str) -> tuple[set[str], set[str]]:
    """Arrays that are loaded and stored once, as the kernels of a text say."""
    found: dict[str, set[str]] = {"load": set(), "store": set()}
    for word, place in _PLACES.findall(text):
        found[word].add(place)
    return found["load"], found["store"]


@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_nothing_is_told_without_the_entry(text: str) -> None:
    plain = kernels_text(converted(text, None))
    assert "_once" not in plain
    assert kernels_text(converted(text, "kept")) == plain


def test_what_is_read_again_is_not_told() -> None:
    """A bias, which every row reads; memory that is read and written; rows that do not fit and are read again."""
    assert told(kernels_text(converted(BIAS, "once"))) == ({"x"}, {"r"})
    assert told(kernels_text(converted(IN_PLACE, "once"))) == (set(), set())
    long = told(kernels_text(converted(unary("softmax", "bf16", 2, 400000, attributes=SOFTMAX), "once")))
    assert "x" not in long[0]


@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_only_arguments_are_told(text: str) -> None:
    found = kernels_text(converted(text, "once"))
    loads, stores = told(found)
    heads = re.findall(r"__launch_bounds__\(\d+\) \w+\(([^)]*)\)", found)
    arguments = {name for head in heads for name in re.findall(r"\*(?:__restrict__ )?(\w+)", head)}
    assert loads <= arguments and stores <= arguments
    calls = found[found.rindex("__stcs") :] if "__stcs" in found else ""
    assert calls.count("_once(") == len(_PLACES.findall(calls))


@pytest.fixture(scope="module")
def both() -> tuple[CudaOnCpu, CudaOnCpu]:
    """All programs without the entry, and with it."""
    plain, told_once = (CudaOnCpu(converted(TOGETHER, cache)) for cache in (None, "once"))
    return plain, told_once


@pytest.mark.sampled(6)
@needs_cxx
@pytest.mark.parametrize("number", range(len(PROGRAMS)), ids=PROGRAMS.keys())
def test_results_are_the_same(number: int, both: tuple[CudaOnCpu, CudaOnCpu]) -> None:
    plain, told_once = both
    arguments = random_arguments(parse([*PROGRAMS.values()][number]), 3)
    assert_same_bits(told_once.run(f"f{number}", arguments), plain.run(f"f{number}", arguments))


@needs_nvcc
@pytest.mark.sampled(2)
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_120"])
def test_nvcc_takes_it(arch: str) -> None:
    compiler = find_cuda_compiler()
    assert compiler is not None
    if int(arch.removeprefix("sm_")) not in compiler.architectures:
        pytest.skip(f"the compiler does not know {arch}")
    compile_cuda(compiler, kernels_text(converted(TOGETHER, "once")), arch, DiskCache())
