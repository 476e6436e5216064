"""Scalar meaning of ops, written once over a small closed set of primitives.

A record's `scalar` method receives `Scalar` values and combines them with Python operators and the functions below.
The result is a graph of typed nodes that the reference evaluator, the loop lowering and so every printer read: an op
never says twice what it computes. The set is closed: a backend that knows `PRIMITIVES` knows every op.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import ceil as round_up

from fuse_opt.dialects.scalar import intervals
from fuse_opt.dialects.scalar.intervals import Interval
from fuse_opt.dialects.types.dtypes import BOOL, I64, DType, Kind
from fuse_opt.dialects.types.size import Size


@dataclass(frozen=True, slots=True)
class Primitive:
    """A scalar primitive: operand count, approximate cost in simple operations, and what it accepts."""

    name: str
    arity: int
    cost: int = 1
    kinds: tuple[Kind, ...] = (Kind.FLOAT, Kind.INT, Kind.UINT)
    gives_bool: bool = False
    ulps: float = 0.5
    """Largest error of a float result on any backend, in units in the last place; 0.5: rounded correctly; 0: exact.

    The worst of the reference (NumPy, measured), C (`lowering/c/headers`, measured) and CUDA (as its programming guide states it,
    without fast math, and half a unit more: it counts from the correctly rounded result), rounded up. The comment at a
    primitive names what decides. Bounds hold on the whole range, with denormals, in f32 and f64."""
    spreads_nan: bool = False
    """NaN where any operand is; for reductions, where any element is."""
    interval: Callable[..., Interval] | None = None
    """Between which numbers a float result lies, before rounding, from where the operands do; None where nothing is known."""
    commutative: bool = False
    """The same bits with operands swapped; `max` and `min` are not, of two zeros."""
    idempotent: bool = False
    """A value combined with itself is the value."""


_FLOAT = (Kind.FLOAT,)
_WHOLE = (Kind.INT, Kind.UINT)
_LOGIC = (Kind.BOOL, Kind.INT, Kind.UINT)
_ANY = (Kind.FLOAT, Kind.INT, Kind.UINT, Kind.BOOL)

PRIMITIVES: dict[str, Primitive] = {
    function.name: function
    for function in (
        Primitive("add", 2, spreads_nan=True, commutative=True, interval=intervals.of_sum),
        Primitive("sub", 2, spreads_nan=True, interval=intervals.of_difference),
        Primitive("mul", 2, spreads_nan=True, commutative=True, interval=intervals.of_product),
        Primitive("div", 2, 6, _FLOAT, spreads_nan=True, interval=intervals.of_quotient),
        Primitive("floordiv", 2, 8, ulps=2),  # NumPy and C: 2, where quotients are no exact integers any more
        Primitive("truncdiv", 2, 8, (Kind.INT,)),  # by zero 0
        Primitive("rem", 2, 8),  # the exact remainder, plus the divisor where the signs differ
        Primitive("max", 2, ulps=0, spreads_nan=True, idempotent=True, interval=intervals.of_larger),
        Primitive("min", 2, ulps=0, spreads_nan=True, idempotent=True, interval=intervals.of_smaller),
        Primitive("fmod", 2, 15, _FLOAT, ulps=0, spreads_nan=True),
        Primitive("pow", 2, 40, _FLOAT, ulps=5),  # CUDA: 4 in f32
        Primitive("atan2", 2, 40, _FLOAT, ulps=4, spreads_nan=True),  # CUDA: 3 in f32; NumPy: 2.9 in f32
        Primitive("hypot", 2, 20, _FLOAT, ulps=4),  # CUDA: 3 in f32
        Primitive("copysign", 2, 1, _FLOAT, ulps=0),
        Primitive("fma", 3, 2, _FLOAT, spreads_nan=True),  # one rounding, everywhere
        Primitive("neg", 1, ulps=0, spreads_nan=True, interval=intervals.of_negation),
        Primitive("abs", 1, ulps=0, spreads_nan=True, interval=intervals.of_absolute),
        Primitive(
            "exp", 1, 15, _FLOAT, ulps=3, spreads_nan=True, interval=intervals.of_exponential
        ),  # CUDA: 2 in f32; NumPy: 2.3 in f32
        Primitive(
            "exp2", 1, 15, _FLOAT, ulps=3, spreads_nan=True, interval=intervals.nonnegative
        ),  # CUDA: 2 in f32; NumPy: 2.5 in f32
        Primitive("expm1", 1, 20, _FLOAT, ulps=3, spreads_nan=True),  # NumPy: 2.6 in f32; C: 2.5
        Primitive("log", 1, 15, _FLOAT, ulps=4, spreads_nan=True),  # NumPy: 3.3 in f32
        Primitive("log1p", 1, 20, _FLOAT, ulps=3, spreads_nan=True),  # NumPy: 2.0 in f32; C: 1.6
        Primitive("log2", 1, 15, _FLOAT, ulps=3, spreads_nan=True),  # NumPy: 2.0 in f32; C: 1.3
        Primitive("log10", 1, 15, _FLOAT, ulps=4, spreads_nan=True),  # NumPy: 3.1 in f32
        Primitive(
            "lgamma", 1, 60, _FLOAT, ulps=8, spreads_nan=True
        ),  # C: 7.0; below -2 in f64 of max(|result|, 1), see `lgamma`
        Primitive("sqrt", 1, 8, _FLOAT, spreads_nan=True, interval=intervals.of_root),
        Primitive("rsqrt", 1, 8, _FLOAT, ulps=3, spreads_nan=True, interval=intervals.of_inverse_root),  # CUDA: 2
        Primitive("cbrt", 1, 20, _FLOAT, ulps=3, spreads_nan=True),  # NumPy: 2.0 in f32; CUDA: 1
        Primitive("sin", 1, 25, _FLOAT, ulps=3, spreads_nan=True, interval=intervals.up_to_one),  # CUDA: 2
        Primitive("cos", 1, 25, _FLOAT, ulps=3, spreads_nan=True, interval=intervals.up_to_one),  # CUDA: 2
        Primitive("tan", 1, 30, _FLOAT, ulps=5, spreads_nan=True),  # CUDA: 4 in f32; NumPy: 3.3 in f32
        Primitive("asin", 1, 25, _FLOAT, ulps=4, spreads_nan=True),  # NumPy: 3.1 in f32
        Primitive("acos", 1, 25, _FLOAT, ulps=3, spreads_nan=True),  # CUDA: 2; NumPy: 2.0 in f32
        Primitive("atan", 1, 25, _FLOAT, ulps=3, spreads_nan=True),  # CUDA: 2; NumPy: 2.2 in f32
        Primitive("sinh", 1, 25, _FLOAT, ulps=4, spreads_nan=True),  # CUDA: 3 in f32; C: 2.5
        Primitive("cosh", 1, 25, _FLOAT, ulps=3, spreads_nan=True),  # CUDA: 2 in f32; NumPy: 2.4 in f32
        Primitive(
            "tanh", 1, 20, _FLOAT, ulps=4, spreads_nan=True, interval=intervals.up_to_one
        ),  # C: 3.6 beside exponentials, else 2.8; CUDA: 2 in f32
        Primitive("asinh", 1, 30, _FLOAT, ulps=4, spreads_nan=True),  # CUDA: 3
        Primitive("acosh", 1, 30, _FLOAT, ulps=5, spreads_nan=True),  # CUDA: 4 in f32
        Primitive("atanh", 1, 30, _FLOAT, ulps=4, spreads_nan=True),  # CUDA: 3 in f32
        Primitive("erf", 1, 20, _FLOAT, ulps=3, spreads_nan=True, interval=intervals.up_to_one),  # CUDA: 2; C: 2.2
        Primitive("erfc", 1, 30, _FLOAT, ulps=6, spreads_nan=True),  # C: 5.8 in f64; CUDA: 5 in f64
        Primitive("floor", 1, 1, _FLOAT, ulps=0, spreads_nan=True),
        Primitive("ceil", 1, 1, _FLOAT, ulps=0, spreads_nan=True),
        Primitive("trunc", 1, 1, _FLOAT, ulps=0, spreads_nan=True),
        Primitive("round", 1, 1, _FLOAT, ulps=0, spreads_nan=True),
        Primitive("eq", 2, 1, _ANY, gives_bool=True, ulps=0, commutative=True),
        Primitive("ne", 2, 1, _ANY, gives_bool=True, ulps=0, commutative=True),
        Primitive("lt", 2, 1, _ANY, gives_bool=True, ulps=0),
        Primitive("le", 2, 1, _ANY, gives_bool=True, ulps=0),
        Primitive("gt", 2, 1, _ANY, gives_bool=True, ulps=0),
        Primitive("ge", 2, 1, _ANY, gives_bool=True, ulps=0),
        Primitive("and", 2, 1, _LOGIC, ulps=0, commutative=True, idempotent=True),
        Primitive("or", 2, 1, _LOGIC, ulps=0, commutative=True, idempotent=True),
        Primitive("xor", 2, 1, _LOGIC, ulps=0, commutative=True),
        Primitive("not", 1, 1, _LOGIC, ulps=0),
        Primitive("shl", 2, 2, _WHOLE, ulps=0),
        Primitive("shr", 2, 2, _WHOLE, ulps=0),
        Primitive("select", 3, 1, _ANY, ulps=0, interval=intervals.of_either),
        Primitive("cast", 1, 1, _ANY),
        Primitive("bitcast", 1, 1, (*_WHOLE, *_FLOAT), ulps=0),  # see `bitcast`
    )
}


class ScalarTypeError(TypeError):
    """A scalar body applied a function to a type that it does not accept."""


@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """A node: a function applied to nodes, an operand (`operand` k), a constant, the result's index on an axis, or a size."""

    function: str
    args: tuple[Scalar, ...]
    dtype: DType
    value: int | float | bool = 0

    def __add__(self, other: Value) -> Scalar:
        return apply("add", self, other)

    def __radd__(self, other: Value) -> Scalar:
        return apply("add", other, self)

    def __sub__(self, other: Value) -> Scalar:
        return apply("sub", self, other)

    def __rsub__(self, other: Value) -> Scalar:
        return apply("sub", other, self)

    def __mul__(self, other: Value) -> Scalar:
        return apply("mul", self, other)

    def __rmul__(self, other: Value) -> Scalar:
        return apply("mul", other, self)

    def __truediv__(self, other: Value) -> Scalar:
        return apply("div", self, other)

    def __rtruediv__(self, other: Value) -> Scalar:
        return apply("div", other, self)

    def __floordiv__(self, other: Value) -> Scalar:
        return apply("floordiv", self, other)

    def __mod__(self, other: Value) -> Scalar:
        return apply("rem", self, other)

    def __pow__(self, other: Value) -> Scalar:
        return apply("pow", self, other)

    def __neg__(self) -> Scalar:
        return apply("neg", self)

    def __abs__(self) -> Scalar:
        return apply("abs", self)

    def __lt__(self, other: Value) -> Scalar:
        return apply("lt", self, other)

    def __le__(self, other: Value) -> Scalar:
        return apply("le", self, other)

    def __gt__(self, other: Value) -> Scalar:
        return apply("gt", self, other)

    def __ge__(self, other: Value) -> Scalar:
        return apply("ge", self, other)

    def __and__(self, other: Value) -> Scalar:
        return apply("and", self, other)

    def __or__(self, other: Value) -> Scalar:
        return apply("or", self, other)

    def __xor__(self, other: Value) -> Scalar:
        return apply("xor", self, other)

    def __invert__(self) -> Scalar:
        return apply("not", self)


Value = Scalar | int | float | bool


def operand(position: int, dtype: DType) -> Scalar:
    return Scalar("operand", (), dtype, position)


def index(axis: int, dtype: DType) -> Scalar:
    """The position of the wanted result element on `axis`, as a value of an integer type."""
    return Scalar("index", (), dtype, axis)


def constant(value: int | float | bool, dtype: DType) -> Scalar:
    """A number; a size in its place (`size.py`) stays one, which a call of the program says."""
    if isinstance(value, Size):
        return cast(Scalar("size", (), I64, value), dtype)
    return Scalar("constant", (), dtype, value)


def is_one_number(body: Scalar) -> bool:
    """Whether a body is the same for all elements, of any operands: a constant, or computed from sizes."""
    if body.function == "constant":
        return True
    leaves = [node.function for node in topological(body) if not node.args]
    return "size" in leaves and set(leaves) <= {"size", "constant"}


def apply(name: str, *args: Value) -> Scalar:
    """The function `name` on values of one type; Python numbers take the type of the other operands.

    Raises ScalarTypeError when types differ or the function does not accept them.
    """
    function = PRIMITIVES[name]
    typed = next((arg for arg in args if isinstance(arg, Scalar)), None)
    if typed is None or len(args) != function.arity:
        raise ScalarTypeError(f"'{name}' takes {function.arity} operand(s), at least one of them a Scalar")
    nodes = tuple(arg if isinstance(arg, Scalar) else constant(arg, typed.dtype) for arg in args)
    if any(node.dtype is not typed.dtype for node in nodes) or typed.dtype.kind not in function.kinds:
        types = ", ".join(node.dtype.name for node in nodes)
        raise ScalarTypeError(f"'{name}' does not accept ({types})")
    return Scalar(name, nodes, BOOL if function.gives_bool else typed.dtype)


def cast(x: Scalar, dtype: DType) -> Scalar:
    """Conversion to another type: float to integer truncates, saturates at the type's limits and takes NaN to 0."""
    return x if x.dtype is dtype else Scalar("cast", (x,), dtype)


def bitcast(x: Scalar, dtype: DType) -> Scalar:
    """The bits of x as a number of another type of the same width.

    A narrow float is one between this and a `cast` from or to the type that it is computed in."""
    if x.dtype.bits != dtype.bits or BOOL in (x.dtype, dtype):
        raise ScalarTypeError(f"'bitcast' does not accept ({x.dtype}) for {dtype}, which has other bits")
    return x if x.dtype is dtype else Scalar("bitcast", (x,), dtype)


def where(condition: Scalar, x: Value, y: Value) -> Scalar:
    typed = x if isinstance(x, Scalar) else y
    if not isinstance(typed, Scalar) or condition.dtype is not BOOL:
        raise ScalarTypeError("'where' takes an i1 condition and at least one Scalar branch")
    branches = tuple(b if isinstance(b, Scalar) else constant(b, typed.dtype) for b in (x, y))
    if branches[0].dtype is not branches[1].dtype:
        raise ScalarTypeError(f"'where' got branches {branches[0].dtype} and {branches[1].dtype}")
    return Scalar("select", (condition, *branches), typed.dtype)


def equal(x: Value, y: Value) -> Scalar:
    """x == y; a function, since Python's operator on nodes is identity."""
    return apply("eq", x, y)


def not_equal(x: Value, y: Value) -> Scalar:
    return apply("ne", x, y)


def maximum(x: Value, y: Value) -> Scalar:
    """The larger value; NaN when either is NaN."""
    return apply("max", x, y)


def minimum(x: Value, y: Value) -> Scalar:
    """The smaller value; NaN when either is NaN."""
    return apply("min", x, y)


def truncated(x: Value, y: Value) -> Scalar:
    """The quotient of signed integers, rounded towards zero (C's /); `x // y` is the floored one. By zero it is 0."""
    return apply("truncdiv", x, y)


def fmod(x: Value, y: Value) -> Scalar:
    """The remainder of the truncated quotient, with the sign of x, exact (C's fmod); `x % y` has the sign of y."""
    return apply("fmod", x, y)


def atan2(y: Value, x: Value) -> Scalar:
    """The angle of the point (x, y), in (-pi, pi]; the special cases are C's."""
    return apply("atan2", y, x)


def hypot(x: Value, y: Value) -> Scalar:
    """sqrt(x*x + y*y) without overflow on the way; infinite when either is, even next to NaN."""
    return apply("hypot", x, y)


def copysign(x: Value, y: Value) -> Scalar:
    """The magnitude of x with the sign of y, of zeros and NaN too."""
    return apply("copysign", x, y)


def fma(x: Value, y: Value, z: Value) -> Scalar:
    """x * y + z, rounded once."""
    return apply("fma", x, y, z)


def shift_left(x: Value, count: Value) -> Scalar:
    """x * 2**count, wrapped; 0 when the count is negative or not below the width in bits (NumPy)."""
    return apply("shl", x, count)


def shift_right(x: Value, count: Value) -> Scalar:
    """floor(x / 2**count); a count that is negative or not below the width shifts all out: 0, or -1 for x < 0 (NumPy)."""
    return apply("shr", x, count)


def lgamma(x: Scalar) -> Scalar:
    """log(|gamma(x)|); infinite at the poles 0, -1, -2 ... and at both infinities.

    Below -2 it has zeros between numbers of the type: there, in f64, the error is one of max(|lgamma(x)|, 1)."""
    return apply("lgamma", x)


def is_nan(x: Scalar) -> Scalar:
    return not_equal(x, x)


def _unary(name: str) -> Callable[[Scalar], Scalar]:
    def call(x: Scalar) -> Scalar:
        return apply(name, x)

    call.__name__ = name
    call.__doc__ = f"The primitive `{name}` of a float."
    return call


exp, exp2, expm1 = _unary("exp"), _unary("exp2"), _unary("expm1")
log, log1p, log2 = _unary("log"), _unary("log1p"), _unary("log2")
sqrt, rsqrt = _unary("sqrt"), _unary("rsqrt")
log10, cbrt = _unary("log10"), _unary("cbrt")
sin, cos, tan = _unary("sin"), _unary("cos"), _unary("tan")
asin, acos, atan = _unary("asin"), _unary("acos"), _unary("atan")
sinh, cosh, tanh = _unary("sinh"), _unary("cosh"), _unary("tanh")
asinh, acosh, atanh = _unary("asinh"), _unary("acosh"), _unary("atanh")
erf, erfc = _unary("erf"), _unary("erfc")
floor, ceil, trunc, round_half_even = _unary("floor"), _unary("ceil"), _unary("trunc"), _unary("round")


def topological(root: Scalar) -> list[Scalar]:
    """Every node reachable from `root` once, operands before users; no recursion."""
    order: list[Scalar] = []
    seen: set[int] = set()
    stack: list[tuple[Scalar, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((arg, False) for arg in reversed(node.args))
    return order


def primitive_reading(root: Scalar, operands: set[int], combine: str = "") -> str | None:
    """The first primitive to compute with one of these operands, where `select` only chooses and casts only convert."""
    kept: set[int] = set()
    for node in topological(root):
        if node.function == "operand" and int(node.value) in operands:
            kept.add(id(node))
        elif node.function not in ("cast", "bitcast") and any(id(arg) in kept for arg in node.args):
            if node.function != "select":
                return node.function
            kept.add(id(node))
    return combine if combine and id(root) in kept else None


@cache
def cost(root: Scalar) -> int:
    """Approximate cost of one evaluation, in simple operations."""
    return sum(PRIMITIVES[node.function].cost for node in topological(root) if node.args)


def ulps(root: Scalar) -> float:
    """A bound of the error of a float body in units in the last place; 0 when at most one correct rounding is made.

    It holds while no step magnifies relative errors (no cancellation): the error of a step may then be one of twice as
    many units in the result, where that is just above a power of two.
    """
    nodes = [node for node in topological(root) if node.args and node.dtype.is_float]
    bounds = [bound for node in nodes if (bound := PRIMITIVES[node.function].ulps)]
    total = 2 * sum(bounds) - bounds[-1] if bounds else 0.0
    return 0.0 if total <= 0.5 else float(round_up(total))
