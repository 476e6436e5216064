"""The reference of the graph dialect as Markdown, from its records: `python -m fuse_opt.tools.develop.op_docs > docs/ops.md`.

Nothing here names an op. What a record does not state is found by trying: element types by building the op, results at
special values by the reference evaluator.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Block
from xdsl.irdl import OptPropertyDef, ParamAttrConstraint, VarOperandDef
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph import FAMILIES, records
from fuse_opt.dialects.graph.bases.elementwise import Elementwise
from fuse_opt.dialects.interfaces.op import CompositeOp, ErrorBound, GraphOp, OpaqueOp, StructuredOp
from fuse_opt.dialects.scalar import PRIMITIVES, ScalarTypeError
from fuse_opt.dialects.types.dtypes import DTYPES, F32, I8, I32, I64, DType, dtype_of
from fuse_opt.lowering.reference.interpreter import evaluate_structured
from fuse_opt.lowering.reference.kernels.registry import find_implementation
from fuse_opt.lowering.reference.scalar import NUMPY_DTYPES

INTRODUCTION = """# The graph dialect

Generated from the records by `python -m fuse_opt.tools.develop.op_docs`; a test compares this page with them.

What holds for every op:

- **Element types.** {types}. Promotion is never implicit: insert `graph.astype`. {narrow} are computed in f32 and
  rounded to nearest even at the result of each op. {storage} are storage types: they are moved, chosen and converted
  (`graph.astype`), not computed with.
- **Integers** wrap. Division by zero and casts out of range have one result on every backend, given with the op.
- **Floats** are IEEE 754: NaN goes through arithmetic, `maximum`, `minimum`, `max` and `min`; denormals count in full; the
  sign of a NaN means nothing. Of two zeros of different sign `maximum`, `minimum` and the ops that are made of them (`fmax`,
  `fmin`, `clip`, `relu`, `relu6` ...) may give either.
- **Broadcasting** is NumPy's, in elementwise ops only. An unknown extent `?` is carried through.
- **Error** is how far a finite result may be from the exact one rounded once, on every backend (reference, C, CUDA): in
  units in the last place of the result (ULP), and in epsilons of its type times the largest magnitude among the operand
  elements, the result and 1 ("eps"). "exact" means the exact value rounded once, bit for bit. Tests hold the reference and
  C to it.
- **Runs as**: *generated* code from the scalar meaning and index maps (reference, C, CUDA); a *composite* is decomposed into
  ops that are; a *library* op is run whole by the implementation named.

## Words of scalar meanings

The meaning of each generated op is written over these functions; a backend that knows them knows every op. The bound is the
largest of NumPy, the C functions here and CUDA's.

| word | operands | error of a float result |
|---|---|---|
{words}
"""


def op_docs() -> str:
    """The whole page."""
    parts = [_introduction()]
    for family in FAMILIES:
        ops = records(family)
        if ops:
            parts.append(_family(family, ops))
    return "\n".join(parts).rstrip() + "\n"


def _introduction() -> str:
    words = [f"| `{w.name}` | {w.arity} | {_word_error(w.ulps)} |" for w in PRIMITIVES.values() if not w.gives_bool]
    narrow = [d for d in DTYPES if d.compute is not d and not d.storage_only]
    return INTRODUCTION.format(
        types=_names(DTYPES),
        narrow=_names(narrow),
        storage=_names([d for d in DTYPES if d.storage_only]),
        words="\n".join(words),
    )


def _word_error(ulps: float) -> str:
    return "exact" if ulps == 0 else "rounded correctly" if ulps <= 0.5 else f"{ulps:g} ULP"


def _names(dtypes: Sequence[DType]) -> str:
    names = [d.name for d in dtypes]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _family(family: ModuleType, ops: Sequence[type[GraphOp]]) -> str:
    title = (inspect.getdoc(family) or "").split("\n\n")[0].replace("\n", " ")
    parts = [f"\n## {title}\n"]
    parts += [_op(op) for op in ops]
    for columns in (UNARY_COLUMNS, BINARY_COLUMNS):
        table = _special_values(ops, columns)
        if table:
            parts.append(table)
    return "\n".join(parts)


def _op(op: type[GraphOp]) -> str:
    definition = op.get_irdl_definition()
    operands = [
        f"%{name.rstrip('_')}" + ("..." if isinstance(d, VarOperandDef) else "") for name, d in definition.operands
    ]
    results = [name.rstrip("_") for name, _ in definition.results]
    head = f"`{op.name} {', '.join(operands)}".rstrip() + "`"
    outputs = "" if results == ["result"] else f" gives {', '.join(f'`{name}`' for name in results)}"
    lines = [f"### {op.name.partition('.')[2]}\n", head + outputs + "\n", _meaning(op)]
    attributes = [
        f"`{name}`{'' if isinstance(d, OptPropertyDef) else ' (required)'}: {_kind(d.constr)}"
        for name, d in definition.properties.items()
    ]
    facts = [f"Attributes: {'; '.join(attributes)}." if attributes else ""]
    samples = list(_samples(op))
    accepted = list(dict.fromkeys(element for element, _ in samples))
    facts.append(f"Element types: {', '.join(d.name for d in DTYPES if d in accepted)}." if accepted else "")
    facts.append(f"Runs as: {_runs_as(op)}.")
    floats = [sample for element, sample in samples if element is F32]
    if floats:
        facts.append(f"Error: {_error(floats[-1].error_bound())}.")
    return "\n".join(lines) + "\n\n" + " ".join(filter(None, facts)) + "\n"


def _meaning(op: type[GraphOp]) -> str:
    text = op.__dict__.get("__doc__") or ""
    return inspect.cleandoc(text) or f"The array API's `{op.name.partition('.')[2]}`."


def _kind(constraint: Any) -> str:
    """What a property holds, in words of the text form."""
    base: Any = getattr(constraint, "attr", None) or getattr(constraint, "base_attr", None)
    name = getattr(base, "__name__", "") if base is not None else ""
    known = {"IntegerAttr": "i64", "FloatAttr": "f64", "StringAttr": "string", "BoolAttr": "true or false"}
    if isinstance(constraint, ParamAttrConstraint):
        return "array<i64>" if name == "DenseArrayBase" else "true or false" if name == "IntegerAttr" else name
    return known.get(name, "attribute")


def _runs_as(op: type[GraphOp]) -> str:
    if issubclass(op, StructuredOp):
        return "generated"
    if issubclass(op, CompositeOp):
        return "composite"
    found = find_implementation(op.name) if issubclass(op, OpaqueOp) else None
    return "nothing" if found is None else f"library, `{found.name}`"


def _error(bound: ErrorBound) -> str:
    if not bound.ulps and not bound.slack:
        return "exact"
    parts = [f"{bound.ulps:g} ULP" if bound.ulps else "", f"{bound.slack:g} eps" if bound.slack else ""]
    return " + ".join(filter(None, parts))


SHAPES: tuple[tuple[int, ...], ...] = ((4,), (2, 4), (1, 2, 4), (1, 2, 4, 4))


def _samples(op: type[GraphOp]) -> Iterator[tuple[DType, GraphOp]]:
    """Instances with one element type where it can be told: operands of one shape, or of its last axis."""
    definition = op.get_irdl_definition()
    if any(not isinstance(d, OptPropertyDef) for d in definition.properties.values()):
        required = {name for name, d in definition.properties.items() if not isinstance(d, OptPropertyDef)}
        if required != {"dtype"}:
            return
    count = sum(2 if isinstance(d, VarOperandDef) else 1 for _, d in definition.operands)
    for element, shape in product(DTYPES, SHAPES):
        for others in (
            (element, shape),
            (element, shape[-1:]),
            (I64, shape),
            (element, (shape[1] if len(shape) > 1 else 4,)),
        ):
            given = [(element, shape), *[others] * (count - 1)][:count]
            built = _build(op, given, {"dtype": element.attribute} if "dtype" in definition.properties else {})
            if built is not None:
                yield element, built
                break


def _build(
    op: type[GraphOp], operands: Sequence[tuple[DType, tuple[int, ...]]], properties: dict[str, Attribute]
) -> GraphOp | None:
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


def _special_values(ops: Sequence[type[GraphOp]], columns: Columns) -> str:
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


if __name__ == "__main__":
    print(op_docs(), end="")
