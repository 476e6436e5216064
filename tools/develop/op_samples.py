"""What an op's definition does not state, found by trying: element types by building it, values by the reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Block
from xdsl.irdl import OptPropertyDef, VarOperandDef
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.bases.elementwise import Elementwise
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.dialects.scalar import ScalarTypeError
from fuse_opt.dialects.types.dtypes import DTYPES, F32, I8, I32, I64, DType, dtype_of
from fuse_opt.lowering.reference.interpreter import evaluate_structured
from fuse_opt.lowering.reference.scalar import NUMPY_DTYPES

Operand = tuple[DType, tuple[int, ...]]
SHAPES: tuple[tuple[int, ...], ...] = ((1, 2, 4, 4), (1, 2, 4), (2, 4), (4,))


def samples(op: type[GraphOp]) -> dict[DType, GraphOp]:
    """An instance for each element type that it takes: of the most axes, with operands of one shape, or of its last axis."""
    definition = op.get_irdl_definition()
    required = {name for name, d in definition.properties.items() if not isinstance(d, OptPropertyDef)}
    if required - {"dtype"}:
        return {}
    count = sum(2 if isinstance(d, VarOperandDef) else 1 for _, d in definition.operands)
    found: dict[DType, GraphOp] = {}
    for form in dict.fromkeys(form[:count] for shape in SHAPES for form in _forms(shape, count)):
        for element in DTYPES:
            if element not in found and (built := _of(op, element, form)) is not None:
                found[element] = built
        if F32 in found:  # no op takes more types beside it in another form
            break
    return found


Form = tuple[tuple[DType | None, tuple[int, ...]], ...]
"""Operands: their shapes, and the types of those that do not have the one that is asked about."""


def _forms(shape: tuple[int, ...], count: int) -> Iterator[Form]:
    """The first operand has the shape, the others may have another one."""
    channels = shape[1] if len(shape) > 1 else 4
    for other in ((None, shape), (None, shape[-1:]), (I64, shape), (None, (channels,))):
        yield ((None, shape), *[other] * (count - 1))


def _of(op: type[GraphOp], element: DType, form: Form) -> GraphOp | None:
    takes_type = "dtype" in op.get_irdl_definition().properties
    properties: dict[str, Attribute] = {"dtype": element.attribute} if takes_type else {}
    return _build(op, [(own or element, shape) for own, shape in form], properties)


def _build(op: type[GraphOp], operands: Sequence[Operand], properties: dict[str, Attribute]) -> GraphOp | None:
    block = Block(arg_types=[TensorType(element.attribute, shape) for element, shape in operands])
    try:
        built = op.build_op(*block.args, **properties)
        built.verify_()
    except (VerifyException, ScalarTypeError):
        return None
    return built


Columns = tuple[tuple[DType, tuple[tuple[float, ...], ...]], ...]
_INF, _NAN = float("inf"), float("nan")
UNARY_COLUMNS: Columns = (
    (F32, ((-_INF,), (-1.5,), (-0.0,), (0.0,), (0.5,), (1.0,), (_INF,), (_NAN,))),
    (I8, ((-128,), (-1,), (0,), (127,))),
)
BINARY_COLUMNS: Columns = (
    (F32, ((0.0, 0.0), (1.0, 0.0), (-1.0, 0.0), (-5.0, 3.0), (_INF, _INF), (_INF, -_INF), (1.0, _NAN), (_NAN, 1.0))),
    (I32, ((7, 0), (-7, 2), (-(2**31), -1), (1, 33))),
)


def special_values(ops: Sequence[type[GraphOp]], columns: Columns) -> str:
    """A table of what elementwise ops without required attributes give at telling values."""
    arity = len(columns[0][1][0])
    rows: list[str] = []
    for op in ops:
        cells = [cell for element, points in columns for cell in _values(op, element, points)]
        if any(cells):
            rows.append(f"| `{op.name.partition('.')[2]}` | " + " | ".join(cells) + " |")
    if not rows:
        return ""
    heads = [f"{', '.join(_number(v, element) for v in point)}" for element, points in columns for point in points]
    heads = [
        f"{head}{' (' + element.name + ')' if element is not F32 else ''}"
        for head, element in zip(heads, [e for e, p in columns for _ in p], strict=True)
    ]
    label = "x" if arity == 1 else "x, y"
    return f"\n| {label} = | {' | '.join(heads)} |\n|{'---|' * (len(heads) + 1)}\n" + "\n".join(rows) + "\n"


def _values(op: type[GraphOp], element: DType, points: Sequence[tuple[float, ...]]) -> list[str]:
    empty = [""] * len(points)
    if not issubclass(op, Elementwise):
        return empty
    definition = op.get_irdl_definition()
    required = any(not isinstance(d, OptPropertyDef) for d in definition.properties.values())
    if required or len(definition.operands) != len(points[0]):
        return empty
    built = _build(op, [(element, (len(points),))] * len(points[0]), {})
    if not isinstance(built, StructuredOp):
        return empty
    arrays = [np.array(column, NUMPY_DTYPES[element]) for column in zip(*points, strict=True)]
    result = evaluate_structured(built, arrays)
    given = dtype_of(built.result_dtype().attribute)
    assert given is not None
    return [_number(value, given) for value in result.tolist()]


def _number(value: Any, element: DType) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not element.is_float:
        return str(int(value))
    return f"{value:.4g}"
