"""One row per graph op, in `rows_*.py`: what it accepts and gives, by NumPy written by hand and by nothing of the project's.

A row makes cases: an op's text on given arrays with the wanted value. Floats are computed in float64 and compared
within the tolerance that the op documents; integers are Python's, wrapped to their type: what is right, not what is done.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from narrow_floats import DTYPES as NARROW
from narrow_floats import LAYOUTS, decode, encode, is_narrow, spacing

Array = npt.NDArray[Any]
Unary = Callable[[Any], Any]
Binary = Callable[[Any, Any], Any]

TYPES: dict[str, np.dtype[Any]] = {
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "ui8": np.dtype(np.uint8),
    "ui16": np.dtype(np.uint16),
    "ui32": np.dtype(np.uint32),
    "ui64": np.dtype(np.uint64),
    "i1": np.dtype(np.bool_),
    **NARROW,
}
_ROWS = Path(__file__).resolve().parents[1] / "dialects" / "graph" / "rows"
NAMES = {dtype: name for name, dtype in TYPES.items()}
UNSIGNED = ("ui8", "ui16", "ui32", "ui64")
FLOATS, INTEGERS = ("f16", "bf16", "f32", "f64"), ("i8", "i16", "i32", "i64", *UNSIGNED)
STORAGE = ("f8E4M3FN", "f8E5M2")
"""Types that only movement, selection and conversion accept."""
ANY = (*FLOATS, *INTEGERS, "i1", *STORAGE)
IN_F32 = ("f16", "bf16", *STORAGE)
"""Types that are computed in f32."""


@dataclass(frozen=True)
class Case:
    """An op on arrays and its exact value, or its values when it has several results, rounded once to their types."""

    op: str
    attributes: str
    inputs: tuple[Array, ...]
    expected: Array | tuple[Array, ...]
    signed_zeros: bool = False
    literal: str = ""
    slack: float = 0.0
    """Absolute error allowed beyond the op's documented bound, where the inputs are ill-conditioned."""

    @property
    def wanted(self) -> tuple[Array, ...]:
        return self.expected if isinstance(self.expected, tuple) else (self.expected,)

    @property
    def line(self) -> str:
        """The op in text, of operands `%0`, `%1` ...; the results' types are those of the expected values."""
        if self.literal:
            return self.literal
        names = ", ".join(f"%{number}" for number in range(len(self.inputs)))
        types = ", ".join(type_text(array) for array in self.inputs)
        attributes = f" {{{self.attributes}}}" if self.attributes else ""
        results = ", ".join(type_text(array) for array in self.wanted)
        results = results if len(self.wanted) == 1 else f"({results})"
        return f"{self.op}{' ' * bool(names)}{names}{attributes} : ({types}) -> {results}"

    def check(self, actual: Sequence[Array], bound: Bound) -> None:
        """Fails unless every result is within the bound that the op documents."""
        assert len(actual) == len(self.wanted), self.line
        for number, (given, expected) in enumerate(zip(actual, self.wanted, strict=True)):
            self._check_result(number, given, expected, bound)

    def _check_result(self, number: int, actual: Array, expected: Array, bound: Bound) -> None:
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape), f"result {number} of {self.line}"
        if NAMES[expected.dtype] not in (*FLOATS, *STORAGE):
            self._require(np.asarray(actual == expected), actual, expected)
            return
        a, b = wide(actual), wide(expected)
        with np.errstate(all="ignore"):
            unit, eps = unit_and_epsilon(expected)
            allowed = bound.ulps * unit + self.slack
            if bound.slack:
                allowed = allowed + bound.slack * eps * self._size(expected)
            near = np.abs(a - b) <= allowed
        right = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.isfinite(b) & near)
        if self.signed_zeros:
            right &= (b != 0) | (np.signbit(a) == np.signbit(b))
        self._require(np.asarray(right), actual, expected)

    def _size(self, expected: Array) -> Any:
        """The largest finite magnitude among operands, result and 1: at each element for operands that broadcast to it."""
        finite = [np.nan_to_num(np.abs(wide(x)), nan=0, posinf=0) for x in (*self.inputs, expected)]
        try:
            together = np.broadcast_shapes(*(x.shape for x in finite))
        except ValueError:
            together = None
        if together == expected.shape:
            return reduce(np.maximum, finite, np.float64(1))
        return max(1.0, *(float(x.max(initial=0)) for x in finite))

    def _require(self, right: Array, actual: Array, expected: Array) -> None:
        """Says where the first wrong element is, and what it was made of when the op is elementwise."""
        if np.all(right):
            return
        at = tuple(np.argwhere(~right)[0])
        same = [decode(array)[at] for array in self.inputs if array.shape == right.shape]
        raise AssertionError(
            f"{self.line}: {np.sum(~right)} of {right.size} wrong; at {[int(n) for n in at]} of {same}: "
            f"got {decode(actual)[at]}, expected {decode(expected)[at]}"
        )


class Bound(Protocol):
    """An op's documented tolerance, see `ErrorBound` of the dialect."""

    @property
    def ulps(self) -> float: ...
    @property
    def slack(self) -> float: ...


def program_text(cases: Sequence[Case]) -> str:
    """One function that computes all cases."""
    arguments: list[str] = []
    lines: list[str] = []
    names: list[str] = []
    for number, case in enumerate(cases):
        line = case.line
        for operand in reversed(range(len(case.inputs))):
            line = line.replace(f"%{operand}", f"%a{number}_{operand}")
        arguments += [f"%a{number}_{k}: {type_text(array)}" for k, array in enumerate(case.inputs)]
        count = len(case.wanted)
        lines.append(f"  %r{number}{f':{count}' if count > 1 else ''} = {line}")
        names += [f"%r{number}#{k}" for k in range(count)] if count > 1 else [f"%r{number}"]
    types = ", ".join(type_text(array) for case in cases for array in case.wanted)
    body = "\n".join(lines)
    return f"func.func @main({', '.join(arguments)}) -> ({types}) {{\n{body}\n  func.return {', '.join(names)} : {types}\n}}"


def arguments_of(cases: Sequence[Case]) -> list[Array]:
    return [np.array(array) for case in cases for array in case.inputs]


def check_all(cases: Sequence[Case], results: Sequence[Array], bounds: Sequence[Bound]) -> None:
    """Checks the results of `program_text(cases)`, one bound a case."""
    given = iter(results)
    for case, bound in zip(cases, bounds, strict=True):
        case.check([next(given) for _ in case.wanted], bound)


def wide(array: Array) -> Array:
    """The values as float64."""
    return np.asarray(decode(array)).astype(np.float64)


def unit_and_epsilon(expected: Array) -> tuple[Array, float]:
    """The units in the last place at floats, and that at 1."""
    if is_narrow(expected):
        name = NAMES[expected.dtype]
        return spacing(wide(expected), name), 2.0 ** -LAYOUTS[name][1]
    info = np.finfo(expected.dtype)
    unit = np.spacing(np.abs(expected)).astype(np.float64)
    return np.maximum(unit, float(info.smallest_subnormal)), float(info.eps)


def type_text(array: Array) -> str:
    return f"tensor<{''.join(f'{n}x' for n in array.shape)}{NAMES[array.dtype]}>"


def rounded(value: Any, name: str) -> Array:
    """A float64 value in an element type; narrow floats by way of f32, in which they are computed."""
    with np.errstate(all="ignore"):
        array = np.asarray(decode(value))
        return converted(array.astype(np.float32) if name in IN_F32 else array, name)


def converted(value: Any, name: str) -> Array:
    """Values in an element type, rounded once: `astype` for every type of the table."""
    if name in UNSIGNED and isinstance(value, list):
        return np.array(value, TYPES[name])  # else numbers of 64 bits would become floats
    array = np.asarray(decode(value))
    with np.errstate(all="ignore"):
        return encode(array, name) if name in NARROW else array.astype(TYPES[name])


def wrapped(value: Any, name: str) -> Array:
    """Python integers in an integer type, modulo its width."""
    info = np.iinfo(TYPES[name])
    span = int(info.max) - int(info.min) + 1
    flat = [(int(v) - int(info.min)) % span + int(info.min) for v in np.asarray(value, object).reshape(-1)]
    return np.array(flat, TYPES[name]).reshape(np.shape(value))


SPECIAL_FLOATS = [
    math.nan,
    math.inf,
    -math.inf,
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    3.0,
    0.1,
    -7.25,
    100.0,
    -100.0,
]
EXTREMES = {
    "f16": [65504.0, 6e-8, -6e-5],
    "bf16": [3.38e38, -3e38, 1e-40, 1e-30],
    "f32": [3e38, -3e38, 1e-40, 1e-30],
    "f64": [1e308, -1e308, 5e-324, 1e-200],
    "f8E4M3FN": [448.0, -448.0, 2.0**-9, -(2.0**-6)],
    "f8E5M2": [57344.0, -57344.0, 2.0**-16, -(2.0**-14)],
}


def samples(name: str) -> Array:
    """Values of a type that have gone wrong somewhere: specials, extremes, both signs."""
    if name == "i1":
        return np.array([False, True])
    if name in EXTREMES:
        return converted(SPECIAL_FLOATS + EXTREMES[name], name)
    info = np.iinfo(TYPES[name])
    small = [0, 1, 2, 3, 7, 100] + ([] if name in UNSIGNED else [-1, -2, -3, -7, -100])
    return np.array([*small, info.min, info.max, info.max - 1], TYPES[name])


def pairs(name: str) -> tuple[Array, Array]:
    """Every sample with every other."""
    values = samples(name)
    return np.repeat(values, len(values)), np.concatenate([values] * len(values))


def ramp(name: str, *shape: int) -> Array:
    """Distinct small values of a type in a shape."""
    count = math.prod(shape)
    values = np.arange(count) * 7 % 23 - (0 if name in (*UNSIGNED, "i1") else 11)
    if name == "i1":
        return np.asarray(values % 3 == 0).reshape(shape)
    return converted(values / 4 if name in EXTREMES else values, name).reshape(shape)


def each(function: Callable[..., Any], *arrays: Array) -> Array:
    """A function of Python scalars, element by element, NumPy broadcasting."""
    broadcast = np.broadcast_arrays(*map(decode, arrays))
    values = [function(*row) for row in zip(*(a.reshape(-1).tolist() for a in broadcast), strict=True)]
    result = np.empty(len(values), object)
    result[:] = values
    return result.reshape(broadcast[0].shape)


class Row:
    """An op and its cases; `accepts` names the element types of its first operand."""

    def __init__(self, op: str, accepts: Sequence[str], cases: Callable[[], Iterator[Case]]) -> None:
        self.op = f"graph.{op}"
        self.accepts = tuple(accepts)
        self._cases = cases

    def cases(self) -> list[Case]:
        return list(self._computed)

    @cached_property
    def _computed(self) -> Sequence[Case]:
        """Several tests of a process ask for the same."""
        with np.errstate(all="ignore"):
            return tuple(self._cases())


@dataclass(frozen=True)
class Meaning:
    """
    What an elementwise op computes: `floats` on float64 arrays, `ints` and `bools` on Python scalars.

    `in_type` computes in the op's own type.
    """

    floats: Callable[..., Any] | None
    ints: Callable[..., Any] | None
    bools: Callable[..., Any] | None
    gives_bool: bool = False
    attributes: str = ""
    signed_zeros: bool = False
    in_type: bool = False

    def accepts(self) -> list[str]:
        return [*(FLOATS if self.floats else ()), *(INTEGERS if self.ints else ()), *(["i1"] if self.bools else [])]

    def value(self, name: str, inputs: Sequence[Array]) -> Array:
        if name in FLOATS:
            assert self.floats is not None
            compute = np.dtype(np.float64) if not self.in_type else TYPES["f32" if name in IN_F32 else name]
            result = self.floats(*(decode(array).astype(compute) for array in inputs))
            return np.asarray(result, np.bool_) if self.gives_bool else rounded(result, name)
        function = self.bools if name == "i1" else self.ints
        assert function is not None
        result = each(function, *inputs)
        return result.astype(np.bool_) if self.gives_bool or name == "i1" else wrapped(result, name)

    def case(self, op: str, name: str, *inputs: Array) -> Case:
        return Case(op, self.attributes, inputs, self.value(name, inputs), self.signed_zeros)


BROADCASTS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 3), (3,)),
    ((2, 1, 4), (3, 1)),
    ((), (5,)),
    ((), ()),
    ((0, 3), (1, 3)),
    ((1,), (1, 1)),
]


def unary(
    op: str, floats: Unary | None = None, ints: Unary | None = None, bools: Unary | None = None, **rest: Any
) -> Row:
    """A row of an elementwise op of one operand; the rest are fields of `Meaning`."""
    meaning = Meaning(floats, ints, bools, **rest)

    def cases() -> Iterator[Case]:
        for name in meaning.accepts():
            yield meaning.case(f"graph.{op}", name, samples(name))
            for shape, _ in BROADCASTS:
                yield meaning.case(f"graph.{op}", name, ramp(name, *shape))

    return Row(op, meaning.accepts(), cases)


def binary(
    op: str, floats: Binary | None = None, ints: Binary | None = None, bools: Binary | None = None, **rest: Any
) -> Row:
    """A row of an elementwise op of two operands; the rest are fields of `Meaning`."""
    meaning = Meaning(floats, ints, bools, **rest)

    def cases() -> Iterator[Case]:
        for name in meaning.accepts():
            yield meaning.case(f"graph.{op}", name, *pairs(name))
            for left, right in BROADCASTS:
                yield meaning.case(f"graph.{op}", name, ramp(name, *left), ramp(name, *right))

    return Row(op, meaning.accepts(), cases)


def comparison(op: str, compare: Binary) -> Row:
    return binary(op, compare, compare, compare, gives_bool=True)


AXES: list[tuple[tuple[int, ...] | None, bool]] = [
    (None, False),
    (None, True),
    ((0,), False),
    ((-1,), True),
    ((0, 2), False),
    ((1, -3), True),
    ((), False),
]


def axes_text(axes: tuple[int, ...] | None, keepdims: bool) -> str:
    parts = [] if axes is None else [f"axes = array<i64: {', '.join(map(str, axes))}>" if axes else "axes = array<i64>"]
    return ", ".join([*parts, *(["keepdims = true"] if keepdims else [])])


def reduction(
    op: str,
    *,
    floats: Callable[..., Any] | None = None,
    ints: Binary | None = None,
    bools: Binary | None = None,
    neutral: int | None = None,
) -> Row:
    """`floats` is a NumPy reduction of float64; `ints` and `bools` join two Python scalars, from `neutral` on."""
    accepts = [*(FLOATS if floats else ()), *(INTEGERS if ints else ()), *(["i1"] if bools else [])]

    def value(name: str, x: Array, axes: tuple[int, ...] | None, keepdims: bool) -> Array:
        if name in FLOATS:
            assert floats is not None
            return rounded(floats(wide(x), axis=axes, keepdims=keepdims), name)
        join = bools if name == "i1" else ints
        assert join is not None
        chosen = tuple(range(x.ndim)) if axes is None else tuple(axis % x.ndim for axis in axes)
        outer = [axis for axis in range(x.ndim) if axis not in chosen]
        sizes = [math.prod(x.shape[axis] for axis in group) for group in (outer, chosen)]
        rows = np.transpose(x, (*outer, *chosen)).reshape(sizes).tolist()
        start = [] if neutral is None else [bool(neutral) if name == "i1" else neutral]
        joined = np.empty(len(rows), object)
        joined[:] = [reduce(join, [*start, *row]) for row in rows]
        extents = [1 if a in chosen else n for a, n in enumerate(x.shape) if keepdims or a not in chosen]
        return (joined.astype(np.bool_) if name == "i1" else wrapped(joined, name)).reshape(extents)

    def cases() -> Iterator[Case]:
        for name in accepts:
            x = ramp(name, 2, 3, 4)
            for axes, keepdims in AXES:
                yield case(name, x, axes, keepdims)
            yield case(name, samples(name), None, False)
            yield case(name, samples(name)[:, None], (1,), False)
            yield case(name, ramp(name), None, False)
            yield case(name, ramp(name, 0, 3), (1,), False)
            if neutral is not None:
                yield case(name, ramp(name, 3, 0), (-1,), False)
                yield case(name, ramp(name, 0), None, True)

    def case(name: str, x: Array, axes: tuple[int, ...] | None, keepdims: bool) -> Case:
        return Case(f"graph.{op}", axes_text(axes, keepdims), (x,), value(name, x, axes, keepdims))

    return Row(op, accepts, cases)


def noise(name: str, *shape: int) -> Array:
    """Reproducible values of a standard normal, without a generator that may change."""
    values = np.sin(np.arange(1, math.prod(shape) + 1) * 12.9898) * 43758.5453
    return converted((values - np.floor(values) - 0.5) * 3, name).reshape(shape)


def moved(op: str, attributes: str, shape: tuple[int, ...], function: Callable[[Array], Array]) -> Iterator[Case]:
    for name in TYPES:
        x = ramp(name, *shape)
        yield Case(f"graph.{op}", attributes, (x,), np.array(function(x)))


def rows() -> list[Row]:
    """All rows, family by family: the `ROWS` of the modules in tests/dialects/graph/rows."""
    if str(_ROWS) not in sys.path:  # pytest puts it there; a script that imports this module does not
        sys.path.insert(0, str(_ROWS))
    return [row for name in sorted(path.stem for path in _ROWS.glob("rows_*.py")) for row in import_module(name).ROWS]
