"""Random ONNX graphs with the values that another implementation gives each of their nodes, one after the other.

A node is tried at once, by onnxruntime, else by ONNX's reference: what both refuse is left out, as are results too large to be
compared. The functions of onnx_makers say which nodes there are.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from onnx_peers import BFLOAT16, Array, evaluated, helper, onnx, proto_type

FLOATS = ("float32", "float32", "float32", "float64", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int8", "uint8")
ANY = (*FLOATS, *INTEGERS, "bool")
NUMBERS = (*FLOATS, *INTEGERS)
LARGEST = {"float16": 2e3, "bfloat16": 1e4, "float32": 1e5, "float64": 1e8}
"""Of results that are compared; sums of larger ones say nothing."""


def as_dtype(name: str) -> np.dtype[Any]:
    return BFLOAT16 if name == "bfloat16" else np.dtype(name)


def is_float(array: Array) -> bool:
    return array.dtype.kind == "f" or array.dtype == BFLOAT16


@dataclass(frozen=True)
class Tensor:
    """A value of the graph; one is exact where every implementation has the same bits, so that it may be compared or rounded."""

    name: str
    array: Array
    exact: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def rank(self) -> int:
        return self.array.ndim

    @property
    def dtype(self) -> str:
        return self.array.dtype.name

    @property
    def is_float(self) -> bool:
        return is_float(self.array)


@dataclass(frozen=True)
class Program:
    """A graph: `feeds` are its inputs and initialisers, `weights` the names of the latter, `dims` the names of extents."""

    seed: int
    opset: int
    nodes: tuple[Any, ...]
    feeds: Mapping[str, Array]
    weights: frozenset[str]
    outputs: tuple[str, ...]
    expected: Mapping[str, Array]
    dims: Mapping[str, tuple[str | int, ...]] = field(default_factory=dict[str, tuple[str | int, ...]])
    rough: frozenset[str] = frozenset()
    """Integers that are rounded from what is not exact: another by one is no fault."""

    def needed(self) -> list[Any]:
        """The nodes that outputs come from."""
        wanted, kept = set(self.outputs), list[Any]()
        for node in reversed(self.nodes):
            if wanted & set(node.output):
                kept.append(node)
                wanted |= set(node.input)
        return kept[::-1]

    def inputs(self) -> dict[str, Array]:
        """What a call takes, by name."""
        read = {name for node in self.needed() for name in node.input} | set(self.outputs)
        return {name: array for name, array in self.feeds.items() if name in read and name not in self.weights}

    def model(self) -> Any:
        read = {name for node in self.needed() for name in node.input}
        weights = [
            onnx.numpy_helper.from_array(self.feeds[name], name) for name in sorted(self.weights) if name in read
        ]
        inputs = [
            helper.make_tensor_value_info(name, proto_type(array), list(self.dims.get(name, array.shape)))
            for name, array in self.inputs().items()
        ]
        outputs = [helper.make_tensor_value_info(name, proto_type(self.expected[name]), None) for name in self.outputs]
        graph = helper.make_graph(self.needed(), f"seed_{self.seed}", inputs, outputs, weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)

    def again(self, extents: Mapping[str, int], rng: np.random.Generator) -> Program | None:
        """The same graph at other extents and values; None where it does not hold for them."""
        feeds = dict(self.feeds)
        for name, array in self.inputs().items():
            dims = self.dims.get(name, array.shape)
            shape = [extents.get(dim, array.shape[k]) if isinstance(dim, str) else dim for k, dim in enumerate(dims)]
            taken = rng.integers(0, max(array.size, 1), shape)
            feeds[name] = array.reshape(-1)[taken] if array.size else np.zeros(shape, array.dtype)
        values = dict(feeds)
        for node in self.needed():
            found = evaluated(node, [values[name] if name else None for name in node.input], self.opset)
            if found is None:
                return None
            values |= {name: array for name, array in zip(node.output, found, strict=False) if name}
        return replace(self, feeds=feeds, expected=values)

    def smaller(self) -> Iterable[Program]:
        """Programs with fewer outputs or nodes, the smallest steps last."""
        for name in self.outputs if len(self.outputs) > 1 else ():
            yield replace(self, outputs=(name,))
        for node in reversed(self.needed()):
            for name in node.output:
                if name and name not in self.outputs:
                    yield self._cut(name)
        for name in self.dims:
            if name in self.inputs():
                yield replace(self, dims={k: v for k, v in self.dims.items() if k != name})
        for name in sorted(self.weights):
            yield replace(self, weights=self.weights - {name})

    def second_opinion(self) -> Program | None:
        """The values of ONNX's reference, for a graph of one node."""
        nodes = self.needed()
        if len(nodes) != 1:
            return None
        arrays = [self.feeds[name] if name else None for name in nodes[0].input]
        found = evaluated(nodes[0], arrays, self.opset, second=True)
        made = zip(nodes[0].output, found or (), strict=False)
        return None if found is None else replace(self, expected={**self.expected, **dict(made)})

    def _cut(self, name: str) -> Program:
        """The value is an input of the graph, and no node makes it."""
        nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in self.nodes]
        for node in nodes:
            node.output[:] = ["" if output == name else output for output in node.output]
        return replace(self, nodes=tuple(nodes), feeds={**self.feeds, name: self.expected[name]})

    def shown(self) -> str:
        lines = [f"  {onnx.printer.to_text(node)}" for node in self.needed()]
        for name, array in self.feeds.items():
            if any(name in node.input for node in self.needed()) or name in self.outputs:
                kind = "weight" if name in self.weights else f"input {list(self.dims.get(name, ()))}"
                numbers = array.tolist() if array.size <= 24 else "..."
                lines.append(f"  {kind} {name}: {array.dtype.name}{list(array.shape)} {numbers}")
        return "\n".join([f"  opset {self.opset}, outputs {', '.join(self.outputs)}", *lines])


class Builder:
    """A graph that grows by nodes that are tried."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.opset = self.rng.choice((13, 14, 15, 16, 17, 18, 18, 19, 20, 21, 21))
        self.tensors: list[Tensor] = []
        self.nodes: list[Any] = []
        self.feeds: dict[str, Array] = {}
        self.weights: set[str] = set()
        self.plain: set[str] = set()
        """Inputs whose values decide shapes, or are positions."""
        self.count = 0
        self.large = self.chance(0.2)
        """Whether there is work for several vectors, and threads."""

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def extent(self) -> int:
        if self.large and self.chance(0.6):
            return self.rng.choice((17, 24, 31, 33, 48, 64, 100))
        return self.rng.choice((1, 2, 3, 3, 4, 5, 7, 8, 9, 16, 17, 0 if self.chance(0.15) else 6))

    def shape(self, least: int = 0, most: int = 5) -> tuple[int, ...]:
        rank = self.rng.choice([r for r in (0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5) if least <= r <= most])
        found = tuple(self.extent() for _ in range(rank))
        return found if np.prod(found) <= (40_000 if self.large else 4096) else tuple(min(n, 5) for n in found)

    def array(self, shape: Sequence[int], dtype: str, low: float = -2, high: float = 2) -> Array:
        """Multiples of an eighth, which sums and products of a few keep exact."""
        kind = as_dtype(dtype)
        if dtype == "bool":
            return self.numbers.integers(0, 2, shape).astype(bool)
        if kind.kind in "iu":
            low = max(low if (low, high) != (-2, 2) else -5, 0 if kind.kind == "u" else -(2**62))
            return self.numbers.integers(int(low), max(int(high), int(low) + 1) + 4, shape).astype(kind)
        return (self.numbers.integers(round(low * 8), round(high * 8) + 1, shape) / 8).astype(kind)

    def feed(self, array: Array, weight: bool | None = None, plain: bool = False) -> Tensor:
        """An array as an input, or an initialiser."""
        self.count += 1
        name = f"x{self.count}"
        self.feeds[name] = array
        if self.chance(0.4) if weight is None else weight:
            self.weights.add(name)
        if plain:
            self.plain.add(name)
        found = Tensor(name, array)
        if not plain:
            self.tensors.append(found)
        return found

    def fresh(self, shape: Sequence[int], dtype: str, low: float = -2, high: float = 2) -> Tensor:
        return self.feed(self.array(shape, dtype, low, high))

    def known(self, numbers: Any, dtype: str = "int64") -> Tensor:
        """Integers that decide shapes: mostly initialisers."""
        return self.feed(np.asarray(numbers, dtype), self.chance(0.85), plain=True)

    def pick(
        self, dtypes: Sequence[str], least: int = 0, most: int = 5, exact: bool = False, size: int = 1 << 14
    ) -> Tensor:
        """A value of the graph, a late one rather than an early one, or a new input."""

        def fits(t: Tensor) -> bool:
            return t.dtype in dtypes and least <= t.rank <= most and (t.exact or not exact) and t.array.size <= size

        found = [tensor for tensor in self.tensors[-6:] if fits(tensor)]
        if found and self.chance(0.8):
            return self.rng.choice(found)
        return self.fresh(self.shape(least, most), self.rng.choice(list(dtypes)))

    def broadcastable(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that broadcasts with another."""
        found = [1 if self.chance(0.25) else n for n in shape]
        return tuple(found[self.rng.randrange(len(found) + 1) if self.chance(0.4) else 0 :])

    def partner(self, x: Tensor, low: float = -2, high: float = 2) -> Tensor:
        """A second operand for an op of two."""
        same = [t for t in self.tensors if t.dtype == x.dtype and t.shape == x.shape]
        if (low, high) == (-2, 2) and same and self.chance(0.5):
            return self.rng.choice(same)
        return self.fresh(self.broadcastable(x.shape), x.dtype, low, high)

    def axis(self, rank: int) -> int:
        return self.rng.randrange(-rank, rank) if rank else 0

    def node(
        self, op: str, inputs: Sequence[Tensor | None], outputs: int = 1, exact: bool = False, **attributes: Any
    ) -> bool:
        """Adds a node where another implementation gives it values that can be compared."""
        names = [f"y{self.count}_{k}" for k in range(outputs)]
        given = {name: value for name, value in attributes.items() if value is not None and value != []}
        node = helper.make_node(op, ["" if t is None else t.name for t in inputs], names, **given)
        found = evaluated(node, [None if t is None else t.array for t in inputs], self.opset)
        if found is None or not all(map(comparable, found)):
            return False
        self.count += 1
        self.nodes.append(node)
        certain = exact and all(t is None or t.exact for t in inputs)
        for name, array in zip(names, found, strict=True):
            self.tensors.append(Tensor(name, array, certain))
        return True

    def program(self, seed: int, makers: Sequence[Callable[[Builder], Any]], length: int) -> Program:
        while len(self.nodes) < length:
            self.rng.choice(makers)(self)
        made = [name for node in self.nodes for name in node.output if name]
        unread = [name for name in made if not any(name in node.input for node in self.nodes)]
        others = [name for name in made if name not in unread and self.chance(0.3)]
        expected = {tensor.name: tensor.array for tensor in self.tensors}
        dims = self._dims() if self.chance(0.4) else {}
        outputs, weights = tuple([*unread, *others]), frozenset(self.weights)
        rough = frozenset(t.name for t in self.tensors if not t.exact and not t.is_float)
        return Program(seed, self.opset, tuple(self.nodes), self.feeds, weights, outputs, expected, dims, rough)

    def _dims(self) -> dict[str, tuple[str | int, ...]]:
        """Names for some extents: equal ones for equal extents, mostly."""
        named = {n: f"n{n}" for n in range(64) if self.chance(0.5)}
        found: dict[str, tuple[str | int, ...]] = {}
        for name, array in self.feeds.items():
            if name not in self.weights and name not in self.plain:
                found[name] = tuple((named.get(n) or n) if n > 1 else n for n in array.shape)
        return found


def comparable(array: Array) -> bool:
    if array.size > 1 << 16:
        return False
    if not is_float(array):
        return True
    wide = array.astype(np.float64)
    return bool(np.isfinite(wide).all() and (np.abs(wide) <= LARGEST.get(array.dtype.name, 0)).all())
