"""What a person may ask of a memory plan: a limit, fixed offsets, sums into an array of the caller's; and modes side by side."""

from __future__ import annotations

import re

import numpy as np
import pytest
from ir_testing import Array, kernels, optimized, parse
from xdsl.dialects.builtin import ModuleOp

import fuse_opt
from fuse_opt.dialects.analysis.storage import functions_of
from fuse_opt.dialects.interfaces.properties import ints
from fuse_opt.passes.remarks import RefusedError
from fuse_opt.tools.compiler.api import load
from fuse_opt.tools.source.verification import verify

T = "tensor<64x64xf32>"
PRODUCTS = f"""
func.func @main(%x: {T}) -> {T} {{
  %a = graph.matmul %x, %x : ({T}, {T}) -> {T}
  %b = graph.matmul %a, %x : ({T}, {T}) -> {T}
  %c = graph.matmul %b, %a : ({T}, {T}) -> {T}
  %d = graph.matmul %c, %b : ({T}, {T}) -> {T}
  func.return %d : {T}
}}"""
PLANNED = "wrap-kernels,schedule-kernels,infer-inplace,plan-memory"
NBYTES = 64 * 64 * 4


def arena(module: ModuleOp) -> int:
    (function,) = functions_of(module)
    (size,) = re.findall(r"\bsize = (\d+)", str(function.attributes["fused.arena"]))
    return int(size)


def test_a_limit_that_the_arena_keeps_changes_nothing() -> None:
    free = optimized(PRODUCTS, PLANNED)
    assert arena(free) == 3 * NBYTES
    assert str(optimized(PRODUCTS, f"{PLANNED}{{peak-limit={3 * NBYTES}}}")) == str(free)


def test_an_arena_above_the_limit_is_an_error_that_names_what_is_alive() -> None:
    with pytest.raises(RefusedError) as error:
        optimized(PRODUCTS, f"{PLANNED}{{peak-limit={3 * NBYTES - 1}}}")
    text = str(error.value)
    assert f"the arena needs {3 * NBYTES} bytes, the limit is {3 * NBYTES - 1}: at step 2 there live" in text
    assert all(f"%{name} ({NBYTES} bytes)" in text for name in "abc") and "order-for-memory" in text


def pinned(**offsets: str) -> str:
    module = optimized(PRODUCTS, "wrap-kernels,schedule-kernels,infer-inplace")
    text = str(module)
    for name, values in offsets.items():
        text = re.sub(
            rf"(%{name} = fused\.kernel.*?attributes {{)", rf"\g<1>pinned_slots = array<i64: {values}>, ", text
        )
    return text


def test_offsets_that_a_person_fixed_are_kept() -> None:
    module = optimized(pinned(a="65536", b="0"), "plan-memory")
    assert [ints(kernel.slots)[0] for kernel in kernels(module)][:2] == [65536, 0]
    assert arena(module) == 65536 + NBYTES
    verify(module)
    again = optimized(str(module), "plan-memory")
    assert str(again) == str(module)


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ({"a": "32"}, "%a cannot be at 32, which is no multiple of 64"),
        ({"d": "0"}, "%d lives outside of the arena"),
        ({"a": "0, 0"}, "an offset or -1 for each of its 1 results"),
        ({"a": "0", "b": "64"}, "pinned_slots: .*overlap"),
    ],
    ids=["misaligned", "outside", "count", "overlap"],
)
def test_offsets_that_cannot_hold_are_errors(offsets: dict[str, str], message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        optimized(pinned(**offsets), "plan-memory")


@pytest.mark.sampled(12)
@pytest.mark.parametrize("count", [2, 3, 8, 16])
@pytest.mark.parametrize("shared", ["none", "duplicates", "itself"])
@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_a_sum_may_be_added_to_an_array_of_the_callers(count: int, shared: str, target: str) -> None:
    """out += x0 + x1 + ...: a donated argument, `must_inplace` on the addition; twice, so that a write would show."""
    vector = "tensor<37xf32>"
    names = [f"%x{0 if shared == 'duplicates' else k}" for k in range(count)]
    if shared == "itself":
        names[count // 2] = "%out"
    lines = [f"%s0 = graph.add {names[0]}, {names[1]} : ({vector}, {vector}) -> {vector}"]
    lines += [
        f"%s{k - 1} = graph.add %s{k - 2}, {names[k]} : ({vector}, {vector}) -> {vector}" for k in range(2, count)
    ]
    arguments = ", ".join(f"%x{k}: {vector}" for k in range(count))
    text = "\n".join([
        f"func.func @main({arguments}, %out: {vector} {{graph.donated}}) -> {vector} {{",
        *lines,
        f"%r = graph.add %out, %s{count - 2} {{must_inplace}} : ({vector}, {vector}) -> {vector}",
        f"func.return %r : {vector}",
        "}",
    ])  # fmt: skip
    program = fuse_opt.compile(text, target="cpu" if target == "cpu" else "reference")
    inputs: list[Array] = [np.arange(37, dtype=np.float32) + k for k in range(count)]
    out = np.ones(37, np.float32)
    for _ in range(2):
        taken = [out.copy() if name == "%out" else inputs[int(name[2:])] for name in names]
        expected = out + sum(taken[1:], taken[0])
        result = program(*inputs, out)
        if target == "cpu":
            assert np.shares_memory(np.asarray(result), out)
            assert program.stats.arena_bytes == 0
        else:
            out = np.asarray(result)
        np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-6)


def test_programs_of_several_modes_share_nothing() -> None:
    """A training step, inference, and the training step again: the same gradients, whatever ran between."""
    train = f"""
    func.func @main(%x: {T}, %w: {T}) -> ({T}, {T}) {{
      %y = graph.matmul %x, %w : ({T}, {T}) -> {T}
      %a = graph.tanh %y : ({T}) -> {T}
      %s = graph.square %a : ({T}) -> {T}
      %one = graph.constant dense<1.0> : tensor<f32>
      %d = graph.subtract %one, %s : (tensor<f32>, {T}) -> {T}
      %t = graph.permute_dims %x {{axes = array<i64: 1, 0>}} : ({T}) -> {T}
      %g = graph.matmul %t, %d : ({T}, {T}) -> {T}
      func.return %a, %g : {T}, {T}
    }}"""
    infer = train.replace(f"-> ({T}, {T}) {{", f"-> {T} {{", 1).replace(f"%a, %g : {T}, {T}", f"%a : {T}")
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
    training, inference = fuse_opt.compile(train), fuse_opt.compile(infer)
    first = [np.array(value) for value in training(x, w)]
    value = np.array(inference(x, w))
    second = [np.array(value) for value in training(x, w)]
    fresh = [np.array(value) for value in fuse_opt.compile(train)(x, w)]
    assert all(np.array_equal(a, b) and np.array_equal(a, c) for a, b, c in zip(first, second, fresh, strict=True))
    assert np.array_equal(value, first[0])


def test_two_functions_of_a_module_are_planned_apart() -> None:
    other = PRODUCTS.replace("@main", "@other")
    both = load(f"{PRODUCTS}\n{other}")
    fuse_opt.optimize(both, PLANNED)
    plans = [str(function.attributes["fused.arena"]) for function in functions_of(both)]
    assert plans[0] == plans[1] and len(plans) == 2
    assert parse(str(both)) is not None
