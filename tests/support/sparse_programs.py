"""Random programs on values of storage kinds, their arguments, and their values by dense NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

UNARY: dict[str, Callable[[Any], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "abs": np.abs,
    "square": np.square,
    "negative": np.negative,
    "tanh": np.tanh,
}
"""What is 0 at 0."""
DENSE_UNARY: dict[str, Callable[[Any], Array]] = {"sigmoid": lambda x: 1 / (1 + np.exp(-x)), "cos": np.cos}
BINARY = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum}


def csr_arrays(rng: np.random.Generator, rows: int, columns: int, density: float) -> tuple[Array, Array, Array]:
    """indptr, indices and values; some rows have no entries, some all, and some entries are zeros."""
    chance = np.where(rng.random(rows) < 0.2, 0.0, np.where(rng.random(rows) < 0.1, 1.0, density))
    there = rng.random((rows, columns)) < chance[:, None]
    indptr = np.concatenate([[0], np.cumsum(there.sum(1))]).astype(np.int32)
    indices = np.nonzero(there)[1].astype(np.int32)
    values = rng.integers(-8, 9, indices.size).astype(np.float32) / 4
    return indptr, indices, values


def dense_of(shape: tuple[int, ...], parts: tuple[Array, ...]) -> Array:
    """The dense array with these parts, of csr or, where there are two, of some rows."""
    found = np.zeros(shape, parts[-1].dtype)
    if len(parts) == 2:
        found[parts[0]] = parts[1]
    else:
        found[np.repeat(np.arange(shape[0]), np.diff(parts[0])), parts[1]] = parts[2]
    return found


@dataclass
class SparseProgram:
    """A program's text, the arguments of a call, and the value of each result as a dense array."""

    seed: int
    rows: int = 0
    columns: int = 0
    arguments: list[Any] = field(default_factory=list[Any])
    results: list[Array] = field(default_factory=list[Array])
    _lines: list[str] = field(default_factory=list[str])
    _values: list[tuple[str, str, Array]] = field(default_factory=list[tuple[str, str, Array]])
    _signature: list[str] = field(default_factory=list[str])
    _there: dict[str, Array] = field(default_factory=dict[str, Array])
    """Of arguments of storage kinds: what is stored, zeros among it."""

    def __post_init__(self) -> None:
        rng = self._rng = np.random.default_rng(self.seed)
        self.rows, self.columns = (int(n) for n in rng.integers(1, 9, 2))
        for _ in range(int(rng.integers(1, 4))):
            self._argument(str(rng.choice(["csr", "csr", "row_sparse", "dense"])))
        if not any("#" in kind for _, kind, _ in self._values):
            self._argument("csr")
        for _ in range(int(rng.integers(1, 9))):
            self._stored_step() if rng.random() < 0.3 else self._step()
        kept = [self._values[k] for k in sorted({len(self._values) - 1, int(rng.integers(len(self._values)))})]
        self.results = [value for _, _, value in kept]
        types, names = ", ".join(t for _, t, _ in kept), ", ".join(n for n, _, _ in kept)
        body = "\n".join(self._lines)
        self.text = f"func.func @main({', '.join(self._signature)}) -> ({types}) {{\n{body}\n  func.return {names} : {types}\n}}"

    def _type(self, extents: tuple[int, ...], encoding: str = "") -> str:
        return f"tensor<{'x'.join(map(str, (*extents, 'f32')))}{encoding and ', ' + encoding}>"

    def _argument(self, kind: str, *extents: int) -> tuple[str, str, Array]:
        rng, extents = self._rng, extents or (self.rows, self.columns)
        encoding, given, value, there = "", Any, np.empty(0), np.empty(0)
        if kind == "csr":
            given = csr_arrays(rng, self.rows, self.columns, float(rng.random()))
            there = dense_of(extents, (*given[:2], np.ones(given[1].size)))
            room = min(given[1].size + int(rng.integers(0, 3)), self.rows * self.columns)
            encoding, value = f"#graph.csr<capacity = {room}>", dense_of(extents, given)
        elif kind == "row_sparse":
            indices = np.sort(rng.permutation(self.rows)[: int(rng.integers(0, self.rows + 1))]).astype(np.int32)
            given = (indices, rng.integers(-8, 9, (indices.size, self.columns)).astype(np.float32) / 4)
            given[1][rng.random(indices.size) < 0.2] = 0
            there = dense_of(extents, (indices, np.ones(given[1].shape)))
            room = min(indices.size + int(rng.integers(0, 2)), self.rows)
            encoding, value = f"#graph.row_sparse<capacity = {room}>", dense_of(extents, given)
        else:
            given = value = rng.integers(-8, 9, extents).astype(np.float32) / 4
        name, type_ = f"%a{len(self.arguments)}", self._type(extents, encoding)
        self.arguments.append(given)
        self._signature.append(f"{name}: {type_}")
        self._values.append((name, type_, value))
        if encoding:
            self._there[name] = there
        return self._values[-1]

    def _emit(
        self, op: str, operands: list[tuple[str, str, Array]], value: Array, type_: str, attributes: str = ""
    ) -> None:
        name = f"%v{len(self._lines)}"
        names, types = ", ".join(n for n, _, _ in operands), ", ".join(t for _, t, _ in operands)
        self._lines.append(f"  {name} = graph.{op} {names}{attributes} : ({types}) -> {type_}")
        self._values.append((name, type_, value.astype(np.float32)))

    def _pick(self) -> tuple[str, str, Array]:
        return self._values[int(self._rng.integers(len(self._values)))]

    def _alike(self, extents: tuple[int, ...]) -> tuple[str, str, Array]:
        found = [value for value in self._values if value[2].shape == extents]
        return found[int(self._rng.integers(len(found)))]

    def _step(self) -> None:
        """An op with a dense result type, or one that keeps the operand's kind."""
        rng, x = self._rng, self._pick()
        extents = x[2].shape
        match str(
            rng.choice(
                ["unary", "unary", "dense", "binary", "binary", "matmul", "sum", "transpose", "slice", "take", "store"]
            )
        ):
            case "unary":
                op = str(rng.choice(list(UNARY)))
                self._emit(op, [x], UNARY[op](x[2]), x[1] if rng.random() < 0.6 else self._type(extents))
            case "dense":
                op = str(rng.choice(list(DENSE_UNARY)))
                self._emit(op, [x], DENSE_UNARY[op](x[2]), self._type(extents))
            case "binary":
                y, op = self._alike(extents), str(rng.choice(list(BINARY)))
                self._emit(op, [x, y], BINARY[op](x[2], y[2]), self._type(extents))
            case "matmul":
                y, turned = self._pick(), rng.random() < 0.5
                left = x[2].T if turned else x[2]
                if left.ndim == 2 and y[2].ndim == 2 and left.shape[1] == y[2].shape[0]:
                    product = left.astype(np.float64) @ y[2]
                    flags = " {transpose_lhs = true}" if turned else ""
                    self._emit("matmul", [x, y], product, self._type(product.shape), flags)
            case "sum" if x[2].ndim == 2:
                axes, keep = [(0,), (1,), (0, 1)][int(rng.integers(3))], bool(rng.random() < 0.5)
                total = x[2].sum(axis=axes, keepdims=keep, dtype=np.float64)
                text = f" {{axes = array<i64: {', '.join(map(str, axes))}>, keepdims = {str(keep).lower()}}}"
                if total.ndim:
                    self._emit("sum", [x], total, self._type(total.shape), text)
            case "transpose" if x[2].ndim == 2:
                self._emit("permute_dims", [x], x[2].T, self._type(extents[::-1]), " {axes = array<i64: 1, 0>}")
            case "slice" if x[2].ndim == 2:
                first, last = sorted(int(n) for n in rng.integers(0, extents[0] + 1, 2))
                if first < last:
                    text = f" {{starts = array<i64: {first}, 0>, stops = array<i64: {last}, {extents[1]}>}}"
                    self._emit("slice", [x], x[2][first:last], self._type((last - first, extents[1])), text)
            case "take" if x[2].ndim == 2:
                ids = rng.integers(-extents[0], extents[0], int(rng.integers(1, 6)))
                constant = f"%i{len(self._lines)}"
                listed, kind = ", ".join(map(str, ids)), f"tensor<{ids.size}xi64>"
                self._lines.append(f"  {constant} = graph.constant dense<[{listed}]> : {kind}")
                self._emit("take", [x, (constant, kind, ids)], x[2][ids], self._type((ids.size, extents[1])))
            case "store" if x[2].ndim == 2 and "#" not in x[1]:
                kind, room = ("csr", x[2].size) if rng.random() < 0.5 else ("row_sparse", extents[0])
                if rng.random() < 0.5:
                    room = np.count_nonzero(x[2] if kind == "csr" else x[2].any(1))
                self._emit("to_storage", [x], x[2], self._type(extents, f"#graph.{kind}<capacity = {room}>"))
            case _:
                pass

    def _is_known(self, value: tuple[str, str, Array], kind: str) -> bool:
        """Whether it is known which entries a matrix has: an argument of this kind, or a dense one of few binary digits."""
        if value[0] in self._there:
            return kind in value[1]
        given = value[2] * 4096
        is_exact = bool((np.abs(given) < 2**23).all() and (given == np.round(given)).all())
        return "#" not in value[1] and given.shape == (self.rows, self.columns) and is_exact

    def _entries(self, value: tuple[str, str, Array]) -> Array:
        """Where a matrix has entries: what is stored of it, or is not 0 of a dense one."""
        return self._there.get(value[0], value[2]) != 0

    def _number(self) -> tuple[str, str, Array]:
        """A constant scalar."""
        number = float(self._rng.integers(1, 9)) / 4
        name = f"%c{len(self._lines)}"
        self._lines.append(f"  {name} = graph.constant dense<{number}> : tensor<f32>")
        return name, "tensor<f32>", np.array(number, np.float32)

    def _stored_step(self) -> None:
        """An op that means something about what is stored, or a csr result that is asked for."""
        rng, extents = self._rng, (self.rows, self.columns)
        matrices, rows = ([v for v in self._values if self._is_known(v, k)] for k in ("csr", "row_sparse"))
        match str(rng.choice(["softmax", "sampled", "masked", "scaled", "gradient", "lazy"])):
            case "softmax" if matrices:
                x = matrices[int(rng.integers(len(matrices)))]
                weights = np.where(self._entries(x), np.exp(x[2].astype(np.float64)), 0)
                total = np.where(weights.any(1), weights.sum(1), 1)[:, None]
                self._emit("stored_softmax", [x], weights / total, x[1] if rng.random() < 0.5 else self._type(extents))
            case "sampled" if matrices:
                pattern = matrices[int(rng.integers(len(matrices)))]
                x, y = self._argument("dense", self.rows, 2), self._argument("dense", 2, self.columns)
                found = np.where(self._entries(pattern), x[2].astype(np.float64) @ y[2], 0)
                self._emit("sampled_matmul", [pattern, x, y], found, self._type(extents))
            case "masked":
                x, y = self._pick(), self._pick()
                if "csr" in x[1] and "#" not in y[1] and x[2].shape == y[2].shape:
                    self._emit("multiply", [x, y], x[2] * y[2], x[1])
            case "scaled":
                x, factor = self._pick(), self._number()
                op = str(rng.choice(["multiply", "divide"]))
                self._emit(op, [x, factor], BINARY.get(op, np.divide)(x[2], factor[2]), x[1])
            case "gradient":
                ids = rng.integers(-self.rows, self.rows, int(rng.integers(1, 6)))
                of = self._argument("dense", ids.size, self.columns)
                constant, kind = f"%i{len(self._lines)}", f"tensor<{ids.size}xi64>"
                self._lines.append(f"  {constant} = graph.constant dense<[{', '.join(map(str, ids))}]> : {kind}")
                found = np.zeros(extents)
                np.add.at(found, ids, of[2])
                room = f"#graph.row_sparse<capacity = {min(ids.size, self.rows)}>"
                self._emit(
                    "embedding_backward",
                    [of, (constant, kind, ids)],
                    found,
                    self._type(extents, room),
                    f" {{rows = {self.rows} : i64}}",
                )
            case "lazy" if rows:
                self._lazy(rows[int(rng.integers(len(rows)))])
            case _:
                pass

    def _lazy(self, gradient: tuple[str, str, Array]) -> None:
        """A step on the rows that a gradient has; others keep what they are."""
        extents = gradient[2].shape
        weight, rate, velocity = self._alike(extents), self._number(), self._alike(extents)
        there = self._entries(gradient).any(1, keepdims=True)
        faster = np.where(there, 0.75 * velocity[2].astype(np.float64) + gradient[2], velocity[2])
        moved = np.where(there, weight[2] - rate[2] * faster, weight[2])
        name, operands = f"%v{len(self._lines)}", [weight, gradient, rate, velocity]
        names, types = ", ".join(n for n, _, _ in operands), ", ".join(t for _, t, _ in operands)
        dense = self._type(extents)
        flags = "{momentum = 0.75 : f64}"
        self._lines.append(f"  {name}:2 = graph.lazy_momentum {names} {flags} : ({types}) -> ({dense}, {dense})")
        self._values += [(f"{name}#{k}", dense, value.astype(np.float32)) for k, value in enumerate((moved, faster))]
