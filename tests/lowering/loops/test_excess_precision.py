"""Rounding to f16 and bf16 in registers, and f16 by the block: the same bits as conversions one by one."""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path

import numpy as np
import pytest
from c_printing import BUILDS, build_helpers
from ir_testing import apply, evaluate, parse, text_of
from lowered_programs import needs_compiler

from fuse_opt.lowering.c.headers.functions import c_helpers
from fuse_opt.lowering.emit import build_program
from fuse_opt.lowering.program.float_formats import bit_patterns, computed, narrow
from fuse_opt.passes.remarks import RefusedError
from fuse_opt.runtime.cpu.program import CpuProgram
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.host.c_compiler import find_c_compiler

pytestmark = pytest.mark.optimised


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_rounding_is_narrowing_and_widening(kind: str) -> None:
    compiler = find_c_compiler()
    if compiler is None:
        pytest.skip("no working C compiler")
    names = [f"fo_round_{kind}", f"fo_f32_to_{kind}", f"fo_{kind}_to_f32", "fo_round_clean_bf16"]
    names += ["fo_clean_f32_to_bf16", "fo_exact_f32_to_bf16", "fo_bf16_to_f32"]
    text = (
        c_helpers(names)
        + f"""
void both(long n, const float *x, float *y, float *z, float *c, float *s, float *e) {{
  for (long i = 0; i < n; i++) {{
    y[i] = fo_round_{kind}(x[i]);
    c[i] = fo_round_clean_bf16(x[i]);
    s[i] = fo_bf16_to_f32(fo_clean_f32_to_bf16(x[i]));
    e[i] = fo_bf16_to_f32(fo_exact_f32_to_bf16(x[i]));
    z[i] = fo_{kind}_to_f32(fo_f32_to_{kind}(x[i]));
  }}
}}
"""
    )
    both = ctypes.CDLL(str(compiler.compile_shared(text, DiskCache()))).both
    halves = np.arange(1 << 16, dtype=np.uint32)
    near = (halves << 16).view(np.float32), np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    patterns = np.random.default_rng(1).integers(0, 1 << 32, 1 << 18, dtype=np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        ties = [(v.astype(np.float64) * (1 + d)).astype(np.float32) for v in near for d in (2**-11, 2**-9, 3 * 2**-12)]
    x = np.concatenate([*near, *ties, patterns])
    y, z, c, s, e = (np.empty_like(x) for _ in range(5))
    both(ctypes.c_long(x.size), *(ctypes.c_void_p(a.ctypes.data) for a in (x, y, z, c, s, e)))
    np.testing.assert_array_equal(y, z)
    np.testing.assert_array_equal(np.signbit(y[y == y]), np.signbit(z[y == y]))
    if kind == "f16":
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(y, x.astype(np.float16).astype(np.float32))
    else:
        clean = ~np.isnan(x) | (x.view(np.uint32) & 0xFFFF == 0)
        assert np.isnan(x[clean]).sum() > 200
        np.testing.assert_array_equal(c[clean], y[clean])
        np.testing.assert_array_equal(s[clean], y[clean])
        np.testing.assert_array_equal(e[: 1 << 16].view(np.uint32), x[: 1 << 16].view(np.uint32))


@pytest.mark.parametrize("exponent", [1, 2, 3, 8, 60, 100])
def test_two_products_round_as_one_rounding_does(exponent: int) -> None:
    """For all numbers of bf16, signs of zero included."""
    with np.errstate(all="ignore"):
        x = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
        got = (x * np.float32(2.0 ** (-exponent - 16))) * np.float32(2.0**16)
        expected = computed(narrow(x.astype(np.float64) * 2.0**-exponent, "bf16"))
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))


@pytest.mark.parametrize(
    ("kind", "factor", "roundings", "products"),
    [("bf16", 0.5, 1, 2), ("bf16", -4.0, 1, 1), ("bf16", 0.75, 2, 1), ("bf16", 2.0**-120, 2, 1), ("f16", 0.5, 2, 1)],
)
def test_powers_of_two_are_not_rounded(kind: str, factor: float, roundings: int, products: int) -> None:
    """Of a product, then of exp."""
    t = f"tensor<64x{kind}>"
    module = parse(f"""
func.func @main(%x: {t}) -> {t} {{
  %r = fused.kernel(%a = %x : {t}) -> ({t}) {{
    %k = graph.full {{shape = array<i64>, dtype = {kind}, value = {factor!r} : f64}} : () -> tensor<{kind}>
    %0 = graph.multiply %a, %k : ({t}, tensor<{kind}>) -> {t}
    %1 = graph.exp %0 : ({t}) -> {t}
    %2 = graph.sqrt %1 : ({t}) -> {t}
    fused.yield %2 : {t}
  }}
  func.return %r : {t}
}}
""")
    text = text_of(apply(module, ["convert-fused-to-loops"]))
    assert text.count("call @fo_round_") == roundings
    assert text.count("arith.mulf") == products


def test_only_what_is_stored_becomes_narrow() -> None:
    kind = "tensor<64xf16>"
    module = parse(
        f"""
func.func @main(%x: {kind}) -> {kind} {{
  %r = fused.kernel(%a = %x : {kind}) -> ({kind}) {{
    %0 = graph.exp %a : ({kind}) -> {kind}
    %1 = graph.sqrt %0 : ({kind}) -> {kind}
    %2 = graph.exp %1 : ({kind}) -> {kind}
    fused.yield %2 : {kind}
  }}
  func.return %r : {kind}
}}
"""
    )
    text = text_of(apply(module, ["convert-fused-to-loops"]))
    assert text.count("call @fo_round_f16(") == 2


def chain(kind: str, argument: str = "") -> str:
    """Two roundings, what a narrow type has anyway, a cast there and back, and one rounding more."""
    t, first = f"tensor<64x{kind}>", f"tensor<64x{argument or kind}>"
    return f"""
func.func @main(%x: {first}, %y: {t}) -> {t} {{
  %n = graph.astype %x {{dtype = {kind}}} : ({first}) -> {t}
  %0 = graph.exp %n : ({t}) -> {t}
  %1 = graph.tanh %y : ({t}) -> {t}
  %2 = graph.maximum %0, %1 : ({t}, {t}) -> {t}
  %3 = graph.negative %2 : ({t}) -> {t}
  %4 = graph.abs %3 : ({t}) -> {t}
  %5 = graph.relu %4 : ({t}) -> {t}
  %6 = graph.floor %5 : ({t}) -> {t}
  %7 = graph.sqrt %6 : ({t}) -> {t}
  %8 = graph.multiply %7, %y : ({t}, {t}) -> {t}
  func.return %8 : {t}
}}
"""


PASSES = ["decompose", "fuse-elementwise", "wrap-kernels"]
STRICT, FAST = [*PASSES, "schedule-kernels"], [*PASSES, "schedule-kernels{math=fast}"]
KERNEL = [*PASSES, "schedule-kernels{precision=kernel}"]


@pytest.mark.parametrize(
    "kind, argument, helper", [("f16", "", "f16"), ("bf16", "", "clean_bf16"), ("bf16", "f32", "bf16")]
)
def test_what_a_narrow_type_has_is_not_rounded_again(kind: str, argument: str, helper: str) -> None:
    """Of exp, tanh and sqrt, and of an f32 argument; NaN of one may have digits that bf16 has not."""
    text = text_of(apply(parse(chain(kind, argument)), [*STRICT, "convert-fused-to-loops"]))
    assert text.count("call @fo_round") == text.count(f"call @fo_round_{helper}(") == 3 + bool(argument)
    fast = text_of(apply(parse(chain(kind, argument)), [*FAST, "convert-fused-to-loops"]))
    assert "fo_round" not in fast


def test_a_function_says_where_numbers_are_rounded() -> None:
    said = chain("bf16").replace("> {\n", '> attributes {graph.precision = "kernel"} {\n', 1)
    assert text_of(apply(parse(said), STRICT)).count('precision = "kernel"') == 2
    assert (
        text_of(apply(parse(said), [*PASSES, "schedule-kernels{precision=strict}"])).count('precision = "kernel"') == 1
    )
    assert "precision" not in text_of(apply(parse(chain("bf16").replace("bf16", "f32")), KERNEL))
    with pytest.raises(RefusedError, match='expected "strict" or "kernel", got "loose"; change or remove it'):
        apply(parse(said.replace('"kernel"', '"loose"')), STRICT)


ROWS = """
func.func @main(%x: tensor<37x200xbf16>) -> (tensor<37x200xbf16>, tensor<37x1xbf16>) {
  %0 = graph.exp %x : (tensor<37x200xbf16>) -> tensor<37x200xbf16>
  %1 = graph.sum %0 {axes = array<i64: 1>, keepdims = true} : (tensor<37x200xbf16>) -> tensor<37x1xbf16>
  %2 = graph.divide %0, %1 : (tensor<37x200xbf16>, tensor<37x1xbf16>) -> tensor<37x200xbf16>
  func.return %2, %1 : tensor<37x200xbf16>, tensor<37x1xbf16>
}
"""


@needs_compiler
def test_rows_are_rounded_once() -> None:
    """What is kept of a row between two stages, and a result that is read again, has all digits of f32."""
    x = narrow(np.random.default_rng(5).standard_normal((37, 200), np.float32), "bf16")
    program = CpuProgram(build_program(apply(parse(ROWS), ["fuse-row", *KERNEL])))
    assert program.stats.kernels == 1
    exponentials = np.exp(computed(x).astype(np.float64))
    total = exponentials.sum(1, keepdims=True)
    for got, wanted in zip(program(x), (exponentials / total, total), strict=True):
        assert np.mean(computed(got) == computed(narrow(wanted.astype(np.float32), "bf16"))) > 0.99


@needs_compiler
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_strict_rounds_every_op_and_fast_the_last(kind: str) -> None:
    module = parse(chain(kind))
    wide = np.random.default_rng(3).standard_normal((2, 64), np.float32) * np.float32(2)
    x, y = (narrow(a, "bf16") if kind == "bf16" else a.astype(np.float16) for a in wide)
    if kind == "bf16":  # a NaN of all ones stays one
        bit_patterns(x)[:2] = [0x7FFF, 0xFFFF]
    strict, fast, kernel = (
        CpuProgram(build_program(apply(parse(chain(kind)), passes)))(x, y) for passes in (STRICT, FAST, KERNEL)
    )
    (expected,) = evaluate(module, [x, y])
    np.testing.assert_allclose(computed(strict), computed(expected), rtol=2e-2, atol=1e-2)
    a, b = computed(x).astype(np.float64), computed(y).astype(np.float64)
    unrounded = np.sqrt(np.floor(np.maximum(np.abs(-np.maximum(np.exp(a), np.tanh(b))), 0))) * b
    once = computed(narrow(unrounded, "bf16") if kind == "bf16" else unrounded.astype(np.float16))
    assert np.mean((computed(fast) == once)[2:]) > 0.97 and np.mean((computed(kernel) == once)[2:]) > 0.97
    assert np.isnan(computed(strict)[:2]).all() == np.isnan(computed(fast)[:2]).all() == (kind == "bf16")


@pytest.mark.parametrize(
    ("kind", "bound"),
    [("bf16", "5.000000e-01"), ("bf16", "0.100097656"), ("f16", "5.000000e-01"), ("f16", "0x7f800000")],
)
def test_what_is_chosen_among_narrow_numbers_is_not_rounded(kind: str, bound: str) -> None:
    """A constant is rounded here."""
    value = {"0.100097656": 0.1, "0x7f800000": 1e5}.get(bound, 0.5)
    narrow = f"tensor<64x{kind}>"
    module = parse(
        f"""
func.func @main(%x: {narrow}, %c: tensor<64xi1>) -> {narrow} {{
  %r = fused.kernel(%a = %x : {narrow}, %b = %c : tensor<64xi1>) -> ({narrow}) {{
    %0 = graph.exp %a : ({narrow}) -> {narrow}
    %1 = graph.relu %0 : ({narrow}) -> {narrow}
    %2 = graph.negative %1 : ({narrow}) -> {narrow}
    %k = graph.full {{shape = array<i64>, dtype = f32, value = {value} : f64}} : () -> tensor<f32>
    %n = graph.astype %k {{dtype = {kind}}} : (tensor<f32>) -> tensor<{kind}>
    %3 = graph.minimum %2, %n : ({narrow}, tensor<{kind}>) -> {narrow}
    %4 = graph.maximum %3, %a : ({narrow}, {narrow}) -> {narrow}
    %5 = graph.where %b, %4, %a : (tensor<64xi1>, {narrow}, {narrow}) -> {narrow}
    %6 = graph.sqrt %5 : ({narrow}) -> {narrow}
    fused.yield %6 : {narrow}
  }}
  func.return %r : {narrow}
}}
"""
    )
    text = text_of(apply(module, ["convert-fused-to-loops"]))
    assert text.count("call @fo_round_") == 1
    assert f"arith.constant {bound} : f32" in text


@pytest.mark.parametrize("compiler, machine", BUILDS)
def test_blocks_of_halves_are_halves(compiler: str, machine: str, tmp_path: Path) -> None:
    """Every half and many floats, from odd places on; the bits of a NaN are the machine's choice."""
    if machine == "-mf16c" and platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("an instruction set of x86-64")
    text = """
void blocks(long n, const unsigned short *h, const float *x, float *wide, unsigned short *narrow) {
  fo_widen_f16(h, 1, wide, 2, 65535);
  fo_narrow_f16(x, 3, narrow, 4, n);
}
"""
    library = build_helpers(["fo_widen_f16", "fo_narrow_f16"], text, compiler, machine, tmp_path)
    patterns = np.random.default_rng(2).integers(0, 1 << 32, (1 << 17) + 7, dtype=np.uint32).view(np.float32)
    halves = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(all="ignore"):
        middle = ((halves.view(np.float16).astype(np.float64) + np.roll(halves.view(np.float16), 1)) / 2).astype(
            np.float32
        )
        x = np.concatenate([patterns, middle, np.nextafter(middle, np.float32(0)), [np.float32(65520)]])
        expected = x.astype(np.float16)
    wide, narrow = np.zeros(1 << 18, np.float32), np.zeros(x.size + 8, np.uint16)
    arrays = [ctypes.c_void_p(a.ctypes.data) for a in (halves, x, wide, narrow)]
    library.blocks(ctypes.c_long(x.size - 3), *arrays)
    np.testing.assert_array_equal(wide[2 : 2 + 65535], halves.view(np.float16)[1:].astype(np.float32))
    got = narrow.view(np.float16)[4 : x.size + 1]
    np.testing.assert_array_equal(got, expected[3:])
    number = ~np.isnan(got)
    np.testing.assert_array_equal(got.view(np.uint16)[number], expected[3:].view(np.uint16)[number])
    assert not wide[2 + 65535 :].any()
    assert not narrow[x.size + 1 :].any()


@pytest.mark.parametrize("size", [300, 5000])
def test_neighbours_are_converted_by_the_block(size: int) -> None:
    """Two loads and a store of neighbours, again for what whole blocks leave over; what all elements share is left as it is."""
    kind = f"tensor<{size}xf16>"
    module = parse(f"""
func.func @main(%x: {kind}, %y: {kind}, %c: tensor<f16>) -> {kind} {{
  %r = fused.kernel(%a = %x : {kind}, %b = %y : {kind}, %s = %c : tensor<f16>) -> ({kind}) {{
    %0 = graph.add %a, %s : ({kind}, tensor<f16>) -> {kind}
    %1 = graph.multiply %0, %b : ({kind}, {kind}) -> {kind}
    fused.yield %1 : {kind}
  }}
  func.return %r : {kind}
}}
""")
    text = text_of(apply(module, ["convert-fused-to-loops"]))
    assert text.count("call @fo_widen_f16(") + text.count("call @fo_narrow_f16(") == 6
    assert text.count("memref.load %s[") == 1


@pytest.mark.sampled(5)
@needs_compiler
@pytest.mark.parametrize("size", [1, 8, 31, 32, 33, 63, 64, 95, 1000])
def test_blocks_that_are_unrolled_and_what_they_leave_over(size: int) -> None:
    """Of any number, and of rows of any length; of whole arrays and of stretches of them."""
    for shape in ((size,), (3, size)):
        kind = f"tensor<{'x'.join(map(str, shape))}xf16>"
        row = f"tensor<{size}xf16>"
        text = f"""func.func @main(%x: {kind}, %y: {row}) -> {kind} {{
  %0 = graph.add %x, %y : ({kind}, {row}) -> {kind}
  func.return %0 : {kind}
}}"""
        rng = np.random.default_rng(size)
        x, y = rng.normal(0, 9, shape).astype(np.float16), rng.normal(0, 9, size).astype(np.float16)
        np.testing.assert_array_equal(CpuProgram(build_program(apply(parse(text), ["wrap-kernels"])))(x, y), x + y)
