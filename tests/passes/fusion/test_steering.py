"""Options and directives that steer fusion: which ops, which device, how much memory, where a kernel ends; and reasons."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from draws import draws
from fusion_programs import PROGRAMS
from ir_testing import apply, assert_same_bits, evaluate, kernels, op_names, optimized, parse, random_arguments, text_of
from program_generator import random_program
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, OpResult

from fuse_opt.dialects.analysis.bare_ops import is_creation, sweep_functions
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.passes.devices.device import device_names, find_device
from fuse_opt.passes.fusion.engine.cost_model import estimate
from fuse_opt.passes.fusion.engine.group_graph import GroupGraph, Limits
from fuse_opt.passes.fusion.engine.peak_limit import PeakLimit
from fuse_opt.passes.remarks import collect
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE, UsageError, make_passes

ROOT = Path(__file__).resolve().parents[3]
FUSION = DEFAULT_PIPELINE[: DEFAULT_PIPELINE.index("wrap-kernels")]
T = "tensor<8x8xf32>"
CHAIN = f"""
func.func @main(%x: {T}) -> {T} {{
  %0 = graph.exp %x : ({T}) -> {T}
  %1 = graph.abs %0 : ({T}) -> {T}
  %2 = graph.tanh %1 : ({T}) -> {T}
  %3 = graph.negative %2 : ({T}) -> {T}
  func.return %3 : {T}
}}"""


def contents(module: ModuleOp) -> list[list[str]]:
    return [op_names(kernel.ops()) for kernel in kernels(module)]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("", [["exp", "abs", "tanh", "negative"]]),
        ('{only=exp,"graph.abs"}', [["exp", "abs"]]),
        ("{except=tanh}", [["exp", "abs"]]),
        ('{except="graph.abs",exp}', [["tanh", "negative"]]),
        ("{only=exp,abs,tanh except=abs}", []),
        ("{max-ops=2}", [["exp", "abs"], ["tanh", "negative"]]),
    ],
)
def test_only_and_except_choose_ops_by_name(options: str, found: list[list[str]]) -> None:
    assert contents(optimized(CHAIN, f"fuse-elementwise{options}")) == found


def test_what_is_not_chosen_is_a_remark() -> None:
    with collect() as remarks:
        optimized(CHAIN, "fuse-elementwise{except=tanh}")
    assert {(r.code, r.flip) for r in remarks if r.code not in ("fused", "rounds")} == {
        ("except", "remove it from except")
    }


@pytest.mark.parametrize("name", ["fuse-elementwise", "fuse-injective", "fuse-row", "fuse-siblings"])
def test_a_stop_marker_ends_every_kernel(name: str) -> None:
    text = CHAIN.replace("%1 = graph.abs %0", "%1 = graph.abs %0 {stop_fusion}")
    assert contents(optimized(text, "fuse-elementwise")) == [["exp", "abs"], ["tanh", "negative"]]
    # In a kernel, too, and for passes that come later.
    fused = optimized(text, ["fuse-elementwise", name, "canonicalize", "cse", "fuse-elementwise"])
    assert contents(fused) == [["exp", "abs"], ["tanh", "negative"]]


def test_a_stop_marker_survives_decomposition() -> None:
    text = f"""
    func.func @main(%x: {T}) -> {T} {{
      %0 = graph.softmax %x {{stop_fusion}} : ({T}) -> {T}
      %1 = graph.exp %0 : ({T}) -> {T}
      func.return %1 : {T}
    }}"""
    found = contents(optimized(text, FUSION))
    assert found == [["max", "subtract", "exp", "sum", "reciprocal", "multiply"]]


def test_a_stop_marker_against_a_fuse_group_is_an_error() -> None:
    text = CHAIN.replace("%0 {", "%0 {").replace("graph.abs %0", 'graph.abs %0 {stop_fusion, fuse_group = "g"}')
    text = text.replace("graph.tanh %1", 'graph.tanh %1 {fuse_group = "g"}')
    with pytest.raises(Exception, match=r"fuse_group = \"g\" cannot be one kernel: 'graph.abs' carries .* stop_fusion"):
        optimized(text, "fuse-elementwise")


def test_devices_are_data(tmp_path: Path) -> None:
    assert device_names() == ("a100", "avx2", "cpu", "h100", "h200", "l4", "t4")
    text = (ROOT / "passes" / "devices" / "device_cpu.toml").read_text()
    own = tmp_path / "own.toml"
    own.write_text(text.replace("parameter_bytes = 4096", "parameter_bytes = 24"))
    three = CHAIN.replace("%0)", "%0)")
    assert contents(optimized(three, f'fuse-elementwise{{device="{own}"}}')) == [["exp", "abs", "tanh", "negative"]]
    added = CHAIN.replace("%3 = graph.negative %2 :", f"%3 = graph.add %2, %y : ({T}, {T}) -> {T} //")
    added = added.replace(f"%x: {T}", f"%x: {T}, %y: {T}").replace("{T}", T)
    assert len(contents(optimized(added, f'fuse-elementwise{{device="{own}"}}'))) == 1
    own.write_text(text.replace("parameter_bytes = 4096", "parameter_bytes = 16"))
    assert contents(optimized(added, f'fuse-elementwise{{device="{own}"}}')) == [["exp", "abs", "tanh"]]


def test_an_old_entry_of_a_device_is_taken_with_a_warning(tmp_path: Path) -> None:
    text = (ROOT / "passes" / "devices" / "device_cpu.toml").read_text()
    own = tmp_path / "own.toml"
    own.write_text(text.replace("recompute_limit = 12 ", "dear = 7 "))
    with pytest.warns(FutureWarning, match="'dear' of device is now 'recompute_limit'"):
        assert find_device(str(own)).recompute_limit == 7


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("tpu", None, "unknown 'tpu'; expected one of a100, avx2, cpu, h100, h200, l4, t4 or a .toml file"),
        ("none.toml", None, "No such file"),
        ("d.toml", "x = [", "at end of document"),
        ("d.toml", 'name = "d"', "has no entry 'bandwidth'"),
        ("d.toml", "+tasks = 4", "has the unknown entry 'tasks'"),
        ("d.toml", '+like = "tpu"', "like: expected one of a100, avx2, cpu, h100, h200, l4, t4, got 'tpu'"),
        ("d.toml", "processors = 4=>processors = -4", "processors: expected a positive number, got -4"),
    ],
)
def test_a_bad_device_is_one_clear_line(name: str, text: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    cpu = (ROOT / "passes" / "devices" / "device_cpu.toml").read_text()
    if text is not None:
        old, arrow, new = text.partition("=>")
        path.write_text(cpu.replace(old, new) if arrow else cpu + text[1:] if text[0] == "+" else text)
    with pytest.raises(UsageError, match="option 'device'") as error:
        make_passes(f'fuse-elementwise{{device="{path if name.endswith(".toml") else name}"}}')
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("device", device_names())
def test_kernels_that_would_have_too_many_arguments_are_split(device: str) -> None:
    """Whatever the options allow: 600 operands would need 4808 bytes of kernel parameters."""
    arguments = ", ".join(f"%x{k}: {T}" for k in range(600))
    lines = [
        f"  %s{k} = graph.add %{'x0' if k == 1 else f's{k - 1}'}, %x{k} : ({T}, {T}) -> {T}" for k in range(1, 600)
    ]
    text = "\n".join([f"func.func @main({arguments}) -> {T} {{", *lines, f"  func.return %s599 : {T}", "}"])
    options = f"{{max-ops=9999 max-operands=9999 max-results=9999 device={device}}}"
    module = optimized(text, f"fuse-elementwise{options}")
    assert len(kernels(module)) == 2
    assert all(8 * (len(k.operands) + len(k.results)) <= find_device(device).parameter_bytes for k in kernels(module))


def edges(module: ModuleOp) -> Iterable[tuple[Operation, Operation]]:
    """Pairs of ops of a function, one of which reads the other, without constants that every kernel copies."""
    for block in sweep_functions(module):
        for op in block.ops:
            makers = dict.fromkeys(v.op for v in op.operands if isinstance(v, OpResult))
            for maker in makers:
                if isinstance(op, GraphOp | KernelOp) and not is_creation(maker):
                    yield maker, op


@pytest.mark.parametrize("example", sorted(path.stem for path in (ROOT / "examples").glob("*.mlir")))
def test_every_edge_between_kernels_of_the_examples_has_one_reason(example: str) -> None:
    with collect() as remarks:
        module = optimized((ROOT / "examples" / f"{example}.mlir").read_text(), FUSION)
    reasons = [
        r for r in remarks if r.code not in ("fused", "rounds") and r.pass_name.startswith(("fuse-", "explain-"))
    ]
    assert len(reasons) == len(list(edges(module)))
    assert all(r.flip and dict(r.numbers)["bytes_saved"] for r in reasons)
    if example == "transformer_block":
        assert {r.code for r in reasons} == {"opaque"}


def test_every_edge_of_random_programs_has_one_reason() -> None:
    for seed in draws(12):
        with collect() as remarks:
            module = apply(random_program(seed), FUSION)
        reasons = [r for r in remarks if r.pass_name == "explain-fusion"]
        assert len(reasons) == len(list(edges(module))), seed
        assert [r for r in remarks if r.code in {"multi-use", "recompute"} and r not in reasons] == []


SUM_OF_PRODUCTS = "\n".join(
    [
        f"func.func @main(%x: {T}) -> {T} {{",
        f"  %p0 = graph.matmul %x, %x : ({T}, {T}) -> {T}",
        f"  %s0 = graph.exp %p0 : ({T}) -> {T}",
        *(
            f"  %p{k} = graph.matmul %x, %p{k - 1} : ({T}, {T}) -> {T}\n  %s{k} = graph.add %s{k - 1}, %p{k} : ({T}, {T}) -> {T}"
            for k in range(1, 8)
        ),
        f"  %r = graph.abs %s7 : ({T}) -> {T}",
        f"  func.return %r : {T}",
        "}",
    ]
)
"""One kernel for all sums would need eight products at once; apart, a sum and two of them are alive."""


def peak(module: ModuleOp) -> int:
    """The most bytes alive at a step of the program as it is listed, operands and results of the step included."""
    (block,) = sweep_functions(module)
    graph = GroupGraph(block, Limits(), by_place=True)
    return max(PeakLimit(graph, 0).loads[0])


VIEWS_BECOME_RESULTS = 1
"""The seed of a program in which two views of a scalar are merged: both become results, of memory of their own."""


def test_views_that_become_results_count() -> None:
    text = text_of(random_program(VIEWS_BECOME_RESULTS, directives=False))
    before = peak(optimized(text, ["cse", "dce"]))
    assert peak(optimized(text, ["cse", "dce", f"fuse-elementwise{{peak-limit={before // 2}}}"])) <= before


def test_views_that_live_on_behind_the_merge_count() -> None:
    """The view of an argument becomes a memory of 16 bytes, which is read where 20 others are alive."""
    wide, one = "tensor<4xf32>", "tensor<1xf32>"
    lines = [
        f"func.func @main(%x: {wide}) -> ({wide}, {wide}) {{",
        f"  %v = graph.broadcast_to %x {{shape = array<i64: 4>}} : ({wide}) -> {wide}",
        "  %c = graph.constant dense<0.125> : tensor<f32>",
        f"  %r = graph.multiply %c, %v : (tensor<f32>, {wide}) -> {wide}",
        f"  %m = graph.max %v {{axes = array<i64: -1>, keepdims = true}} : ({wide}) -> {one}",
        f"  %s = graph.subtract %v, %m : ({wide}, {one}) -> {wide}",
        f"  %e = graph.exp %s : ({wide}) -> {wide}",
        f"  %u = graph.sum %e {{axes = array<i64: -1>, keepdims = true}} : ({wide}) -> {one}",
        f"  %t = graph.divide %e, %u : ({wide}, {one}) -> {wide}",
        f"  func.return %r, %t : {wide}, {wide}",
        "}",
    ]
    text = "\n".join(lines)
    assert peak(parse(text)) == 32
    assert peak(optimized(text, ["fuse-elementwise{peak-limit=16}"])) <= 32


def test_a_memory_of_several_names_counts_once() -> None:
    lines = [
        "func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {",
        "  %a = graph.exp %x : (tensor<4x4xf32>) -> tensor<4x4xf32>",
        "  %b = graph.reshape %a {shape = array<i64: 16>} : (tensor<4x4xf32>) -> tensor<16xf32>",
        "  %c = graph.reshape %b {shape = array<i64: 2, 8>} : (tensor<16xf32>) -> tensor<2x8xf32>",
        "  %d = graph.reshape %c {shape = array<i64: 4, 4>} : (tensor<2x8xf32>) -> tensor<4x4xf32>",
        "  %r = graph.abs %d : (tensor<4x4xf32>) -> tensor<4x4xf32>",
        "  func.return %r : tensor<4x4xf32>",
        "}",
    ]
    assert peak(parse("\n".join(lines))) == 64


def test_no_merge_raises_the_peak_above_the_limit() -> None:
    refused = 0
    programs = [
        SUM_OF_PRODUCTS,
        *(text_of(random_program(seed, directives=False)) for seed in range(21)),
    ]
    for text in programs:
        before = peak(optimized(text, ["cse", "dce"]))
        with collect() as remarks:
            module = optimized(text, ["cse", "dce", f"fuse-elementwise{{peak-limit={before // 2}}}"])
        assert peak(module) <= max(before, before // 2)
        refused += sum(remark.code == "peak-limit" for remark in remarks)
        original = parse(text)
        arguments = random_arguments(original, 0)
        assert_same_bits(evaluate(module, arguments), evaluate(original, arguments))
    assert refused > 0


def test_estimates_count_bytes_that_stay_out_of_memory() -> None:
    (block,) = sweep_functions(parse(CHAIN))
    graph = GroupGraph(block, Limits())
    first, second, *_ = graph.groups()
    found = estimate(graph, [first, second])
    assert (found.bytes_saved, found.launches_saved, found.work_added) == (2 * 256, 1, 0)
    device = find_device("cpu")
    assert found.seconds == pytest.approx(device.launch + 512 / device.cache_bandwidth)


def test_the_report_of_rounds_counts_merges() -> None:
    for program in PROGRAMS[:3]:
        with collect() as remarks:
            optimized(program.text, "fuse-elementwise")
        (report,) = (dict(r.numbers) for r in remarks if r.code == "rounds")
        assert report["merges"] == sum(r.code == "fused" for r in remarks)
