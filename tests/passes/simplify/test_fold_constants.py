"""Words on Python numbers as the reference computes them, and what `fold-constants` makes of programs of constants."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

import numpy as np
import pytest
from algebra_programs import (
    COMPUTED,
    CONSTANTS,
    accepted,
    main,
    names_after,
    operand_count,
    records,
    result_type,
    spelt,
    unary_or_binary,
    unchanged,
)
from draws import scaled
from graph_op_table import NAMES, samples
from ir_testing import Array, assert_same_bits, graph_ops, parse
from primitive_backends import BODIES, operands_of

from fuse_opt.dialects.graph.bases.elementwise import Elementwise
from fuse_opt.dialects.scalar import Scalar
from fuse_opt.dialects.scalar.bits import elements, packed
from fuse_opt.dialects.scalar.evaluate import Evaluator, NotKnown, Number, converted
from fuse_opt.dialects.types.dtypes import BOOL, DTYPES, F32, I32, DType
from fuse_opt.lowering.program.float_formats import converted as array_converted
from fuse_opt.lowering.reference.scalar import NUMPY_DTYPES, evaluate_body


@pytest.mark.sampled(140)
@pytest.mark.parametrize("name", BODIES)
def test_every_word_is_evaluated_as_on_the_reference(name: str) -> None:
    """At the edges of its types; nothing is known of words that backends round differently."""
    body = BODIES[name]
    operands = operands_of(body)
    expected = evaluate_body(body, operands, ())
    try:
        evaluate = Evaluator(body)
    except NotKnown:
        check_approximation(body, operands, expected)
        return
    rows = rows_of(operands)
    rng = np.random.default_rng(3)
    chosen: list[int] = sorted(map(int, rng.choice(len(rows), min(len(rows), 3000), replace=False)))
    got: list[Number] = []
    kept: list[int] = []
    for at in chosen:
        try:
            got.append(evaluate(rows[at]))
        except NotKnown:
            continue
        kept.append(at)
    assert len(kept) > 0.5 * len(chosen)  # of bits as floats many are NaNs, which are not told apart
    assert_same_bits([np.array(got, expected.dtype)], [expected[kept]], name)


def rows_of(operands: Sequence[Array]) -> list[tuple[Number, ...]]:
    return list(zip(*(array.tolist() for array in operands), strict=True))


def check_approximation(body: Scalar, operands: Sequence[Array], expected: Array) -> None:
    evaluate = Evaluator(body, approximate=True)
    step = max(1, len(expected) // 500)
    got = np.array([evaluate(row) for row in rows_of(operands)[::step]], expected.dtype)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(got, expected[::step], rtol=1e-5, atol=1e-5 if body.function == "lgamma" else 1e-40)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_numbers_and_bytes(dtype: DType) -> None:
    array = array_converted(np.asarray(samples(dtype.name)), NUMPY_DTYPES[dtype])
    text = main("", [f"%r = graph.constant dense<[{listed(array)}]> : tensor<{array.size}x{dtype.name}>"], "X")
    (op,) = graph_ops(parse(text.replace("X", f"tensor<{array.size}x{dtype.name}>")))
    stored = op.stored_value()
    assert stored is not None
    values = elements(stored)
    assert [converted(v, dtype) for v in values if v == v] == [v for v in values if v == v]
    again = np.frombuffer(packed(values, dtype), np.uint8)
    if dtype is not BOOL:
        assert_same_bits([again.view(NUMPY_DTYPES[dtype])], [array])


def listed(array: Array) -> str:
    """Elements as literals, floats as their bits."""
    name = NAMES[array.dtype]
    if name == "i1":
        return ", ".join("true" if v else "false" for v in array.tolist())
    if not name.startswith(("f", "bf")):
        return ", ".join(map(str, array.tolist()))
    width = array.dtype.itemsize
    raw = array.tobytes()
    words = [raw[at : at + width][::-1].hex().upper() for at in range(0, len(raw), width)]
    return ", ".join(f"0x{word}" for word in words)


@pytest.mark.sampled(100)
@pytest.mark.parametrize("op", [op for op in records(Elementwise) if 1 <= operand_count(op) <= 2])
def test_constants_of_every_record(op: str) -> None:
    """On stored samples and on splats, at one of the types that it accepts."""
    turn, left = zlib.crc32(op.encode()) % len(COMPUTED), scaled(1)
    for name in [*COMPUTED[turn:], *COMPUTED[:turn]]:
        count = operand_count(op)
        if left and accepted(unary_or_binary(op, name, count, result_type(op, name, count))):
            check_constants(op, name)
            left -= 1


def check_constants(op: str, name: str) -> None:
    count = operand_count(op)
    result = result_type(op, name, count)
    x = samples(name)
    stored = f"%c = graph.constant dense<[{listed(x)}]> : tensor<{x.size}x{name}>"
    column = f"%d = graph.constant dense<[{listed(x)}]> : tensor<{x.size}x1x{name}>".replace(
        f"[{listed(x)}]", "[" + ", ".join(f"[{v}]" for v in listed(x).split(", ")) + "]"
    )
    splat = f"%s = graph.constant dense<{CONSTANTS[name][2 % len(CONSTANTS[name])]}> : tensor<{name}>"
    many, one = f"tensor<{x.size}x{name}>", f"tensor<{name}>"
    if count == 1:
        cases = [("%c", many, f"tensor<{x.size}x{result}>"), ("%s", one, f"tensor<{result}>")]
    else:
        cases = [
            ("%c, %d", f"{many}, tensor<{x.size}x1x{name}>", f"tensor<{x.size}x{x.size}x{result}>"),
            ("%s, %s", f"{one}, {one}", f"tensor<{result}>"),
        ]
    for values, types, wanted in cases:
        lines = [line for line in (stored, column, splat) if line[:2] in values]
        unchanged(main("", [*lines, f"%r = {op} {values} : ({types}) -> {wanted}"], wanted), [], "fold-constants")


FOLDED: dict[str, tuple[list[str], list[str], list[str]]] = {
    "sqrt": (["%r = graph.sqrt %c : (tensor<2x2xf32>) -> tensor<2x2xf32>"], [], []),
    "exp": (["%r = graph.exp %c : (tensor<2x2xf32>) -> tensor<2x2xf32>"], ["exp"], []),
    "a view": (["%r = graph.permute_dims %c {axes = array<i64: 1, 0>} : (tensor<2x2xf32>) -> tensor<2x2xf32>"], [], []),
    "a view that grows": (
        ["%r = graph.broadcast_to %c {shape = array<i64: 3, 2, 2>} : (tensor<2x2xf32>) -> tensor<3x2x2xf32>"],
        ["broadcast_to"],
        ["broadcast_to"],
    ),
    "an exact sum": (["%r = graph.sum %c : (tensor<2x2xf32>) -> tensor<f32>"], [], []),
    "a sum that rounds": (["%r = graph.sum %w : (tensor<3xf64>) -> tensor<f64>"], ["sum"], ["sum"]),
    "two parts": (
        ["%r = graph.concat %c, %c : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<4x2xf32>"],
        [],
        [],
    ),
    "a chain": (
        [
            "%0 = graph.add %c, %c : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>",
            "%1 = graph.astype %0 {dtype = bf16} : (tensor<2x2xf32>) -> tensor<2x2xbf16>",
            "%r = graph.max %1 {axes = array<i64: 0>} : (tensor<2x2xbf16>) -> tensor<2xbf16>",
        ],
        [],
        [],
    ),
    "created from nothing": (
        ["%r = graph.iota {shape = array<i64: 4>, dtype = f32} : () -> tensor<4xf32>"],
        ["iota"],
        ["iota"],
    ),
}


@pytest.mark.parametrize("what", FOLDED)
def test_what_is_folded(what: str) -> None:
    lines, left, fast = FOLDED[what]
    constants = [
        "%c = graph.constant dense<[[1.5, -2.0], [0.25, 3.0]]> : tensor<2x2xf32>",
        "%w = graph.constant dense<[1.0e16, 1.0, -1.0e16]> : tensor<3xf64>",
    ]
    text = main("", [*constants, *lines], lines[-1].rpartition(" -> ")[2])
    assert names_after(text, "fold-constants") == left
    assert names_after(text, "fold-constants{math=fast}") == fast
    unchanged(text, [], "fold-constants")


def test_a_limit_of_elements() -> None:
    text = (
        spelt("%r = graph.sqrt %y")
        .replace("(%x: tensor<8xf32>)", "()")
        .replace("  %r", "  %y = graph.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]> : tensor<8xf32>\n  %r")
    )
    assert names_after(text, "fold-constants{max-elements=7}") == ["sqrt"]
    assert names_after(text, "fold-constants{max-elements=8}") == []


def test_evaluation_of_large_numbers() -> None:
    assert converted(2**53 + 1, F32) == float(2**53)
    assert converted(2**24 + 1 + 2**40, F32) == float(np.float32(np.int64(2**24 + 1 + 2**40)))
    assert converted(math.inf, I32) == 2**31 - 1 and converted(-1e30, I32) == -(2**31) and converted(math.nan, I32) == 0
