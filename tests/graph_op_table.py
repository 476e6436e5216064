"""One row per graph op: what it accepts and what it gives, by NumPy written by hand and by nothing of the project's.

A row makes cases: an op's text on given arrays with the wanted value. Floats are computed in float64 and compared in units
in the last place of the op's type; integers are Python's, wrapped to their type; so both say what is right, not what is done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

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
    "i1": np.dtype(np.bool_),
}
NAMES = {dtype: name for name, dtype in TYPES.items()}
FLOATS, INTEGERS = ("f16", "f32", "f64"), ("i8", "i16", "i32", "i64", "ui8")


@dataclass(frozen=True)
class Case:
    """An op on arrays and its value: each element within `ulps` units in the last place, or the absolute `slack`."""

    op: str
    attributes: str
    inputs: tuple[Array, ...]
    expected: Array
    ulps: float = 0
    slack: Array | float = 0.0
    signed_zeros: bool = False
    literal: str = ""

    @property
    def line(self) -> str:
        """The op in text, of operands `%0`, `%1` ...; the result's type is the expected value's."""
        if self.literal:
            return self.literal
        names = ", ".join(f"%{number}" for number in range(len(self.inputs)))
        types = ", ".join(type_text(array) for array in self.inputs)
        attributes = f" {{{self.attributes}}}" if self.attributes else ""
        return f"{self.op} {names}{attributes} : ({types}) -> {type_text(self.expected)}"

    def check(self, actual: Array) -> None:
        expected = self.expected
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape), self.line
        if expected.dtype.kind != "f":
            self._require(np.asarray(actual == expected), actual)
            return
        info = np.finfo(expected.dtype)
        a, b = actual.astype(np.float64), expected.astype(np.float64)
        with np.errstate(all="ignore"):
            unit = np.maximum(np.spacing(np.abs(expected)).astype(np.float64), float(info.smallest_subnormal))
            near = np.abs(a - b) <= self.ulps * unit + self.slack
        right = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.isfinite(b) & near)
        if self.signed_zeros:
            right &= (b != 0) | (np.signbit(a) == np.signbit(b))
        self._require(np.asarray(right), actual)

    def _require(self, right: Array, actual: Array) -> None:
        """Says where the first wrong element is, and what it was made of when the op is elementwise."""
        if np.all(right):
            return
        at = tuple(np.argwhere(~right)[0])
        same = [array[at] for array in self.inputs if array.shape == right.shape]
        raise AssertionError(
            f"{self.line}: {np.sum(~right)} of {right.size} wrong; at {[int(n) for n in at]} of {same}: "
            f"got {actual[at]}, expected {self.expected[at]}"
        )


def type_text(array: Array) -> str:
    return f"tensor<{''.join(f'{n}x' for n in array.shape)}{NAMES[array.dtype]}>"


def rounded(value: Any, name: str) -> Array:
    """A float64 value in an element type; f16 by way of f32, in which it is computed."""
    with np.errstate(all="ignore"):
        array = np.asarray(value)
        return (array.astype(np.float32) if name == "f16" else array).astype(TYPES[name])


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
EXTREMES = {"f16": [65504.0, 6e-8, -6e-5], "f32": [3e38, -3e38, 1e-40, 1e-30], "f64": [1e308, -1e308, 5e-324, 1e-200]}


def samples(name: str) -> Array:
    """Values of a type that have gone wrong somewhere: specials, extremes, both signs."""
    if name == "i1":
        return np.array([False, True])
    if name in FLOATS:
        return np.array(SPECIAL_FLOATS + EXTREMES[name], TYPES[name])
    info = np.iinfo(TYPES[name])
    small = [0, 1, 2, 3, 7, 100] + ([] if name == "ui8" else [-1, -2, -3, -7, -100])
    return np.array([*small, info.min, info.max, info.max - 1], TYPES[name])


def pairs(name: str) -> tuple[Array, Array]:
    """Every sample with every other."""
    values = samples(name)
    left, right = np.meshgrid(values, values, indexing="ij")
    return left.reshape(-1).copy(), right.reshape(-1).copy()


def ramp(name: str, *shape: int) -> Array:
    """Distinct small values of a type in a shape."""
    count = math.prod(shape)
    values = np.arange(count) * 7 % 23 - (0 if name in ("ui8", "i1") else 11)
    if name == "i1":
        return np.asarray(values % 3 == 0).reshape(shape)
    return (values / 4 if name in FLOATS else values).astype(TYPES[name]).reshape(shape)


def each(function: Callable[..., Any], *arrays: Array) -> Array:
    """A function of Python scalars, element by element, NumPy broadcasting."""
    broadcast = np.broadcast_arrays(*arrays)
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
        with np.errstate(all="ignore"):
            return list(self._cases())


@dataclass(frozen=True)
class Meaning:
    """
    What an elementwise op computes: `floats` on float64 arrays, `ints` and `bools` on Python scalars.

    `slack` is in units of the type's epsilon and of the operand, for what cancels; `in_type` computes in the op's own type.
    """

    floats: Callable[..., Any] | None
    ints: Callable[..., Any] | None
    bools: Callable[..., Any] | None
    gives_bool: bool = False
    attributes: str = ""
    ulps: float = 0
    slack: float = 0
    signed_zeros: bool = False
    in_type: bool = False

    def accepts(self) -> list[str]:
        return [*(FLOATS if self.floats else ()), *(INTEGERS if self.ints else ()), *(["i1"] if self.bools else [])]

    def value(self, name: str, inputs: Sequence[Array]) -> Array:
        if name in FLOATS:
            assert self.floats is not None
            wide = np.dtype(np.float64) if not self.in_type else TYPES["f32" if name == "f16" else name]
            result = self.floats(*(array.astype(wide) for array in inputs))
            return np.asarray(result, np.bool_) if self.gives_bool else rounded(result, name)
        function = self.bools if name == "i1" else self.ints
        assert function is not None
        result = each(function, *inputs)
        return result.astype(np.bool_) if self.gives_bool or name == "i1" else wrapped(result, name)

    def case(self, op: str, name: str, *inputs: Array) -> Case:
        expected = self.value(name, inputs)
        allowed: Array | float = 0.0
        if self.slack and name in FLOATS:
            size = np.maximum(np.nan_to_num(np.abs(inputs[0].astype(np.float64)), posinf=1.0), 1.0)
            allowed = np.broadcast_to(self.slack * float(np.finfo(TYPES[name]).eps) * size, expected.shape)
        return Case(op, self.attributes, inputs, expected, self.ulps, allowed, self.signed_zeros)


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


def _truncated(v: float) -> int:
    return 0 if math.isnan(v) else (2**70 if v > 0 else -(2**70)) if math.isinf(v) else int(v)


def _cast(source: str, target: str, x: Array) -> Array:
    """Floats to integers truncate, saturate and take NaN to 0; integers wrap; to i1 is `!= 0`; to f16 by way of f32."""
    if target == "i1":
        return x != 0
    if target in FLOATS:
        return rounded(x, target)
    if source in FLOATS:
        info = np.iinfo(TYPES[target])

        def saturated(v: float) -> int:
            return min(max(_truncated(v), int(info.min)), int(info.max))

        return wrapped(each(saturated, x), target)
    return wrapped(each(int, x), target)


def _astype_cases() -> Iterator[Case]:
    for source, target in product(TYPES, TYPES):
        x = samples(source)
        if source in FLOATS:
            limits = [126.9, 127.0, 128.0, -128.9, -129.0, 255.5, 256.0, 2147483647.0, 2147483648.0, -2147483904.0]
            limits += [9.2e18, 9.3e18, -9.3e18, -0.9]
            with np.errstate(over="ignore"):
                x = np.concatenate([x, np.array(limits, TYPES[source])])
        yield Case("graph.astype", f"dtype = {target}", (x,), _cast(source, target, x))
        yield Case("graph.astype", f"dtype = {target}", (ramp(source),), _cast(source, target, ramp(source)))


def _where_cases() -> Iterator[Case]:
    for name in TYPES:
        x, y = pairs(name)
        condition = np.arange(len(x)) % 3 == 0
        yield Case("graph.where", "", (condition, x, y), np.where(condition, x, y), signed_zeros=True)
        row, column, scalar = np.array([[True, False, True]]), ramp(name, 4, 1), ramp(name)
        expected = np.stack([column[:, 0], np.full(4, scalar), column[:, 0]], axis=1)
        yield Case("graph.where", "", (row, column, scalar), expected)


def _moved(op: str, attributes: str, shape: tuple[int, ...], function: Callable[[Array], Array]) -> Iterator[Case]:
    for name in TYPES:
        x = ramp(name, *shape)
        yield Case(f"graph.{op}", attributes, (x,), np.array(function(x)))


def _reshape_cases() -> Iterator[Case]:
    for source, target in [
        ((6,), (2, 3)),
        ((2, 3, 4), (4, 6)),
        ((), (1, 1)),
        ((1, 1), ()),
        ((0, 3), (3, 0, 2)),
        ((4,), (4,)),
    ]:
        text = ", ".join(map(str, target))
        attributes = f"shape = array<i64: {text}>" if target else "shape = array<i64>"
        yield from _moved("reshape", attributes, source, lambda x, target=target: np.reshape(x, target))


def _permute_cases() -> Iterator[Case]:
    for shape, axes in [
        ((2, 3), (1, 0)),
        ((2, 3, 4), (2, 0, 1)),
        ((2, 1, 3), (1, 2, 0)),
        ((0, 2), (1, 0)),
        ((5,), (0,)),
    ]:
        attributes = f"axes = array<i64: {', '.join(map(str, axes))}>"
        yield from _moved("permute_dims", attributes, shape, lambda x, axes=axes: np.transpose(x, axes))
    yield from _moved("permute_dims", "axes = array<i64>", (), lambda x: x)


def _broadcast_cases() -> Iterator[Case]:
    for source, target in [((3,), (2, 3)), ((2, 1), (2, 4)), ((), (3, 2)), ((1, 3, 1), (4, 5, 3, 2)), ((1,), (0,))]:
        attributes = f"shape = array<i64: {', '.join(map(str, target))}>"
        yield from _moved("broadcast_to", attributes, source, lambda x, target=target: np.broadcast_to(x, target))


def _slice_cases() -> Iterator[Case]:
    def of(starts: str, stops: str, steps: str) -> str:
        text = f"starts = array<i64: {starts}>, stops = array<i64: {stops}>"
        return text + (f", steps = array<i64: {steps}>" if steps else "")

    yield from _moved("slice", of("-3", "-1", ""), (7,), lambda x: x[-3:-1])
    yield from _moved("slice", of("6", "-8", "-1"), (7,), lambda x: x[::-1])
    yield from _moved("slice", of("5", "0", "-2"), (7,), lambda x: x[5:0:-2])
    yield from _moved("slice", of("1, 0", "9, 3", "2, 1"), (6, 4), lambda x: x[1::2, :3])
    yield from _moved("slice", of("-1, 3", "-7, 0", "-3, -1"), (6, 4), lambda x: x[::-3, 3:0:-1])
    yield from _moved("slice", of("4, 1", "2, 3", ""), (6, 4), lambda x: x[4:2, 1:3])
    yield from _moved("slice", of("100", "200", ""), (5,), lambda x: x[100:200])
    yield from _moved("slice", of("0, 0, 0", "1, 2, 2", ""), (1, 2, 3), lambda x: x[:, :, :2])
    yield from _moved("slice", "starts = array<i64>, stops = array<i64>", (), lambda x: x)


def _concat_cases() -> Iterator[Case]:
    layouts = [
        ([(2, 3), (4, 3)], 0),
        ([(2, 3), (2, 1), (2, 2)], -1),
        ([(0, 2), (3, 2), (0, 2)], 0),
        ([(3,)], 0),
        ([(0,), (0,)], 0),
    ]
    for name, (shapes, axis) in product(TYPES, layouts):
        parts = tuple(ramp(name, *shape) for shape in shapes)
        attributes = f"axis = {axis} : i64" if axis else ""
        yield Case("graph.concat", attributes, parts, np.concatenate(parts, axis))


AXES: list[tuple[tuple[int, ...] | None, bool]] = [
    (None, False),
    (None, True),
    ((0,), False),
    ((-1,), True),
    ((0, 2), False),
    ((1, -3), True),
    ((), False),
]


def _axes_text(axes: tuple[int, ...] | None, keepdims: bool) -> str:
    parts = [] if axes is None else [f"axes = array<i64: {', '.join(map(str, axes))}>" if axes else "axes = array<i64>"]
    return ", ".join([*parts, *(["keepdims = true"] if keepdims else [])])


def reduction(
    op: str,
    *,
    floats: Callable[..., Any] | None = None,
    ints: Binary | None = None,
    bools: Binary | None = None,
    neutral: int | None = None,
    ulps: float = 0,
) -> Row:
    """`floats` is a NumPy reduction of float64; `ints` and `bools` join two Python scalars, from `neutral` on."""
    accepts = [*(FLOATS if floats else ()), *(INTEGERS if ints else ()), *(["i1"] if bools else [])]

    def value(name: str, x: Array, axes: tuple[int, ...] | None, keepdims: bool) -> Array:
        if name in FLOATS:
            assert floats is not None
            return rounded(floats(x.astype(np.float64), axis=axes, keepdims=keepdims), name)
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
        return Case(f"graph.{op}", _axes_text(axes, keepdims), (x,), value(name, x, axes, keepdims), ulps)

    return Row(op, accepts, cases)


def _noise(name: str, *shape: int) -> Array:
    """Reproducible values of a standard normal, without a generator that may change."""
    values = np.sin(np.arange(1, math.prod(shape) + 1) * 12.9898) * 43758.5453
    return ((values - np.floor(values) - 0.5) * 3).astype(TYPES[name]).reshape(shape)


def _loose(op: str, attributes: str, name: str, inputs: tuple[Array, ...], value: Any, scale: float = 32) -> Case:
    """A case of an op that rounds several times: within `scale` epsilons of its largest operand or result."""
    expected = rounded(value, name)
    sizes = [np.nanmax(np.abs(a.astype(np.float64)), initial=1.0) for a in (*inputs, expected)]
    return Case(op, attributes, inputs, expected, slack=scale * float(np.finfo(TYPES[name]).eps) * float(max(sizes)))


def _mean_cases() -> Iterator[Case]:
    for name, (axes, keepdims) in product(FLOATS, AXES):
        x = _noise(name, 2, 3, 4)
        value = x.astype(np.float64).mean(axis=axes, keepdims=keepdims)
        yield _loose("graph.mean", _axes_text(axes, keepdims), name, (x,), value, 4)
    empty = ramp("f32", 2, 0)
    yield Case("graph.mean", "axes = array<i64: 1>", (empty,), np.full(2, np.nan, np.float32))


def _var_cases() -> Iterator[Case]:
    for name, (axes, keepdims) in product(FLOATS, AXES):
        x = _noise(name, 2, 3, 4)
        value = x.astype(np.float64).var(axis=axes, keepdims=keepdims)
        yield _loose("graph.var", _axes_text(axes, keepdims), name, (x,), value)
    far = (_noise("f32", 4, 64) + 1000).astype(np.float32)  # one pass over the squares would lose all digits
    value = far.astype(np.float64).var(axis=1)
    yield Case("graph.var", "axes = array<i64: 1>", (far,), rounded(value, "f32"), slack=2e-4)


def _softmax_cases() -> Iterator[Case]:
    for name, (shape, axis) in product(FLOATS, [((2, 5), -1), ((3, 4, 2), 1), ((1, 1), 0), ((7,), 0)]):
        x = _noise(name, *shape)
        wide = np.exp(x.astype(np.float64))
        yield _loose("graph.softmax", f"axis = {axis} : i64", name, (x,), wide / wide.sum(axis=axis, keepdims=True))
    large = np.array([[1000.0, 1000.0, -np.inf], [88.0, 89.0, np.nan]], np.float32)
    expected = np.array([[0.5, 0.5, 0.0], [np.nan] * 3], np.float32)
    yield Case("graph.softmax", "", (large,), expected)
    yield Case("graph.softmax", "", (ramp("f32", 3, 0),), ramp("f32", 3, 0))


def _layer_norm_cases() -> Iterator[Case]:
    for name, (shape, axis) in product(FLOATS, [((4, 8), -1), ((2, 3, 4), 1), ((2, 3, 4), -1), ((5,), 0)]):
        x = _noise(name, *shape)
        axes = tuple(range(axis % len(shape), len(shape)))
        scale, bias = _noise(name, *shape[axes[0] :]), ramp(name, *shape[axes[0] :])
        wide = x.astype(np.float64)
        centred = wide - wide.mean(axis=axes, keepdims=True)
        value = centred / np.sqrt(wide.var(axis=axes, keepdims=True) + 1e-3) * scale + bias
        yield _loose("graph.layer_norm", f"axis = {axis} : i64, epsilon = 1.0e-03 : f64", name, (x, scale, bias), value)


def _batch_norm_cases() -> Iterator[Case]:
    for name, (shape, axis) in product(FLOATS, [((2, 3, 4), 1), ((4, 3), -1), ((3,), 0)]):
        x, channels = _noise(name, *shape), shape[axis]
        scale, bias, mean = (_noise(name, 3 * channels)[k::3].copy() for k in range(3))
        variance = np.abs(_noise(name, channels)) + np.asarray(0.5, TYPES[name])
        wide = [1] * len(shape)
        wide[axis] = channels
        s, b, m, v = (a.astype(np.float64).reshape(wide) for a in (scale, bias, mean, variance))
        value = (x.astype(np.float64) - m) / np.sqrt(v + 1e-5) * s + b
        yield _loose("graph.batch_norm", f"axis = {axis} : i64", name, (x, scale, bias, mean, variance), value)


MATMULS = [
    ((3, 4), (4, 5)),
    ((4,), (4,)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((2, 3, 4), (4, 5)),
    ((2, 1, 3, 4), (6, 4, 2)),
    ((1, 1), (1, 1)),
    ((3, 0), (0, 2)),
    ((0, 4), (4, 2)),
    ((2, 0, 4), (4, 3)),
]


def _matmul_cases() -> Iterator[Case]:
    for name, (a, b) in product([*FLOATS, *INTEGERS], MATMULS):
        x, y = (_noise(name, *a), _noise(name, *b)) if name in FLOATS else (ramp(name, *a), ramp(name, *b))
        wide = np.float64 if name in FLOATS else np.dtype(object)
        letters = ("" if len(a) == 1 else "i") + "k", "k" + ("" if len(b) == 1 else "j")
        result = ("" if len(a) == 1 else "i") + ("" if len(b) == 1 else "j")
        if name in FLOATS:
            value = np.einsum(f"...{letters[0]},...{letters[1]}->...{result}", x.astype(wide), y.astype(wide))
            yield _loose("graph.matmul", "", name, (x, y), value)
        else:
            whole = np.einsum(f"...{letters[0]},...{letters[1]}->...{result}", x.astype(np.int64), y.astype(np.int64))
            yield Case("graph.matmul", "", (x, y), wrapped(whole, name))


def _convolved(
    x: Array, w: Array, strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int], groups: int
) -> Array:
    """Every output element as a sum over the window, in plain loops."""
    spatial = x.ndim - 2
    padded = np.pad(x, [(0, 0), (0, 0), *zip(pads[:spatial], pads[spatial:], strict=True)])
    reach = [dilations[k] * (w.shape[2 + k] - 1) + 1 for k in range(spatial)]
    extents = [(padded.shape[2 + k] - reach[k]) // strides[k] + 1 for k in range(spatial)]
    out = np.zeros((x.shape[0], w.shape[0], *extents))
    inputs, outputs = w.shape[1], w.shape[0] // groups
    for n, o, position in product(range(x.shape[0]), range(w.shape[0]), np.ndindex(*extents)):
        group = o // outputs
        for c, offset in product(range(inputs), np.ndindex(*w.shape[2:])):
            at = [p * s + q * d for p, s, q, d in zip(position, strides, offset, dilations, strict=True)]
            out[(n, o, *position)] += padded[(n, group * inputs + c, *at)] * w[(o, c, *offset)]
    return out


CONVS: list[tuple[tuple[int, ...], tuple[int, ...], list[int], list[int], list[int], int]] = [
    ((2, 3, 7), (4, 3, 3), [1], [0, 0], [1], 1),
    ((1, 4, 8), (6, 2, 3), [2], [1, 2], [2], 2),
    ((2, 2, 5, 6), (3, 2, 3, 2), [2, 1], [1, 0, 2, 1], [1, 2], 1),
    ((1, 4, 4, 4), (4, 1, 3, 3), [1, 1], [1, 1, 1, 1], [1, 1], 4),
    ((1, 2, 3, 4, 3), (2, 2, 2, 2, 2), [1, 1, 1], [0, 1, 0, 0, 1, 0], [1, 1, 1], 1),
    ((0, 3, 7), (4, 3, 3), [1], [0, 0], [1], 1),
]


def _conv_cases() -> Iterator[Case]:
    for name, (shape, kernel, strides, pads, dilations, groups) in product(FLOATS, CONVS):
        x, w = _noise(name, *shape), _noise(name, *kernel)
        value = _convolved(x.astype(np.float64), w.astype(np.float64), strides, pads, dilations, groups)
        lists = {"strides": strides, "pads": pads, "dilations": dilations}
        parts = [f"{key} = array<i64: {', '.join(map(str, values))}>" for key, values in lists.items()]
        yield _loose("graph.conv", ", ".join([*parts, f"groups = {groups} : i64"]), name, (x, w), value, 64)


def _constant_cases() -> Iterator[Case]:
    texts = {
        "f16": ("dense<[1.5, -0.0, 6.550400e+04]>", [1.5, -0.0, 65504.0]),
        "f32": ("dense<[0.1, 0x7F800000, -1.0]>", [np.float32(0.1), np.inf, -1.0]),
        "f64": ("dense<[0.1, 1.0e+300, -0.0]>", [0.1, 1e300, -0.0]),
        "i8": ("dense<[-128, 0, 127]>", [-128, 0, 127]),
        "i16": ("dense<[-32768, 1, 32767]>", [-32768, 1, 32767]),
        "i32": ("dense<[-2147483648, 1, 2147483647]>", [-(2**31), 1, 2**31 - 1]),
        "i64": ("dense<[-9223372036854775808, 1, 9223372036854775807]>", [-(2**63), 1, 2**63 - 1]),
        "ui8": ("dense<[0, 200, 255]>", [0, 200, 255]),
        "i1": ("dense<[true, false, true]>", [True, False, True]),
    }
    for name, (text, values) in texts.items():
        expected = np.array(values, TYPES[name])
        yield Case(
            "graph.constant", "", (), expected, signed_zeros=True, literal=f"graph.constant {text} : tensor<3x{name}>"
        )
        last = text[text.rindex(",") + 2 : -2]
        splat = np.full((2, 2), expected[-1])
        yield Case("graph.constant", "", (), splat, literal=f"graph.constant dense<{last}> : tensor<2x2x{name}>")
        scalar = np.array(expected[-1])
        yield Case("graph.constant", "", (), scalar, literal=f"graph.constant dense<{last}> : tensor<{name}>")
    empty = np.empty((0, 3), np.float32)
    yield Case("graph.constant", "", (), empty, literal="graph.constant dense<> : tensor<0x3xf32>")


def _fmod(x: Array, y: Array) -> Array:
    rest: Array = np.fmod(x, y)
    return np.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


def _floor_divided(x: Array, y: Array) -> Array:
    """Python's `//`: exact where x / y would round up to a whole number; by zero it is x / y."""
    rest: Array = np.fmod(x, y)
    quotient: Array = (x - rest) / y - ((rest != 0) & ((rest < 0) != (y < 0)))
    whole: Any = np.floor(quotient)
    return np.select([y == 0, quotient - whole > 0.5], [x / y, whole + 1], whole)


def _rounded_to_even(x: Array) -> Array:
    even: Array = 2 * np.floor(x / 2 + 0.5)
    near: Array = np.floor(x + 0.5)
    return np.where(np.abs(x % 1) == 0.5, even, near)


def _nan_wins(choose: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda x, y: np.where(np.isnan(x) | np.isnan(y), np.nan, choose(x, y))


_erf = np.vectorize(math.erf, otypes=[np.float64])
_ANY = [*FLOATS, *INTEGERS, "i1"]

ROWS: list[Row] = [
    Row("constant", [], _constant_cases),
    binary("add", floats=lambda x, y: x + y, ints=lambda x, y: x + y, signed_zeros=True),
    binary("subtract", floats=lambda x, y: x - y, ints=lambda x, y: x - y, signed_zeros=True),
    binary("multiply", floats=lambda x, y: x * y, ints=lambda x, y: x * y, signed_zeros=True),
    binary("divide", floats=lambda x, y: x / y, signed_zeros=True),
    binary("floor_divide", floats=_floor_divided, ints=lambda x, y: x // y if y else 0, in_type=True),
    binary("remainder", floats=_fmod, ints=lambda x, y: x % y if y else 0),
    binary("pow", floats=lambda x, y: np.power(x, y), ulps=2),
    binary("maximum", floats=_nan_wins(lambda x, y: np.where(x > y, x, y)), ints=max),
    binary("minimum", floats=_nan_wins(lambda x, y: np.where(x < y, x, y)), ints=min),
    comparison("equal", lambda x, y: x == y),
    comparison("not_equal", lambda x, y: x != y),
    comparison("less", lambda x, y: x < y),
    comparison("less_equal", lambda x, y: x <= y),
    comparison("greater", lambda x, y: x > y),
    comparison("greater_equal", lambda x, y: x >= y),
    binary("logical_and", ints=lambda x, y: x & y, bools=lambda x, y: x and y),
    binary("logical_or", ints=lambda x, y: x | y, bools=lambda x, y: x or y),
    binary("logical_xor", ints=lambda x, y: x ^ y, bools=lambda x, y: x != y),
    unary("logical_not", ints=lambda x: -x - 1, bools=lambda x: not x),
    unary("negative", floats=lambda x: -x, ints=lambda x: -x, signed_zeros=True),
    unary("abs", floats=np.abs, ints=abs, signed_zeros=True),
    unary("square", floats=lambda x: x * x, ints=lambda x: x * x),
    unary("sqrt", floats=np.sqrt, signed_zeros=True),
    unary("rsqrt", floats=lambda x: 1 / np.sqrt(x), ulps=2),
    unary("reciprocal", floats=lambda x: 1 / x, signed_zeros=True),
    unary("exp", floats=np.exp, ulps=2),
    unary("expm1", floats=np.expm1, ulps=2),
    unary("log", floats=np.log, ulps=2),
    unary("log1p", floats=np.log1p, ulps=2),
    unary("sin", floats=np.sin, ulps=2),
    unary("cos", floats=np.cos, ulps=2),
    unary("tanh", floats=np.tanh, ulps=3),
    unary("erf", floats=_erf, ulps=3),
    unary("floor", floats=np.floor, signed_zeros=True),
    unary("ceil", floats=np.ceil, signed_zeros=True),
    unary("trunc", floats=np.trunc, signed_zeros=True),
    unary("round", floats=_rounded_to_even),
    unary("sign", floats=np.sign, ints=lambda x: (x > 0) - (x < 0)),
    unary("sigmoid", floats=lambda x: 1 / (1 + np.exp(-x)), ulps=4, slack=1e-6),
    unary("relu", floats=lambda x: np.where(x < 0, 0, x), ints=lambda x: max(x, 0)),
    unary("silu", floats=lambda x: x / (1 + np.exp(-x)), ulps=4, slack=1e-6),
    unary("gelu", floats=lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))), ulps=4, slack=2),
    unary(
        "gelu",
        floats=lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        attributes='approximate = "tanh"',
        ulps=4,
        slack=4,
    ),
    Row("astype", _ANY, _astype_cases),
    Row("where", ["i1"], _where_cases),
    Row("reshape", _ANY, _reshape_cases),
    Row("permute_dims", _ANY, _permute_cases),
    Row("broadcast_to", _ANY, _broadcast_cases),
    Row("slice", _ANY, _slice_cases),
    Row("concat", _ANY, _concat_cases),
    reduction("sum", floats=np.sum, ints=lambda x, y: x + y, neutral=0, ulps=1),
    reduction("prod", floats=np.prod, ints=lambda x, y: x * y, neutral=1, ulps=1),
    reduction("max", floats=np.max, ints=max),
    reduction("min", floats=np.min, ints=min),
    reduction("any", ints=lambda x, y: x | y, bools=lambda x, y: x or y, neutral=0),
    reduction("all", ints=lambda x, y: x & y, bools=lambda x, y: x and y, neutral=-1),
    Row("mean", FLOATS, _mean_cases),
    Row("var", FLOATS, _var_cases),
    Row("softmax", FLOATS, _softmax_cases),
    Row("layer_norm", FLOATS, _layer_norm_cases),
    Row("batch_norm", FLOATS, _batch_norm_cases),
    Row("matmul", [*FLOATS, *INTEGERS], _matmul_cases),
    Row("conv", FLOATS, _conv_cases),
]
