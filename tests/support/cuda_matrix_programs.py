"""Programs for every schedule of a kernel, at sizes around those of vectors and warps, and on views that begin anywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence

SIZES = (1, 3, 7, 8, 9, 513)
OFFSETS = tuple(range(16))
FLOATS = ("f32", "f16", "bf16", "f64")
INTEGERS = ("i8", "i32", "i64")

Shape = Sequence[int]


def tensor(shape: Shape, dtype: str) -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{dtype}>"


class Text:
    """A function under construction: arguments, ops on them by name, and what it returns."""

    def __init__(self) -> None:
        self._types: dict[str, str] = {}
        self._arguments: list[str] = []
        self._lines: list[str] = []

    def argument(self, shape: Shape, dtype: str, donated: bool = False) -> str:
        name = f"%x{len(self._types)}"
        self._types[name] = tensor(shape, dtype)
        self._arguments.append(f"{name}: {self._types[name]}{' {graph.donated}' if donated else ''}")
        return name

    def op(self, op: str, operands: Sequence[str], shape: Shape, dtype: str, attributes: str = "") -> str:
        name = f"%v{len(self._types)}"
        types = ", ".join(self._types[operand] for operand in operands)
        self._types[name] = tensor(shape, dtype)
        given = f" {{{attributes}}}" if attributes else ""
        self._lines.append(f"  {name} = graph.{op} {', '.join(operands)}{given} : ({types}) -> {self._types[name]}")
        return name

    def returning(self, *names: str) -> str:
        types = ", ".join(self._types[name] for name in names)
        lines = [f"func.func @f({', '.join(self._arguments)}) -> ({types}) {{", *self._lines]
        return "\n".join([*lines, f"  func.return {', '.join(names)} : {types}", "}"])


def axes(*numbers: int, keepdims: bool = False) -> str:
    return f"axes = array<i64: {', '.join(map(str, numbers))}>" + (", keepdims = true" if keepdims else "")


def pointwise(n: int, dtype: str, donated: bool = False) -> str:
    text = Text()
    x, y = text.argument((n,), dtype, donated), text.argument((n,), dtype)
    a = text.op("multiply", [x, y], (n,), dtype)
    return text.returning(text.op("maximum", [a, x], (n,), dtype))


def in_place(n: int, dtype: str) -> str:
    return pointwise(n, dtype, donated=True)


def broadcast(n: int, dtype: str) -> str:
    text = Text()
    x, row, column = text.argument((5, n), dtype), text.argument((n,), dtype), text.argument((5, 1), dtype)
    a = text.op("multiply", [x, row], (5, n), dtype)
    return text.returning(text.op("add", [a, column], (5, n), dtype))


def two_results(n: int, dtype: str) -> str:
    text = Text()
    x = text.argument((3, n), dtype)
    a = text.op("negative", [x], (3, n), dtype)
    return text.returning(a, text.op("multiply", [a, x], (3, n), dtype))


def transpose(n: int, dtype: str) -> str:
    text = Text()
    x, y = text.argument((n, 37), dtype), text.argument((37, n), dtype)
    a = text.op("permute_dims", [x], (37, n), dtype, "axes = array<i64: 1, 0>")
    return text.returning(text.op("add", [a, y], (37, n), dtype))


def transpose_batches(n: int, dtype: str) -> str:
    text = Text()
    x = text.argument((2, 3, n, 5), dtype)
    a = text.op("permute_dims", [x], (2, n, 3, 5), dtype, "axes = array<i64: 0, 2, 1, 3>")
    b = text.op("negative", [a], (2, n, 3, 5), dtype)
    return text.returning(text.op("permute_dims", [b], (5, 3, 2, n), dtype, "axes = array<i64: 3, 2, 0, 1>"))


def concatenation(n: int, dtype: str) -> str:
    text = Text()
    x, y = text.argument((2, n), dtype), text.argument((2, 9), dtype)
    a = text.op("concat", [x, y], (2, n + 9), dtype, "axis = 1 : i64")
    return text.returning(text.op("negative", [a], (2, n + 9), dtype))


def reduction(shape: Shape, reduced: Sequence[int], dtype: str) -> str:
    """Ops around two reductions of one operand."""
    text = Text()
    x = text.argument(shape, dtype)
    rest = [extent for axis, extent in enumerate(shape) if axis not in reduced]
    a = text.op("multiply", [x, x], shape, dtype)
    total = text.op("sum", [a], rest, dtype, axes(*reduced))
    largest = text.op("max", [x], rest, dtype, axes(*reduced))
    return text.returning(text.op("subtract", [total, largest], rest, dtype), largest)


def last_axis(n: int, dtype: str) -> str:
    return reduction((5, n), (1,), dtype)


def first_axis(n: int, dtype: str) -> str:
    return reduction((n, 9), (0,), dtype)


def wide_first_axis(n: int, dtype: str) -> str:
    return reduction((33, n), (0,), dtype)


def middle_axis(n: int, dtype: str) -> str:
    return reduction((3, n, 7), (1,), dtype)


def all_axes(n: int, dtype: str) -> str:
    return reduction((n, 8), (0, 1), dtype)


def outer_axes(n: int, dtype: str) -> str:
    return reduction((3, n, 4), (0, 2), dtype)


def centred(n: int, dtype: str) -> str:
    """A row kernel of any type: what is reduced is broadcast again."""
    text = Text()
    x = text.argument((4, n), dtype, donated=True)
    least = text.op("min", [x], (4, 1), dtype, axes(1, keepdims=True))
    return text.returning(text.op("subtract", [x, least], (4, n), dtype))


def softmax(n: int, dtype: str) -> str:
    text = Text()
    x = text.argument((6, n), dtype)
    return text.returning(text.op("softmax", [x], (6, n), dtype, "axis = -1 : i64"))


def softmax_of_columns(n: int, dtype: str) -> str:
    text = Text()
    x = text.argument((n, 17), dtype)
    return text.returning(text.op("softmax", [x], (n, 17), dtype, "axis = 0 : i64"))


def layer_norm(n: int, dtype: str) -> str:
    text = Text()
    x, scale, bias = text.argument((3, n), dtype), text.argument((n,), dtype), text.argument((n,), dtype)
    a = text.op("gelu", [x], (3, n), dtype)
    attributes = "axis = -1 : i64, epsilon = 1.0e-03 : f64"
    return text.returning(text.op("layer_norm", [a, scale, bias], (3, n), dtype, attributes))


def independent(n: int, dtype: str) -> str:
    """Kernels that can be packed."""
    text = Text()
    x, y = text.argument((n,), dtype), text.argument((4, n), dtype)
    a = text.op("negative", [x], (n,), dtype)
    return text.returning(a, text.op("sum", [y], (4,), dtype, axes(1)), text.op("multiply", [y, y], (4, n), dtype))


def rows_at_data(n: int, dtype: str) -> str:
    """Rows that data names, centred: whole ones in any order, of which one element each is named by data, too."""
    text = Text()
    x, rows, places = text.argument((9, n), dtype), text.argument((5, 1), "i32"), text.argument((5, 1), "ui8")
    a = text.op("read_at", [x, rows], (5, n), dtype, "axis = 0 : i64")
    least = text.op("min", [a], (5, 1), dtype, axes(1, keepdims=True))
    b = text.op("subtract", [a, least], (5, n), dtype)
    return text.returning(b, text.op("read_at", [b, places], (5, 1), dtype, "axis = 1 : i64"))


def elements_at_data(n: int, dtype: str) -> str:
    """Elements that data names, of what is computed on the way; the names are read through a view."""
    text = Text()
    x, places = text.argument((4, n), dtype), text.argument((n, 4), "i64")
    a = text.op("negative", [x], (4, n), dtype)
    turned = text.op("permute_dims", [places], (4, n), "i64", "axes = array<i64: 1, 0>")
    return text.returning(text.op("read_at", [a, turned], (4, n), dtype, "axis = 1 : i64"))


Maker = Callable[[int, str], str]

FAMILIES: tuple[Maker, ...] = (
    pointwise, in_place, broadcast, two_results, transpose, transpose_batches, concatenation, last_axis, first_axis,
    wide_first_axis, middle_axis, all_axes, outer_axes, centred, softmax, softmax_of_columns, layer_norm, independent,
    rows_at_data, elements_at_data,
)  # fmt: skip
OF_FLOATS = (softmax, softmax_of_columns, layer_norm)
LARGE: dict[str, str] = {
    "pointwise_large": pointwise((1 << 20) + 77, "f32"),
    "pointwise_large_half": pointwise((1 << 21) + 8, "f16"),
    "broadcast_large": broadcast(250_003, "f32"),
    "transpose_large": transpose(10_007, "f16"),
    "row_of_a_block": softmax(5000, "f32"),
    "row_of_a_block_half": layer_norm(4096, "bf16"),
    "rows_of_warps": reduction((4099, 96), (1,), "f32"),
    "columns_large": reduction((4099, 130), (0,), "f32"),
    "columns_half": reduction((2048, 264), (0,), "f16"),
    "split_large": reduction((2, 300_001), (1,), "f32"),
    "split_columns": reduction((70_000, 3), (0,), "f64"),
}
"""Sizes from which on kernels take their other forms: vectors, several elements a thread, rows in shared memory, parts."""


def sliced(n: int, offset: int, dtype: str) -> str:
    """Vectors and rows that begin `offset` elements into what they are part of."""
    text = Text()
    x, y, rows = text.argument((n + 16,), dtype), text.argument((n,), dtype), text.argument((3, n + 16), dtype)
    one = f"starts = array<i64: {offset}>, stops = array<i64: {offset + n}>, steps = array<i64: 1>"
    two = f"starts = array<i64: 0, {offset}>, stops = array<i64: 3, {offset + n}>, steps = array<i64: 1, 1>"
    a = text.op("slice", [x], (n,), dtype, one)
    b = text.op("slice", [rows], (3, n), dtype, two)
    total = text.op("sum", [b], (3, 1), dtype, axes(1, keepdims=True))
    return text.returning(text.op("maximum", [a, y], (n,), dtype), text.op("subtract", [b, total], (3, n), dtype))


def joined(n: int, offset: int, dtype: str) -> str:
    """Results written from `offset` elements into their memory on."""
    text = Text()
    x, before = text.argument((n,), dtype), text.argument((offset + 1,), dtype)
    a = text.op("multiply", [x, x], (n,), dtype)
    whole = text.op("concat", [before, a], (offset + 1 + n,), dtype, "axis = 0 : i64")
    return text.returning(whole, text.op("negative", [whole], (offset + 1 + n,), dtype))


ON_VIEWS: tuple[Callable[[int, int, str], str], ...] = (sliced, joined)
