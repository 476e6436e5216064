"""Scalar bodies as `arith` and `math` ops: one table from a scalar primitive and a kind of type to ops.

What has no op of its own with the primitive's meaning is a call of a helper: `@fo_floordiv_*`, `@fo_truncdiv_*` and `@fo_rem_*`
(by zero), `@fo_cast_*` (saturating), `@fo_shl_*` and `@fo_shr_*` (counts out of range), `@fo_fmod_*` and what `math` has no op
for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import nan
from typing import Protocol, cast

from xdsl.dialects import arith, math
from xdsl.dialects.arith import CMPF_COMPARISON_OPERATIONS
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, IntegerType, UnitAttr, i1, i32
from xdsl.ir import Attribute, Operation, SSAValue

from fuse_opt.dialects.scalar import Scalar, topological
from fuse_opt.dialects.types.dtypes import BOOL, I32, I64, DType, Kind
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.made_ops import number_op, scalar_op


class OpSink(Protocol):
    """Where ops are put."""

    def add(self, op: Operation) -> SSAValue:
        """Puts the op behind those before; gives its result."""
        ...

    def constant(self, value: float, dtype: DType) -> SSAValue:
        """The scalar as a value of the type."""
        ...

    def index_constant(self, value: Extent) -> SSAValue:
        """A number, or a size, as an index."""
        ...

    def call(self, helper: str, arguments: Sequence[SSAValue], result: Attribute) -> SSAValue:
        """A call of the function `helper`, which is declared where it is new."""
        ...


Emitter = Callable[[OpSink, DType, Sequence[SSAValue]], SSAValue]
"""Ops for one primitive; the type is that of the operands."""


def value_type(dtype: DType) -> Attribute:
    """The type of a scalar of a tensor's element type as it is computed with: `arith` knows no unsigned types."""
    return IntegerType(dtype.bits) if dtype.kind is Kind.UINT else dtype.compute.attribute


def constant_op(value: float, dtype: DType) -> arith.ConstantOp:
    """The number as a constant of the type; integers wrap."""
    if dtype.is_float:
        return number_op(FloatAttr(float(value), dtype.compute.bits))
    if dtype is BOOL:
        return number_op(IntegerAttr(int(bool(value)), i1))
    half = 1 << (dtype.bits - 1)
    return number_op(IntegerAttr((int(value) + half) % (2 * half) - half, dtype.bits))


def emit_body(
    sink: OpSink,
    body: Scalar,
    operands: Sequence[SSAValue],
    position: Callable[[int], SSAValue],
    hints: Callable[[Scalar], Iterable[str]] = lambda node: (),
    is_short: Callable[[int], bool] = lambda axis: False,
) -> SSAValue:
    """The value of a scalar body over operands in their compute types; `position` gives the result's index on an axis, `hints`
    attributes of the op of a node, and `is_short` says which axes i32 counts."""
    values: dict[int, SSAValue] = {}
    for node in topological(body):
        match node.function:
            case "operand":
                value = operands[int(node.value)]
            case "constant":
                value = sink.constant(node.value, node.dtype)
            case "size":
                value = sink.add(
                    arith.IndexCastOp(sink.index_constant(cast(Extent, node.value)), value_type(node.dtype))
                )
            case "index":
                value = sink.add(arith.IndexCastOp(position(int(node.value)), value_type(node.dtype)))
            case "cast" if node.dtype.is_float and _counts(node.args[0], is_short):
                # Of i32 vectors of floats are made by one instruction, of i64 on few machines.
                counted = sink.add(arith.IndexCastOp(position(int(node.args[0].value)), i32))
                value = emit_cast(sink, counted, I32, node.dtype)
            case "cast":
                value = emit_cast(sink, values[id(node.args[0])], node.args[0].dtype, node.dtype)
            case "bitcast":
                value = emit_bitcast(sink, values[id(node.args[0])], node.args[0].dtype, node.dtype)
            case primitive:
                operand_type = node.args[-1].dtype
                value = EMITTERS[primitive, operand_type.kind](
                    sink, operand_type, [values[id(arg)] for arg in node.args]
                )
                if isinstance(value.owner, math.ExpOp | math.RsqrtOp | arith.DivfOp):
                    value.owner.attributes.update((hint, UnitAttr()) for hint in hints(node))
        values[id(node)] = value
    return values[id(body)]


def _counts(node: Scalar, is_short: Callable[[int], bool]) -> bool:
    """Whether a number is an index that i32 holds."""
    return node.function == "index" and node.dtype is I64 and is_short(int(node.value))


def emit_combine(sink: OpSink, primitive: str, dtype: DType, lhs: SSAValue, rhs: SSAValue) -> SSAValue:
    """The two joined by the primitive of a reduction."""
    return EMITTERS[primitive, dtype.kind](sink, dtype, (lhs, rhs))


def emit_cast(sink: OpSink, value: SSAValue, source: DType, target: DType) -> SSAValue:
    """Between compute types: floats to integers truncate, saturate and take NaN to 0; to i1 is `!= 0`."""
    kind = value_type(target)
    if target is BOOL:
        return EMITTERS["ne", source.kind](sink, source, (value, sink.constant(0, source)))
    if source.is_float:
        if target.is_float:
            return _cast_float(sink, value, source, target)
        types = f"{_suffix(source)}_{_suffix(target)}"
        return sink.call(f"fo_within_{types}" if _is_within(value, target) else f"fo_cast_{types}", (value,), kind)
    unsigned = source.kind is not Kind.INT
    if target.is_float:
        return sink.add(arith.UIToFPOp(value, kind) if unsigned else arith.SIToFPOp(value, kind))  # pyright: ignore[reportArgumentType]
    if source.bits == target.bits:
        return value
    integer = IntegerType(target.bits)
    if source.bits > target.bits:
        return sink.add(arith.TruncIOp(value, integer))
    return sink.add(arith.ExtUIOp(value, integer) if unsigned else arith.ExtSIOp(value, integer))


def _is_within(value: SSAValue, target: DType) -> bool:
    """
    Whether a float is what is less than some number, but for its sign, and else another number, as processors' own conversions to
    integers are written out: all that it may be the type has.
    """
    if target not in (I32, I64) or not isinstance(choice := value.owner, arith.SelectOp):
        return False
    test = choice.cond.owner
    if not isinstance(test, arith.CmpfOp) or CMPF_COMPARISON_OPERATIONS[test.predicate.value.data] != "olt":
        return False
    size, limit, (bound, other) = test.lhs.owner, 2.0 ** (target.bits - 1), map(_number, (test.rhs, choice.rhs))
    is_size = isinstance(size, math.AbsFOp) and size.operand is choice.lhs
    return is_size and bound <= limit and abs(other) < limit


def _number(value: SSAValue) -> float:
    """Of a constant float; NaN of other values."""
    found = value.owner.value if isinstance(value.owner, arith.ConstantOp) else None
    return found.value.data if isinstance(found, FloatAttr) else nan


def emit_bitcast(sink: OpSink, value: SSAValue, source: DType, target: DType) -> SSAValue:
    """The same bits; integers with and without sign are one type of `arith`."""
    if not source.is_float and not target.is_float:
        return value
    return sink.add(arith.BitcastOp(value, target.attribute if target.is_float else IntegerType(target.bits)))


def _cast_float(sink: OpSink, value: SSAValue, source: DType, target: DType) -> SSAValue:
    if source.bits == target.bits:
        return value
    cast = arith.ExtFOp if source.bits < target.bits else arith.TruncFOp
    return sink.add(cast(value, target.attribute))


def _suffix(dtype: DType) -> str:
    return f"u{dtype.bits}" if dtype.kind is Kind.UINT else dtype.name


def _op(build: type[Operation]) -> Emitter:
    return lambda sink, dtype, args: sink.add(scalar_op(build, *args))


def _compare(build: Callable[..., Operation], predicate: str) -> Emitter:
    return lambda sink, dtype, args: sink.add(build(*args, predicate))


def _helper(primitive: str) -> Emitter:
    return lambda sink, dtype, args: sink.call(f"fo_{primitive}_{_suffix(dtype)}", args, value_type(dtype))


def _negative(sink: OpSink, dtype: DType, args: Sequence[SSAValue]) -> SSAValue:
    return sink.add(arith.SubiOp(sink.constant(0, dtype), args[0]))


def _inverse(sink: OpSink, dtype: DType, args: Sequence[SSAValue]) -> SSAValue:
    return sink.add(arith.XOrIOp(args[0], sink.constant(-1, dtype)))


def _unchanged(sink: OpSink, dtype: DType, args: Sequence[SSAValue]) -> SSAValue:
    return args[0]


_FLOAT: dict[str, Emitter] = {
    "add": _op(arith.AddfOp),
    "sub": _op(arith.SubfOp),
    "mul": _op(arith.MulfOp),
    "div": _op(arith.DivfOp),
    "floordiv": _helper("floordiv"),
    "rem": _helper("rem"),
    "max": _op(arith.MaximumfOp),
    "min": _op(arith.MinimumfOp),
    "fmod": _helper("fmod"),
    "pow": _op(math.PowFOp),
    "atan2": _op(math.Atan2Op),
    "hypot": _helper("hypot"),
    "copysign": _op(math.CopySignOp),
    "fma": _op(math.FmaOp),
    "neg": _op(arith.NegfOp),
    "abs": _op(math.AbsFOp),
    "exp": _op(math.ExpOp),
    "exp2": _op(math.Exp2Op),
    "expm1": _op(math.ExpM1Op),
    "log": _op(math.LogOp),
    "log1p": _op(math.Log1pOp),
    "log2": _op(math.Log2Op),
    "log10": _op(math.Log10Op),
    "lgamma": _helper("lgamma"),
    "sqrt": _op(math.SqrtOp),
    "rsqrt": _op(math.RsqrtOp),
    "cbrt": _op(math.CbrtOp),
    "sin": _op(math.SinOp),
    "cos": _op(math.CosOp),
    "tan": _op(math.TanOp),
    "asin": _op(math.AsinOp),
    "acos": _op(math.AcosOp),
    "atan": _op(math.AtanOp),
    "sinh": _op(math.SinhOp),
    "cosh": _op(math.CoshOp),
    "tanh": _op(math.TanhOp),
    "asinh": _op(math.AsinhOp),
    "acosh": _op(math.AcoshOp),
    "atanh": _op(math.AtanhOp),
    "erf": _op(math.ErfOp),
    "erfc": _helper("erfc"),
    "floor": _op(math.FloorOp),
    "ceil": _op(math.CeilOp),
    "trunc": _op(math.TruncOp),
    "round": _op(math.RoundEvenOp),
    "eq": _compare(arith.CmpfOp, "oeq"),
    "ne": _compare(arith.CmpfOp, "une"),
    "lt": _compare(arith.CmpfOp, "olt"),
    "le": _compare(arith.CmpfOp, "ole"),
    "gt": _compare(arith.CmpfOp, "ogt"),
    "ge": _compare(arith.CmpfOp, "oge"),
    "select": _op(arith.SelectOp),
}

_LOGIC: dict[str, Emitter] = {
    "and": _op(arith.AndIOp),
    "or": _op(arith.OrIOp),
    "xor": _op(arith.XOrIOp),
    "not": _inverse,
    "select": _op(arith.SelectOp),
    "eq": _compare(arith.CmpiOp, "eq"),
    "ne": _compare(arith.CmpiOp, "ne"),
}


def _ordered(sign: str) -> dict[str, Emitter]:
    return {primitive: _compare(arith.CmpiOp, f"{sign}{primitive}") for primitive in ("lt", "le", "gt", "ge")}


_UNSIGNED_ORDER = {**_ordered("u"), "max": _op(arith.MaxUIOp), "min": _op(arith.MinUIOp)}

_INTEGER: dict[str, Emitter] = {
    **_LOGIC,
    "add": _op(arith.AddiOp),
    "sub": _op(arith.SubiOp),
    "mul": _op(arith.MuliOp),
    "floordiv": _helper("floordiv"),
    "rem": _helper("rem"),
    "neg": _negative,
    "shl": _helper("shl"),
    "shr": _helper("shr"),
}

EMITTERS: dict[tuple[str, Kind], Emitter] = {
    (primitive, kind): emitter
    for kind, primitives in {
        Kind.FLOAT: _FLOAT,
        Kind.INT: {
            **_INTEGER,
            **_ordered("s"),
            "truncdiv": _helper("truncdiv"),
            "max": _op(arith.MaxSIOp),
            "min": _op(arith.MinSIOp),
            "abs": _op(math.AbsIOp),
        },
        Kind.UINT: {**_INTEGER, **_UNSIGNED_ORDER, "abs": _unchanged},
        Kind.BOOL: {**_LOGIC, **_UNSIGNED_ORDER},
    }.items()
    for primitive, emitter in primitives.items()
}
"""By primitive and kind of the operands (of the branches, for `select`)."""
