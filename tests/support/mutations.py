"""Random changes of MLIR texts that know the grammar: of tokens, types, numbers, attributes and lines, and of parsed ops."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache

from ir_testing import CONTEXT, text_of
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    DictionaryAttr,
    FloatAttr,
    IntegerAttr,
    ModuleOp,
    NoneAttr,
    StringAttr,
    TensorType,
    UnitAttr,
    f64,
    i1,
    i8,
    i64,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.rewriter import Rewriter

from fuse_opt.dialects.fused import DIRECTIVES, KernelOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.shapes import shape, tensor
from fuse_opt.dialects.types.dtypes import DTYPES
from fuse_opt.tools.compiler.registry import own_dialects
from fuse_opt.tools.source.diagnostics import InputError
from fuse_opt.tools.source.parsing import parse_module

_TOKEN = re.compile(
    r'"(?:[^"\\\n]|\\.)*"'  # strings
    r"|(?:tensor|memref|vector)<[^<>\n]*>"  # shaped types
    r"|[%@!#^][\w$.-]+|[A-Za-z_][\w$.]*"  # identifiers
    r"|-?\d+\.\d*(?:[eE][+-]?\d+)?|-?0x[0-9a-fA-F]+|-?\d+"  # numbers
    r"|->|//[^\n]*|[^\s\w]"  # punctuation
)
_DICTIONARY = re.compile(r"(?<=[ (])\{(?=[\w\"]+(?: =|,|\}))")
_NUMBERS = (
    *map(str, (0, 1, -1, 2, 3, -2, 7, 8, 63, 64, 127, 128, 255, 256, 1000, 65536, 2**31 - 1, -(2**31), 2**32)),
    *map(str, (2**63 - 1, 2**63, -(2**63), 2**64, 10**32)),
    *("0x7F800000", "0xFF", "1.0", "-0.0", "0.5", "1.0e300", "1.0e-300", "1.5e999", "0x7FF8000000000000"),
)
_EXTENTS = ("0", "1", "2", "3", "8", "?", "4611686018427387904", "9223372036854775807", "65536", "-1", "1000000")
_ELEMENTS = (*(dtype.name for dtype in DTYPES), "i7", "si8", "ui64", "i65", "index", "f128", "f80", "tf32", "none")
_WORDS = (
    "kind",
    "x",
    "true",
    "false",
    "none",
    "unit",
    "array<i64>",
    "array<i64: 0, 0>",
    "array<i32: 1>",
    "[]",
    "[1, 2]",
)
_VALUES = (
    *_WORDS,
    '"row"',
    '"pointwise"',
    '"reference"',
    '"numpy.matmul"',
    '""',
    '"\\FF\\00"',
    "{}",
    '{kind = "row"}',
    '{kind = "tile", rows = -1}',
    "{kind = 3}",
    "array<i64: -1>",
    "array<i64: 0, 1, 2, 3>",
    "array<i64: 9223372036854775807>",
    "dense<1> : tensor<2xi64>",
    "dense<[]> : tensor<0xf32>",
    "affine_map<(d0) -> (d0)>",
    "3 : f32",
    "3 : i1",
    "-1 : i64",
    "9223372036854775807 : i64",
    "1.0e308 : f64",
    "0x7FC00000 : f32",
    "f32",
    "tensor<4xf32>",
    "@main",
    "loc(unknown)",
    "#graph.order<[0]>",
)
_PIECES = (
    "(",
    ")",
    "{",
    "}",
    "<",
    ">",
    "[",
    "]",
    ",",
    ":",
    "=",
    "->",
    "%0",
    "@f",
    "^bb0",
    "!x",
    "#y",
    '"',
    "loc",
    "?",
    "*",
)


@cache
def op_names() -> tuple[str, ...]:
    """Of our dialects, and some of those that lowered programs are made of."""
    own = [op.name for make in own_dialects().values() for op in make().operations]
    return (*own, "func.func", "func.return", "builtin.module", "arith.addf", "arith.constant", "scf.for", "scf.yield")


@cache
def attribute_names() -> tuple[str, ...]:
    """Of the properties of our ops, and the directives."""
    found = {"graph.donated", "fused.arena", "pinned_slots", *DIRECTIVES}
    for make in own_dialects().values():
        for op in make().operations:
            if issubclass(op, IRDLOperation):
                found.update(op.get_irdl_definition().properties)
    return tuple(sorted(found))


def mutated(rng: random.Random, text: str, others: Sequence[str]) -> str:
    """The text after one to four changes; lines of `others` may come into it."""
    for _ in range(rng.choice([1, 1, 1, 1, 2, 2, 3])):
        if rng.random() < 0.75 and (changed := _with_changed_op(rng, text)) is not None:
            text = changed
        else:
            text = rng.choice(TEXT_CHANGES)(rng, text, others)
    return text


def _replaced(rng: random.Random, text: str, fits: Callable[[str], bool], make: Callable[[str], str]) -> str:
    """One token that fits is another one."""
    found = [match for match in _TOKEN.finditer(text) if fits(match[0])]
    if not found:
        return text
    match = rng.choice(found)
    return text[: match.start()] + make(match[0]) + text[match.end() :]


def _number(rng: random.Random, text: str, others: Sequence[str]) -> str:
    return _replaced(rng, text, lambda t: t.lstrip("-")[:1].isdigit(), lambda _: rng.choice(_NUMBERS))


def random_type(rng: random.Random) -> str:
    """A type as text; now and then of no meaning."""
    element = rng.choice(_ELEMENTS if rng.random() < 0.5 else _ELEMENTS[: len(DTYPES)])
    extents = "".join(f"{rng.choice(_EXTENTS)}x" for _ in range(rng.choice([0, 1, 1, 2, 2, 3])))
    kind = rng.choice(["tensor"] * 8 + ["memref", "vector"])
    encoding = rng.choice([""] * 8 + [", #graph.order<[0]>", ", #graph.csr", ', "x"', ", #graph.shape<[n]>"])
    return rng.choice([f"{kind}<{extents}{element}{encoding}>"] * 9 + [element, "tuple<>", "() -> ()", "complex<f32>"])


def _type(rng: random.Random, text: str, others: Sequence[str]) -> str:
    return _replaced(rng, text, lambda t: "<" in t and t[0] != '"', lambda _: random_type(rng))


def _type_everywhere(rng: random.Random, text: str, others: Sequence[str]) -> str:
    """One type is another one wherever it stands, so that much of the program fits."""
    found = sorted({token for token in _TOKEN.findall(text) if token.startswith("tensor<")})
    return text.replace(rng.choice(found), random_type(rng)) if found else text


def _value(rng: random.Random, text: str, others: Sequence[str]) -> str:
    names = [token for token in _TOKEN.findall(text) if token[0] == "%"] or ["%0"]
    return _replaced(rng, text, lambda t: t[0] == "%", lambda _: rng.choice(names))


def _op_name(rng: random.Random, text: str, others: Sequence[str]) -> str:
    return _replaced(rng, text, lambda t: "." in t and t[0].isalpha(), lambda _: rng.choice(op_names()))


def _token(rng: random.Random, text: str, others: Sequence[str]) -> str:
    """A token is left out, doubled, or something else."""
    piece = rng.choice(["", "", None, rng.choice(_PIECES), rng.choice(_VALUES)])
    return _replaced(rng, text, lambda _: True, lambda t: f"{t} {t}" if piece is None else piece)


def _character(rng: random.Random, text: str, others: Sequence[str]) -> str:
    at = rng.randint(0, len(text))
    return text[:at] + rng.choice(["", " ", "\x00", "é", "\n", "\t", '"', "\\", "𝔘"]) + text[at + rng.randint(0, 2) :]


def _entry(rng: random.Random, text: str, others: Sequence[str]) -> str:
    """An entry more in an attribute dictionary, or a dictionary more."""
    entry = f"{rng.choice(attribute_names())} = {rng.choice(_VALUES)}"
    found = [match.end() for match in _DICTIONARY.finditer(text)]
    if found and rng.random() < 0.7:
        at = rng.choice(found)
        return f"{text[:at]}{entry}, {text[at:]}"
    colons = [match.start() for match in re.finditer(r" : ", text)]
    at = rng.choice(colons) if colons else len(text)
    return f"{text[:at]} {{{entry}}}{text[at:]}"


def _entry_value(rng: random.Random, text: str, others: Sequence[str]) -> str:
    found = list(re.finditer(r"(?<== )(?:array<[^>]*>|\"[^\"\n]*\"|-?[\w.]+(?: : \w+)?|\{[^{}\n]*\})", text))
    if not found:
        return text
    match = rng.choice(found)
    return text[: match.start()] + rng.choice(_VALUES) + text[match.end() :]


def _lines(rng: random.Random, text: str, others: Sequence[str]) -> str:
    """A line is left out, doubled, moved, or comes from another text."""
    lines = text.split("\n")
    at, to = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(4):
        case 0:
            del lines[at]
        case 1:
            lines.insert(to, lines[at])
        case 2:
            lines[at], lines[to] = lines[to], lines[at]
        case _:
            lines.insert(at, rng.choice(rng.choice(others).split("\n")) if others else "")
    return "\n".join(lines)


TEXT_CHANGES = (
    [_number] * 3 + [_type] * 2 + [_type_everywhere, _value, _value, _op_name, _token, _character]
    + [_entry] * 2 + [_entry_value] * 2 + [_lines] * 2
)  # fmt: skip


def _with_changed_op(rng: random.Random, text: str) -> str | None:
    """The text with an op changed that still parses alone; None where the text does not."""
    try:
        module = parse_module(text, "mutated.mlir", CONTEXT.clone())
    except InputError:
        return None
    ops = [op for op in module.walk() if op is not module]
    if not ops:
        return None
    with suppress(Exception):  # changes of what is broken already
        for _ in range(rng.choice([1, 1, 2, 3])):
            rng.choice(OP_CHANGES)(rng, rng.choice(ops))
        if rng.random() < 0.7:
            _infer_types(module)
    return _printed(module, rng.random() < 0.3)


def _printed(module: ModuleOp, generic: bool) -> str | None:
    try:
        return text_of(module, generic)
    except Exception:  # what cannot be printed was never text
        return None


def _infer_types(module: ModuleOp) -> None:
    """Lets what follows from what was changed follow, as far as ops allow it."""
    for op in module.walk():
        if isinstance(op, KernelOp) and len(op.operands) == len(op.block.args):
            for argument, operand in zip(op.block.args, op.operands, strict=True):
                Rewriter.replace_value_with_new_type(argument, operand.type)
        if isinstance(op, GraphOp):
            try:
                types = op.infer_types()
            except Exception:  # it is not valid
                continue
            for result, type_ in zip(list(op.results), types, strict=False):
                Rewriter.replace_value_with_new_type(result, type_)
        kernel = op.parent_op()
        if isinstance(kernel, KernelOp) and op is kernel.block.last_op:
            for result, value in zip(list(kernel.results), list(op.operands), strict=False):
                Rewriter.replace_value_with_new_type(result, value.type)
        if isinstance(op, ReturnOp) and isinstance(function := op.parent_op(), FuncOp):
            function.update_function_type()


def random_attribute(rng: random.Random) -> Attribute:
    integers = [rng.choice([-1, 0, 1, 2, 3, 64, 2**31, 2**63 - 1]) for _ in range(rng.randint(0, 4))]
    made: list[Callable[[], Attribute]] = [
        lambda: IntegerAttr(
            rng.choice([-1, 0, 1, 2, 2**62]), rng.choice([i64, i64, i1, i8]) if rng.random() < 0.1 else i64
        ),
        lambda: FloatAttr(rng.choice([0.0, -1.0, 1e300, float("nan"), float("inf")]), f64),
        lambda: StringAttr(rng.choice(["row", "pointwise", "reference", "", "sum", "none", "é"])),
        lambda: DenseArrayBase.from_list(i64, integers),
        lambda: DictionaryAttr({"kind": StringAttr(rng.choice(["row", "column", "split", "tile", "pack", "x"]))}),
        lambda: ArrayAttr([IntegerAttr(number, i64) for number in integers]),
        lambda: DenseIntOrFPElementsAttr.from_list(TensorType(i64, [len(integers)]), integers),
        UnitAttr,
        NoneAttr,
        lambda: rng.choice(DTYPES).attribute,
    ]
    return rng.choice(made)()


def _change_property(rng: random.Random, op: Operation) -> None:
    """A property is another, is left out, or comes from elsewhere."""
    if op.properties and rng.random() < 0.8:
        name = rng.choice(sorted(op.properties))
        if rng.random() < 0.3:
            del op.properties[name]
            return
    else:
        name = rng.choice(attribute_names())
    target = op.properties if name in op.properties or rng.random() < 0.5 else op.attributes
    target[name] = random_attribute(rng)


def _change_decision(rng: random.Random, op: Operation) -> None:
    """An entry of a kernel's decisions is another number or word."""
    kernel = op if isinstance(op, KernelOp) else op.parent_op()
    if not isinstance(kernel, KernelOp):
        return _change_property(rng, op)
    if isinstance(schedule := kernel.schedule, DictionaryAttr) and rng.random() < 0.6:
        name = rng.choice([*sorted(schedule.data), "kind", "grain", "gpu", "parts"])
        kernel.schedule = DictionaryAttr({**schedule.data, name: random_attribute(rng)})
        return None
    for name in ("slots", "inplace"):
        if rng.random() < 0.5:
            count = rng.choice([len(kernel.results), 2, 0])
            values = [rng.choice([-1, 0, 0, 1, 64, 128, 2**62]) for _ in range(count)]
            kernel.properties[name] = DenseArrayBase.from_list(i64, values)
    return None


def _change_operand(rng: random.Random, op: Operation) -> None:
    if op.operands:
        values = _visible(op)
        same = [value for value in values if value.type == op.operands[0].type]
        op.operands[rng.randrange(len(op.operands))] = rng.choice(same or values or list(op.operands))


def _visible(op: Operation) -> list[SSAValue]:
    block = op.parent
    if not isinstance(block, Block):
        return []
    return [*block.args, *(result for other in block.ops for result in other.results)]


def _change_count(rng: random.Random, op: Operation) -> None:
    """An operand more or less."""
    operands = list(op.operands)
    if operands and rng.random() < 0.5:
        del operands[rng.randrange(len(operands))]
    elif values := _visible(op):
        operands.insert(rng.randint(0, len(operands)), rng.choice(values))
    op.operands = operands


def _change_argument(rng: random.Random, op: Operation) -> None:
    """An argument of the function, or another value, has another type."""
    block = op.parent
    while isinstance(block, Block) and isinstance(block.parent_op(), KernelOp):
        block = kernel.parent if (kernel := block.parent_op()) is not None else None
    if not isinstance(block, Block) or not block.args:
        return
    argument = rng.choice(block.args)
    if not isinstance(argument.type, TensorType):
        return
    extents, element = list(shape(argument)), tensor(argument).element_type
    if extents and rng.random() < 0.5:
        extents[rng.randrange(len(extents))] = rng.choice([0, 1, 2, 3, 7, 8, 64, 1000, 2**31, 2**62, DYNAMIC_INDEX])
    elif rng.random() < 0.3:
        extents = [rng.choice([0, 1, 2, 3, 8]) for _ in range(rng.randint(0, 4))]
    else:
        element = rng.choice(DTYPES).attribute
    Rewriter.replace_value_with_new_type(argument, TensorType(element, extents))


def _change_op(rng: random.Random, op: Operation) -> None:
    """Another op of as many operands stands in its place, with the same properties."""
    if isinstance(op, GraphOp) and isinstance(op.parent, Block):
        class_ = rng.choice(_graph_ops())
        with suppress(Exception):  # the op cannot be built of these
            new = class_.create(
                operands=list(op.operands), result_types=[r.type for r in op.results], properties=dict(op.properties)
            )
            Rewriter.replace_op(op, new)


@cache
def _graph_ops() -> tuple[type[GraphOp], ...]:
    return tuple(op for op in own_dialects()["graph"]().operations if issubclass(op, GraphOp))


def _change_result(rng: random.Random, op: Operation) -> None:
    if op.results:
        extents = [rng.choice([0, 1, 2, 3, 8, -1 & 0xFF]) for _ in range(rng.randint(0, 3))]
        type_ = TensorType(rng.choice(DTYPES).attribute, extents)
        Rewriter.replace_value_with_new_type(rng.choice(op.results), type_)


def _move(rng: random.Random, op: Operation) -> None:
    """The op stands elsewhere in its block, or twice, or not at all."""
    block = op.parent
    if not isinstance(block, Block):
        return
    others = list(block.ops)
    if rng.random() < 0.4:
        block.insert_op_before(op.clone(), rng.choice(others))
    elif rng.random() < 0.5 and len(others) > 1:
        other = rng.choice([each for each in others if each is not op])
        op.detach()
        block.insert_op_before(op, other)
    elif not any(result.uses for result in op.results):
        op.detach()


OP_CHANGES = (
    [_change_property] * 4 + [_change_decision] * 3 + [_change_argument] * 3 + [_change_op] * 2
    + [_change_operand, _change_operand, _change_count, _change_result, _move]
)  # fmt: skip
