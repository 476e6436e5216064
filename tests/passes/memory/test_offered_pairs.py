"""Pairs that rules offer for kernels of generated products: the plan's verifier accepts each of them; and what they compute."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from draws import draws
from ir_testing import apply, evaluate, kernels, parse, random_arguments
from lowered_programs import needs_compiler
from xdsl.dialects.func import FuncOp

import fuse_opt
from fuse_opt.dialects.analysis.contractions.generated_products import PRODUCT_KINDS
from fuse_opt.dialects.implementation.offers import all_offers
from fuse_opt.dialects.interfaces.properties import int_array
from fuse_opt.passes.memory.inplace_rules import InplaceRules

FILTERS = "tensor<6x6x3x3xf32>"
CONTRACTED = {
    "matmul": ("7x7", "%p = graph.matmul LHS, RHS : (T, T) -> T"),
    "conv": ("1x6x5x5", f"%p = graph.conv LHS, %w {{pads = array<i64: 1, 1, 1, 1>}} : (T, {FILTERS}) -> T"),
    "attention": (
        "2x16x16",
        """%s = graph.matmul LHS, RHS {transpose_rhs = true} : (T, T) -> T
    %m = graph.max %s {axes = array<i64: 2>, keepdims = true} : (T) -> tensor<2x16x1xf32>
    %d = graph.subtract %s, %m : (T, tensor<2x16x1xf32>) -> T
    %e = graph.exp %d : (T) -> T
    %z = graph.sum %e {axes = array<i64: 2>, keepdims = true} : (T) -> tensor<2x16x1xf32>
    %q = graph.divide %e, %z : (T, tensor<2x16x1xf32>) -> T
    %p = graph.matmul %q, %a2 : (T, T) -> T""",
    ),
}
WITHOUT_PAIRS = {"conv_winograd", "attention_gradient"}
"""Of the first kind kernels are those of `conv`; of the second no result is where an operand is."""
NAMED = "attach-backends,select-implementation,schedule-kernels,select-implementation"
ARGUMENTS = 6


def random_kernel(kind: str, rng: random.Random) -> str:
    """A kernel of what is contracted, with ops in front of it, behind it and beside it, of which some are results."""
    extents, product = CONTRACTED[kind]
    given = [f"%a{number}" for number in range(ARGUMENTS)]
    lines, known = list[str](), list(given)

    def add(*operands: str) -> str:
        name = f"%v{len(lines)}"
        op = rng.choice(("add", "multiply")) if len(operands) > 1 else rng.choice(("exp", "abs"))
        lines.append(f"{name} = graph.{op} {', '.join(operands)} : ({', '.join('T' for _ in operands)}) -> T")
        known.append(name)
        return name

    lhs = rng.choice(("%a0", "%a0", add("%a0"), add("%a0", "%a3")))
    rhs = rng.choice(("%a1", "%a1", "%a0"))
    if rng.random() < 0.5:
        add(rng.choice(given), rng.choice(given))
    lines.append(product.replace("LHS", lhs).replace("RHS", rhs))
    last = "%p"
    for _ in range(rng.randint(1, 3)):
        last = add(*rng.choice(((last,), (last, rng.choice(known)), (rng.choice(known), last))))
    others = [name for name in known if name not in given and name != last]
    results = [*rng.sample(others, rng.randint(0, min(2, len(others)))), last]
    rng.shuffle(results)
    types = ", ".join("T" for _ in results)
    inputs = ", ".join(f"%x{number}: T {{graph.donated}}" for number in range(ARGUMENTS))
    bound = ", ".join(f"{name} = %x{number} : T" for number, name in enumerate(given))
    body = "\n    ".join(lines)
    outer = ", ".join(f"%r{number}" for number in range(len(results)))
    return f"""func.func @main({inputs}, %y: {FILTERS}) -> ({types}) {{
  {outer} = fused.kernel({bound}, %w = %y : {FILTERS}) -> ({types}) {{
    {body}
    fused.yield {", ".join(results)} : {types}
  }}
  func.return {outer} : {types}
}}""".replace("T", f"tensor<{extents}xf32>")


@pytest.mark.parametrize("kind", CONTRACTED)
def test_what_is_offered_is_accepted(kind: str) -> None:
    seen = Counter[str]()
    for seed in draws(8):
        module = apply(parse(random_kernel(kind, random.Random(seed))), NAMED)
        (kernel,) = kernels(module)
        if kernel.schedule_kind() != kind:
            continue
        (function,) = (op for op in module.walk() if isinstance(op, FuncOp))
        rules = InplaceRules(function)
        ((step, _),) = rules.kernels
        pairs = [(r, o) for r in range(len(kernel.results)) for o in range(len(kernel.operands))]
        for pair in pairs:
            if rules.at(step, kernel).refuse(*pair) is not None:
                continue
            kernel.inplace = int_array(pair)
            planned = apply(module.clone(), "plan-memory")
            assert kernels(planned)[0].inplace_pairs() == [pair]
            seen[kind] += 1
    assert seen[kind] > 8


def test_kinds_are_all_that_there_are() -> None:
    offered = {offer.kind for offer in all_offers() if offer.kind}
    assert offered <= set(PRODUCT_KINDS) and offered == set(CONTRACTED) | WITHOUT_PAIRS


@needs_compiler
@pytest.mark.parametrize("extents", ["70x70", "5x5"])
def test_what_is_in_front_may_lie_where_the_pass_behind_reads(extents: str) -> None:
    """Results that what is contracted is made of are computed again behind it, each element by the instance that stores it."""
    text = """func.func @main(%x: T, %w: T, %r: T {graph.donated}, %c: T {graph.donated}) -> (T, T, T) {
  %0, %1, %2 = fused.kernel(%k = %x : T, %v = %w : T, %s = %r : T, %d = %c : T) -> (T, T, T) {
    %f = graph.exp %k : (T) -> T
    %g = graph.abs %s : (T) -> T
    %p = graph.matmul %f, %v : (T, T) -> T
    %y = graph.add %p, %g : (T, T) -> T
    %z = graph.multiply %y, %d : (T, T) -> T
    fused.yield %f, %g, %z : T, T, T
  }
  func.return %0, %1, %2 : T, T, T
}""".replace("T", f"tensor<{extents}xf32>")
    program = fuse_opt.compile(text, pipeline=f"{NAMED},infer-inplace,plan-memory")
    (kernel,) = kernels(program.module)
    assert kernel.schedule_kind() == "matmul" and {result for result, _ in kernel.inplace_pairs()} >= {0}
    given = random_arguments(parse(text), 3)
    wanted = evaluate(parse(text), given)
    for found, exact in zip(program(*given), wanted, strict=True):
        np.testing.assert_allclose(found, exact, rtol=2e-4, atol=2e-4)
