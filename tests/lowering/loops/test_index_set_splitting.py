"""Loops whose conditions change at known iterations: one loop for each stretch, the same results."""

from __future__ import annotations

import numpy as np
import pytest
from ir_testing import apply, evaluate, parse, random_arguments, text_of
from lowered_programs import needs_compiler, run

from fuse_opt.lowering.program.float_formats import computed, narrow

PASSES = ["decompose", "fuse-elementwise", "fuse-injective", "fuse-row", "wrap-kernels", "schedule-kernels"]


def padded(kind: str, extent: int, low: int, high: int, value: str = "1.5") -> str:
    given, made = f"tensor<5x{extent}x{kind}>", f"tensor<7x{low + extent + high}x{kind}>"
    return f"""
func.func @main(%x: {given}) -> {made} {{
  %0 = graph.pad %x {{pads = array<i64: 1, {low}, 1, {high}>, value = {value} : f64}} : ({given}) -> {made}
  func.return %0 : {made}
}}
"""


def joined(kind: str, *extents: int, flipped: bool = False) -> str:
    """A concatenation, turned round where asked, and padded by 5 and 7."""
    parts = [f"tensor<{n}x{kind}>" for n in extents]
    total, final = f"tensor<{sum(extents)}x{kind}>", f"tensor<{sum(extents) + 12}x{kind}>"
    arguments = ", ".join(f"%x{n}: {part}" for n, part in enumerate(parts))
    names = ", ".join(f"%x{n}" for n in range(len(parts)))
    transposed = f"  %1 = graph.flip %0 {{axes = array<i64: 0>}} : ({total}) -> {total}\n" if flipped else ""
    return f"""
func.func @main({arguments}) -> {final} {{
  %0 = graph.concat {names} {{axis = 0 : i64}} : ({", ".join(parts)}) -> {total}
{transposed}  %2 = graph.pad %{int(flipped)} {{pads = array<i64: 5, 7>, value = 0.1 : f64}} : ({total}) -> {final}
  func.return %2 : {final}
}}
"""


def pooled(kind: str, extent: int, window: int, stride: int, pad: int) -> str:
    made = (extent + 2 * pad - window) // stride + 1
    given, result = f"tensor<1x3x{extent}x{extent}x{kind}>", f"tensor<1x3x{made}x{made}x{kind}>"
    return f"""
func.func @main(%x: {given}) -> {result} {{
  %0 = graph.max_pool %x {{
    kernel_shape = array<i64: {window}, {window}>, strides = array<i64: {stride}, {stride}>,
    pads = array<i64: {pad}, {pad}, {pad}, {pad}>
  }} : ({given}) -> {result}
  func.return %0 : {result}
}}
"""


def rolled(kind: str, shape: tuple[int, ...], shifts: tuple[int, ...], repeats: int = 1) -> str:
    """What is rolled along the last axes, repeated along the last one, and added to itself."""
    given, made = ("x".join(map(str, (*shape[:-1], shape[-1] * n))) for n in (1, repeats))
    axes = ", ".join(str(axis) for axis in range(len(shape) - len(shifts), len(shape)))
    return f"""
func.func @main(%x: tensor<{given}x{kind}>) -> tensor<{made}x{kind}> {{
  %0 = graph.roll %x {{shifts = array<i64: {", ".join(map(str, shifts))}>, axes = array<i64: {axes}>}}
    : (tensor<{given}x{kind}>) -> tensor<{given}x{kind}>
  %1 = graph.tile %0 {{repeats = array<i64: {repeats}>}} : (tensor<{given}x{kind}>) -> tensor<{made}x{kind}>
  %2 = graph.add %1, %1 : (tensor<{made}x{kind}>, tensor<{made}x{kind}>) -> tensor<{made}x{kind}>
  func.return %2 : tensor<{made}x{kind}>
}}
"""


@pytest.mark.sampled(13)
@needs_compiler
@pytest.mark.parametrize(
    "text",
    [
        padded("f32", 40, 3, 2),
        padded("bf16", 40, 3, 2, "0.1"),
        padded("f16", 40, 3, 0, "1.0e6"),
        padded("i8", 40, 0, 9, "7").replace("f64", "i64"),
        padded("f32", 40, -3, -2),
        padded("f64", 3, 1, 1),
        joined("bf16", 40, 30, 57),
        joined("bf16", 40, 30, 57, flipped=True),
        joined("f64", 1, 40, 1, 2, flipped=True),
        joined("f32", 700, 600),
        pooled("bf16", 21, 3, 2, 1),
        pooled("f16", 24, 5, 1, 2),
        pooled("f32", 21, 3, 2, 1),
        pooled("f32", 18, 2, 2, 0),
        rolled("f32", (3, 100), (7,)),
        rolled("f32", (3, 100), (-7,), repeats=3),
        rolled("f32", (5, 100), (2, 93)),
        rolled("f32", (3000,), (1234,)),
        rolled("f16", (700,), (-3,), repeats=2),
        rolled("i8", (4, 33), (32,), repeats=7),
        rolled("f64", (4, 9), (0,), repeats=12),
    ],
)
def test_stretches_are_the_loop(text: str) -> None:
    """Exactly: all of it is moved, compared or a constant."""
    module = parse(text)
    arguments = random_arguments(module, 3)
    (expected,) = evaluate(module, arguments)
    (actual,) = run(apply(parse(text), PASSES), arguments)
    np.testing.assert_array_equal(computed(actual), computed(expected))


@pytest.mark.parametrize(
    ("text", "loops", "bounds"),
    [
        (padded("bf16", 40, 3, 2), 6, 0),
        (padded("f32", 7, 2, 2), 2, 4),
        (joined("f32", 40, 30, 57), 5, 0),
        (joined("f32", *[9] * 12), 4, 22),
        (rolled("f32", (3, 100), (7,)), 3, 0),
        (rolled("f32", (3, 100), (7,), repeats=9), 3, 0),
        (rolled("f32", (1000,), (7,)), 2, 0),
    ],
    ids=["pad", "too short", "concat", "too many", "roll", "roll and repeat", "roll of one axis"],
)
def test_how_many_stretches(text: str, loops: int, bounds: int) -> None:
    """Inside of the outer padding and elsewhere; no address of theirs is bounded, or a remainder."""
    lowered = text_of(apply(parse(text), [*PASSES, "convert-fused-to-loops"]))
    inner = [part.partition("scf.reduce")[0] for part in lowered.split("scf.parallel")[1:]]
    assert len(inner) == loops
    assert sum(part.count("arith.maxsi") + part.count("arith.minsi") for part in inner) == bounds
    assert "arith.remsi" not in "".join(inner)


def test_what_is_chosen_stays_narrow() -> None:
    """No conversion is left of a padding, whose constant is rounded once."""
    lowered = text_of(apply(parse(padded("bf16", 40, 3, 2, "0.1")), [*PASSES, "convert-fused-to-loops"]))
    assert "arith.extf" not in lowered
    assert "arith.truncf" not in lowered
    assert "arith.constant 1.000980e-01 : bf16" in lowered


@needs_compiler
def test_a_pad_keeps_the_bits_of_nan() -> None:
    x = narrow(np.arange(200, dtype=np.float32).reshape(5, 40), "bf16")
    bits = x.view(np.uint16)
    bits[0, :3] = [0x7FC1, 0xFFC0, 0x8000]
    (actual,) = run(apply(parse(padded("bf16", 40, 3, 2)), PASSES), [x])
    np.testing.assert_array_equal(actual.view(np.uint16)[1:-1, 3:-2], bits)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (pooled("bf16", 21, 3, 2, 1), "column"),
        (pooled("f32", 9, 3, 1, 0), "column"),
        (pooled("f32", 30, 2, 2, 0), "column"),
        (pooled("f32", 30, 11, 1, 0), "column"),
        (pooled("f32", 60, 40, 1, 0), "row"),
        (pooled("f32", 5, 3, 1, 0), "row"),
    ],
)
def test_windows_of_short_stretches_are_taken_side_by_side(text: str, kind: str) -> None:
    """Where there are more rows side by side than elements of a stretch."""
    assert f'kind = "{kind}"' in text_of(apply(parse(text), PASSES))


@needs_compiler
@pytest.mark.parametrize("kind", ["i8", "i16", "i32", "i64"])
def test_numbers_that_wrap_are_no_multiples_of_the_counter(kind: str) -> None:
    """Neither are those of a power of a constant, which repeated squaring makes of thousands of digits."""
    text = f"""
func.func @main(%x: tensor<300x{kind}>, %y: tensor<309x{kind}>) -> (tensor<309x{kind}>, tensor<309x{kind}>) {{
  %base = graph.constant dense<8> : tensor<{kind}>
  %0 = graph.pow %base, %y : (tensor<{kind}>, tensor<309x{kind}>) -> tensor<309x{kind}>
  %1 = graph.pad %x {{pads = array<i64: 5, 4>, value = 7 : i64}} : (tensor<300x{kind}>) -> tensor<309x{kind}>
  %2 = graph.iota {{shape = array<i64: 309>, dtype = {kind}}} : () -> tensor<309x{kind}>
  %three = graph.constant dense<3> : tensor<{kind}>
  %3 = graph.multiply %2, %three : (tensor<309x{kind}>, tensor<{kind}>) -> tensor<309x{kind}>
  %c = graph.constant dense<60> : tensor<{kind}>
  %4 = graph.less %3, %c : (tensor<309x{kind}>, tensor<{kind}>) -> tensor<309xi1>
  %5 = graph.where %4, %1, %three
    : (tensor<309xi1>, tensor<309x{kind}>, tensor<{kind}>) -> tensor<309x{kind}>
  func.return %0, %5 : tensor<309x{kind}>, tensor<309x{kind}>
}}
"""
    arguments = random_arguments(parse(text), 5)
    arguments[1] = np.arange(309).astype(arguments[1].dtype)
    expected = evaluate(parse(text), arguments)
    for actual, wanted in zip(run(apply(parse(text), PASSES), arguments), expected, strict=True):
        np.testing.assert_array_equal(actual, wanted)
