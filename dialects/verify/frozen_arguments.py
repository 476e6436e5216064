"""Verifies what functions say about frozen arguments, and that those that compute prepared ones fit."""

from __future__ import annotations

from xdsl.dialects.builtin import SymbolRefAttr, TensorType, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation
from xdsl.utils.exceptions import VerifyException

_FROZEN, _PREPARED, _DONATED = "graph.frozen", "graph.prepared", "graph.donated"


class FrozenError(VerifyException):
    """`op` is a function whose arguments cannot be as it says."""

    def __init__(self, message: str, op: Operation) -> None:
        super().__init__(message)
        self.op = op


def verify_frozen_arguments(module: Operation) -> None:
    """Raises FrozenError for marks that contradict each other, and for a missing or unfit function behind prepared ones."""
    blocks = [block for region in module.regions for block in region.blocks]
    functions = [op for block in blocks for op in block.ops if isinstance(op, FuncOp)]
    named = {op.sym_name.data: op for op in functions}
    owners: dict[str, FuncOp] = {}
    for function in functions:
        if function.arg_attrs is not None:
            marks = [dict(entry.data) for entry in function.arg_attrs.data]
            for number, known in enumerate(marks):
                _verify_marks(function, number, known)
            other = _verify_prepared(function, marks, named)
            owner = function if other is None else owners.setdefault(other.sym_name.data, function)
            if other is not None and owner is not function:
                names = f"'{owner.sym_name.data}' and '{function.sym_name.data}'"
                raise FrozenError(f"'{other.sym_name.data}' prepares arguments of {names}: expected one", other)


def _verify_marks(function: FuncOp, number: int, marks: dict[str, Attribute]) -> None:
    about = f"'{function.sym_name.data}', argument {number}"
    if _FROZEN not in marks:
        return
    if not isinstance(marks[_FROZEN], UnitAttr):
        raise FrozenError(f"{about}: expected '{_FROZEN}' without a value, got '{marks[_FROZEN]}'", function)
    if _DONATED in marks:
        raise FrozenError(
            f"{about} is donated and frozen: what may be overwritten does not stay as it is; remove one of the two",
            function,
        )
    if _PREPARED in marks:
        raise FrozenError(
            f"{about} is computed by another function; expected '{_FROZEN}' on what callers give", function
        )
    kind = function.function_type.inputs.data[number]
    if not isinstance(kind, TensorType) and kind.name != "memref":
        raise FrozenError(f"{about} is frozen: expected a tensor, got '{kind}'", function)


def _verify_prepared(function: FuncOp, marks: list[dict[str, Attribute]], named: dict[str, FuncOp]) -> FuncOp | None:
    numbers = [number for number, known in enumerate(marks) if _PREPARED in known]
    if not numbers:
        return None
    name = function.sym_name.data
    symbols = {marks[number][_PREPARED] for number in numbers}
    symbol = marks[numbers[0]][_PREPARED]
    if len(symbols) > 1 or not isinstance(symbol, SymbolRefAttr):
        raise FrozenError(f"'{name}': expected '{_PREPARED}' to name one function, the same on all arguments", function)
    other = named.get(symbol.string_value())
    if other is None or other is function or other.is_declaration:
        raise FrozenError(f"'{name}', '{_PREPARED}': expected another function of the module, got {symbol}", function)
    types = function.function_type.inputs.data
    if not all(isinstance(kind, TensorType) for kind in (*types, *other.function_type.inputs.data)):
        return other  # lowered: their results are arguments
    if numbers != list(range(len(types) - len(numbers), len(types))):
        raise FrozenError(
            f"'{name}', argument {numbers[0]} is prepared: expected it behind all that callers give", function
        )
    given = [types[number] for number, known in enumerate(marks) if _FROZEN in known]
    results = [types[number] for number in numbers]
    if list(other.function_type.inputs.data) != given or list(other.function_type.outputs.data) != results:
        expected = f"({', '.join(map(str, given))}) -> ({', '.join(map(str, results))})"
        raise FrozenError(f"'{other.sym_name.data}': expected the type {expected}, as '{name}' has it", other)
    if other.arg_attrs is not None and any(_PREPARED in entry.data for entry in other.arg_attrs.data):
        raise FrozenError(f"'{other.sym_name.data}' prepares arguments of '{name}': expected none of its own", other)
    return other
