"""bf16 and the 8-bit floats: every bit pattern and every rounding, against values found by enumeration."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_printing import FLAGS, build, needs_cc, print_all, run
from ir_testing import evaluate, parse, text_of
from narrow_floats import DTYPES, LAYOUTS, Array, bits_of, decode, encode, from_bits, spacing

import fuse_opt
from fuse_opt.dialects.types.dtypes import DTYPES as ELEMENTS
from fuse_opt.lowering.c.headers.functions import c_helpers
from fuse_opt.lowering.c.language import CUDA, C
from fuse_opt.lowering.c.printer import print_translation_unit
from fuse_opt.lowering.program.float_formats import narrow, recognized, widen
from fuse_opt.tools.commands.fuse_run_main import main
from fuse_opt.tools.source.diagnostics import InputError
from fuse_opt.tools.source.verification import OpVerifyError

NAMES = sorted(LAYOUTS)
F8 = [name for name in NAMES if LAYOUTS[name][0] == 8]
Run = Callable[[str, list[Array]], Array]


def on_reference(text: str, arguments: list[Array]) -> Array:
    return evaluate(parse(text), arguments)[0]


def in_c(text: str, arguments: list[Array]) -> Array:
    return fuse_opt.compile(text, "cpu")(*arguments)


EVALUATORS = [pytest.param(on_reference, id="reference"), pytest.param(in_c, id="c", marks=needs_cc)]


def one_op(line: str, operands: str, result: str) -> str:
    """A function of one op on `%x`."""
    op = f"%r = {line} : ({operands}) -> {result}"
    return f"func.func @main(%x: {operands}) -> {result} {{\n  {op}\n  func.return %r : {result}\n}}"


def cast(x: Array, source: str, target: str, run: Run) -> Array:
    a, b = (f"tensor<{x.size}x{name}>" for name in (source, target))
    return run(one_op(f"graph.astype %x {{dtype = {target}}}", a, b), [x])


def all_patterns(name: str) -> Array:
    return np.asarray(from_bits(np.arange(1 << LAYOUTS[name][0]), name))


def boundaries(name: str, dtype: Any) -> Array:
    """Of both signs: all values, all halves between neighbours, and their neighbours in the wider type; specials."""
    values = np.unique(np.abs(decode(all_patterns(name))))
    values = values[np.isfinite(values)]
    top = spacing(values[-1], name)
    halves = np.concatenate([(values[1:] + values[:-1]) / 2, [values[-1] + top / 2, values[-1] + top]])
    with np.errstate(all="ignore"):
        near = np.concatenate([values, halves]).astype(dtype)
        near = np.concatenate([near, np.nextafter(near, dtype(np.inf)), np.nextafter(near, dtype(-np.inf))])
    info = np.finfo(dtype)
    special = np.array([np.nan, np.inf, 0, info.smallest_subnormal, info.tiny, info.max, 1e-45, 465, 1e38], dtype)
    bits = np.random.default_rng(5).integers(0, np.iinfo(f"u{info.bits // 8}").max, 20_000, f"u{info.bits // 8}")
    return np.concatenate([near, -near, special, -special, bits.view(dtype)])


def assert_same(actual: Array, expected: Array) -> None:
    """Equal bits, where every NaN equals every other."""
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    a, b = decode(actual), decode(expected)
    right = ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))
    assert right.all(), (a[~right][:5], b[~right][:5])


def test_formats() -> None:
    """Landmarks of the three formats, from their specifications."""
    assert decode(from_bits([0x3F80, 0x7F7F, 0x0001, 0x0080], "bf16")).tolist() == [
        1.0, 3.3895313892515355e38, 2.0**-133, 2.0**-126,
    ]  # fmt: skip
    assert decode(from_bits([0x38, 0x7E, 0x01, 0x08, 0x7F], "f8E4M3FN")).tolist()[:4] == [1.0, 448.0, 2.0**-9, 2.0**-6]
    assert decode(from_bits([0x3C, 0x7B, 0x01, 0x04, 0x7C], "f8E5M2")).tolist() == [
        1.0, 57344.0, 2.0**-16, 2.0**-14, np.inf,
    ]  # fmt: skip
    assert np.isnan(decode(from_bits([0x7F, 0xFF], "f8E4M3FN"))).all()
    assert np.isnan(decode(from_bits([0x7D, 0xFE], "f8E5M2"))).all()


def test_elements() -> None:
    found = {d.name: (d.bits, d.itemsize, d.is_float, d.compute.name, d.storage_only) for d in ELEMENTS}
    assert found["bf16"] == (16, 2, True, "f32", False)
    assert found["f8E4M3FN"] == found["f8E5M2"] == (8, 1, True, "f32", True)


@pytest.mark.parametrize("name", NAMES)
def test_widening_and_back(name: str) -> None:
    patterns = all_patterns(name)
    wide = widen(patterns)
    assert wide.dtype == np.float32
    assert_same(wide.astype(np.float64), decode(patterns))
    assert_same(narrow(wide, name), patterns)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", NAMES)
def test_narrowing_rounds_once(name: str, dtype: Any) -> None:
    x = boundaries(name, dtype)
    assert_same(narrow(x, name), np.asarray(encode(x, name)))


@pytest.mark.parametrize("name", NAMES)
def test_narrowing_other_numbers_and_shapes(name: str) -> None:
    for x in (np.arange(-128, 128, dtype=np.int8), np.array([[True], [False]]), np.float32(0.3), np.zeros((0, 2))):
        assert_same(narrow(x, name), np.asarray(encode(x, name)))
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    assert_same(narrow(halves, name), np.asarray(encode(halves, name)))


@pytest.mark.parametrize("run", EVALUATORS)
@pytest.mark.parametrize("name", NAMES)
def test_all_patterns_are_cast(name: str, run: Run) -> None:
    patterns = all_patterns(name)
    wide = cast(patterns, name, "f32", run)
    with np.errstate(invalid="ignore"):  # of signalling NaN
        assert_same(wide.astype(np.float64), decode(patterns))
    assert_same(cast(wide, "f32", name, run), patterns)
    assert_same(cast(patterns, name, "f64", run), decode(patterns))
    with np.errstate(over="ignore"):
        assert_same(cast(patterns, name, "f16", run), decode(patterns).astype(np.float16))
    for other in NAMES:
        assert_same(cast(patterns, name, other, run), np.asarray(encode(decode(patterns), other)))
    assert cast(patterns, name, "i1", run).tolist() == (decode(patterns) != 0).tolist()


@pytest.mark.parametrize("run", EVALUATORS)
@pytest.mark.parametrize("name", NAMES)
def test_rounding_in_programs(name: str, run: Run) -> None:
    """Once from f32; from f64 and i64 by way of f32, in which the op computes."""
    x = boundaries(name, np.float32)
    assert_same(cast(x, "f32", name, run), np.asarray(encode(x, name)))
    x = boundaries(name, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        assert_same(cast(x, "f64", name, run), np.asarray(encode(x.astype(np.float32), name)))
    whole = np.array([0, 1, -1, 463, 464, 465, -480, 2**24 + 1, 2**62 + 2**54 - 1, -(2**63), 2**63 - 1])
    assert_same(cast(whole, "i64", name, run), np.asarray(encode(whole.astype(np.float32), name)))


@pytest.mark.parametrize("run", EVALUATORS)
@pytest.mark.parametrize("name", NAMES)
def test_movement_keeps_every_bit(name: str, run: Run) -> None:
    """Payloads of NaN, too."""
    patterns = all_patterns(name).reshape(-1, 16)
    shape, turned = (f"tensor<{n}x{m}x{name}>" for n, m in (patterns.shape, patterns.shape[::-1]))
    text = one_op("graph.permute_dims %x {axes = array<i64: 1, 0>}", shape, turned)
    np.testing.assert_array_equal(bits_of(run(text, [patterns])), bits_of(patterns).T)
    text = one_op("graph.slice %x {starts = array<i64: 1, 15>, stops = array<i64: 9, 2>, steps = array<i64: 3, -1>}",
                  shape, f"tensor<3x13x{name}>")  # fmt: skip
    np.testing.assert_array_equal(bits_of(run(text, [patterns])), bits_of(patterns)[1:9:3, 15:2:-1])


def library(folder: Path, flags: list[str]) -> Any:
    """Loops over every conversion of `narrow_floats.h` for these types."""
    names = [(f"fo_{a}_to_{b}", a, b) for n in NAMES for a, b in ((n, "f32"), ("f32", n), ("f64", n))]
    types = {"f32": "float", "f64": "double", **{n: f"unsigned {'short' if n == 'bf16' else 'char'}" for n in NAMES}}
    loops = [
        f"void loop_{name}(const {types[a]} *restrict x, {types[b]} *restrict y, long n) "
        f"{{ for (long i = 0; i < n; i++) y[i] = {name}(x[i]); }}"
        for name, a, b in names
    ]
    return build("\n".join([c_helpers(name for name, _, _ in names), *loops]), folder, flags)


def check_conversions(compiled: Any) -> None:
    for name in NAMES:
        patterns = all_patterns(name)
        wide = np.zeros(len(patterns), np.float32)
        run(compiled, f"loop_fo_{name}_to_f32", patterns, wide, len(patterns))
        with np.errstate(invalid="ignore"):
            assert_same(wide.astype(np.float64), decode(patterns))
        for source, dtype in (("f32", np.float32), ("f64", np.float64)):
            x = boundaries(name, dtype)
            y = np.zeros(len(x), DTYPES[name])
            run(compiled, f"loop_fo_{source}_to_{name}", x, y, len(x))
            assert_same(y, np.asarray(encode(x, name)))


@needs_cc
def test_c_conversions_round_once(tmp_path: Path) -> None:
    check_conversions(library(tmp_path, FLAGS))


@needs_cc
def test_c_conversions_have_no_undefined_behaviour(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    check_conversions(library(tmp_path, [*FLAGS, "-O1", "-fsanitize=undefined,float-cast-overflow"]))
    assert "runtime error" not in capfd.readouterr().err


def scalar_program(name: str) -> str:
    """Every op of the C printer on values of the type: conversions, constants, bits."""
    bits = f"i{LAYOUTS[name][0]}"
    n = 300
    return f"""func.func @k(%x: memref<{n}xf64>, %y: memref<{n}x{name}>, %z: memref<{n}xf64>, %w: memref<{n}x{bits}>) {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %cn = arith.constant {n} : index
      %half = arith.constant 1.5 : {name}
      scf.for %i = %c0 to %cn step %c1 {{
        %a = memref.load %x[%i] : memref<{n}xf64>
        %b = arith.truncf %a : f64 to {name}
        %c = arith.extf %b : {name} to f64
        %d = arith.extf %half : {name} to f64
        %e = arith.addf %c, %d : f64
        %f = arith.bitcast %b : {name} to {bits}
        %g = arith.bitcast %f : {bits} to {name}
        memref.store %g, %y[%i] : memref<{n}x{name}>
        memref.store %e, %z[%i] : memref<{n}xf64>
        memref.store %f, %w[%i] : memref<{n}x{bits}>
      }}
      func.return
    }}"""


@needs_cc
@pytest.mark.parametrize("name", NAMES)
def test_printed_conversions(name: str, tmp_path: Path) -> None:
    x = boundaries(name, np.float64)[-300:]
    y, z, w = np.zeros(300, DTYPES[name]), np.zeros(300), np.zeros(300, bits_of(all_patterns(name)).dtype)
    compiled = build(print_translation_unit(print_all(scalar_program(name)), C), tmp_path, FLAGS)
    run(compiled, "k", x, y, z, w)
    expected = np.asarray(encode(x, name))
    assert_same(y, expected)
    np.testing.assert_array_equal(z, decode(expected) + 1.5)
    np.testing.assert_array_equal(w, bits_of(y))


@pytest.mark.parametrize("name", NAMES)
def test_cuda_text(name: str) -> None:
    text = print_translation_unit(print_all(scalar_program(name), CUDA), CUDA)
    if name == "bf16":
        assert "#include <cuda_bf16.h>" in text and "__float2bfloat16_rn(1.5f)" in text
    else:
        assert "cuda_fp8" not in text and f"unsigned char fo_f64_to_{name}(double x)" in text


@pytest.mark.parametrize("run", EVALUATORS)
def test_bf16_is_computed_in_f32_and_rounded_at_each_result(run: Run) -> None:
    kind = "tensor<3xbf16>"
    text = f"""func.func @main(%x: {kind}) -> {kind} {{
      %0 = graph.multiply %x, %x : ({kind}, {kind}) -> {kind}
      %1 = graph.subtract %0, %x : ({kind}, {kind}) -> {kind}
      func.return %1 : {kind}
    }}"""
    x = np.asarray(encode([1.0078125, 3.390625, 1e30], "bf16"))
    with np.errstate(over="ignore"):
        square = decode(encode((decode(x) ** 2).astype(np.float32), "bf16"))
    assert_same(run(text, [x]), np.asarray(encode((square - decode(x)).astype(np.float32), "bf16")))


@pytest.mark.parametrize("name", F8)
@pytest.mark.parametrize(
    ("line", "result"),
    [
        ("graph.add %x, %x : (T, T) -> T", "T"),
        ("graph.negative %x : (T) -> T", "T"),
        ("graph.equal %x, %x : (T, T) -> B", "B"),
        ("graph.sum %x {axes = array<i64: 0>, keepdims = true} : (T) -> T", "T"),
        ("graph.max %x {axes = array<i64>} : (T) -> T", "T"),
        ("graph.softmax %x : (T) -> T", "T"),
        ("graph.mean %x {axes = array<i64>} : (T) -> T", "T"),
        ("graph.matmul %x, %x : (T, T) -> T", "T"),
    ],
)
def test_arithmetic_on_storage_types_is_refused(name: str, line: str, result: str) -> None:
    types = {"T": f"tensor<1x1x{name}>", "B": "tensor<1x1xi1>"}
    text = f"func.func @main(%x: T) -> {result} {{\n  %r = {line}\n  func.return %r : {result}\n}}"
    for letter, kind in types.items():
        text = (
            text.replace(letter + " ", kind + " ").replace(letter + ")", kind + ")").replace(letter + ",", kind + ",")
        )
        text = text.replace(letter + "\n", kind + "\n")
    with pytest.raises((OpVerifyError, InputError), match=rf"{name} is a storage type .* insert graph.astype to f32"):
        parse(text)


def test_the_supported_types_are_named() -> None:
    with pytest.raises((OpVerifyError, InputError), match=r"use one of i1 .* f16 bf16 f32 f64 f8E4M3FN f8E5M2"):
        parse(one_op("graph.negative %x", "tensor<2xf8E4M3>", "tensor<2xf8E4M3>"))


@pytest.mark.parametrize("name", NAMES)
def test_constants_are_exact_in_text(name: str) -> None:
    """Every pattern in hexadecimal; printed and read again it is the same text, and the same value."""
    patterns = all_patterns(name)
    digits = LAYOUTS[name][0] // 4
    for chosen in np.array_split(np.arange(len(patterns)), max(len(patterns) // 4096, 1)):
        elements = ", ".join(f"0x{int(pattern):0{digits}X}" for pattern in chosen)
        kind = f"tensor<{len(chosen)}x{name}>"
        module = parse(f"func.func @main() -> {kind} {{\n  %0 = graph.constant dense<[{elements}]> : {kind}\n"
                       f"  func.return %0 : {kind}\n}}")  # fmt: skip
        once = text_of(module)
        again = parse(once)
        assert text_of(again) == once
        for each in (module, again):
            assert_same(evaluate(each, [])[0], np.asarray(patterns[chosen]))


def test_bits_that_do_not_fit_are_refused() -> None:
    for name, literal in (("bf16", "0x17F80"), ("f8E5M2", "0x100")):
        with pytest.raises(InputError, match=f"the bits do not fit '{name}'"):
            parse(f"%0 = graph.constant dense<{literal}> : tensor<{name}>")


def guises(name: str) -> list[Array]:
    """The same array as every type that stands for the element type."""
    array = np.asarray(encode([1.5, -2.0, np.nan, 0.25], name))
    bits = bits_of(array)
    found = [
        array,
        bits.view(f"V{bits.itemsize}"),
        bits.view([(name, f"V{bits.itemsize}")]),
        bits.view([(name, bits.dtype)]),
    ]
    try:
        import ml_dtypes  # pyright: ignore[reportMissingImports]
    except ImportError:
        return found
    names = {"bf16": "bfloat16", "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2"}
    return [*found, np.array([1.5, -2.0, np.nan, 0.25], getattr(ml_dtypes, names[name]))]


@pytest.mark.parametrize("run", EVALUATORS)
@pytest.mark.parametrize("name", NAMES)
def test_arguments_in_every_guise(name: str, run: Run) -> None:
    kind = f"tensor<4x{name}>"
    text = one_op("graph.reshape %x {shape = array<i64: 2, 2>}", kind, f"tensor<2x2x{name}>")
    for given in guises(name):
        result = run(text, [given])
        assert result.dtype == DTYPES[name]
        np.testing.assert_array_equal(bits_of(result).reshape(-1)[:2], bits_of(np.asarray(encode([1.5, -2.0], name))))


@pytest.mark.parametrize("target", ["reference", pytest.param("cpu", marks=needs_cc)])
@pytest.mark.parametrize("name", NAMES)
def test_integers_are_no_floats(name: str, target: str) -> None:
    bits = bits_of(np.asarray(encode([1.0], name)))
    text = one_op("graph.reshape %x {shape = array<i64: 1, 1>}", f"tensor<1x{name}>", f"tensor<1x1x{name}>")
    program = fuse_opt.compile(text, target)
    wanted = {"bf16": "bfloat16", "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2"}[name]
    with pytest.raises(TypeError, match=f"expected {wanted}"):
        program(bits)
    out = np.zeros((1, 1), DTYPES[name])
    program(from_bits(bits, name), out=[out])
    np.testing.assert_array_equal(bits_of(out).reshape(-1), bits)
    assert recognized(bits, DTYPES[name]) is bits


def test_structured_arrays_do_not_pass_for_numbers() -> None:
    """NumPy itself refuses to compute with the bits, where ml_dtypes is not there to do it right."""
    array = np.asarray(encode([1.0, 2.0], "bf16"))
    if array.dtype.names is None:
        pytest.skip("ml_dtypes is installed")
    with pytest.raises((TypeError, ValueError)):
        array.astype(np.float64)
    with pytest.raises(TypeError):
        _ = array + array


PROGRAM = """func.func @main(%x: tensor<4x8xbf16>, %w: tensor<8x4xbf16>, %s: tensor<4x4xf8E4M3FN>)
    -> (tensor<4x4xbf16>, tensor<4x4xf8E5M2>) {
  %0 = graph.matmul %x, %w : (tensor<4x8xbf16>, tensor<8x4xbf16>) -> tensor<4x4xbf16>
  %1 = graph.astype %s {dtype = bf16} : (tensor<4x4xf8E4M3FN>) -> tensor<4x4xbf16>
  %2 = graph.add %0, %1 : (tensor<4x4xbf16>, tensor<4x4xbf16>) -> tensor<4x4xbf16>
  %3 = graph.astype %2 {dtype = f8E5M2} : (tensor<4x4xbf16>) -> tensor<4x4xf8E5M2>
  func.return %2, %3 : tensor<4x4xbf16>, tensor<4x4xf8E5M2>
}"""


def fuse_run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> Any:
    assert main([*arguments, "--stats", "json"]) == 0
    return json.loads(capsys.readouterr().out)


@needs_cc
def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Random inputs, inputs from a file in either guise, the check against the reference, and the summary."""
    file = tmp_path / "program.mlir"
    file.write_text(PROGRAM)
    assert fuse_run(str(file), "--check", capsys=capsys)["check"]["passed"]
    x, w = (np.asarray(encode(np.linspace(-1, 1, 32).reshape(shape), "bf16")) for shape in ((4, 8), (8, 4)))
    s = np.asarray(encode(np.eye(4), "f8E4M3FN"))
    np.savez(tmp_path / "named.npz", x=x, w=w, s=s)
    np.savez(tmp_path / "raw.npz", bits_of(x).view("V2"), bits_of(w).view("V2"), bits_of(s).view("V1"))
    product = decode(encode((decode(x) @ decode(w)).astype(np.float32), "bf16")) + np.eye(4)
    for name in ("named.npz", "raw.npz"):
        inputs = f"--inputs={tmp_path / name}"
        assert fuse_run(str(file), inputs, "--check", capsys=capsys)["check"]["passed"]
        results = fuse_run(str(file), inputs, capsys=capsys)["results"]
        assert [r["dtype"] for r in results] == ["bfloat16", "float8_e5m2"]
        assert results[0]["mean"] == pytest.approx(float(product.mean()), abs=2e-2)


@needs_cc
def test_matmul_and_conv_compute_in_f32() -> None:
    """On the pool and on NumPy alike: rounded once, from sums of f32."""
    x = np.asarray(encode(np.sin(np.arange(64 * 300)).reshape(64, 300), "bf16"))
    w = np.asarray(encode(np.cos(np.arange(300 * 40)).reshape(300, 40), "bf16"))
    text = one_op("graph.matmul %x, %w", "tensor<64x300xbf16>, tensor<300x40xbf16>", "tensor<64x40xbf16>")
    text = text.replace("(%x: tensor<64x300xbf16>, tensor", "(%x: tensor<64x300xbf16>, %w: tensor")
    exact = decode(x) @ decode(w)
    for evaluator in (on_reference, in_c):
        assert (np.abs(decode(evaluator(text, [x, w])) - exact) <= 0.51 * spacing(exact, "bf16") + 1e-4).all()


def test_numbers_as_arguments() -> None:
    program = fuse_opt.compile(one_op("graph.negative %x", "tensor<2xbf16>", "tensor<2xbf16>"), "reference")
    assert decode(program([1.0, 0.3])).tolist() == [-1.0, -0.30078125]
