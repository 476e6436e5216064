"""Random programs over symbols, the same for the same seed: extents that are sizes, in the shapes of all ops that take them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from ir_testing import Array, assert_same_bits, evaluate, parse, random_arguments
from program_generator import Shape, _Writer  # pyright: ignore[reportPrivateUsage]
from sized_windows import WindowSteps, image_symbols
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, SSAValue
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.contractions.matmul import MatmulOp
from fuse_opt.dialects.graph.movement import views
from fuse_opt.dialects.graph.movement.join_split import ConcatOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.properties import bool_value, extents_array, int_array, int_value
from fuse_opt.dialects.interfaces.shapes import dtype, is_static, shape, sizes_asked_for
from fuse_opt.dialects.interfaces.symbols import argument_extents, change_sizes
from fuse_opt.dialects.scalar import ScalarTypeError
from fuse_opt.dialects.types.dtypes import F32, DType
from fuse_opt.dialects.types.extents import is_number, least, most, substitute, symbols
from fuse_opt.dialects.types.size import Extent, SizeRefusal, symbol
from fuse_opt.dialects.types.symbolic_shape import tensor_type
from fuse_opt.lowering.reference.interpreter import entry_function
from fuse_opt.tools.source.verification import verify

MOST_ELEMENTS = 1 << 15
"""Of the largest tensor at the largest values of symbols."""
IMAGES = 3
"""In one of so many programs ops have windows."""
VECTORS = 5
"""Sets of values of symbols that a program is run at."""
_RANGES = ((1, 40), (1, 40), (2, 33), (1, 9), (3, 70))
_END = (1 << 63) - 1


@dataclass(frozen=True)
class SizedSubject:
    """A program over symbols, and for some values of these its arguments and its results before any pass."""

    text: str
    arguments: tuple[list[Array], ...]
    results: tuple[list[Array], ...]

    @staticmethod
    def of(text: str, seed: int) -> SizedSubject:
        """At the least values of symbols, at the largest, and at others of that seed; with NaN and infinities for even seeds."""
        module = parse(text)
        arguments = tuple(_arguments(module, values, seed) for values in _vectors(module, seed))
        return SizedSubject(text, arguments, tuple(evaluate(module, given) for given in arguments))

    def same(self, module: ModuleOp) -> None:
        """Raises AssertionError where a module's results are others, bit by bit."""
        for arguments, results in zip(self.arguments, self.results, strict=True):
            assert_same_bits(evaluate(module, arguments), results)


def sized_program(seed: int, size: int | None = None) -> ModuleOp:
    """
    A function of about `size` ops (4 to 16 when absent) over two or three symbols; in one of `IMAGES` these are the batch and
    the extents of images, and half of the ops have windows of them.
    """
    rng = random.Random(f"sized {seed}")
    names = ["m", "n", "batch"][: rng.choice([2, 2, 3])]
    with sizes_asked_for():
        if seed % IMAGES == IMAGES - 1:
            writer = SizedWriter(rng, image := image_symbols(rng), image)
        else:
            writer = SizedWriter(rng, [symbol(name, *rng.choice(_RANGES)) for name in names])
        for _ in range(rng.randint(1, 3)):
            writer.argument(writer.element(), writer.shape())
        wanted = size if size is not None else rng.choice([4, 6, 8, 12, 16])
        for _ in range(20 * wanted):
            if len(writer.ops) < wanted:
                writer.step()
        writer.bind()
        verify(module := writer.finish())
    return module


def _vectors(module: ModuleOp, seed: int) -> list[dict[str, int]]:
    rng = random.Random(f"values {seed}")
    found = symbols(extent for extents in argument_extents(entry_function(module)) for extent in extents)
    vectors = [{one.name: one.least for one in found}, {one.name: one.most for one in found}]
    while len(vectors) < VECTORS:
        drawn = {one.name: rng.choice([one.least, 16, 17, rng.randint(one.least, one.most)]) for one in found}
        vectors.append({one.name: min(max(drawn[one.name], one.least), one.most) for one in found})
    return vectors


def _arguments(module: ModuleOp, values: dict[str, int], seed: int) -> list[Array]:
    copy = module.clone()
    change_sizes(entry_function(copy), lambda extent: substitute(extent, values))
    return random_arguments(copy, seed, specials=seed % 2 == 0)


class SizedWriter(_Writer):
    """A function under construction, whose extents are symbols, numbers, and sizes that ops make of them."""

    def __init__(self, rng: random.Random, symbols: Sequence[Extent], image: Sequence[Extent] = ()) -> None:
        """With `image`, a batch, a height and a width, half of the steps add convolutions and poolings."""
        super().__init__(rng, 0)
        self._symbols = list(dict.fromkeys(symbols))
        self._windows = WindowSteps(self, image) if image else None

    def bind(self) -> None:
        """An argument more for each symbol that no argument has as an extent."""
        bound = {extent for value in self.block.args for extent in shape(value)}
        for one in self._symbols:
            if one not in bound:
                self.argument(F32, (one,))  # pyright: ignore[reportArgumentType]

    def extent(self) -> Extent:
        return self.rng.choice(self._symbols) if self.rng.random() < 0.6 else self.rng.choice([1, 2, 3, 4, 8, 16])

    def shape(self) -> Shape:
        found = [self.extent() for _ in range(self.rng.choice([1, 1, 2, 2, 2, 3]))]
        return tuple(found) if _largest(found) <= MOST_ELEMENTS else tuple(found[:1])  # pyright: ignore[reportReturnType]

    def argument(self, element: DType, extents: Sequence[int]) -> SSAValue:
        value = self.block.insert_arg(tensor_type(element.attribute, extents), len(self.block.args))
        self.values.append(value)
        return value

    def add(self, op_type: type[GraphOp], *operands: SSAValue, **properties: Attribute) -> SSAValue | None:
        try:
            op = op_type.build_op(*operands, **properties)
        except (VerifyException, ScalarTypeError, SizeRefusal):
            return None
        if any(_largest(shape(result)) > MOST_ELEMENTS or _smallest(shape(result)) < 1 for result in op.results):
            op.erase()
            return None
        return self.place(op)

    def step(self) -> None:
        if self._windows is not None and self.rng.random() < 0.5:
            self._windows.step()
            return
        steps = [self.unary] * 5 + [self.binary] * 7 + [self.view] * 5 + [self.reduction] * 2 + [self.row_pattern]
        others = (
            [self.where, self.astype, self.composite, self.matmul, self.diamond]
            + [self.at_positions] * 3
            + [self.parts] * 2
        )
        self.rng.choice([*steps, *others])()

    def freezes(self, value: SSAValue) -> bool:
        return is_static(value) and super().freezes(value)

    def matmul(self) -> None:
        """Half of the products have columns that may be a size, as they lie or transposed."""
        x = self.pick_float()
        if x is None or len(shape(x)) < 2 or self.rng.random() < 0.5:
            super().matmul()
            return
        inner, columns, turned = shape(x)[-1], self.extent(), self.rng.random() < 0.3
        right = self.argument(dtype(x), [columns, inner] if turned else [inner, columns])  # pyright: ignore[reportArgumentType]
        self.add(MatmulOp, x, right, transpose_rhs=bool_value(turned))

    def view(self) -> None:
        x = self.pick()
        extents = list(shape(x))
        match self.rng.randrange(6):
            case 0:
                self.add(views.ReshapeOp, x, shape=extents_array(self._merged_or_split(extents)))
            case 1:
                axes = list(range(len(extents)))
                self.rng.shuffle(axes)
                self.add(views.PermuteDimsOp, x, axes=int_array(axes))
            case 2:
                wider = [self.extent() if n == 1 else n for n in extents]
                leading = [self.extent()] if self.rng.random() < 0.4 else []
                self.add(views.BroadcastToOp, x, shape=extents_array([*leading, *wider]))  # pyright: ignore[reportArgumentType]
            case 3 | 4:
                self._slice(x)
            case _:
                if extents:
                    same = [v for v in self.values if dtype(v) is dtype(x) and len(shape(v)) == len(extents)]
                    parts = [x, *self.rng.choices(same, k=self.rng.randint(1, 2))]
                    self.add(ConcatOp, *parts, axis=int_value(self.rng.randrange(-len(extents), len(extents))))

    def _merged_or_split(self, extents: list[int]) -> list[int]:
        """Neighbours as one axis, a number as two, an axis of one element more, or all in one row."""
        kind, found = self.rng.randrange(4), list(extents)
        even = [k for k, n in enumerate(extents) if is_number(n) and n % 2 == 0]
        if kind == 0 and len(found) > 1:
            at = self.rng.randrange(len(found) - 1)
            found[at : at + 2] = [found[at] * found[at + 1]]
        elif kind == 1 and even:
            at = self.rng.choice(even)
            found[at : at + 1] = [found[at] // 2, 2]
        elif kind == 2:
            found.insert(self.rng.randint(0, len(found)), 1)
        else:
            total = 1
            for n in extents:
                total = n * total
            found = [total]
        return found

    def _slice(self, x: SSAValue) -> None:
        """Axes of numbers anyhow; of sizes the whole, all but the ends, or some elements that are always there."""
        starts: list[int] = []
        stops: list[int] = []
        for extent in shape(x):
            low = self.rng.choice([0, 0, 1]) if least(extent) > 1 else 0
            ends = [_END, _END, -1] if least(extent) > 2 else [_END]
            starts.append(low)
            stops.append(self.rng.choice([*ends, low + 1]))
        self.add(views.SliceOp, x, starts=int_array(starts), stops=int_array(stops))


def _largest(extents: Sequence[Extent]) -> int:
    found = 1
    for extent in extents:
        found *= most(extent)
    return found


def _smallest(extents: Sequence[Extent]) -> int:
    """The least extent: windows may be larger than the smallest images."""
    return min((least(extent) for extent in extents), default=1)
