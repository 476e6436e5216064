"""Forward and backward pass of attention in one program: a kernel each, with the gradients of f64, whoever wrote them down."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from ir_testing import Array, evaluate, kernels, parse, random_arguments
from lowered_programs import needs_compiler
from thread_counts import by_threads

import fuse_opt
from fuse_opt.dialects.analysis.contractions.attention import ATTENTION, attention_of
from fuse_opt.dialects.analysis.contractions.attention_gradients import ATTENTION_GRADIENT, attention_gradient_of
from fuse_opt.dialects.interfaces.shapes import shape
from fuse_opt.frontends import stablehlo
from fuse_opt.lowering.program.float_formats import computed
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

Shape = tuple[int, ...]


def tensor(extents: Shape, element: str) -> str:
    return f"tensor<{'x'.join(map(str, (*extents, element)))}>"


def step_text(q: Shape, k: Shape, width: int, attributes: str = "", mask: str = "", element: str = "f32") -> str:
    """Attention, and its gradients for one that is computed from its result."""
    x, y, z, v = (tensor(s, element) for s in (q, k, (*k[:-1], width), (*q[:-1], width)))
    sums = tensor(q[:-1], "f64" if element == "f64" else "f32")
    name, typed, argument = (", %m", f", {mask}", f", %m: {mask}") if mask else ("", "", "")
    given = f"{{{attributes}}}" if attributes else ""
    return f"""
func.func @main(%q: {x}, %k: {y}, %v: {z}{argument}) -> ({v}, {x}, {y}, {z}) {{
  %o = graph.scaled_dot_product_attention %q, %k, %v{name} {given} : ({x}, {y}, {z}{typed}) -> {v}
  %l = graph.scaled_dot_product_attention_logsumexp %q, %k{name} {given} : ({x}, {y}{typed}) -> {sums}
  %g = graph.tanh %o : ({v}) -> {v}
  %dq, %dk, %dv = graph.scaled_dot_product_attention_backward %g, %q, %k, %v, %o, %l{name} {given}
      : ({v}, {x}, {y}, {z}, {v}, {sums}{typed}) -> ({x}, {y}, {z})
  func.return %o, %dq, %dk, %dv : {v}, {x}, {y}, {z}
}}"""


def operands(text: str) -> list[Array]:
    random = np.random.default_rng(3)
    found: list[Array] = []
    for given in random_arguments(parse(text), 3):
        values = random.standard_normal(given.shape)
        found.append(values > -0.5 if given.dtype == np.bool_ else values.astype(given.dtype))
    return found


ALWAYS = [name.replace("separate-attention", "separate-attention{smallest-bytes=0}") for name in DEFAULT_PIPELINE]
"""The default pipeline, but scores are computed again however few they are."""


def compiled(source: Any) -> Any:
    return fuse_opt.compile(source, pipeline=",".join(ALWAYS))


def kinds_of(program: Any) -> list[str | None]:
    return [kernel.schedule_kind() for kernel in kernels(program.module)]


def check(actual: Any, wanted: Any, slack: float = 1e-4) -> None:
    for given, expected in zip(actual, wanted, strict=True):
        expected = np.asarray(expected)
        assert given.shape == expected.shape
        np.testing.assert_allclose(given, expected, rtol=slack, atol=slack * max(float(abs(expected).max()), 1))


@pytest.mark.sampled(4)
@needs_compiler
@pytest.mark.parametrize("mask", ["", "tensor<1x4x50x37xE>", "tensor<50x37xi1>", "tensor<2x1x1x37xi1>"])
@pytest.mark.parametrize("heads", [4, 2])
@pytest.mark.parametrize("attributes", ["", "is_causal = true", "scale = 0.5 : f64"])
def test_each_pass_is_one_kernel_that_keeps_no_scores(mask: str, heads: int, attributes: str) -> None:
    given = ", ".join(filter(None, [attributes, "enable_gqa = true" if heads < 4 else ""]))
    text, exact = (
        step_text((2, 4, 50, 24), (2, heads, 37, 24), 40, given, mask.replace("E", element), element)
        for element in ("f32", "f64")
    )
    program, arguments = compiled(text), operands(text)
    kinds = kinds_of(program)
    assert kinds.count(ATTENTION) == kinds.count(ATTENTION_GRADIENT) == 1 and "matmul" not in kinds
    made = [shape(result) for kernel in kernels(program.module) for result in kernel.results]
    assert all(extents[-1] != 37 for extents in made), "no scores are in memory"
    truth = evaluate(parse(exact), [a.astype(np.float64) if a.dtype == np.float32 else a for a in arguments])
    check(program(*arguments), truth)


@needs_compiler
@pytest.mark.parametrize("lengths", [(7, 130), (150, 33), (197, 197)])
def test_lengths(lengths: tuple[int, int]) -> None:
    queries, keys = lengths
    text = step_text((3, queries, 16), (3, keys, 16), 24)
    program, arguments = compiled(text), operands(text)
    assert kinds_of(program).count(ATTENTION_GRADIENT) == 1
    check(program(*arguments), evaluate(parse(text), arguments))


@needs_compiler
def test_what_is_dropped_is_drawn_in_both_kernels() -> None:
    given = "is_causal = true, dropout_p = 0.25 : f64, seed = 7 : i64, enable_gqa = true"
    text = step_text((2, 4, 50, 24), (2, 2, 37, 24), 40, given)
    program, arguments = compiled(text), operands(text)
    kinds = kinds_of(program)
    assert kinds.count(ATTENTION) == kinds.count(ATTENTION_GRADIENT) == 1 and "matmul" not in kinds
    made = [shape(result) for kernel in kernels(program.module) for result in kernel.results]
    assert all(extents[-1] != 37 for extents in made), "neither weights nor random numbers are in memory"
    check(program(*arguments), evaluate(parse(text), arguments))
    results = by_threads(lambda: [array.tobytes() for array in program(*arguments)])
    assert all(each == results[0] for each in results)


def test_scores_that_caches_hold_are_kept() -> None:
    """Twice the arena, but no product is computed twice."""
    small, large = (
        [kernel.schedule_kind() for kernel in kernels(fuse_opt.optimize(step_text((heads, 64, 8), (heads, 64, 8), 8)))]
        for heads in (2, 300)
    )
    assert ATTENTION_GRADIENT not in small and ATTENTION_GRADIENT in large


def test_kernels_that_shared_a_mask_know_what_it_hides() -> None:
    """A causal mask that several layers read is computed in each, which leaves out what it hides."""
    one = step_text((2, 4, 64, 16), (2, 4, 64, 16), 16, "is_causal = true")
    body = one[one.index("  %o") : one.index("  func.return")]
    second = body
    for name in ("o", "l", "g", "dq", "dk", "dv"):
        second = second.replace(f"%{name}", f"%{name}_2")
    second = second.replace("%q,", "%dq,")
    text = one.replace(body, body + second).replace("%dq, %dk, %dv :", "%dq_2, %dk, %dv_2 :")
    module = fuse_opt.optimize(text, ALWAYS)
    found = kernels(module)
    forward = [kernel for kernel in found if kernel.schedule_kind() == ATTENTION]
    backward = [kernel for kernel in found if kernel.schedule_kind() == ATTENTION_GRADIENT]
    assert len(forward) == len(backward) == 2
    assert all(attention_of(kernel).seen is not None for kernel in forward)
    assert [attention_gradient_of(kernel).seen for kernel in backward] == [1, 1]


def written_with_softmax(jax: Any, scores: Callable[[Any], Any], keep: Any = None) -> Callable[..., Any]:
    """Attention and its gradients, as JAX derives them."""
    numpy = jax.numpy

    def attention(q: Any, k: Any, v: Any) -> Any:
        weights = jax.nn.softmax(scores(numpy.einsum("bhqd,bhkd->bhqk", q, k) * 0.25), axis=-1)
        if keep is not None:
            weights = numpy.where(keep, weights / 0.75, 0)
        return numpy.einsum("bhqk,bhkd->bhqd", weights, v)

    def step(q: Any, k: Any, v: Any) -> Any:
        y, pull_back = jax.vjp(attention, q, k, v)
        return (y, *pull_back(numpy.tanh(y)))

    return step


@needs_compiler
@pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")
@pytest.mark.parametrize("kind", ["plain", "causal", "bias", "dropout"])
def test_gradients_that_jax_writes_are_one_kernel(kind: str) -> None:
    """JAX differentiates a softmax of rows that are in memory; sums of such rows are those of results."""
    jax: Any = import_module("jax")
    numpy, random = jax.numpy, np.random.default_rng(2)
    hides = numpy.tril(numpy.ones((50, 37), bool))
    bias = numpy.asarray(random.standard_normal((50, 37)).astype(np.float32))
    scores: dict[str, Callable[[Any], Any]] = {
        "causal": lambda s: numpy.where(hides, s, -numpy.inf),
        "bias": lambda s: s + bias,
    }
    keep = numpy.asarray(random.random((2, 3, 50, 37)) > 0.25) if kind == "dropout" else None
    step = written_with_softmax(jax, scores.get(kind, lambda s: s), keep)
    given = [random.standard_normal((2, 3, n, 16)).astype(np.float32) for n in (50, 37, 37)]
    program = compiled(stablehlo.load(jax.jit(step).lower(*given)))
    kinds = kinds_of(program)
    assert kinds.count(ATTENTION) == kinds.count(ATTENTION_GRADIENT) == 1 and "matmul" not in kinds
    check([computed(np.asarray(array)) for array in program(*given)], step(*given))


@needs_compiler
@pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")
def test_attention_of_jax_and_its_gradients_are_two_kernels_and_sums_of_rows() -> None:
    """Heads are read and stored where they lie: what JAX transposes for its products moves nothing."""
    jax: Any = import_module("jax")

    def attention(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.dot_product_attention(q, k, v, is_causal=True)

    def step(q: Any, k: Any, v: Any) -> Any:
        y, pull_back = jax.vjp(attention, q, k, v)
        return (y, *pull_back(jax.numpy.tanh(y)))

    random = np.random.default_rng(2)
    given = [random.standard_normal((2, 50, 3, 16)).astype(np.float32) for _ in range(3)]
    program = compiled(stablehlo.load(jax.jit(step).lower(*given)))
    assert sorted(map(str, kinds_of(program))) == [ATTENTION, ATTENTION_GRADIENT, "row"]
    found = kernels(program.module)
    assert all(attention_of(kernel).seen is not None for kernel in found if kernel.schedule_kind() == ATTENTION)
    check([computed(np.asarray(array)) for array in program(*given)], step(*given))
