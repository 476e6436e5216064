"""Random programs of large, odd, single and no elements: over symbols of any range, and each op of the table with neighbours."""

from __future__ import annotations

import random
from math import prod

from graph_op_table import Array
from ir_testing import parse, random_arguments
from op_samples import Sample, positions, random_sample, resized, row_order
from program_generator import Shape, _Writer  # pyright: ignore[reportPrivateUsage]
from sized_programs import SizedWriter
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, SSAValue
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.elementwise.arithmetic import MultiplyOp
from fuse_opt.dialects.graph.elementwise.math import TanhOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.shapes import AnyTensor, dtype, shape, sizes_asked_for, tensor
from fuse_opt.dialects.interfaces.symbols import argument_extents, change_sizes
from fuse_opt.dialects.scalar import ScalarTypeError
from fuse_opt.dialects.types.dtypes import DTYPES, F32, DType, dtype_of
from fuse_opt.dialects.types.extents import evaluate, least, substitute, symbols
from fuse_opt.dialects.types.size import Extent, SizeRefusal, symbol
from fuse_opt.lowering.reference.interpreter import entry_function
from fuse_opt.tools.source.verification import verify

MOST = 1 << 19
"""Elements of the largest tensor of a call."""
EXTENTS = (
    1,
    2,
    3,
    5,
    8,
    16,
    17,
    33,
    47,
    64,
    65,
    127,
    128,
    129,
    257,
    384,
    512,
    513,
    1023,
    1024,
    1031,
    2049,
    4096,
    5003,
    16411,
    65537,
)
"""Powers of two and their neighbours, multiples of vectors, primes."""
_MOST_WORK = 1e8
_ANY = (1 << 31) - 1
_RANGES = ((1, _ANY), (1, _ANY), (0, _ANY), (0, 5000), (2, 4096), (1, 512), (64, 300))
_TABLE = 2
"""One of so many programs is an op of the table."""


def large_program(seed: int) -> ModuleOp:
    """A function whose largest tensors have up to `MOST` elements, at some values of its symbols if it has any."""
    rng = random.Random(f"large {seed}")
    if seed % _TABLE == 0 and (found := _of_table(rng, seed // _TABLE)) is not None:
        return found
    with sizes_asked_for():
        names = ["m", "n", "batch"][: rng.randint(1, 3)]
        writer = LargeWriter(rng, [symbol(name, *rng.choice(_RANGES)) for name in names])
        for _ in range(rng.randint(1, 3)):
            writer.argument(writer.element(), writer.shape())
        wanted = rng.choice([1, 2, 3, 4, 6, 8])
        for _ in range(20 * wanted):
            if len(writer.ops) < wanted:
                writer.step()
        writer.bind()
        verify(module := writer.finish())
    return module


class LargeWriter(SizedWriter):
    """Numbers among extents are any of `EXTENTS`; sizes have no bound but that of a call."""

    def extent(self) -> Extent:
        return self.rng.choice(EXTENTS if self.rng.random() < 0.25 else self._symbols)

    def element(self) -> DType:
        return F32 if self.rng.random() < 0.5 else self.rng.choice(DTYPES)

    def shape(self) -> Shape:
        found = [self.extent() for _ in range(self.rng.choice([1, 2, 2, 2, 3]))]
        return tuple(found) if _smallest(found) <= MOST else tuple(found[:1])  # pyright: ignore[reportReturnType]

    def add(self, op_type: type[GraphOp], *operands: SSAValue, **properties: Attribute) -> SSAValue | None:
        try:
            op = op_type.build_op(*operands, **properties)
            if all(_smallest(shape(result)) <= MOST for result in op.results):
                return self.place(op)
        except (VerifyException, ScalarTypeError, SizeRefusal):
            return None
        op.erase()
        return None

    def freezes(self, value: SSAValue) -> bool:
        return False


def _smallest(extents: Shape | list[Extent]) -> int:
    return prod(max(1, least(n)) for n in extents)


def _of_table(rng: random.Random, turn: int) -> ModuleOp | None:
    """An op on what was computed, and what is computed of its result; None where it stays small or is too much work."""
    number = row_order()[turn % len(row_order())]
    sample, stored = random_sample(rng, number), positions(number)
    tries = (types for _ in range(40) if (types := _large_types(rng, sample, stored)) is not None)
    if (types := next(tries, None)) is None:
        return None
    writer, operands = _Writer(rng, 0), list[SSAValue]()
    for place, type_ in enumerate(types):
        element = dtype_of(type_.element_type)
        assert element is not None
        value = (
            writer.stored(type_, sample.inputs[place])
            if place in stored
            else writer.argument(element, type_.get_shape())
        )
        if place not in stored and element.is_float and rng.random() < 0.3 and not element.storage_only:
            value = _placed(writer, TanhOp, value)
        operands.append(value)
    result = writer.place(sample.op_type.build_op(*operands, **sample.properties))
    if dtype(result).is_float and rng.random() < 0.4 and not dtype(result).storage_only:
        _placed(writer, MultiplyOp, result, result)
    return writer.finish()


def _placed(writer: _Writer, op_type: type[GraphOp], *operands: SSAValue) -> SSAValue:
    return writer.place(op_type.build_op(*operands))


def _large_types(rng: random.Random, sample: Sample, stored: frozenset[int]) -> tuple[AnyTensor, ...] | None:
    drawn = resized(sample, rng, EXTENTS)
    types = tuple(
        old if k in stored else new for k, (old, new) in enumerate(zip(sample.operand_types, drawn, strict=True))
    )
    sizes = [prod(type_.get_shape()) for type_ in types]
    if not sizes or max(sizes) > MOST or sum(sizes) < 1 << 12:
        return None
    try:
        op = sample.build(types)
        op.verify_()
    except (VerifyException, ScalarTypeError, ValueError):
        return None
    made = max(prod(tensor(result).get_shape()) for result in op.results)
    return types if made <= MOST and made * max(max(t.get_shape(), default=1) for t in types) <= _MOST_WORK else None


def calls(text: str, seed: int) -> list[list[Array]]:
    """Arguments at up to four draws of extents, with NaN and infinities for every fourth seed."""
    rng, module = random.Random(f"values {seed}"), parse(text)
    function = entry_function(module)
    found = symbols(extent for extents in argument_extents(function) for extent in extents)
    vectors: list[dict[str, int]] = [] if found else [{}]
    for _ in range(200):
        drawn = {one.name: rng.choice([0, 1, 1, *EXTENTS]) for one in found}
        values = {one.name: min(max(drawn[one.name], one.least), one.most) for one in found}
        if len(vectors) < 4 and values not in vectors and _most_elements(module, values) <= MOST:
            vectors.append(values)
    return [_arguments(text, values, seed) for values in vectors]


def _most_elements(module: ModuleOp, values: dict[str, int]) -> int:
    with sizes_asked_for():
        block = entry_function(module).body.block
        tensors = [*block.args, *(result for op in block.ops for result in op.results)]
        return max(prod(max(evaluate(n, values), 0) for n in shape(value)) for value in tensors)


def _arguments(text: str, values: dict[str, int], seed: int) -> list[Array]:
    change_sizes(entry_function(copy := parse(text)), lambda extent: substitute(extent, values))
    return random_arguments(copy, seed, specials=seed % 4 == 0)
