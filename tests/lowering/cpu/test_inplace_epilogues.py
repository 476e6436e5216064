"""Products, convolutions and attention written over what their epilogue adds: values, plans, and what must not be overwritten."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from draws import scaled
from ir_testing import apply, evaluate, kernels, parse, random_arguments
from lowered_programs import needs_compiler
from xdsl.dialects.builtin import ModuleOp, UnitAttr

import fuse_opt
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.lowering.emit.cuda import emit_cuda
from fuse_opt.passes.remarks import RefusedError, collect
from fuse_opt.runtime.host import thread_pool
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE
from fuse_opt.tools.source.verification import OpVerifyError

Array = np.ndarray[Any, Any]


def product(rows: int, depth: int, columns: int, *, residual: str = "%r", element: str = "f32", more: str = "") -> str:
    """A product, a bias and a residual, which is donated and may be seen through ops."""
    x, w = f"tensor<{rows}x{depth}x{element}>", f"tensor<{depth}x{columns}x{element}>"
    t, b = f"tensor<{rows}x{columns}x{element}>", f"tensor<{columns}x{element}>"
    return f"""func.func @main(%x: {x}, %w: {w}, %b: {b}, %r: {t} {{graph.donated}}) -> {t} {{
  %p = graph.matmul %x, %w : ({x}, {w}) -> {t}
  %q = graph.add %p, %b : ({t}, {b}) -> {t}
  {more.replace("T", t)}
  %y = graph.add %q, {residual} : ({t}, {t}) -> {t}
  func.return %y : {t}
}}"""


def conv(channels: int, size: int, filters: int, batch: int = 2) -> str:
    x, w = f"tensor<{batch}x{channels}x{size}x{size}xf32>", f"tensor<{filters}x{channels}x3x3xf32>"
    t = f"tensor<{batch}x{filters}x{size}x{size}xf32>"
    return f"""func.func @main(%x: {x}, %w: {w}, %r: {t} {{graph.donated}}) -> {t} {{
  %p = graph.conv %x, %w {{pads = array<i64: 1, 1, 1, 1>}} : ({x}, {w}) -> {t}
  %s = graph.add %p, %r : ({t}, {t}) -> {t}
  %y = graph.relu %s : ({t}) -> {t}
  func.return %y : {t}
}}"""


def attention(heads: int, queries: int, keys: int, depth: int) -> str:
    q, k = f"tensor<{heads}x{queries}x{depth}xf32>", f"tensor<{heads}x{keys}x{depth}xf32>"
    s = f"tensor<{heads}x{queries}x{keys}xf32>"
    return f"""func.func @main(%q: {q}, %k: {k}, %v: {k}, %r: {q} {{graph.donated}}) -> {q} {{
  %s = graph.matmul %q, %k {{transpose_rhs = true}} : ({q}, {k}) -> {s}
  %w = graph.softmax %s {{axis = -1 : i64}} : ({s}) -> {s}
  %o = graph.matmul %w, %v : ({s}, {k}) -> {q}
  %y = graph.add %r, %o : ({q}, {q}) -> {q}
  func.return %y : {q}
}}"""


def the_kernel(text: str) -> KernelOp:
    (kernel,) = kernels(fuse_opt.optimize(text, ",".join(DEFAULT_PIPELINE)))
    return kernel


def check(text: str, threads: Sequence[int] = (1, 3)) -> None:
    """Runs it in place of the last argument, with the bits of the program that has memory of its own for the result."""
    apart = fuse_opt.compile(text.replace(" {graph.donated}", ""))
    over = fuse_opt.compile(text)
    ((kernel,),) = [kernels(over.module)]
    assert kernel.inplace_pairs() == [(0, len(kernel.operands) - 1)]
    given = random_arguments(parse(text), 1)
    wanted = apart(*given)
    np.testing.assert_allclose(wanted, evaluate(parse(text), given)[0], rtol=2e-4, atol=2e-4)
    before = thread_pool.num_threads()
    try:
        for count in threads:
            thread_pool.set_num_threads(count)
            arguments = [array.copy() for array in given]
            found = over(*arguments)
            np.testing.assert_array_equal(found, wanted)
            assert np.shares_memory(found, arguments[-1])
    finally:
        thread_pool.set_num_threads(before)


@pytest.mark.sampled(4)
@needs_compiler
@pytest.mark.parametrize(
    "extents",
    [(64, 600, 200), (5, 1100, 130), (1, 300, 64), (400, 700, 96), (33, 8, 17), (128, 2048, 24)],
    ids=str,
)
def test_products_over_their_residual(extents: tuple[int, int, int]) -> None:
    """Blocks of depth, panels and blocks of rows: sums of all blocks but the last one must not be where the residual is."""
    check(product(*extents))


@needs_compiler
def test_other_kernels_over_their_residual() -> None:
    check(product(40, 300, 70, element="f64"))
    check(product(40, 300, 70, residual="%n", more="%n = graph.tanh %r : (T) -> T"))
    check(conv(24, 14, 20))
    check(conv(64, 7, 48))
    check(attention(3, 40, 65, 16))


@needs_compiler
@pytest.mark.parametrize(
    "text", [product(37, 29, 43), conv(3, 13, 5), attention(3, 21, 19, 8)], ids=["product", "conv", "attention"]
)
def test_sums_beside_a_product_are_written_over_what_they_add(text: str) -> None:
    """They follow from no product, and yet are results of a kernel of one."""
    head, body = text.split(" {graph.donated}) -> ", 1)
    kind, body = body.split(" {\n", 1)
    head = head.replace("%r:", f"%c: {kind}, %r:")
    total = f"  %t = graph.add %c, %r : ({kind}, {kind}) -> {kind}\n"
    body = body.replace("%r", "%t").replace(f"return %y : {kind}", f"return %t, %y : {kind}, {kind}")
    text = f"{head} {{graph.donated}}) -> ({kind}, {kind}) {{\n{total}{body}"
    program = fuse_opt.compile(text)
    assert any(kernel.inplace_pairs() for kernel in kernels(program.module))
    arguments = random_arguments(parse(text), 1)
    wanted = evaluate(parse(text), arguments)
    for found, exact in zip(program(*arguments), wanted, strict=True):
        np.testing.assert_allclose(found, exact, rtol=2e-4, atol=2e-4)


@needs_compiler
def test_random_extents() -> None:
    rng = random.Random(3)
    for _ in range(scaled(3)):
        check(product(rng.choice((1, 2, 7, 16, 33, 130)), rng.randint(1, 900), rng.randint(2, 200)), [2])
    for _ in range(2):
        check(conv(rng.randint(1, 40), rng.randint(5, 20), rng.randint(1, 40), rng.randint(1, 3)), [2])


REFUSED = {
    "read at another place": ("%n", "%n = graph.flip %r {axes = array<i64: 0>} : (T) -> T"),
    "read at two places": (
        "%n",
        "%m = graph.flip %r {axes = array<i64: 1>} : (T) -> T\n  %n = graph.multiply %m, %r : (T, T) -> T",
    ),
}


@pytest.mark.parametrize(("residual", "more"), REFUSED.values(), ids=REFUSED)
def test_residuals_that_other_instances_read_stay(residual: str, more: str) -> None:
    text = product(48, 32, 48, residual=residual, more=more)
    with collect() as remarks:
        assert the_kernel(text).inplace is None
    found = [r for r in remarks if r.pass_name == "infer-inplace" and r.code == "other-index"]
    assert any("%r is read at other elements than the one written" in r.message for r in found)


def with_promise(text: str) -> str:
    """The kernel with a directive on it, which asks for a pair, and without the pair that was chosen."""
    kernel = the_kernel(text)
    kernel.inplace = kernel.slots = kernel.segment = None
    kernel.attributes["must_inplace"] = UnitAttr()
    module = kernel.get_toplevel_object()
    assert isinstance(module, ModuleOp)
    return str(module)


def test_what_is_multiplied_stays() -> None:
    """The left operand has the shape of the result, and is added to it: tasks of other columns still read it."""
    t = "tensor<64x64xf32>"
    text = f"""func.func @main(%x: {t} {{graph.donated}}, %w: {t}) -> {t} {{
  %p = graph.matmul %x, %w : ({t}, {t}) -> {t}
  %y = graph.add %p, %x : ({t}, {t}) -> {t}
  func.return %y : {t}
}}"""
    kernel = the_kernel(text)
    assert kernel.schedule_kind() == "matmul" and kernel.inplace is None
    with pytest.raises(RefusedError, match="must_inplace cannot be kept .*as a part of what is multiplied"):
        apply(parse(with_promise(text)), "infer-inplace")


def test_a_promise_is_kept() -> None:
    (kernel,) = kernels(apply(parse(with_promise(product(16, 32, 48))), "infer-inplace,plan-memory"))
    assert kernel.inplace_pairs() == [(0, 3)]


SPOILED = {
    "over the left operand": ("array<i64: 0, 0>", "as a part of what is contracted"),
    "over the residual": ("array<i64: 0, 3>", None),
}


@pytest.mark.parametrize(("pair", "problem"), SPOILED.values(), ids=SPOILED)
def test_plans_are_verified(pair: str, problem: str | None) -> None:
    """By rules that the planner does not have; a pair that a person writes, too."""
    t = "tensor<16x16xf32>"
    text = f"""func.func @main(%x: {t} {{graph.donated}}, %w: {t}, %b: tensor<16xf32>, %r: {t} {{graph.donated}}) -> {t} {{
  %p = graph.matmul %x, %w : ({t}, {t}) -> {t}
  %q = graph.add %p, %b : ({t}, tensor<16xf32>) -> {t}
  %y = graph.add %q, %r : ({t}, {t}) -> {t}
  func.return %y : {t}
}}"""
    module = fuse_opt.optimize(text, ",".join(DEFAULT_PIPELINE))
    written = str(module).replace("inplace = array<i64: 0, 3>", f"inplace = {pair}")
    if problem is None:
        parse(written)
        return
    with pytest.raises(OpVerifyError, match=problem):
        parse(written)


def test_kernels_that_name_no_generated_code_are_left() -> None:
    """For another target a library runs the product: it would write sums over what the launch behind it reads."""
    text = product(16, 32, 48)
    module = apply(parse(text), "fuse-epilogue,wrap-kernels,schedule-kernels,infer-inplace")
    (kernel,) = kernels(module)
    assert kernel.schedule_kind() == "matmul" and kernel.inplace is None


@pytest.mark.parametrize("text", [product(16, 32, 48), conv(3, 8, 5)], ids=["matmul", "conv"])
def test_on_cuda_sums_have_memory_of_their_own(text: str) -> None:
    """A plan for generated code, given to a target that calls a library: its result is no argument of the program."""
    module = fuse_opt.optimize(text, ",".join(DEFAULT_PIPELINE))
    assert kernels(module)[0].inplace_pairs()
    source = emit_cuda(module)
    calls = [line for line in source.splitlines() if line.startswith("// library")]
    assert calls and all(" to (arena" in line for line in calls), calls


def test_on_cuda_attention_is_written_over_what_it_adds() -> None:
    """It is generated code there, too, with the same pair."""
    module = fuse_opt.optimize(attention(2, 8, 8, 4), ",".join(DEFAULT_PIPELINE))
    assert kernels(module)[0].inplace_pairs()
    source = emit_cuda(module)
    assert "// library" not in source and source.count("__global__") == 2, "by vectors, and where arrays begin anywhere"
