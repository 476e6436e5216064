"""What implementations offer, and who asks: in-place pairs, the choice among several, epilogues in IR and in the runtime."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from ir_testing import (
    CONTEXT,
    Array,
    apply,
    assert_same_bits,
    context,
    evaluate,
    kernels,
    op_names,
    random_arguments,
    text_of,
)
from program_generator import random_program
from xdsl.dialects.builtin import ModuleOp, StringAttr, TensorType
from xdsl.ir import Dialect
from xdsl.irdl import irdl_op_definition, operand_def, result_def

import fuse_opt
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.implementation.offers import (
    Offer,
    PointwiseOffer,
    default_offer,
    load_with,
    offers_of,
    register_offer,
)
from fuse_opt.dialects.implementation.queries import offer_of
from fuse_opt.dialects.implementation.site import Site
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.properties import int_array
from fuse_opt.dialects.interfaces.shapes import AnyTensor, tensor
from fuse_opt.dialects.interfaces.structured_op import FusionKind
from fuse_opt.dialects.verify.memory_plan import verify_plans
from fuse_opt.dialects.verify.plan_contents import PlanError
from fuse_opt.lowering.emit import build_program
from fuse_opt.lowering.emit.cuda import build_cuda_program
from fuse_opt.lowering.errors import LoweringError
from fuse_opt.lowering.program import LibraryCall
from fuse_opt.lowering.reference.kernels.registry import Config, implementation
from fuse_opt.passes.implementation.select_implementation import SelectImplementationPass
from fuse_opt.passes.remarks import RefusedError, collect
from fuse_opt.runtime.backends.blas.matmul import load_tasks
from fuse_opt.runtime.cpu import frames as cpu_frames
from fuse_opt.runtime.cpu.native_calls import Follower, NativeCall, native_call
from fuse_opt.runtime.cpu.program import CpuProgram
from fuse_opt.runtime.host.thread_pool import num_threads, set_num_threads
from fuse_opt.tools.source.parsing import parse_module
from fuse_opt.tools.source.verification import verify

needs_cc = pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="no C compiler")


@irdl_op_definition
class BackwardOp(OpaqueOp):
    """Gradients like those of a convolution: dx of x's shape, and dw of dy's."""

    name = "theirs.backward"
    dy = operand_def(TensorType)
    x = operand_def(TensorType)
    dx = result_def(TensorType)
    dw = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        return (tensor(self.x), tensor(self.dy))


def backward(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    (dy, x), (dx, dw) = inputs, outputs
    dw[...] = dy * x.sum()  # before x may be gone
    dx[...] = x * 2 + dy.sum()


implementation("theirs.plain", "theirs.backward")(backward)
implementation("theirs.reusing", "theirs.backward", inplace=((0, 1),))(backward)


def of_many(site: Site) -> tuple[tuple[int, int], ...]:
    return ((0, 1),) if site.operands[1].size > 100 else ()


implementation("theirs.choosy", "theirs.backward", inplace=of_many)(backward)
implementation("theirs.wrong", "theirs.backward", inplace=lambda site: ((0, 2),))(backward)


@irdl_op_definition
class ScanOp(OpaqueOp):
    """The operand in reverse order, and doubled."""

    name = "theirs.scan"
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        return (tensor(self.x),)


def scan(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    outputs[0][...] = 2 * inputs[0][..., ::-1]


ANY, BIAS, NONE = PointwiseOffer(), PointwiseOffer(operands="bias"), PointwiseOffer(operands="none", max_ops=2)
implementation("theirs.scan", "theirs.scan")(scan)
implementation("theirs.any", "theirs.scan", epilogue=ANY, prologue=ANY)(scan)
implementation("theirs.bias", "theirs.scan", epilogue=BIAS)(scan)
implementation("theirs.none", "theirs.scan", epilogue=NONE)(scan)
implementation("theirs.elementwise", "theirs.scan", epilogue=PointwiseOffer(FusionKind.ELEMENTWISE))(scan)
THEIRS = Dialect("theirs", [BackwardOp, ScanOp])


def parse(text: str) -> ModuleOp:
    ctx = context()
    ctx.load_dialect(THEIRS)
    module = parse_module(text, "theirs.mlir", ctx)
    verify(module)
    return module


# The registry.


def test_default_is_of_the_highest_priority_and_then_the_first() -> None:
    for name, priority in (("z.first", 0), ("z.second", 0), ("z.last", -1)):
        register_offer(Offer("z.op", name, priority=priority))
    assert [offer.name for offer in offers_of("z.op")] == ["z.first", "z.second", "z.last"]
    register_offer(Offer("z.op", "z.best", priority=1))
    assert default_offer("z.op") == Offer("z.op", "z.best", priority=1)
    assert default_offer("z.unknown") is None and offers_of("z.unknown") == ()


def test_an_offer_is_registered_once() -> None:
    register_offer(Offer("z.twice", "z.a"))
    register_offer(Offer("z.twice", "z.a"))
    assert len(offers_of("z.twice")) == 1
    with pytest.raises(ValueError, match="'z.twice' has an implementation 'z.a' already"):
        register_offer(Offer("z.twice", "z.a", inplace=((0, 0),)))


def test_loaders_run_once_before_a_question_and_offers_say_nothing_by_default() -> None:
    calls: list[int] = []

    def load() -> None:
        calls.append(1)
        register_offer(Offer("z.late", "z.late"))

    load_with(load)
    load_with(load)
    assert calls == [] and default_offer("z.late") is not None and calls == [1]
    offer = default_offer("graph.matmul")
    assert offer is not None and (offer.name, offer.inplace, offer.epilogue) == ("numpy.matmul", (), None)


# In place.

BACKWARD = """
func.func @main(%dy: tensor<4x4xf32>, %x: tensor<64x4xf32>) -> (tensor<4x4xf32>, tensor<4x64xf32>) {
  %y = graph.square %x : (tensor<64x4xf32>) -> tensor<64x4xf32>
  %dx, %dw = fused.kernel(%0 = %dy : tensor<4x4xf32>, %1 = %y : tensor<64x4xf32>) -> (tensor<64x4xf32>, tensor<4x4xf32>)
      attributes {implementation = "NAME"} {
    %2, %3 = theirs.backward %0, %1 : (tensor<4x4xf32>, tensor<64x4xf32>) -> (tensor<64x4xf32>, tensor<4x4xf32>)
    fused.yield %2, %3 : tensor<64x4xf32>, tensor<4x4xf32>
  }
  %r = graph.permute_dims %dx {axes = array<i64: 1, 0>} : (tensor<64x4xf32>) -> tensor<4x64xf32>
  func.return %dw, %r : tensor<4x4xf32>, tensor<4x64xf32>
}
"""
PLAN = "wrap-kernels,infer-inplace,plan-memory"


def planned(name: str, text: str = BACKWARD) -> tuple[ModuleOp, KernelOp]:
    module = apply(parse(text.replace("NAME", name)), PLAN)
    return module, next(kernel for kernel in kernels(module) if offer_of(kernel) is not None)


def arena(module: ModuleOp) -> int:
    return build_cuda_program(module).arena_bytes


def test_the_implementation_decides_the_pairs_and_saves_what_it_takes_over() -> None:
    plain, kernel = planned("theirs.plain")
    reusing, other = planned("theirs.reusing")
    assert (kernel.inplace_pairs(), other.inplace_pairs()) == ([], [(0, 1)])
    assert arena(plain) - arena(reusing) == 64 * 4 * 4


def test_pairs_may_depend_on_the_site() -> None:
    many, kernel = planned("theirs.choosy")
    _, other = planned("theirs.choosy", BACKWARD.replace("64", "16"))
    assert (kernel.inplace_pairs(), other.inplace_pairs()) == ([(0, 1)], [])
    verify_plans(many)
    with pytest.raises(RefusedError, match=r"'theirs.wrong', answer of inplace: expected pairs .*got \(\(0, 2\),\)"):
        SelectImplementationPass().apply(CONTEXT, parse(BACKWARD.replace("NAME", "theirs.wrong")))


def test_choosing_another_implementation_drops_the_pairs_of_the_one_before() -> None:
    module, kernel = planned("theirs.reusing")
    kernel.implementation = None  # the default one does not run in place
    with pytest.raises(PlanError, match="does not offer it"):
        verify_plans(module)
    SelectImplementationPass(prefer=("theirs.plain",)).apply(CONTEXT, module)
    assert kernel.implementation == StringAttr("theirs.plain")
    assert kernel.inplace is None and kernel.slots is None
    verify_plans(apply(module, PLAN))


@pytest.mark.parametrize(
    ("name", "pair", "message"),
    [
        ("theirs.reusing", (0, 1), None),
        ("theirs.plain", (0, 1), "it is a library call that does not offer it"),
        ("theirs.reusing", (1, 0), "does not offer it|must not be overwritten"),
    ],
)
def test_the_verifier_accepts_what_is_offered(name: str, pair: tuple[int, int], message: str | None) -> None:
    text = BACKWARD.replace("%dy: tensor<4x4xf32>", "%dy: tensor<4x4xf32> {graph.donated}")
    module, kernel = planned("theirs.reusing", text)
    kernel.implementation = StringAttr(name)
    kernel.inplace = int_array(pair)
    if message is None:
        verify_plans(module)
        return
    with pytest.raises(PlanError, match=message):
        verify_plans(module)


TWICE = """
func.func @main(%x: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %y = graph.square %x : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %v = graph.reshape %y {shape = array<i64: 4, 4>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %dx, %dw = fused.kernel(BINDINGS) -> (tensor<4x4xf32>, tensor<4x4xf32>) attributes {implementation = "NAME"} {
    %2, %3 = theirs.backward READ : (tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>)
    fused.yield %2, %3 : tensor<4x4xf32>, tensor<4x4xf32>
  }
  func.return %dw, %dx : tensor<4x4xf32>, tensor<4x4xf32>
}
"""


@pytest.mark.parametrize(
    ("bindings", "read", "pairs"),
    [
        ("%0 = %x : tensor<4x4xf32>, %1 = %y : tensor<4x4xf32>", "%0, %1", [(0, 1)]),
        ("%0 = %y : tensor<4x4xf32>, %1 = %v : tensor<4x4xf32>", "%0, %1", []),
        ("%0 = %y : tensor<4x4xf32>", "%0, %0", []),
    ],
)
def test_an_operand_that_is_given_twice_is_not_taken_over(
    bindings: str, read: str, pairs: list[tuple[int, int]]
) -> None:
    text = TWICE.replace("BINDINGS", bindings).replace("READ", read)
    assert planned("theirs.reusing", text)[1].inplace_pairs() == pairs


@needs_cc
def test_a_pair_that_is_not_offered_is_refused_by_lowering_too() -> None:
    module = parse(BACKWARD.replace('"NAME"', '"theirs.plain", inplace = array<i64: 0, 1>'))
    with pytest.raises(LoweringError, match="does not offer to overwrite it"):
        build_program(apply(module, "wrap-kernels"))


@needs_cc
@pytest.mark.parametrize("name", ["theirs.plain", "theirs.reusing"])
def test_both_implementations_compute_the_same(name: str) -> None:
    text, arguments = BACKWARD.replace("NAME", name), floats((4, 4), (64, 4))
    program = fuse_opt.compile(parse(text), "cpu")
    assert_same_bits(program(*arguments), evaluate(parse(text), arguments))


SCATTER = """
func.func @main(%x: tensor<64x8xf32>, %i: tensor<5x8xi64>, %u: tensor<5x8xf32>) -> tensor<64x8xf32> {
  %y = graph.square %x : (tensor<64x8xf32>) -> tensor<64x8xf32>
  %z = graph.OP %y, %i, %u {axis = 0 : i64ATTR} : (tensor<64x8xf32>, tensor<5x8xi64>, tensor<5x8xf32>) -> tensor<64x8xf32>
  %r = graph.exp %z : (tensor<64x8xf32>) -> tensor<64x8xf32>
  func.return %r : tensor<64x8xf32>
}
"""


@needs_cc
@pytest.mark.parametrize(
    ("op", "attribute"), [("scatter", ""), ("scatter_add", ""), ("scatter_reduce", ', reduce = "max"')]
)
def test_scatters_update_in_place(op: str, attribute: str) -> None:
    text = SCATTER.replace("OP", op).replace("ATTR", attribute)
    module = apply(parse(text), PLAN)
    assert [kernel.inplace_pairs() for kernel in kernels(module)] == [[], [(0, 0)], [(0, 0)]]
    arguments = [*floats((64, 8)), np.random.default_rng(1).integers(-64, 64, (5, 8)), *floats((5, 8))]
    program = fuse_opt.compile(parse(text), "cpu")
    assert program.stats.arena_bytes == 0
    np.testing.assert_allclose(program(*arguments), evaluate(parse(text), arguments)[0], rtol=1e-5)


def floats(*shapes: tuple[int, ...], kind: Any = np.float32) -> list[Array]:
    rng = np.random.default_rng(5)
    return [rng.standard_normal(shape).astype(kind) for shape in shapes]


# Epilogues in IR.

A = "tensor<4x6xf32>"


def chain(body: str, name: str, returned: str = "%r", type_: str = A) -> ModuleOp:
    """%p is the scan of %x; then the body."""
    implementation = f' attributes {{implementation = "{name}"}}' if name else ""
    return parse(f"""func.func @main(%x: {A}, %b: tensor<6xf32>, %o: {A}) -> ({type_}) {{
      %p = fused.kernel(%0 = %x : {A}) -> ({A}){implementation} {{
        %1 = theirs.scan %0 : ({A}) -> {A}
        fused.yield %1 : {A}
      }}
      {body}
      func.return {returned} : {type_}
    }}""")


def op(name: str, result: str, *operands: str) -> str:
    types = ", ".join("tensor<6xf32>" if operand == "%b" else A for operand in operands)
    return f"{result} = graph.{name} {', '.join(operands)} : ({types}) -> {A}\n"


BIASED = op("add", "%s", "%p", "%b") + op("relu", "%r", "%s")
RESIDUAL = op("add", "%s", "%o", "%p") + op("relu", "%r", "%s")
LONG = op("exp", "%s", "%p") + op("relu", "%t", "%s") + op("exp", "%r", "%t")


@pytest.mark.parametrize(
    ("name", "body", "fused", "code"),
    [
        ("theirs.any", BIASED, ["scan", "add", "relu"], None),
        ("theirs.any", RESIDUAL, ["scan", "add", "relu"], None),
        ("theirs.bias", BIASED, ["scan", "add", "relu"], None),
        ("theirs.bias", RESIDUAL, ["scan"], "operands"),
        ("theirs.none", LONG, ["scan", "exp", "relu"], "max-ops"),
        ("theirs.none", BIASED, ["scan"], "operands"),
        ("theirs.elementwise", RESIDUAL, ["scan", "add", "relu"], None),
        ("theirs.elementwise", BIASED, ["scan"], "kind"),
        ("theirs.scan", BIASED, ["scan"], "not-offered"),
        ("", BIASED, ["scan"], "not-offered"),
        ("theirs.any", op("relu", "%s", "%p") + op("add", "%r", "%s", "%p"), ["scan"], "multi-use"),
        ("theirs.any", op("relu", "%r", "%p").replace("%p", "%p {must_inplace}", 1), ["scan"], "must-inplace"),
        ("theirs.any", op("relu", "%r", "%p").replace("%p", "%p {no_fuse}", 1), ["scan"], "no-fuse"),
    ],
)  # fmt: skip
def test_an_epilogue_is_as_offered(name: str, body: str, fused: Sequence[str], code: str | None) -> None:
    module = chain(body, name)
    arguments = floats((4, 6), (6,), (4, 6))
    expected = evaluate(module, arguments)
    with collect() as remarks:
        apply(module, "fuse-epilogue")
    (kernel,) = kernels(module)
    assert op_names(kernel.ops()) == fused
    assert kernel.implementation == (StringAttr(name) if name else None)
    codes = {remark.code for remark in remarks if remark.code != "rounds"}
    assert codes == ({code} - {None}) | ({"fused"} if len(fused) > 1 else set())
    assert_same_bits(evaluate(module, arguments), expected)
    once = text_of(module)
    assert text_of(apply(module, "fuse-epilogue")) == once


def test_what_fuse_elementwise_joined_is_one_epilogue_with_two_results() -> None:
    body = op("relu", "%s", "%p") + op("exp", "%r", "%s")
    module = apply(chain(body, "theirs.any", "%s, %r", f"{A}, {A}"), "fuse-elementwise,fuse-epilogue")
    (kernel,) = kernels(module)
    assert op_names(kernel.ops()) == ["scan", "relu", "exp"] and len(kernel.results) == 2


def test_results_of_another_size_or_type_only_stay_outside() -> None:
    wide = f"%r = graph.broadcast_to %p {{shape = array<i64: 2, 4, 6>}} : ({A}) -> tensor<2x4x6xf32>"
    narrow = f"%r = graph.astype %p {{dtype = f16}} : ({A}) -> tensor<4x6xf16>"
    for body, type_, code in (
        (wide, "tensor<2x4x6xf32>", "unequal-results"),
        (narrow, "tensor<4x6xf16>", "element-type"),
    ):
        module = chain(body, "theirs.any", type_=type_)
        with collect() as remarks:
            apply(module, "fuse-epilogue")
        assert [op_names(kernel.ops()) for kernel in kernels(module)] == [["scan"]]
        assert [remark.code for remark in remarks] == [code]


def test_a_prologue_is_for_the_op_alone() -> None:
    text = f"""func.func @main(%x: {A}) -> ({A}) {{
      %e = graph.exp %x : ({A}) -> {A}
      %p = fused.kernel(%0 = %e : {A}) -> ({A}) attributes {{implementation = "theirs.any"}} {{
        %1 = theirs.scan %0 : ({A}) -> {A}
        fused.yield %1 : {A}
      }}
      OTHER
      func.return %r : {A}
    }}"""
    module = apply(parse(text.replace("OTHER", op("relu", "%r", "%p"))), "fuse-epilogue")
    assert [op_names(kernel.ops()) for kernel in kernels(module)] == [["exp", "scan", "relu"]]
    module = apply(parse(text.replace("OTHER", op("add", "%r", "%p", "%e"))), "fuse-epilogue")
    assert [op_names(kernel.ops()) for kernel in kernels(module)] == [["scan", "add"]]


def test_unknown_names_are_refused() -> None:
    with pytest.raises(
        RefusedError, match="\"theirs.x\" does not run 'theirs.scan': expected one of theirs.scan, theirs.any"
    ):
        apply(chain(BIASED, "theirs.x"), "select-implementation")
    with pytest.raises(RefusedError, match="option prefer: unknown 'mkl'; expected one of .*numpy.matmul"):
        apply(chain(BIASED, ""), "select-implementation{prefer=mkl}")


def test_a_library_is_preferred_by_what_is_before_the_dot() -> None:
    module = apply(chain(BIASED, ""), "wrap-kernels,select-implementation{prefer=numpy,theirs}")
    assert [k.implementation for k in kernels(module)] == [StringAttr("theirs.scan"), None, None]


# Epilogues in lowered programs.

PROLOGUE = f"""func.func @main(%x: {A}, %b: tensor<6xf32>, %o: {A}) -> ({A}) {{
  %r = fused.kernel(%0 = %x : {A}, %1 = %o : {A}) -> ({A}) attributes {{implementation = "theirs.any"}} {{
    %c = graph.constant dense<2.0> : tensor<f32>
    %2 = graph.multiply %0, %c : ({A}, tensor<f32>) -> {A}
    %3 = theirs.scan %2 : ({A}) -> {A}
    %4 = graph.multiply %3, %c : ({A}, tensor<f32>) -> {A}
    %5 = graph.add %4, %1 : ({A}, {A}) -> {A}
    fused.yield %5 : {A}
  }}
  func.return %r : {A}
}}"""
OTHER_TYPE = f"""func.func @main(%x: {A}, %b: tensor<6xf32>, %o: {A}) -> (tensor<4x6xi32>) {{
  %r = fused.kernel(%0 = %x : {A}) -> (tensor<4x6xi32>) attributes {{implementation = "theirs.any"}} {{
    %2 = graph.multiply %0, %0 : ({A}, {A}) -> {A}
    %3 = theirs.scan %2 : ({A}) -> {A}
    %4 = graph.astype %3 {{dtype = i32}} : ({A}) -> tensor<4x6xi32>
    fused.yield %4 : tensor<4x6xi32>
  }}
  func.return %r : tensor<4x6xi32>
}}"""


@needs_cc
@pytest.mark.parametrize("before", ["", "schedule-kernels,plan-memory,bulk-launches"])
@pytest.mark.parametrize(
    ("text", "kernels_", "calls"), [(PROLOGUE, 2, 1), (OTHER_TYPE, 2, 1)], ids=["prologue", "another type"]
)
def test_what_cannot_be_a_call_and_a_launch_becomes_kernels(text: str, kernels_: int, calls: int, before: str) -> None:
    module, arguments = apply(parse(text), before), floats((4, 6), (6,), (4, 6))
    program = CpuProgram(build_program(module))
    assert (program.stats.kernels, program.stats.library_calls) == (kernels_, calls)
    assert_same_bits([program(*arguments)], evaluate(module, arguments))


@needs_cc
def test_a_call_and_a_launch_share_the_result() -> None:
    module = apply(chain(BIASED, "theirs.any"), "fuse-epilogue,schedule-kernels,plan-memory,bulk-launches")
    arguments = floats((4, 6), (6,), (4, 6))
    built = build_program(module)
    assert built.arena_bytes == 0
    (call,) = [step for step in built.steps if isinstance(step, LibraryCall)]
    assert call.epilogue is not None and call.epilogue.buffers[-1].buffer == call.outputs[0].buffer
    assert_same_bits([CpuProgram(built)(*arguments)], evaluate(module, arguments))
    assert build_cuda_program(module).stats.launches == 1


FUSE = 'wrap-kernels,select-implementation{prefer="blas.matmul_epilogue"},fuse-epilogue'
FINISH = "schedule-kernels,infer-inplace,plan-memory,bulk-launches"


def test_random_programs_keep_their_values() -> None:
    for seed in range(10):
        module = random_program(seed)
        arguments = random_arguments(module, seed)
        expected = evaluate(module, arguments)
        apply(module, f"decompose,fuse-elementwise,{FUSE},{FINISH}")
        assert_same_bits(evaluate(module, arguments), expected, f"(seed {seed})")


def bias_gelu(a: str, b: str, vector: str, result: str) -> str:
    return f"""func.func @main(%a: tensor<{a}>, %b: tensor<{b}>, %v: tensor<{vector}>) -> tensor<{result}> {{
      %0 = graph.matmul %a, %b : (tensor<{a}>, tensor<{b}>) -> tensor<{result}>
      %1 = graph.add %0, %v : (tensor<{result}>, tensor<{vector}>) -> tensor<{result}>
      %2 = graph.gelu %1 : (tensor<{result}>) -> tensor<{result}>
      func.return %2 : tensor<{result}>
    }}"""


@pytest.mark.sampled(5)
@needs_cc
@pytest.mark.skipif(load_tasks() is None, reason="no BLAS that the pool can call")
@pytest.mark.parametrize(
    ("kind", "a", "b", "vector", "by_parts"),
    [
        ("f32", (512, 128), (128, 256), (256,), True),
        ("f64", (509, 67), (67, 1021), (1021,), True),
        ("f32", (509, 67), (67, 1021), (509, 1021), True),  # tasks are elements
        ("f32", (3, 130, 64), (64, 500), (500,), True),
        ("f64", (6, 96, 128), (6, 128, 160), (160,), True),
        ("f32", (1, 2000), (2000, 4000), (4000,), True),
        ("f32", (6, 96, 128), (6, 128, 160), (6, 1, 1), False),  # a task is a whole matrix
        ("f32", (8, 8), (8, 8), (8,), False),  # too little to share
    ],
)
def test_parts_are_bit_equal_to_one_after_the_other(
    kind: str, a: tuple[int, ...], b: tuple[int, ...], vector: tuple[int, ...], by_parts: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """With 4 threads, so that there are several panels."""
    answers: list[bool] = []

    def noted(call: LibraryCall, table: int, follower: Follower | None = None) -> NativeCall | None:
        found = native_call(call, table, follower)
        if call.implementation == "blas.matmul_epilogue":
            answers.append(found is not None and found.with_follower)
        return found

    monkeypatch.setattr(cpu_frames, "native_call", noted)
    result = (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1])
    text = bias_gelu(*("x".join(map(str, shape)) + f"x{kind}" for shape in (a, b, vector, result)))
    arguments = floats(a, b, vector, kind={"f32": np.float32, "f64": np.float64}[kind])
    called = 'wrap-kernels,select-implementation{prefer="blas.matmul"}'
    plain = fuse_opt.compile(text, "cpu", f"fuse-elementwise,{called},{FINISH}")
    fused = fuse_opt.compile(text, "cpu", f"fuse-elementwise,{FUSE},{FINISH}")
    threads = num_threads()
    set_num_threads(4)
    try:
        for _ in range(3):
            assert_same_bits([fused(*arguments)], [plain(*arguments)])
        assert set(answers) == {by_parts}
    finally:
        set_num_threads(threads)


@needs_cc
def test_parts_run_from_several_threads_at_once() -> None:
    text = bias_gelu("256x64xf32", "64x512xf32", "512xf32", "256x512xf32")
    program = fuse_opt.compile(text, "cpu", f"fuse-elementwise,{FUSE},{FINISH}")
    arguments = floats((256, 64), (64, 512), (512,))
    expected = program(*arguments)
    wrong: list[int] = []

    def work() -> None:
        for number in range(10):
            if not np.array_equal(program(*arguments), expected):
                wrong.append(number)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_passes_know_the_offers_before_anything_ran() -> None:
    """In a new process: elsewhere another test may have imported what registers them."""
    probe = (
        "from fuse_opt.tools.compiler import available_passes\n"
        "from fuse_opt.dialects.implementation import offers_of\n"
        "available_passes()['infer-inplace']()\n"
        "names = [offer.name for offer in offers_of('graph.matmul')]\n"
        "wanted = ['fuse.matmul', 'fuse.attention', 'fuse.attention_gradient', 'gpu.attention', 'cublaslt.matmul',"
        "          'cublaslt.matmul_fast',"
        "          'onednn.matmul', 'onednn.matmul_fast', 'numpy.matmul', 'blas.matmul', 'cublas.matmul', 'cublas.matmul_fast',"
        "          'blas.matmul_epilogue']\n"
        "assert names == wanted, names\n"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
