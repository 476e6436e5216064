"""Small programs for the tests of the algebra passes, and what passes make of them."""

from __future__ import annotations

from collections.abc import Sequence

from graph_op_table import TYPES
from ir_testing import Array, apply, assert_same_bits, evaluate, graph_ops, op_names, optimized, parse, text_of
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph import GRAPH
from fuse_opt.dialects.graph.bases.elementwise import Elementwise
from fuse_opt.dialects.scalar import ScalarTypeError
from fuse_opt.tools.source.diagnostics import InputError
from fuse_opt.tools.source.verification import OpVerifyError

CONSTANTS = {
    "i1": ["true", "false"],
    **{f"ui{bits}": ["0", "1", "2", str(2**bits - 1)] for bits in (8, 16, 32, 64)},
    **{name: ["0", "1", "-1", "2", "-3"] for name in ("i8", "i16", "i32", "i64")},
    **{
        name: ["0.0", "-0.0", "1.0", "-1.0", "2.0", "0.5", "-4.0", "3.0", "0.25"]
        for name in ("f16", "bf16", "f32", "f64", "f8E4M3FN", "f8E5M2")
    },
}
LIMITS = {
    **{f"i{bits}": [str(2 ** (bits - 1) - 1), str(-(2 ** (bits - 1)))] for bits in (8, 16, 32, 64)},
    "f32": ["0x7F800000", "0xFF800000", "0x7FC00000"],
    "f64": ["0x7FF0000000000000", "0xFFF0000000000000", "0x7FF8000000000000"],
}
COMPUTED = [name for name in TYPES if not name.startswith("f8")]


def names_after(text: str, passes: str = "canonicalize") -> list[str]:
    """The ops that are left, but for constants."""
    return [name for name in op_names(graph_ops(optimized(text, passes))) if name not in ("constant", "full")]


def main(inputs: str, lines: Sequence[str], result: str) -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return f"func.func @main({inputs}) -> {result} {{\n{body}\n  func.return %r : {result}\n}}"


def main_of_all(inputs: str, lines: Sequence[str], results: int, result: str) -> str:
    """A program that returns %r0, %r1 ..., all of type `result`."""
    return main_of_each(inputs, lines, [result] * results)


def main_of_each(inputs: str, lines: Sequence[str], results: Sequence[str]) -> str:
    """A program that returns %r0, %r1 ..., of these types."""
    names, types = ", ".join(f"%r{k}" for k in range(len(results))), ", ".join(results)
    body = "\n".join(f"  {line}" for line in lines)
    return f"func.func @main({inputs}) -> ({types}) {{\n{body}\n  func.return {names} : {types}\n}}"


def unchanged(text: str, arguments: Sequence[Array], passes: str = "canonicalize") -> bool:
    """Asserts that passes change no bit; whether they changed the program at all."""
    before, once = before_and_after(text, arguments, passes)
    return once == before


def before_and_after(text: str, arguments: Sequence[Array], passes: str = "canonicalize") -> tuple[str, str]:
    """The program's text without and with passes; asserts that these change no bit and are idempotent."""
    module = parse(text)
    before, values = text_of(module), evaluate(module, arguments)
    once = text_of(apply(module, passes))
    assert_same_bits(evaluate(module, arguments), values, f"of\n{before}\nbecame\n{once}")
    assert text_of(apply(module, passes)) == once, f"not idempotent:\n{once}"
    return before, once


def records(base: type[Elementwise]) -> list[str]:
    """The names of the records of that base; those that need a property are not `accepted`."""
    return [op.name for op in GRAPH.operations if issubclass(op, base)]


def operand_count(name: str) -> int:
    return next(
        len(op.get_irdl_definition().operands)
        for op in GRAPH.operations
        if op.name == name and issubclass(op, Elementwise)
    )


def accepted(text: str) -> bool:
    try:
        parse(text)
    except (OpVerifyError, InputError, VerifyException, ScalarTypeError):
        return False
    return True


def result_type(op: str, name: str, count: int) -> str:
    """The element type of an elementwise op's result."""
    return "i1" if accepted(unary_or_binary(op, name, count, "i1")) and name != "i1" else name


def unary_or_binary(op: str, name: str, count: int, result: str, extent: int = 1) -> str:
    values = ", ".join(["%x"] * count)
    types = ", ".join([f"tensor<{extent}x{name}>"] * count)
    line = f"%r = {op} {values} : ({types}) -> tensor<{extent}x{result}>"
    return main(f"%x: tensor<{extent}x{name}>", [line], f"tensor<{extent}x{result}>")


def spelt(text: str, name: str = "f32") -> str:
    """A program from `%c = const 2.0; %r = graph.pow %x, %c`: constants are 0-d, all else has 8 elements."""
    lines: list[str] = []
    for line in text.split("; "):
        made, _, right = line.partition(" = ")
        if right.startswith("const "):
            lines.append(f"{made} = graph.constant dense<{right.removeprefix('const ')}> : tensor<{name}>")
            continue
        operands = right.partition(" ")[2].split(", ")
        types = ", ".join(f"tensor<{name}>" if value in ("%c", "%d") else f"tensor<8x{name}>" for value in operands)
        lines.append(f"{line} : ({types}) -> tensor<8x{name}>")
    return main(f"%x: tensor<8x{name}>", lines, f"tensor<8x{name}>")
