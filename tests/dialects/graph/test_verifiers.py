"""Verifiers of the graph and fused dialects: each message names the op, what was expected, what was given, and a remedy."""

from __future__ import annotations

import pytest
from ir_testing import apply, parse, text_of
from xdsl.dialects.builtin import TensorType, f32
from xdsl.ir import Block
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.elementwise.arithmetic import AddOp
from fuse_opt.tools.source.diagnostics import InputError
from fuse_opt.tools.source.verification import OpVerifyError


def refused(line: str, *argument_types: str) -> str:
    """The message with which a function of one op on `%0`, `%1` ... is refused."""
    arguments = ", ".join(f"%{number}: {type_}" for number, type_ in enumerate(argument_types))
    with pytest.raises((OpVerifyError, InputError)) as error:
        parse(f"func.func @main({arguments}) {{\n  %r = {line}\n  func.return\n}}")
    return str(error.value)


GRAPH: list[tuple[str, str, tuple[str, ...], tuple[str, ...]]] = [
    (
        "shapes do not broadcast",
        "graph.add %0, %1 : (tensor<2x3xf32>, tensor<4xf32>) -> tensor<2x3xf32>",
        ("tensor<2x3xf32>", "tensor<4xf32>"),
        ("'graph.add'", "2x3, 4", "dimension -1", "3 and 4", "make them equal or 1"),
    ),
    (
        "types are never promoted",
        "graph.add %0, %1 : (tensor<4xf32>, tensor<4xf64>) -> tensor<4xf32>",
        ("tensor<4xf32>", "tensor<4xf64>"),
        ("'graph.add'", "tensor<4xf32>, tensor<4xf64>", "(f32, f64)", "one element type", "graph.astype"),
    ),
    (
        "a function that does not take the type",
        "graph.exp %0 : (tensor<4xi32>) -> tensor<4xi32>",
        ("tensor<4xi32>",),
        ("'graph.exp'", "tensor<4xi32>", "'exp' does not accept", "graph.astype"),
    ),
    (
        "the wrong result",
        "graph.less %0, %0 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>",
        ("tensor<4xf32>",),
        ("'graph.less'", "result 0", "expected 'tensor<4xi1>'", "got 'tensor<4xf32>'"),
    ),
    (
        "a result of another shape",
        "graph.exp %0 : (tensor<4xf32>) -> tensor<5xf32>",
        ("tensor<4xf32>",),
        ("'graph.exp'", "expected 'tensor<4xf32>'", "got 'tensor<5xf32>'"),
    ),
    (
        "an element type nobody knows",
        "graph.exp %0 : (tensor<4xi7>) -> tensor<4xi7>",
        ("tensor<4xi7>",),
        ("'graph.exp'", "'i7' is not supported", "use one of i1 i8"),
    ),
    (
        "conversion to an unknown type",
        "graph.astype %0 {dtype = i7} : (tensor<4xf32>) -> tensor<4xi7>",
        ("tensor<4xf32>",),
        ("'graph.astype'", "'i7' is not supported"),
    ),
    (
        "where without a condition",
        "graph.where %0, %0, %0 : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>",
        ("tensor<4xf32>",),
        ("'graph.where'", "i1 condition"),
    ),
    (
        "gelu of an unknown kind",
        'graph.gelu %0 {approximate = "fast"} : (tensor<4xf32>) -> tensor<4xf32>',
        ("tensor<4xf32>",),
        ("'graph.gelu'", "attribute 'approximate'", 'expected "none" or "tanh"', '"fast"'),
    ),
    (
        "reshape to another count",
        "graph.reshape %0 {shape = array<i64: 7>} : (tensor<2x3xf32>) -> tensor<7xf32>",
        ("tensor<2x3xf32>",),
        ("'graph.reshape'", "[2, 3] (6 elements)", "[7] (7 elements)"),
    ),
    (
        "axes that are no permutation",
        "graph.permute_dims %0 {axes = array<i64: 0, 0>} : (tensor<2x3xf32>) -> tensor<2x2xf32>",
        ("tensor<2x3xf32>",),
        ("'graph.permute_dims'", "attribute 'axes'", "expected a permutation of 0..1", "got [0, 0]"),
    ),
    (
        "broadcast to a smaller shape",
        "graph.broadcast_to %0 {shape = array<i64: 3>} : (tensor<2x3xf32>) -> tensor<3xf32>",
        ("tensor<2x3xf32>",),
        ("'graph.broadcast_to'", "[2, 3] does not broadcast to [3]"),
    ),
    (
        "slice of another rank",
        "graph.slice %0 {starts = array<i64: 0>, stops = array<i64: 1>} : (tensor<2x3xf32>) -> tensor<1x3xf32>",
        ("tensor<2x3xf32>",),
        ("'graph.slice'", "expected 2 starts, stops and steps", "one for each axis"),
    ),
    (
        "slice by no step",
        "graph.slice %0 {starts = array<i64: 0>, stops = array<i64: 1>, steps = array<i64: 0>} : "
        "(tensor<3xf32>) -> tensor<1xf32>",
        ("tensor<3xf32>",),
        ("'graph.slice'", "steps other than 0"),
    ),
    (
        "concat of other shapes",
        "graph.concat %0, %1 : (tensor<2x3xf32>, tensor<2x4xf32>) -> tensor<4x3xf32>",
        ("tensor<2x3xf32>", "tensor<2x4xf32>"),
        ("'graph.concat'", "operand 1", "expected shape [2, 3] but for axis 0", "got [2, 4]"),
    ),
    (
        "concat of nothing",
        "graph.concat : () -> tensor<4xf32>",
        (),
        ("'graph.concat'", "expected at least one operand"),
    ),
    (
        "concat of other types",
        "graph.concat %0, %1 : (tensor<2xf32>, tensor<2xf64>) -> tensor<4xf32>",
        ("tensor<2xf32>", "tensor<2xf64>"),
        ("'graph.concat'", "operand 1", "element types differ", "insert graph.astype"),
    ),
    (
        "an axis out of range",
        "graph.sum %0 {axes = array<i64: 2>} : (tensor<2x3xf32>) -> tensor<2xf32>",
        ("tensor<2x3xf32>",),
        ("'graph.sum'", "axis 2 is out of range for rank 2", "expected -2 <= axis < 2"),
    ),
    (
        "an axis named twice",
        "graph.sum %0 {axes = array<i64: 1, -1>} : (tensor<2x3xf32>) -> tensor<2xf32>",
        ("tensor<2x3xf32>",),
        ("'graph.sum'", "axes [1, -1] name an axis twice"),
    ),
    (
        "the largest of nothing",
        "graph.max %0 {axes = array<i64: 0>} : (tensor<0x3xf32>) -> tensor<3xf32>",
        ("tensor<0x3xf32>",),
        ("'graph.max'", "empty axis of [0, 3]", "reduce over non-empty axes"),
    ),
    (
        "the largest of truth values",
        "graph.max %0 : (tensor<3xi1>) -> tensor<i1>",
        ("tensor<3xi1>",),
        ("'graph.max'", "tensor<3xi1>", "'max' does not accept", "graph.astype"),
    ),
    (
        "softmax of integers",
        "graph.softmax %0 : (tensor<2x3xi32>) -> tensor<2x3xi32>",
        ("tensor<2x3xi32>",),
        ("'graph.softmax'", "operand 0", "expected floats of one type", "got 'tensor<2x3xi32>'"),
    ),
    (
        "layer_norm with another scale",
        "graph.layer_norm %0, %1, %2 : (tensor<2x3xf32>, tensor<4xf32>, tensor<3xf32>) -> tensor<2x3xf32>",
        ("tensor<2x3xf32>", "tensor<4xf32>", "tensor<3xf32>"),
        ("'graph.layer_norm'", "operand 'scale'", "expected shape [3]", "got [4]"),
    ),
    (
        "batch_norm with other channels",
        "graph.batch_norm %0, %1, %1, %1, %2 : "
        "(tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<2xf32>) -> tensor<2x3xf32>",
        ("tensor<2x3xf32>", "tensor<3xf32>", "tensor<2xf32>"),
        ("'graph.batch_norm'", "operand 'variance'", "expected shape [3]", "got [2]"),
    ),
    (
        "matmul of other inner dimensions",
        "graph.matmul %0, %1 : (tensor<2x3xf32>, tensor<4x5xf32>) -> tensor<2x5xf32>",
        ("tensor<2x3xf32>", "tensor<4x5xf32>"),
        ("'graph.matmul'", "last of [2, 3] is 3", "[4, 5] is 4", "must be equal"),
    ),
    (
        "matmul of a scalar",
        "graph.matmul %0, %1 : (tensor<f32>, tensor<4x5xf32>) -> tensor<5xf32>",
        ("tensor<f32>", "tensor<4x5xf32>"),
        ("'graph.matmul'", "expected operands of rank 1 or more", "got a scalar"),
    ),
    (
        "conv with other channels",
        "graph.conv %0, %1 : (tensor<1x3x8xf32>, tensor<4x2x3xf32>) -> tensor<1x4x6xf32>",
        ("tensor<1x3x8xf32>", "tensor<4x2x3xf32>"),
        ("'graph.conv'", "x has 3 channels", "expected 2 channels"),
    ),
    (
        "conv with odd pads",
        "graph.conv %0, %1 {pads = array<i64: 1>} : (tensor<1x2x8xf32>, tensor<4x2x3xf32>) -> tensor<1x4x8xf32>",
        ("tensor<1x2x8xf32>", "tensor<4x2x3xf32>"),
        ("'graph.conv'", "attribute 'pads'", "expected 2 integers >= 0", "got [1]"),
    ),
    (
        "conv of a window that does not fit",
        "graph.conv %0, %1 : (tensor<1x2x2xf32>, tensor<4x2x3xf32>) -> tensor<1x4x1xf32>",
        ("tensor<1x2x2xf32>", "tensor<4x2x3xf32>"),
        ("'graph.conv'", "window is larger", "[3] of [2]"),
    ),
    (
        "a constant that is no tensor",
        "graph.constant dense<1.0> : vector<4xf32>",
        (),
        ("'graph.constant'", "vector<4xf32>", "tensor"),
    ),
]


@pytest.mark.parametrize(
    ("line", "types", "parts"), [row[1:] for row in GRAPH], ids=[row[0].replace(" ", "_") for row in GRAPH]
)
def test_graph(line: str, types: tuple[str, ...], parts: tuple[str, ...]) -> None:
    message = refused(line, *types)
    for part in parts:
        assert part in message, message
    assert message.count(parts[0]) == 1, f"the op is named once: {message}"


def kernel(
    attributes: str = "", body: str = "%s = graph.exp %a : (tensor<4xf32>) -> tensor<4xf32>", **parts: str
) -> str:
    yielded = parts.get("yielded", "%s : tensor<4xf32>")
    results = parts.get("results", "tensor<4xf32>")
    return (
        f"fused.kernel(%a = %0 : tensor<4xf32>) -> ({results}) attributes {{{attributes}}} {{\n"
        f"    {body}\n    fused.yield {yielded}\n  }}"
    )


FUSED: list[tuple[str, str, tuple[str, ...]]] = [
    ("slots", kernel("slots = array<i64: 0, 64>"), ("'slots'", "expected 1 offsets", "got 2", "run plan-memory again")),
    ("schedule", kernel("schedule = {width = 4 : i64}"), ("'schedule'", 'expected an entry kind = "..."')),
    ("inplace odd", kernel("inplace = array<i64: 0>"), ("'inplace'", "expected pairs of result and operand")),
    (
        "inplace range",
        kernel("inplace = array<i64: 0, 3>"),
        ("pair (0, 3)", "out of range", "1 results and 1 operands"),
    ),
    ("inplace twice", kernel("inplace = array<i64: 0, 0, 0, 0>"), ("'inplace'", "in two pairs")),
    (
        "yield type",
        kernel(results="tensor<5xf32>"),
        ("'fused.yield'", "expected (tensor<5xf32>)", "got (tensor<4xf32>)"),
    ),
    ("yield count", kernel(yielded=""), ("'fused.yield'", "expected (tensor<4xf32>)", "got ()")),
    (
        "foreign op",
        kernel(body="%s = builtin.unrealized_conversion_cast %a : tensor<4xf32> to tensor<4xf32>"),
        ("'fused.kernel' body", "expected graph ops", "got 'builtin.unrealized_conversion_cast'", "move it out"),
    ),
]


@pytest.mark.parametrize(("text", "parts"), [row[1:] for row in FUSED], ids=[row[0] for row in FUSED])
def test_fused(text: str, parts: tuple[str, ...]) -> None:
    message = refused(text, "tensor<4xf32>")
    for part in ("'fused.", *parts):
        assert part in message, message


def test_block_arguments_follow_operands() -> None:
    text = """
      func.func @main(%0: tensor<4xf32>) {
        "fused.kernel"(%0) ({
        ^bb0(%a: tensor<5xf32>):
          "fused.yield"() : () -> ()
        }) : (tensor<4xf32>) -> ()
        func.return
      }"""
    message = r"'fused.kernel' block arguments: expected \(tensor<4xf32>\).*got \(tensor<5xf32>\)"
    with pytest.raises((OpVerifyError, InputError), match=message):
        parse(text)


def test_kernel_body_sees_its_arguments_only() -> None:
    message = refused(kernel(body="%s = graph.exp %0 : (tensor<4xf32>) -> tensor<4xf32>"), "tensor<4xf32>")
    assert "'graph.exp' operand 0" in message and "hand it in as an operand" in message


def test_yield_stands_in_kernels_only() -> None:
    with pytest.raises(
        (OpVerifyError, InputError),
        match="'fused.yield' expects parent op to be one of 'fused.kernel', 'fused.partition'",
    ):
        parse("func.func @main(%0: tensor<4xf32>) {\n  fused.yield %0 : tensor<4xf32>\n}")


def test_dynamic_extents_agree_with_any() -> None:
    text = """
      func.func @main(%0: tensor<?x4xf32>, %1: tensor<8x1xf32>) -> tensor<?x4xf32> {
        %r = graph.add %0, %1 : (tensor<?x4xf32>, tensor<8x1xf32>) -> tensor<?x4xf32>
        func.return %r : tensor<?x4xf32>
      }"""
    assert "tensor<8x4xf32>" in text_of(apply(parse(text), "infer-shapes"))


def test_a_refused_op_does_not_count_as_a_user() -> None:
    """Found by fuzzing: dce kept what only an op that was never finished had used."""
    block = Block(arg_types=[TensorType(f32, [4]), TensorType(f32, [5])])
    with pytest.raises(VerifyException):
        AddOp.build_op(*block.args)
    assert not any(value.uses for value in block.args)
