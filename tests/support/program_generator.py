"""Random well-typed programs of graph ops, the same for the same seed: what the law tests and fuzzing run passes on.

Elementwise ops and reductions are drawn from the dialect itself, all other ops from the rows of the op table, so a new
record takes part without an entry here.
Shapes are small and odd: 0-d, extents of 1, now and then an empty axis. Values are read several times, some never.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import prod
from typing import cast

from box_programs import parts
from graph_op_table import Array
from narrow_floats import decode
from op_samples import Sample, positions, random_sample, resized, row_order
from position_programs import at_positions
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    ArrayAttr,
    DenseIntOrFPElementsAttr,
    DictionaryAttr,
    FunctionType,
    ModuleOp,
    StringAttr,
    TensorType,
    UnitAttr,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph import GRAPH
from fuse_opt.dialects.graph.bases.elementwise import Binary, Unary
from fuse_opt.dialects.graph.contractions import convolution
from fuse_opt.dialects.graph.contractions import matmul as library
from fuse_opt.dialects.graph.creation.constant import ConstantOp
from fuse_opt.dialects.graph.elementwise.arithmetic import (
    AddOp,
    AstypeOp,
    DivideOp,
    MaximumOp,
    MultiplyOp,
    SubtractOp,
    WhereOp,
)
from fuse_opt.dialects.graph.elementwise.comparison import LessOp
from fuse_opt.dialects.graph.elementwise.math import ErfOp, ExpOp, SinOp, TanhOp
from fuse_opt.dialects.graph.elementwise.smooth_activations import GeluOp, SigmoidOp
from fuse_opt.dialects.graph.movement import views
from fuse_opt.dialects.graph.movement.join_split import ConcatOp
from fuse_opt.dialects.graph.nn import softmax_layer_norm as normalization
from fuse_opt.dialects.graph.reductions import statistics
from fuse_opt.dialects.graph.reductions.reductions import Reduction
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.properties import bool_value, float_value, int_array, int_value
from fuse_opt.dialects.interfaces.shapes import AnyTensor, dtype, shape, tensor
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.dialects.scalar import ScalarTypeError, topological
from fuse_opt.dialects.types.dtypes import (
    BF16,
    BOOL,
    DTYPES,
    F16,
    F32,
    F64,
    I8,
    I32,
    I64,
    U8,
    U32,
    U64,
    DType,
    dtype_of,
)
from fuse_opt.dialects.types.extents import is_decided

Shape = tuple[int, ...]

LARGEST = 2048
"""Elements of the largest tensor."""

LARGEST_STORED = 32
"""Elements of the largest constant that is written out."""

SAMPLED = 2
"""Rows of the op table of which a program has at least an op; the next program begins with the rows after them."""

_RECORDS = [op for op in GRAPH.operations if issubclass(op, GraphOp)]
_UNARY = [op for op in _RECORDS if issubclass(op, Unary) and "dtype" not in op.get_irdl_definition().properties]
_BINARY = [op for op in _RECORDS if issubclass(op, Binary)]
_REDUCTIONS = [op for op in _RECORDS if issubclass(op, Reduction)]
_CALM = [TanhOp, SigmoidOp, GeluOp, ErfOp, SinOp]
_DTYPES = [F32] * 14 + [F64] * 2 + [F16] * 2 + [BF16] * 2 + [I32] * 2 + [I8, U8, U32, U64, I64, BOOL]
_EXTENTS = [1, 1, 2, 3, 4, 5, 7, 8, 16]
_DENSE_SHAPES: list[tuple[int, ...]] = [
    (4, 8),
    (4, 8),
    (4, 8),
    (4, 1),
    (8,),
    (8, 8),
    (1, 8),
    (2, 4, 8),
    (3, 2, 4, 8),
    (),
]


def random_program(seed: int, size: int | None = None, directives: bool = True) -> ModuleOp:
    """A module of one function `main` with about `size` ops (5 to 60 when absent)."""
    rng = random.Random(seed)
    writer = _Writer(rng, SAMPLED * seed)
    for _ in range(rng.randint(1, 4)):
        writer.argument(writer.element(), writer.shape())
    wanted = size if size is not None else rng.choice([5, 8, 12, 20, 30, 40, 60])
    while len(writer.ops) < wanted:
        writer.step()
    while writer.next_row < SAMPLED * (seed + 1):
        writer.sampled()
    if directives and rng.random() < 0.25:
        for op in rng.sample(writer.ops, min(2, len(writer.ops))):
            op.attributes[rng.choice(["no_fuse", "no_inplace", "keep_live"])] = UnitAttr()
    return writer.finish()


def dense_program(seed: int, size: int | None = None) -> ModuleOp:
    """
    As `random_program`, of f32 ops that fuse: few shapes, values read by several ops, reductions along every axis, views,
    and a matrix product now and then that keeps the ops around it apart.
    """
    rng = random.Random(f"dense {seed}")
    writer = _DenseWriter(rng, 0)
    for _ in range(rng.randint(1, 3)):
        writer.argument(F32, writer.shape())
    wanted = size if size is not None else rng.choice([8, 12, 20, 30, 40])
    while len(writer.ops) < wanted:
        writer.step()
    return writer.finish()


def narrow_program(seed: int, size: int | None = None) -> ModuleOp:
    """As `random_program`, of small integers and truth values of few elements, many of one: most ops give back an operand."""
    rng = random.Random(f"narrow {seed}")
    writer = _NarrowWriter(rng, 0)
    for _ in range(rng.randint(1, 2)):
        writer.argument(writer.element(), writer.shape())
    wanted = size if size is not None else rng.choice([5, 10, 15, 20])
    while len(writer.ops) < wanted:
        writer.step()
    return writer.finish()


def shuffled(module: ModuleOp, seed: int) -> ModuleOp:
    """A copy of the module with the ops of its function in another topological order, and names by the old one."""
    rng = random.Random(seed)
    copy = module.clone()
    (function,) = (op for op in copy.ops if isinstance(op, FuncOp))
    block = function.body.block
    ops = list(block.ops)
    last = ops.pop()
    waiting = {op: {value.owner for value in op.operands if isinstance(value.owner, Operation)} for op in ops}
    for op in (*ops, last):
        op.detach()
    placed: set[Operation] = set()
    while waiting:
        ready = [op for op, needed in waiting.items() if needed <= placed]
        op = rng.choice(ready)
        del waiting[op]
        placed.add(op)
        block.add_op(op)
    block.add_op(last)
    return copy


def with_unknown_extents(module: ModuleOp, seed: int) -> bool:
    """Makes some extents of arguments `?` and infers all types anew; whether every op of the program allows that."""
    rng = random.Random(f"unknown {seed}")
    (function,) = (op for op in module.ops if isinstance(op, FuncOp))
    block = function.body.block
    for value in block.args:
        extents = [DYNAMIC_INDEX if rng.random() < 0.3 else n for n in shape(value)]
        Rewriter.replace_value_with_new_type(value, TensorType(tensor(value).element_type, extents))
    for op in block.ops:
        if isinstance(op, GraphOp):
            try:
                types = op.infer_types()
            except VerifyException:
                return False
            for result, type_ in zip(list(op.results), types, strict=True):
                Rewriter.replace_value_with_new_type(result, type_)
    function.update_function_type()
    return True


class _Writer:
    """A function under construction."""

    def __init__(self, rng: random.Random, first_row: int) -> None:
        self.rng = rng
        self.next_row = first_row
        self.block = Block()
        self.ops: list[GraphOp] = []
        self.values: list[SSAValue] = []

    def element(self) -> DType:
        """Mostly f32; one in six of all types alike."""
        return self.rng.choice(_DTYPES if self.rng.random() < 5 / 6 else DTYPES)

    def shape(self) -> Shape:
        rank = self.rng.choice([0, 1, 1, 2, 2, 2, 3, 3, 4])
        extents = [self.rng.choice(_EXTENTS) for _ in range(rank)]
        if extents and self.rng.random() < 0.02:
            extents[self.rng.randrange(rank)] = 0
        while prod(extents) > LARGEST:
            extents[extents.index(max(extents))] = 1
        return tuple(extents)

    def argument(self, element: DType, extents: Sequence[int]) -> SSAValue:
        value = self.block.insert_arg(TensorType(element.attribute, extents), len(self.block.args))
        self.values.append(value)
        return value

    def add(self, op_type: type[GraphOp], *operands: SSAValue, **properties: Attribute) -> SSAValue | None:
        """The result of a new op, or None when the op does not accept the operands."""
        try:
            op = op_type.build_op(*operands, **properties)
        except (VerifyException, ScalarTypeError):
            return None
        if any(prod(shape(result)) > LARGEST for result in op.results):
            op.erase()
            return None
        return self.place(op)

    def place(self, op: GraphOp) -> SSAValue:
        """The op behind all others; it takes no sign from a value whose NaN may have either."""
        if _sees_sign_of_nan(op):
            *others, signs = op.operands
            op.operands = [*others, self.argument(dtype(signs), shape(signs))]
        op.verify_()
        self.block.add_op(op)
        self.ops.append(op)
        self.values.extend(op.results)
        return op.results[0]

    def pick(self) -> SSAValue:
        """A value: often a recent one, so that chains grow, else any, so that they meet."""
        if self.rng.random() < 0.6:
            return self.values[-self.rng.randint(1, min(4, len(self.values)))]
        return self.rng.choice(self.values)

    def pick_float(self) -> SSAValue | None:
        found = [value for value in self.values if dtype(value).is_float]
        return self.rng.choice(found[-8:]) if found else None

    def partner(self, value: SSAValue) -> SSAValue:
        """A value of the same element type that broadcasts with `value`: one there is, a constant, or an argument."""
        found = [v for v in self.values if dtype(v) is dtype(value) and _broadcasts(shape(v), shape(value))]
        choice = self.rng.random()
        if choice < 0.65 and len(found) > 1:
            return self.rng.choice(found)
        if choice < 0.8:
            return self.constant(dtype(value), ())
        extents = [n if self.rng.random() < 0.7 else 1 for n in shape(value)]
        extents = extents[self.rng.randint(0, len(extents)) :] if self.rng.random() < 0.4 else extents
        return self.argument(dtype(value), extents)

    def constant(self, element: DType, extents: Shape, stored: bool = False) -> SSAValue:
        count = prod(extents) if stored and prod(extents) <= LARGEST_STORED else 1
        values = [self.number(element) for _ in range(count)]
        type_ = cast(TensorType[AnyFloat], TensorType(element.attribute, extents))
        value = self.add(ConstantOp, value=DenseIntOrFPElementsAttr.from_list(type_, values))
        assert value is not None
        return value

    def number(self, element: DType) -> float | int:
        if element is BOOL:
            return self.rng.randint(0, 1)
        if not element.is_float:
            return self.rng.choice([0, 1, 2, 3, 7, 100])
        return self.rng.choice([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.25, -1.5, 0.125])

    def step(self) -> None:
        steps = (
            [self.unary] * 5
            + [self.binary] * 7
            + [self.where, self.astype, self.constants, self.view, self.view, self.view, self.reduction, self.reduction]
            + [self.composite, self.matmul, self.row_pattern, self.diamond]
            + [self.at_positions] * 3
            + [self.parts] * 2
            + [self.sampled] * 8
        )
        self.rng.choice(steps)()

    def unary(self) -> None:
        x = self.pick()
        op_type = self.rng.choice(_CALM if dtype(x).is_float and self.rng.random() < 0.4 else _UNARY)
        properties: dict[str, Attribute] = {}
        if op_type is GeluOp and self.rng.random() < 0.5:
            properties["approximate"] = StringAttr("tanh")
        self.add(op_type, x, **properties)

    def binary(self) -> None:
        x = self.pick()
        y = self.partner(x)
        operands = (x, y) if self.rng.random() < 0.5 else (y, x)
        op_type = self.rng.choice([AddOp, MultiplyOp, SubtractOp])
        self.add(self.rng.choice(_BINARY) if self.rng.random() < 0.5 else op_type, *operands)

    def where(self) -> None:
        x = self.pick()
        y = self.partner(x)
        condition = self.add(LessOp, x, y)
        if condition is not None:
            self.add(WhereOp, condition, x, y)

    def astype(self) -> None:
        self.add(AstypeOp, self.pick(), dtype=self.rng.choice([*_DTYPES, *DTYPES]).attribute)

    def constants(self) -> None:
        element = self.element()
        self.constant(element, self.shape(), stored=self.rng.random() < 0.5)

    def view(self) -> None:
        x = self.pick()
        extents = shape(x)
        match self.rng.randrange(6):
            case 0:
                self.add(views.ReshapeOp, x, shape=int_array(self._factors(prod(extents))))
            case 1:
                axes = list(range(len(extents)))
                self.rng.shuffle(axes)
                self.add(views.PermuteDimsOp, x, axes=int_array(axes))
            case 2:
                wider = [self.rng.choice(_EXTENTS) if n == 1 else n for n in extents]
                leading = [self.rng.choice(_EXTENTS)] if self.rng.random() < 0.4 else []
                self.add(views.BroadcastToOp, x, shape=int_array([*leading, *wider]))
            case 3 | 4:
                self._slice(x)
            case _:
                same = [v for v in self.values if dtype(v) is dtype(x) and len(shape(v)) == len(extents)]
                if extents:
                    parts = [x, *self.rng.choices(same, k=self.rng.randint(1, 2))]
                    self.add(ConcatOp, *parts, axis=int_value(self.rng.randrange(-len(extents), len(extents))))

    def _factors(self, count: int) -> list[int]:
        """Extents of a random shape with so many elements."""
        extents: list[int] = []
        while count > 1 and len(extents) < 3:
            divisors = [n for n in range(1, count + 1) if count % n == 0]
            extents.append(self.rng.choice(divisors))
            count //= extents[-1]
        extents += [count] if count != 1 or self.rng.random() < 0.2 else []
        self.rng.shuffle(extents)
        return extents

    def _slice(self, x: SSAValue) -> None:
        starts: list[int] = []
        stops: list[int] = []
        steps: list[int] = []
        for extent in shape(x):
            step = self.rng.choice([1, 1, 1, 2, 3, -1, -2])
            low = self.rng.randint(0, max(extent - 1, 0))
            high = (
                self.rng.randint(low, extent)
                if self.rng.random() < 0.05
                else self.rng.randint(min(low + 1, extent), extent)
            )
            if step > 0:
                start, stop = low, high
                if self.rng.random() < 0.3:
                    start, stop = start - extent, stop if stop == extent else stop - extent
            else:
                start, stop = high - 1, low - 1 if low else -extent - 1
            starts.append(start)
            stops.append(stop)
            steps.append(step)
        self.add(views.SliceOp, x, starts=int_array(starts), stops=int_array(stops), steps=int_array(steps))

    def _axes(self, rank: int) -> list[int]:
        axes = [axis for axis in range(rank) if self.rng.random() < 0.5] or ([rank - 1] if rank else [])
        return [axis - rank if self.rng.random() < 0.3 else axis for axis in axes]

    def reduction(self) -> None:
        x = self.pick()
        properties: dict[str, Attribute] = {"keepdims": bool_value(self.rng.random() < 0.6)}
        if self.rng.random() < 0.8:
            properties["axes"] = int_array(self._axes(len(shape(x))))
        result = self.add(self.rng.choice(_REDUCTIONS), x, **properties)
        if result is not None and self.rng.random() < 0.5 and _broadcasts(shape(result), shape(x)):
            self.add(self.rng.choice([SubtractOp, MultiplyOp]), x, result)

    def composite(self) -> None:
        x = self.pick_float()
        if x is None or not shape(x):
            return
        rank = len(shape(x))
        axis = self.rng.randrange(-rank, rank)
        element, extents = dtype(x), shape(x)
        match self.rng.randrange(5):
            case 0:
                self.add(normalization.SoftmaxOp, x, axis=int_value(axis))
            case 1:
                row = extents[axis % rank :]
                scale, bias = self.argument(element, row), self.argument(element, row)
                self.add(normalization.LayerNormOp, x, scale, bias, axis=int_value(axis), epsilon=float_value(1e-3))
            case 2:
                channels = [self.argument(element, [extents[axis]]) for _ in range(4)]
                self.add(normalization.BatchNormOp, x, *channels, axis=int_value(axis))
            case 3:
                self.add(statistics.MeanOp, x, axes=int_array(self._axes(rank)), keepdims=bool_value(True))
            case _:
                self.add(statistics.VarOp, x, axes=int_array(self._axes(rank)))

    def matmul(self) -> None:
        x = self.pick_float()
        if x is None or not shape(x):
            return
        if len(shape(x)) == 3 and self.rng.random() < 0.3:
            weight = self.argument(dtype(x), [4, shape(x)[1], 1])
            self.add(convolution.ConvOp, x, weight)
            return
        inner, columns = shape(x)[-1], self.rng.choice([[], [1], [3], [8]])
        self.add(library.MatmulOp, x, self.argument(dtype(x), [inner, *columns]))

    def row_pattern(self) -> None:
        """Softmax written out, or a value less its mean: several reductions and broadcasts of one row."""
        x = self.pick_float()
        if x is None or not shape(x):
            return
        last = {"axes": int_array([-1]), "keepdims": bool_value(True)}
        reductions = {op.name: op for op in _REDUCTIONS}
        largest = self.add(reductions["graph.max"], x, **last)
        shifted = None if largest is None else self.add(SubtractOp, x, largest)
        weights = None if shifted is None else self.add(ExpOp, shifted)
        total = None if weights is None else self.add(reductions["graph.sum"], weights, **last)
        if weights is not None and total is not None:
            self.add(DivideOp, weights, total)

    def diamond(self) -> None:
        """One value read by two ops whose results meet again, past an opaque op now and then."""
        x = self.pick()
        left = self.add(self.rng.choice(_UNARY), x)
        right: SSAValue | None = x
        if dtype(x).is_float and len(shape(x)) >= 2 and shape(x)[-1] == shape(x)[-2] and self.rng.random() < 0.5:
            right = self.add(library.MatmulOp, x, x)
        if left is not None and right is not None:
            self.add(MaximumOp, left, right)

    def at_positions(self) -> None:
        at_positions(self)

    def parts(self) -> None:
        parts(self)

    def sampled(self) -> None:
        """The next row's op, as in a case of it: on the type of a value there is, of other extents if it can."""
        row = row_order()[self.next_row % len(row_order())]
        self.next_row += 1
        sample = random_sample(self.rng, row, dtype(self.pick()).name)
        stored = positions(row)
        types = sample.operand_types
        if not stored and self.rng.random() < 0.6:
            types = self._verified(sample, resized(sample, self.rng, _EXTENTS))
        operands = [
            self.stored(type_, sample.inputs[k]) if k in stored else self.of_type(type_)
            for k, type_ in enumerate(types)
        ]
        self.add(sample.op_type, *operands, **sample.properties)

    def _verified(self, sample: Sample, types: tuple[AnyTensor, ...]) -> tuple[AnyTensor, ...]:
        """The types where the sample's op accepts them, else the sample's own."""
        try:
            op = sample.build(types)
        except (VerifyException, ScalarTypeError):
            return sample.operand_types
        sizes = [prod(value.get_shape()) for value in (*types, *map(tensor, op.results))]
        return types if max(sizes) <= LARGEST else sample.operand_types

    def stored(self, type_: AnyTensor, array: Array) -> SSAValue:
        """A constant of these elements."""
        wanted = cast(TensorType[AnyFloat], type_)
        values = DenseIntOrFPElementsAttr.from_list(wanted, decode(array).reshape(-1).tolist())
        result = self.add(ConstantOp, value=values)
        assert result is not None
        return result

    def of_type(self, type_: AnyTensor) -> SSAValue:
        """A value of this type: one there is, one made of the elements of another, or an argument."""
        extents = type_.get_shape()
        same = [value for value in self.values if tensor(value).element_type == type_.element_type]
        fitting = [value for value in same if shape(value) == extents]
        if fitting and self.rng.random() < 0.8:
            return self.rng.choice(fitting)
        larger = [value for value in same if _is_larger(prod(shape(value)), prod(extents))]
        if larger and self.rng.random() < 0.7:
            return self._part(self.rng.choice(larger[-6:]), extents)
        single = [value for value in same if prod(shape(value)) == 1 and len(shape(value)) <= len(extents)]
        if single and prod(extents) <= LARGEST and self.rng.random() < 0.3:
            return self._made(views.BroadcastToOp, self.rng.choice(single), shape=int_array(extents))
        element = dtype_of(type_.element_type)
        assert element is not None
        return self.argument(element, extents)

    def _part(self, x: SSAValue, extents: Sequence[int]) -> SSAValue:
        """The first elements of a value in this shape."""
        count = prod(extents)
        if prod(shape(x)) != count:
            x = self._made(views.ReshapeOp, x, shape=int_array([-1])) if len(shape(x)) != 1 else x
            x = self._made(views.SliceOp, x, starts=int_array([0]), stops=int_array([count]))
        return x if shape(x) == tuple(extents) else self._made(views.ReshapeOp, x, shape=int_array(extents))

    def _made(self, op_type: type[GraphOp], x: SSAValue, **properties: Attribute) -> SSAValue:
        result = self.add(op_type, x, **properties)
        assert result is not None
        return result

    def freezes(self, value: SSAValue) -> bool:
        """Whether an argument is frozen, where it is not donated."""
        return self.rng.random() < 0.4

    def finish(self) -> ModuleOp:
        results = [value for value in self.values if not value.uses and self.rng.random() < 0.8]
        results = results[-6:] or [self.values[-1]]
        if self.rng.random() < 0.3:
            results.append(self.rng.choice(self.values))
        self.block.add_op(ReturnOp(*results))
        types = FunctionType.from_lists([value.type for value in self.block.args], [value.type for value in results])
        donated = [self.rng.random() < 0.3 for _ in self.block.args]
        frozen = [not gone and self.freezes(v) for v, gone in zip(self.block.args, donated, strict=True)]
        marks = [["graph.donated"] * d + ["graph.frozen"] * f for d, f in zip(donated, frozen, strict=True)]
        attributes = ArrayAttr([DictionaryAttr(dict.fromkeys(names, UnitAttr())) for names in marks])
        return ModuleOp([FuncOp("main", types, Region(self.block), arg_attrs=attributes)])


def _is_larger(count: int, wanted: int) -> bool:
    """Whether the first elements of so many are those that are wanted, whatever sizes are."""
    return is_decided(lambda: wanted <= count <= LARGEST)


class _DenseWriter(_Writer):
    """A function whose ops mostly may share a kernel."""

    def shape(self) -> Shape:
        return self.rng.choice(_DENSE_SHAPES)

    def pick(self) -> SSAValue:
        """A value: half of the time one of the last eight, floats alone."""
        found = [value for value in self.values if dtype(value) is F32]
        return self.rng.choice(found[-8:] if self.rng.random() < 0.5 else found)

    def unary(self) -> None:
        self.add(self.rng.choice(_CALM), self.pick())

    def step(self) -> None:
        steps = [self.unary] * 5 + [self.binary] * 8 + [self.reduction] * 3 + [self.siblings] * 2
        others = (
            [self.view, self.where, self.matmul, self.row_pattern, self.diamond]
            + [self.at_positions] * 4
            + [self.parts] * 2
        )
        self.rng.choice([*steps, *others])()

    def siblings(self) -> None:
        """Ops that read one value, and no other op that joins them."""
        x = self.pick()
        for _ in range(self.rng.randint(2, 3)):
            self.add(self.rng.choice(_CALM), x)

    def reduction(self) -> None:
        """Along any axes, of any rank, read together with what was reduced."""
        x = self.pick()
        axes = [axis for axis in range(len(shape(x))) if self.rng.random() < 0.5]
        op_type = self.rng.choice([op for op in _REDUCTIONS if op.name in ("graph.sum", "graph.max", "graph.mean")])
        result = self.add(op_type, x, axes=int_array(axes), keepdims=bool_value(self.rng.random() < 0.8))
        if result is not None and self.rng.random() < 0.6 and _broadcasts(shape(result), shape(x)):
            self.add(self.rng.choice([SubtractOp, MultiplyOp]), x, result)


class _NarrowWriter(_Writer):
    """A function of integers, most of them of one or two bytes or a bit."""

    def element(self) -> DType:
        whole = [element for element in DTYPES if not element.is_float]
        return self.rng.choice([*whole, *(element for element in whole if element.bits <= 16)])

    def shape(self) -> Shape:
        return self.rng.choice([(), (), (), (1,), (3,), (1, 3)])

    def step(self) -> None:
        steps = [
            self.unary,
            self.binary,
            self.binary,
            self.reduction,
            self.reduction,
            self.view,
            self.where,
            self.constants,
            self.at_positions,
            self.parts,
        ]
        self.rng.choice(steps)()


def _sees_sign_of_nan(op: GraphOp) -> bool:
    """Whether the op takes signs or bits from its last operand, which was computed: no backend promises those of a NaN."""
    if not isinstance(op, StructuredOp) or not op.operands or isinstance(op.operands[-1], BlockArgument):
        return False
    words = topological(op.body())
    return any(
        node.function == "copysign" or (node.function == "bitcast" and node.args[0].dtype.is_float) for node in words
    )


def _broadcasts(a: Shape, b: Shape) -> bool:
    return all(1 in (n, m) or n == m for n, m in zip(reversed(a), reversed(b), strict=False))
