"""The programs that tuning.py tunes: those of which somebody once tried by hand what is faster, and others."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def file_name(program: str) -> str:
    """What files about a program are called."""
    return re.sub(r"\W+", "-", program.removesuffix(".mlir")).strip("-")


def function(results: Mapping[str, str], arguments: Sequence[str], *lines: str) -> str:
    """A program of lines `NAME = OP : TYPES` with %0, %1 ... as arguments; `results` are types of values by name."""
    given = ", ".join(f"%{k}: tensor<{type_}>" for k, type_ in enumerate(arguments))
    names, types = ", ".join(results), ", ".join(f"tensor<{type_}>" for type_ in results.values())
    body = "\n  ".join(lines)
    return f"func.func @main({given}) -> ({types}) {{\n  {body}\n  func.return {names} : {types}\n}}\n"


def binary(name: str, op: str, a: str, b: str, type_: str, other: str = "") -> str:
    """An op of two operands; `other` is the type of the second where that is another one."""
    return f"{name} = graph.{op} {a}, {b} : (tensor<{type_}>, tensor<{other or type_}>) -> tensor<{type_}>"


def unary(name: str, op: str, a: str, type_: str, attributes: str = "", result: str = "") -> str:
    """An op of one operand."""
    return f"{name} = graph.{op} {a} {attributes}: (tensor<{type_}>) -> tensor<{result or type_}>"


def softmax(rows: int, columns: int) -> str:
    t = f"{rows}x{columns}xf32"
    return function({"%r": t}, [t], unary("%r", "softmax", "%0", t, "{axis = -1 : i64} "))


def lstm(rows: int, columns: int) -> str:
    t = f"{rows}x{columns}xf32"
    return function(
        {"%h": t, "%new": t},
        [t] * 5,
        *(unary(f"%g{k}", "tanh" if k == 2 else "sigmoid", f"%{k}", t) for k in range(4)),
        binary("%kept", "multiply", "%g1", "%4", t),
        binary("%added", "multiply", "%g0", "%g2", t),
        binary("%new", "add", "%kept", "%added", t),
        unary("%t", "tanh", "%new", t),
        binary("%h", "multiply", "%g3", "%t", t),
    )


def turned(rows: int, columns: int) -> str:
    given, t, row = f"{columns}x{rows}xf32", f"{rows}x{columns}xf32", f"{columns}xf32"
    return function(
        {"%r": t},
        [given, row],
        unary("%a", "permute_dims", "%0", given, "{axes = array<i64: 1, 0>} ", t),
        binary("%b", "add", "%a", "%1", t, row),
        unary("%r", "relu", "%b", t),
    )


def moments(rows: int, columns: int) -> str:
    given, row = f"{rows}x{columns}xf32", f"{columns}xf32"
    axes = "{axes = array<i64: 0>} "
    return function(
        {"%m": row, "%v": row},
        [given],
        unary("%m", "mean", "%0", given, axes, row),
        unary("%v", "var", "%0", given, axes, row),
    )


def residual(rows: int, columns: int) -> str:
    t, row = f"{rows}x{columns}xf32", f"{columns}xf32"
    norm = (
        f"graph.layer_norm %s, %3, %4 {{axis = -1 : i64}} : (tensor<{t}>, tensor<{row}>, tensor<{row}>) -> tensor<{t}>"
    )
    return function(
        {"%r": t},
        [t, t, t, row, row],
        binary("%d", "multiply", "%0", "%1", t),
        binary("%s", "add", "%d", "%2", t),
        f"%r = {norm}",
    )


PROGRAMS: dict[str, Callable[[], str]] = {
    "softmax 12001x771": lambda: softmax(12001, 771),
    "lstm 251x509": lambda: lstm(251, 509),
    "lstm 8191x509": lambda: lstm(8191, 509),
    "relu(a.T + b) 4099x4093": lambda: turned(4099, 4093),
    "mean, var over axis 0 2039x509": lambda: moments(2039, 509),
    "dropout, residual, layer norm 1031x1021": lambda: residual(1031, 1021),
    "transformer_block.mlir": lambda: (EXAMPLES / "transformer_block.mlir").read_text(),
}


def optimizer(tensors: int, seed: int) -> str:
    """A step with momentum of so many tensors of odd sizes."""
    drawn = random.Random(seed)
    shapes = [f"{2 * drawn.randint(8, 128) + 1}x{2 * drawn.randint(2, 64) + 1}xf32" for _ in range(tensors)]
    arguments, lines, results = ["1xf32", "1xf32"], list[str](), dict[str, str]()
    for k, t in enumerate(shapes):
        parameter, velocity, gradient = (f"%{2 + 3 * k + n}" for n in range(3))
        arguments += [t, t, t]
        lines += [
            binary(f"%a{k}", "multiply", velocity, "%0", t, "1xf32"),
            binary(f"%v{k}", "add", f"%a{k}", gradient, t),
            binary(f"%s{k}", "multiply", f"%v{k}", "%1", t, "1xf32"),
            binary(f"%p{k}", "subtract", parameter, f"%s{k}", t),
        ]
        results |= {f"%p{k}": t, f"%v{k}": t}
    return function(results, arguments, *lines)


def u_net(channels: int, side: int) -> str:
    """Two convolutions with activations, and a connection past them."""
    t, weights = f"1x{channels}x{side}x{side}xf32", f"{channels}x{channels}x3x3xf32"
    window = (
        "{strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64}"
    )
    types = f"(tensor<{t}>, tensor<{weights}>) -> tensor<{t}>"
    return function(
        {"%r": t},
        [t, weights, weights],
        f"%a = graph.conv %0, %1 {window} : {types}",
        unary("%b", "gelu", "%a", t),
        f"%c = graph.conv %b, %2 {window} : {types}",
        binary("%d", "add", "%c", "%0", t),
        unary("%m", "mean", "%d", t, "{axes = array<i64: 2, 3>, keepdims = true} ", f"1x{channels}x1x1xf32"),
        binary("%r", "subtract", "%d", "%m", t, f"1x{channels}x1x1xf32"),
    )


EXAMPLE_NAMES = ("adam_step", "ffn", "gated_unit", "layernorm_residual", "resnet_block", "sgd_step")
OTHERS: dict[str, Callable[[], str]] = {
    "optimizer of 200 tensors": lambda: optimizer(200, 7),
    "u_net block": lambda: u_net(29, 53),
    **{f"{name}.mlir": lambda name=name: (EXAMPLES / f"{name}.mlir").read_text() for name in EXAMPLE_NAMES},
}


def four_kernels() -> str:
    """Independent kernels, each with much to try."""
    shapes = ("251x509", "127x1021", "64x2039", "499x257")
    types = {f"%r{k}": f"{shape}xf32" for k, shape in enumerate(shapes)}
    lines = [unary(f"%r{k}", "softmax", f"%{k}", t, "{axis = -1 : i64} ") for k, t in enumerate(types.values())]
    return function(types, list(types.values()), *lines)
