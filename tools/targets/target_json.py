"""JSON: functions, arguments, ops and kernels with every decision about them, for scripts and dashboards."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, cast

from xdsl.context import Context
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    DictionaryAttr,
    FloatAttr,
    IntAttr,
    IntegerAttr,
    IntegerType,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    i1,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.utils.target import Target

from fuse_opt.dialects.graph.creation.constant import is_splat
from fuse_opt.tools.source.diagnostics import format_position, source_position
from fuse_opt.tools.source.value_names import value_names

Json = bool | int | float | str | None | Sequence["Json"] | Mapping[str, "Json"]

_MOST_ELEMENTS = 16
"""Of a constant that are written out."""
_STATED_APART = ("sym_name", "function_type", "arg_attrs", "res_attrs")


@dataclass(frozen=True)
class JsonTarget(Target):
    """An object with `functions`, each with its arguments and ops in order; kernels hold ops in turn."""

    name = "json"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        json.dump(describe_module(module), output, indent=2, ensure_ascii=False, allow_nan=False)
        output.write("\n")


def describe_module(module: ModuleOp) -> dict[str, Json]:
    """The module as plain data."""
    names = value_names(module)
    functions = [op for op in module.ops if isinstance(op, FuncOp)]
    others = [op for op in module.ops if not isinstance(op, FuncOp)]
    return {
        **({"attributes": _dictionary(module.attributes)} if module.attributes else {}),
        "functions": [_function(op, names) for op in functions],
        **({"ops": [_op(op, names) for op in others]} if others else {}),
    }


def describe_attribute(attribute: Attribute) -> Json:
    """Numbers, texts, lists and dictionaries as such, a mark as true, anything else as its MLIR text."""
    match attribute:
        case UnitAttr():
            return True
        case IntegerAttr():
            value = attribute.value.data
            return bool(value) if attribute.type == i1 else value
        case IntAttr(data=number):
            return number
        case FloatAttr():
            return _number(attribute.value.data)
        case StringAttr(data=text):
            return text
        case SymbolRefAttr():
            return "::".join([attribute.root_reference.data, *(part.data for part in attribute.nested_references)])
        case DenseArrayBase():
            return _array(attribute)
        case ArrayAttr():
            return [describe_attribute(element) for element in attribute.data]
        case DictionaryAttr():
            return _dictionary(attribute.data)
        case DenseIntOrFPElementsAttr():
            return _constant(attribute)
        case _:
            return str(attribute)


def _function(function: FuncOp, names: Mapping[SSAValue, str]) -> dict[str, Json]:
    marks = [] if function.arg_attrs is None else [describe_attribute(entry) for entry in function.arg_attrs.data]
    kinds = function.function_type
    arguments: list[Json] = []
    for number, type_ in enumerate(kinds.inputs.data):
        value = None if function.is_declaration else function.args[number]
        entry: dict[str, Json] = {"type": str(type_)} if value is None else _value(value, names)
        if number < len(marks) and marks[number]:
            entry["attributes"] = marks[number]
        arguments.append(entry)
    decisions = {**function.properties, **function.attributes}
    stated = {key: value for key, value in decisions.items() if key not in _STATED_APART}
    return {
        "name": function.sym_name.data,
        "location": _location(function),
        "arguments": arguments,
        "results": [str(type_) for type_ in kinds.outputs.data],
        **({"attributes": _dictionary(stated)} if stated else {}),
        "ops": [op for block in function.body.blocks for op in _ops(block, names)],
    }


def _ops(block: Block, names: Mapping[SSAValue, str]) -> list[Json]:
    return [_op(op, names) for op in block.ops]


def _op(op: Operation, names: Mapping[SSAValue, str]) -> dict[str, Json]:
    described: dict[str, Json] = {
        "op": op.name,
        "location": _location(op),
        "operands": [names.get(value, "?") for value in op.operands],
        "results": [_value(value, names) for value in op.results],
    }
    if op.properties:
        described["properties"] = _dictionary(op.properties)
    if op.attributes:
        described["attributes"] = _dictionary(op.attributes)
    if op.regions:
        described["regions"] = [
            [
                {"arguments": [_value(value, names) for value in block.args], "ops": _ops(block, names)}
                for block in region.blocks
            ]
            for region in op.regions
        ]
    return described


def _value(value: SSAValue, names: Mapping[SSAValue, str]) -> dict[str, Json]:
    return {"name": names.get(value, "?"), "type": str(value.type)}


def _location(op: Operation) -> Json:
    position = source_position(op)
    return None if position is None else format_position(*position)


def _dictionary(entries: Mapping[str, Attribute]) -> dict[str, Json]:
    return {key: describe_attribute(value) for key, value in entries.items()}


def _array(attribute: Attribute) -> Json:
    array = cast("DenseArrayBase[IntegerType]", attribute)  # floats are read by the same method
    values: Sequence[object] = array.get_values()
    return [bool(v) for v in values] if array.elt_type == i1 else [_number(v) for v in values]


def _constant(attribute: DenseIntOrFPElementsAttr) -> Json:
    kind = str(attribute.type)
    if attribute.data.data and is_splat(attribute):
        return {"type": kind, "splat": _number(attribute.get_values()[0])}
    if math.prod(attribute.get_shape()) <= _MOST_ELEMENTS:
        return {"type": kind, "values": [_number(value) for value in attribute.get_values()]}
    return {"type": kind}


def _number(value: object) -> Json:
    """A number as JSON has it: those that are not finite as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, bool | int | float) else str(value)
