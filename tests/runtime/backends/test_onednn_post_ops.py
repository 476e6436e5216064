"""Steps behind a product in oneDNN's own code: what is taken and what is not, in which order, and in whose memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onednn_testing import Array, FakeOneDnn

import fuse_opt
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.implementation.chains import Link, link_of
from fuse_opt.dialects.implementation.offers import find_offer
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.verify.memory_plan import verify_plans
from fuse_opt.dialects.verify.plan_contents import PlanError
from fuse_opt.runtime.backends.onednn.library import find_library

T = "tensor<6x8xf32>"
OTHERS = {"v": "tensor<8xf32>", "r": T, "s": "tensor<f32>", "c": "tensor<6x1xf32>"}
FAST = "onednn.matmul_fast"


def program(*steps: str, result: str = T, directive: str = "") -> str:
    """A product with steps behind it, each of which makes %N of %N-1, and a sort, so that the product's result is the arena's."""
    lines = "".join(f"  %{n} = {step.replace('@', f'%{n - 1}')}\n" for n, step in enumerate(steps, 1))
    return (
        "func.func @main(%x: tensor<6x5xf32>, %w: tensor<5x8xf32>, %v: tensor<8xf32>, %q: tensor<6x8xf32>, %s: tensor<f32>, "
        f"%c: tensor<6x1xf32>) -> {T} {{\n"
        f"  %m = graph.negative %q : ({T}) -> {T}\n"
        f"  %r = graph.sort %m : ({T}) -> {T}\n"
        f"  %0 = graph.matmul %x, %w {{{directive}}} : (tensor<6x5xf32>, tensor<5x8xf32>) -> {T}\n"
        f"{lines}  %z = graph.sort %{len(steps)} : ({T}) -> {T}\n  func.return %z : {T}\n}}\n"
    )


def unary(name: str, attributes: str = "") -> str:
    return f"graph.{name} @ {attributes} : ({T}) -> {T}"


def binary(name: str, other: str, swapped: bool = False) -> str:
    operands = (f"%{other}, @", f"{OTHERS[other]}, {T}") if swapped else (f"@, %{other}", f"{T}, {OTHERS[other]}")
    return f"graph.{name} {operands[0]} : ({operands[1]}) -> {T}"


def arguments(seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    shapes: list[tuple[int, ...]] = [(6, 5), (5, 8), (8,), (6, 8), (), (6, 1)]
    return [np.asarray(rng.integers(1, 5, shape), np.float32) for shape in shapes]


def product_kernel(module: Any) -> KernelOp:
    """The kernel with the product."""
    found = [k for k in module.walk() if isinstance(k, KernelOp) and any(op.name == "graph.matmul" for op in k.ops())]
    assert len(found) == 1
    return found[0]


def compiled(text: str, poison: bool = False) -> fuse_opt.CompiledProgram:
    return fuse_opt.compile(text, backend="none,onednn,numpy", poison=poison)


CHAINS = {
    "bias": [binary("add", "v")],
    "bias on the left": [binary("add", "v", swapped=True)],
    "bias, residual": [binary("add", "v"), binary("add", "r")],
    "residual, bias, scale": [binary("add", "r"), binary("add", "v"), binary("multiply", "v")],
    "column": [binary("multiply", "c")],
    "a number of the caller's": [binary("subtract", "s"), binary("divide", "v")],
    "the same twice": [binary("add", "v"), unary("tanh"), binary("multiply", "v")],
    "gelu by tanh": [unary("gelu", '{approximate = "tanh"}'), binary("add", "r")],
    "silu": [unary("silu")],
    "leaky": [unary("leaky_relu", "{alpha = 0.25 : f64}"), unary("abs"), unary("sqrt"), unary("square")],
}


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeOneDnn:
    return FakeOneDnn(tmp_path, monkeypatch)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("steps", CHAINS.values(), ids=CHAINS.keys())
def test_chains_are_one_call(fake: FakeOneDnn, steps: list[str]) -> None:
    fake.say(scratch=10)
    text = program(*steps)
    found = compiled(text)
    kernel = product_kernel(found.module)
    assert kernel.implementation is not None and kernel.implementation.data == "onednn.matmul"
    assert len(kernel.ops()) == 1 + len(steps) and kernel.workspace_bytes() == 64
    expected = fuse_opt.evaluate(text, *arguments())
    np.testing.assert_allclose(found(*arguments()), expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(compiled(text, poison=True)(*arguments()), expected, rtol=1e-6, atol=1e-6)
    assert str(compiled(str(found.module)).module) == str(found.module)


def test_numbers_are_steps(fake: FakeOneDnn) -> None:
    constants = "  %two = graph.constant dense<2.0> : tensor<f32>\n  %half = graph.constant dense<0.5> : tensor<f32>\n"
    steps = [f"graph.multiply @, %two : ({T}, tensor<f32>) -> {T}", f"graph.add %half, @ : (tensor<f32>, {T}) -> {T}"]
    steps += [f"graph.subtract @, %two : ({T}, tensor<f32>) -> {T}", binary("add", "v")]
    text = program(*steps).replace("  %m =", f"{constants}  %m =")
    found = compiled(text)
    assert product_kernel(found.module).implementation is not None
    assert len([op for op in product_kernel(found.module).ops() if op.operands]) == 5
    np.testing.assert_array_equal(found(*arguments()), fuse_opt.evaluate(text, *arguments()))


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "steps",
    [
        [unary("relu")],  # no NaN for NaN
        [unary("gelu")],  # NaN for infinity
        [unary("exp")],
        [unary("sigmoid")],  # no subnormal numbers
        [binary("add", "v"), unary("relu")],
        [binary("maximum", "v")],
        [binary("subtract", "v", swapped=True)],
        [unary("tanh"), unary("sin")],
    ],
)
def test_what_does_not_mean_the_same_stays_behind(fake: FakeOneDnn, steps: list[str]) -> None:
    """All of what fusion has joined, or none of it."""
    text = program(*steps)
    found = compiled(text)
    assert len(product_kernel(found.module).ops()) == 1
    np.testing.assert_allclose(found(*arguments()), fuse_opt.evaluate(text, *arguments()), rtol=1e-6)


@pytest.mark.parametrize("name", ["relu", "exp", "sigmoid", "gelu"])
def test_a_fast_one_takes_more(fake: FakeOneDnn, name: str) -> None:
    text = program(binary("add", "v"), unary(name), directive=f'use_implementation = "{FAST}"')
    steps = "infer-shapes,canonicalize,decompose,fuse-epilogue,wrap-kernels"
    choose = "select-implementation{numerics=fast}"
    module = fuse_opt.optimize(text, f"attach-backends{{backends=none,onednn,numpy}},{steps},{choose},plan-memory")
    assert len(product_kernel(module).ops()) == 3
    with pytest.raises(fuse_opt.InputError, match=f'use_implementation "{FAST}" refuses it: numerics'):
        fuse_opt.optimize(text, f"attach-backends{{backends=none,onednn,numpy}},{steps},select-implementation")


def test_no_more_than_32_steps(fake: FakeOneDnn) -> None:
    assert len(product_kernel(compiled(program(*[binary("add", "v")] * 32)).module).ops()) == 33
    text = program(*[binary("add", "v")] * 33)
    found = compiled(text)
    assert len(product_kernel(found.module).ops()) == 1
    np.testing.assert_array_equal(found(*arguments()), fuse_opt.evaluate(text, *arguments()))


def test_a_value_that_others_read_is_no_step(fake: FakeOneDnn) -> None:
    lines = [binary("add", "v"), unary("tanh")]
    text = program(*lines).replace(f"sort %2 : ({T})", f"sort %k : ({T})")
    text = text.replace("  %z =", f"  %k = graph.add %1, %2 : ({T}, {T}) -> {T}\n  %z =")
    found = compiled(text)
    assert len(product_kernel(found.module).ops()) == 1
    np.testing.assert_allclose(found(*arguments()), fuse_opt.evaluate(text, *arguments()), rtol=1e-6)


def test_a_sum_that_comes_first_is_in_place(fake: FakeOneDnn) -> None:
    """The residual's memory is that of the result, which the product adds to."""
    first, last = ([binary("add", "r"), binary("add", "v")], [binary("add", "v"), binary("add", "r")])
    for steps, pairs in ((first, [(0, 2)]), (last, [])):
        found = compiled(program(*steps))
        assert product_kernel(found.module).inplace_pairs() == pairs
        for poison in (False, True):
            value = compiled(program(*steps), poison)(*arguments())
            np.testing.assert_array_equal(value, fuse_opt.evaluate(program(*steps), *arguments()))


def test_in_place_saves_the_operand(fake: FakeOneDnn) -> None:
    """With the pair, and without it: the arenas differ by the residual's bytes."""
    text = (
        program(binary("add", "r"))
        .replace(f"  %m = graph.negative %q : ({T}) -> {T}\n", "")
        .replace("sort %m", "sort %q")
    )
    passes = "infer-shapes,fuse-epilogue,wrap-kernels,select-implementation,infer-inplace,plan-memory"
    sizes: list[int] = []
    for directive in ("", "{no_inplace}"):
        changed = text.replace("graph.add %0, %r", f"graph.add %0, %r {directive}")
        module = fuse_opt.optimize(changed, f"attach-backends{{backends=none,onednn,numpy}},{passes}")
        assert len(product_kernel(module).inplace_pairs()) == (not directive)
        sizes.append(int(str(module).partition("size = ")[2].split()[0]))
    assert sizes[1] - sizes[0] == 6 * 8 * 4


def test_a_pair_that_is_not_offered_is_refused(fake: FakeOneDnn) -> None:
    last = str(compiled(program(binary("add", "v"), binary("add", "r"))).module)
    kernel = product_kernel(fuse_opt.load(last))
    operand = next(n for n, value in enumerate(kernel.operands) if value.name_hint == "r")
    kernel_text = 'implementation = "onednn.matmul"'
    spoiled = fuse_opt.load(last.replace(kernel_text, f"inplace = array<i64: 0, {operand}>, {kernel_text}"))
    changed = product_kernel(spoiled)
    changed.slots = kernel.slots
    with pytest.raises(PlanError, match="takes over .* but"):
        verify_plans(spoiled)


def test_a_refused_chain_is_chosen_otherwise(fake: FakeOneDnn) -> None:
    fake.say(impl="ref:any")
    text = program(binary("add", "v"))
    found = compiled(text)
    assert "onednn" not in found.implementations
    np.testing.assert_array_equal(found(*arguments()), fuse_opt.evaluate(text, *arguments()))


def test_integers_are_not_computed_as_floats(fake: FakeOneDnn) -> None:
    text = """
    func.func @main(%x: tensor<6x5xui8>, %w: tensor<5x8xi8>, %v: tensor<8xi32>) -> tensor<6x8xi32> {
      %0 = graph.matmul %x, %w {dtype = i32} : (tensor<6x5xui8>, tensor<5x8xi8>) -> tensor<6x8xi32>
      %1 = graph.add %0, %v : (tensor<6x8xi32>, tensor<8xi32>) -> tensor<6x8xi32>
      func.return %1 : tensor<6x8xi32>
    }"""
    found = fuse_opt.compile(text, backend="none,onednn")
    assert len(product_kernel(found.module).ops()) == 1 and found.implementations == {"onednn.matmul": 1}
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 256, (6, 5)).astype(np.uint8), rng.integers(-128, 128, (5, 8)).astype(np.int8)
    v = np.full(8, (1 << 24) + 1, np.int32)
    np.testing.assert_array_equal(found(x, w, v), x.astype(np.int32) @ w.astype(np.int32) + v)


@pytest.mark.parametrize(
    "link",
    [
        Link("graph.gelu", (("approximate", "tanh"),)),
        Link("graph.add", (), 3, (1, 8)),
        Link("graph.subtract", (), None, (), 0.1, True),
        Link("graph.x", (("axes", (1, 2)), ("on", True)), dtype="i32"),
    ],
)
def test_steps_are_texts(link: Link) -> None:
    assert link_of(link.text()) == link


real = pytest.mark.skipif(isinstance(find_library(), str), reason="oneDNN is not installed")
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, 1e-40, -1e-40, 1.0, -1.0, 88.0, -88.0, 100.0, -100.0, 1e30, -1e30]
STEPS = [
    "tanh",
    "abs",
    "sqrt",
    "square",
    "silu",
    'gelu|{approximate = "tanh"}',
    "leaky_relu|{alpha = 0.1 : f64}",
]


@real
@pytest.mark.parametrize("step", STEPS)
def test_steps_are_within_the_bound_of_their_op(step: str) -> None:
    """Of each that strict mode takes, for numbers of all magnitudes, as a product of them by 1."""
    rng = np.random.default_rng(3)
    x = np.concatenate(
        [SPECIAL, np.linspace(-12, 12, 3000), rng.standard_normal(3000) * 10 ** rng.uniform(-6, 3, 3000)]
    )
    x = x.astype(np.float32).reshape(-1, 1)
    name, _, attributes = step.partition("|")
    kind = f"tensor<{len(x)}x16xf32>"
    text = (
        f"func.func @main(%x: tensor<{len(x)}x1xf32>, %w: tensor<1x16xf32>) -> {kind} {{\n"
        f"  %0 = graph.matmul %x, %w : (tensor<{len(x)}x1xf32>, tensor<1x16xf32>) -> {kind}\n"
        f"  %1 = graph.{name} %0 {attributes} : ({kind}) -> {kind}\n  func.return %1 : {kind}\n}}\n"
    )
    program = fuse_opt.compile(text, backend="none,onednn")
    assert program.implementations == {"onednn.matmul": 1} and program.stats.kernels == 0
    found = program(x, np.ones((1, 16), np.float32))[:, 0].astype(np.float64)
    wide = text.replace("f32", "f64")
    expected = fuse_opt.evaluate(wide, x.astype(np.float64), np.ones((1, 16)))[:, 0]
    (op,) = [op for op in fuse_opt.load(text).walk() if isinstance(op, GraphOp) and op.name == f"graph.{name}"]
    bound = op.error_bound()
    with np.errstate(over="ignore"):
        single = expected.astype(np.float32)
    finite = np.isfinite(single) & np.isfinite(x[:, 0])
    np.testing.assert_array_equal(found[~finite], single[~finite])
    found, expected, x = (values[finite].astype(np.float64) for values in (found, expected, x[:, 0]))
    largest = np.maximum(1, np.maximum(abs(expected), abs(x)))
    spacing = np.spacing(abs(single[finite])).astype(np.float64)
    allowed = (bound.ulps + 0.5) * spacing + bound.slack * np.finfo(np.float32).eps * largest
    assert (abs(found - expected) <= allowed).all(), (abs(found - expected) / allowed).max()


@real
@pytest.mark.parametrize("steps", CHAINS.values(), ids=CHAINS.keys())
def test_chains_by_the_library(steps: list[str]) -> None:
    """One that the library would run by loops is run by a call and a launch, or by NumPy."""
    text = program(*steps)
    found = compiled(text)
    if steps != CHAINS["column"]:
        assert found.implementations["onednn.matmul"] == 1 and found.stats.kernels <= 1, "that of graph.negative"
    np.testing.assert_allclose(found(*arguments()), fuse_opt.evaluate(text, *arguments()), rtol=1e-5, atol=1e-5)


def test_the_offers_say_what_they_take() -> None:
    offers = [find_offer("graph.matmul", name) for name in ("onednn.matmul", FAST)]
    assert all(offer is not None and offer.optional and offer.native and offer.split for offer in offers)
