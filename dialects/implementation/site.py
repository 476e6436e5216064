"""What an implementation is asked about: an op with the types around it, and the machine that is to run it."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Protocol, cast

from xdsl.dialects.builtin import DYNAMIC_INDEX
from xdsl.ir import Block, SSAValue

from fuse_opt.dialects.implementation.chains import Link, untied
from fuse_opt.dialects.interfaces.layouts import encoding, has_order
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.properties import PlainValue, plain_properties
from fuse_opt.dialects.interfaces.shapes import dtype, shape, tensor
from fuse_opt.dialects.types.encodings import EncodingPart, with_encoding
from fuse_opt.dialects.types.extents import estimate, is_number
from fuse_opt.dialects.types.size import Size


class Machine(Protocol):
    """What costs depend on; see `passes/devices`, whose files hold the numbers."""

    @property
    def name(self) -> str: ...
    @property
    def platform(self) -> str:
        """What programs for it run on, "cpu" or "cuda"."""
        ...

    @property
    def features(self) -> tuple[str, ...]:
        """What it has beyond what every machine of its platform has: instruction sets, or generations of a GPU."""
        ...

    @property
    def launch(self) -> float: ...
    @property
    def processors(self) -> int: ...
    def product_rate(self, dtype: str) -> float:
        """Operations a second of matrix products of such elements, all processors together."""
        ...

    def implementation_rate(self, name: str, dtype: str) -> float:
        """The same of what an implementation or a backend is known to reach; that of products where nothing is known."""
        ...

    def factor(self, name: str) -> float:
        """How many times as long as a product something takes, by its name in the device's file; 1.0 where that has none."""
        ...

    def move_seconds(self, nbytes: float) -> float:
        """Seconds to read or write so many bytes."""
        ...


@dataclass(frozen=True, slots=True)
class Tensor:
    """An operand or a result, as an implementation sees it; -1 is an extent that is not known."""

    shape: tuple[int, ...]
    dtype: str
    """The element type by its name in MLIR: f32, bf16, ui8 ..."""
    itemsize: int
    frozen: bool = False
    """Whether it is the same array in all calls, by a promise of the caller."""
    encoding: EncodingPart | None = None
    """How it lies in memory; None for row-major order."""

    @property
    def size(self) -> int:
        """Elements; where extents are sizes, as many as are typical."""
        return estimate(prod(self.shape))

    @property
    def usual_shape(self) -> tuple[int, ...]:
        """The extents; where they are sizes, those that are typical."""
        return tuple(map(estimate, self.shape))

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def is_static(self) -> bool:
        return DYNAMIC_INDEX not in self.shape and not self.is_sized

    @property
    def is_sized(self) -> bool:
        """Whether an extent is a size, of which costs take what is typical."""
        return not all(map(is_number, self.shape))


@dataclass(frozen=True, slots=True)
class LayoutRow:
    """How an implementation wants operands to lie in memory, and how results do then; None is row-major order."""

    operands: tuple[EncodingPart | None, ...]
    results: tuple[EncodingPart | None, ...]


@dataclass(frozen=True, slots=True)
class Saved:
    """
    What another op makes of operands of a site's op, such as the statistics of rows that a backward pass reads: an implementation
    may leave it beside its results, in the same call.
    """

    op: str
    """The other op's name."""
    config: tuple[tuple[str, PlainValue], ...] = ()
    """Its properties by name."""
    operands: tuple[int, ...] = (0,)
    """What it reads, by number of the site's operands."""
    results: int = 1
    """How many values it makes, all of which are left."""

    @classmethod
    def of(cls, op: GraphOp, other: GraphOp) -> Saved | None:
        """Another op beside an op; None where it reads anything else, or has properties that are no plain values."""
        operands = list(op.operands)
        if not other.operands or not all(value in operands for value in other.operands):
            return None
        try:
            config = tuple(sorted(plain_properties(other).items()))
        except TypeError:
            return None
        return cls(other.name, config, tuple(map(operands.index, other.operands)), len(other.results))

    def text(self) -> str:
        """It as a text that `saved_of` reads."""
        return json.dumps([self.op, dict(self.config), self.operands, self.results], sort_keys=True)


def saved_of(text: str) -> Saved:
    """What a text is of."""
    found: tuple[str, dict[str, Any], list[int], int] = json.loads(text)
    op, config, operands, results = found
    return Saved(op, tuple(sorted((k, untied(v)) for k, v in config.items())), tuple(operands), results)


@dataclass(frozen=True, slots=True)
class Site:
    """An op that something has to run, where it stands. Types and properties, never elements."""

    op: OpaqueOp
    """Any graph op where a backend is asked what it would take into a partition."""
    operands: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    device: Machine | None = None
    """None where only the op counts: before costs are compared."""
    links: tuple[Link, ...] = ()
    """What it is to run behind the op, in its own code."""
    saved: tuple[Saved, ...] = ()
    """What it is to leave beside the op's results, in the order of outputs."""

    @classmethod
    def of(
        cls,
        op: GraphOp,
        device: Machine | None = None,
        frozen: Collection[SSAValue] = (),
        links: Sequence[Link] = (),
        saved: Sequence[Saved] = (),
    ) -> Site:
        """The site of an op. Raises VerifyException where an operand is no tensor."""
        operands = tuple(tensor_of(value, value in frozen) for value in op.operands)
        return cls(
            cast("OpaqueOp", op), operands, tuple(map(tensor_of, op.results)), device, tuple(links), tuple(saved)
        )

    @property
    def name(self) -> str:
        """The op's, such as graph.matmul."""
        return self.op.name

    @property
    def dtypes(self) -> set[str]:
        """Element types of operands and results."""
        return {each.dtype for each in (*self.operands, *self.results)}

    @property
    def config(self) -> dict[str, PlainValue]:
        """
        The op's properties by name, as numbers, texts and tuples: what a routine gets when it is called. Sizes are what is
        typical.
        """
        found = plain_properties(self.op)
        sizes = {name: value for name, value in cast("dict[str, object]", found).items() if isinstance(value, Size)}
        return {**found, **{name: estimate(size) for name, size in sizes.items()}}

    @property
    def is_static(self) -> bool:
        """Whether all extents are known."""
        return all(each.is_static for each in (*self.operands, *self.results))

    @property
    def is_sized(self) -> bool:
        """Whether an extent is a size."""
        return any(each.is_sized for each in (*self.operands, *self.results))

    @property
    def is_known(self) -> bool:
        """Whether all extents are numbers or sizes."""
        return all(each.is_static or each.is_sized for each in (*self.operands, *self.results))

    @property
    def nbytes(self) -> int:
        """Of operands and results together, as far as a run reads or writes them, in place where the op may run so."""
        tensors = (*self.operands, *self.results)
        touched = self.op.elements_touched() if self.is_static else ()
        limits = touched or (None,) * len(tensors)
        sizes = (each.size if n is None else min(n, each.size) for n, each in zip(limits, tensors, strict=True))
        return sum(size * each.itemsize for size, each in zip(sizes, tensors, strict=True))

    @property
    def is_row_major(self) -> bool:
        """Whether operands and results lie in row-major order."""
        return all(each.encoding is None for each in (*self.operands, *self.results))

    def lies_as(self, row: LayoutRow) -> bool:
        """Whether operands and results lie in the layouts of a row, those of which there is an order."""
        tensors, wanted = (*self.operands, *self.results), (*row.operands, *row.results)
        return all(t.encoding == each or not has_order(t.shape) for t, each in zip(tensors, wanted, strict=True))

    def laid_out(self, row: LayoutRow) -> Site:
        """
        The site with operands and results in the layouts of a row, as far as they have an order; its op is a copy outside of any
        IR.
        """
        operands, results = _with_order(self.operands, row.operands), _with_order(self.results, row.results)
        block = Block(arg_types=[with_encoding(tensor(v), e) for v, e in zip(self.op.operands, operands, strict=True)])
        types = [with_encoding(tensor(v), e) for v, e in zip(self.op.results, results, strict=True)]
        op = type(self.op).create(operands=block.args, result_types=types, properties=self.op.properties)
        return Site(op, _encoded(self.operands, operands), _encoded(self.results, results), self.device)

    @property
    def operations(self) -> int:
        """Multiplications and additions of a product or a convolution; 0 for other ops."""
        if not isinstance(self.op, OpaqueOp):  # pyright: ignore[reportUnnecessaryIsInstance]
            return 0
        op = self.op
        found = op.contraction() or op.window_contraction() or op.weight_gradient() or op.input_gradient()
        return 0 if found is None else estimate(found.operations)

    def product(self) -> tuple[int, int, int]:
        """Rows, columns and depth of a product, of each matrix of a batch. Raises ValueError for another op."""
        found = self.op.contraction() if isinstance(self.op, OpaqueOp) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        if found is None:
            raise ValueError(f"'{self.name}' is no product")
        return found.rows, found.columns, found.depth


@dataclass(frozen=True, slots=True)
class Cost:
    """What a call takes: `call` seconds, and the longer of `flops` at `rate` a second and `nbytes` to and from memory."""

    flops: float = 0.0
    nbytes: float = 0.0
    rate: float = 1.0
    call: float = 0.0

    def seconds(self, machine: Machine) -> float:
        return self.call + max(self.flops / self.rate, machine.move_seconds(self.nbytes))


def tensor_of(value: SSAValue, frozen: bool = False) -> Tensor:
    """A value as implementations see it. Raises VerifyException for one that is no tensor."""
    element = dtype(value)
    return Tensor(shape(value), element.name, element.itemsize, frozen, encoding(value))


def _encoded(tensors: Sequence[Tensor], encodings: Sequence[EncodingPart | None]) -> tuple[Tensor, ...]:
    return tuple(replace(each, encoding=found) for each, found in zip(tensors, encodings, strict=True))


def _with_order(tensors: Sequence[Tensor], encodings: Sequence[EncodingPart | None]) -> list[EncodingPart | None]:
    """The encodings, but those of tensors that lie in every order alike."""
    return [found if has_order(each.shape) else None for each, found in zip(tensors, encodings, strict=True)]
