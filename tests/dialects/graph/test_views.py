"""Views and movement: what becomes of chains of them, of unknown extents, and in kernels together with other ops."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import pytest
from draws import scaled
from ir_testing import apply, assert_same_bits, evaluate, graph_ops, op_names, parse, random_arguments, text_of
from xdsl.dialects.builtin import FunctionType, ModuleOp, StringAttr, TensorType, f32, i64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Region, SSAValue

import fuse_opt
from fuse_opt.dialects.graph.creation.filled import IotaOp
from fuse_opt.dialects.graph.creation.random import RandomUniformOp
from fuse_opt.dialects.graph.elementwise.arithmetic import AddOp, NegativeOp
from fuse_opt.dialects.graph.movement.join_split import ConcatOp, SplitOp, StackOp, UnstackOp
from fuse_opt.dialects.graph.movement.pad_roll_tile import DiagonalOp, PadOp, RepeatOp, RollOp, TileOp, TrilOp, TriuOp
from fuse_opt.dialects.graph.movement.slice_update import SelectScatterOp, SliceScatterOp
from fuse_opt.dialects.graph.movement.views import ExpandDimsOp, FlipOp, PermuteDimsOp, ReshapeOp, SliceOp
from fuse_opt.dialects.graph.reductions.reductions import SumOp
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.properties import int_array, int_value
from fuse_opt.dialects.interfaces.shapes import shape
from fuse_opt.dialects.interfaces.structured_op import FusionKind, StructuredOp
from fuse_opt.dialects.types.index_expr import dimensions

SMALL = "{axes = array<i64: 0>}"


def line_of(op: str, source: str, result: str, name: str = "%r", operand: str = "%x") -> str:
    head, _, attributes = op.partition(" ")
    return f"  {name} = graph.{head} {operand} {attributes} : (tensor<{source}xf32>) -> tensor<{result}xf32>"


def simplified(source: str, *steps: tuple[str, str]) -> list[str]:
    """What canonicalize leaves of a chain: each step is an op with attributes, and the extents of its result."""
    lines: list[str] = []
    before, name = source, "%x"
    for number, (op, after) in enumerate(steps):
        lines.append(line_of(op, before, after, f"%{number}", name))
        before, name = after, f"%{number}"
    body = "\n".join(lines)
    end = f"  func.return {name} : tensor<{before}xf32>\n}}"
    text = f"func.func @main(%x: tensor<{source}xf32>) -> tensor<{before}xf32> {{\n{body}\n{end}"
    original, module = parse(text), apply(parse(text), "canonicalize,dce")
    if "?" not in text:
        arguments = random_arguments(original, 1)
        assert_same_bits(evaluate(module, arguments), evaluate(original, arguments))
    return op_names(graph_ops(module))


UNSQUEEZE = "expand_dims {axis = 1 : i64}"
FIRST = "slice {starts = array<i64: 1, 0>, stops = array<i64: 4, 6>, steps = array<i64: 1, 2>}"
SECOND = "slice {starts = array<i64: 2, 1>, stops = array<i64: -9, 3>, steps = array<i64: -2, 1>}"


def test_views_of_views_are_one() -> None:
    assert simplified("4x6", (UNSQUEEZE, "4x1x6"), ("squeeze", "4x6")) == []
    assert simplified("4x6", (UNSQUEEZE, "4x1x6"), ("reshape {shape = array<i64: -1>}", "24")) == ["reshape"]
    assert simplified("4x1x6", ("permute_dims {axes = array<i64: 1, 0, 2>}", "1x4x6")) == ["reshape"]
    assert simplified("4x6", ("permute_dims {axes = array<i64: 1, 0>}", "6x4")) == ["permute_dims"]
    assert simplified("4x6", (FIRST, "3x3"), (SECOND, "2x2")) == ["slice"]
    assert simplified("4x6", ("flip", "4x6"), (f"flip {SMALL}", "4x6")) == ["slice"]
    assert simplified("4x6", ("flip", "4x6"), ("flip", "4x6")) == []
    wide = [
        ("broadcast_to {shape = array<i64: 4, 6>}", "4x6"),
        ("broadcast_to {shape = array<i64: 2, -1, -1>}", "2x4x6"),
    ]
    assert simplified("4x1", *wide) == ["broadcast_to"]


def test_what_moves_nothing_is_nothing() -> None:
    for op in (
        "slice {starts = array<i64: 0, 0>, stops = array<i64: 99, 6>}",
        "roll {shifts = array<i64: 4, 0>, axes = array<i64: 0, 1>}",
        "tile {repeats = array<i64: 1, 1>}",
        "repeat {repeats = 1 : i64, axis = 0 : i64}",
        "pad {pads = array<i64: 0, 0, 0, 0>}",
        'pad {pads = array<i64: 0, 0, 0, 0>, mode = "reflect"}',
        "flip {axes = array<i64>}",
        "tril {k = 5 : i64}",
        "triu {k = -3 : i64}",
        "concat",
        "reshape {shape = array<i64: 4, -1>}",
    ):
        assert simplified("4x6", (op, "4x6")) == [], op


UNKNOWN = [
    ("?x6", "slice {starts = array<i64: 0, 1>, stops = array<i64: 9223372036854775807, 3>}", "?x2"),
    ("?x6", "slice {starts = array<i64: -2, 0>, stops = array<i64: 9, 6>}", "?x6"),
    ("?x6", "flip", "?x6"),
    ("?x6", "permute_dims {axes = array<i64: -1, 0>}", "6x?"),
    ("?x6", UNSQUEEZE, "?x1x6"),
    ("?x1", "squeeze {axes = array<i64: 1>}", "?"),
    ("?x6", "reshape {shape = array<i64: -1, 2, 3>}", "?x2x3"),
    ("?x6", f"reshape {{shape = array<i64: 3, {-(2**63)}>}}", "3x?"),
    ("?x1", "broadcast_to {shape = array<i64: 5, -1, 6>}", "5x?x6"),
    ("?x6", "broadcast_to {shape = array<i64: 4, 6>}", "4x6"),
    ("?x6", "concat {axis = 1 : i64}", "?x6"),
    ("?x6", "stack {axis = 1 : i64}", "?x1x6"),
    ("?x6", "split {axis = 1 : i64, parts = 1 : i64}", "?x6"),
    ("?x6", "split {sizes = array<i64: 4>}", "4x6"),
    ("?x6", "select {axis = 1 : i64, index = 3 : i64}", "?"),
    ("?x1", "unstack {axis = 1 : i64}", "?"),
    ("?x6", "pad {pads = array<i64: 0, 1, 0, 1>}", "?x8"),
    ("?x6", 'pad {pads = array<i64: 1, 0, 0, 0>, mode = "reflect"}', "?x6"),
    ("?x6", "roll {shifts = array<i64: 1>, axes = array<i64: 0>}", "?x6"),
    ("?x6", "roll {shifts = array<i64: 1>}", "?x6"),
    ("?x6", "tile {repeats = array<i64: 2, 2>}", "?x12"),
    ("?x6", "repeat {repeats = 2 : i64}", "?"),
    ("?x6", "repeat {repeats = 2 : i64, axis = 1 : i64}", "?x12"),
    ("?x6x6", "diagonal", "?x6"),
    ("?x6", "diagonal", "?"),
    ("?x6", "tril", "?x6"),
    ("?x6", "triu {k = 1 : i64}", "?x6"),
]


@pytest.mark.parametrize(("source", "op", "result"), UNKNOWN)
def test_unknown_extents_are_carried(source: str, op: str, result: str) -> None:
    """The type that is inferred is the one given; passes that need extents leave the op alone."""
    text = f"func.func @main(%x: tensor<{source}xf32>) -> tensor<{result}xf32> {{\n{line_of(op, source, result)}\n"
    module = parse(f"{text}  func.return %r : tensor<{result}xf32>\n}}")
    (found,) = graph_ops(module)
    assert found.infer_types()[0] == found.results[0].type
    apply(module, "canonicalize,cse,fuse-injective,fuse-elementwise,fuse-row,wrap-kernels")
    assert text_of(parse(text_of(module))) == text_of(module)


def test_fusion_kinds() -> None:
    block = Block(arg_types=[TensorType(f32, [4, 4]), TensorType(i64, [])])
    x, offset = block.args
    kinds = {
        FusionKind.ELEMENTWISE: [TrilOp.build_op(x), iota((4, 4)), RollOp.build_op(x, shifts=int_array([0]))],
        FusionKind.BROADCAST: [random_numbers((4, 4), offset)],
        FusionKind.INJECTIVE: [
            FlipOp.build_op(x),
            TileOp.build_op(x, repeats=int_array([2, 1])),
            ConcatOp.build_op(x, x),
            PadOp.build_op(x, pads=int_array([1, 0, 0, 0])),
        ],
    }
    for kind, ops in kinds.items():
        for op in ops:
            assert isinstance(op, StructuredOp)
            assert op.fusion_kind() is kind, op.name


def iota(extents: Sequence[int]) -> IotaOp:
    return IotaOp.build_op(shape=int_array(extents), axis=int_value(len(extents) - 1), dtype=f32)


def random_numbers(extents: Sequence[int], *offset: SSAValue) -> RandomUniformOp:
    return RandomUniformOp.build_op(*offset, shape=int_array(extents), seed=int_value(3), dtype=f32)


Step = Callable[[random.Random, GraphBuilder, SSAValue], SSAValue]


def _axis(rng: random.Random, x: SSAValue) -> int:
    return rng.randrange(len(shape(x)))


def _limits(rng: random.Random, extents: Sequence[int]) -> dict[str, Attribute]:
    """Any slice, now and then an empty one."""
    names = ("starts", "stops", "steps")
    values = [(rng.randint(-n - 1, n), rng.randint(-n - 1, n + 1), rng.choice([-2, -1, 1, 1, 2])) for n in extents]
    for axis, n in enumerate(extents):
        empty = not range(*slice(*values[axis]).indices(n))
        if rng.random() < (0.95 if empty else 0.5):
            values[axis] = (0, n, 1)
    return {name: int_array([v[k] for v in values]) for k, name in enumerate(names)}


def _pad(rng: random.Random, b: GraphBuilder, x: SSAValue) -> SSAValue:
    pads = [rng.choice([0, 0, 1, 2, -1]) for _ in range(2 * len(shape(x)))]
    small = min(shape(x), default=3) < 3
    properties: dict[str, Attribute] = {"pads": int_array([abs(p) for p in pads] if small else pads)}
    if 0 not in shape(x):
        properties["mode"] = StringAttr(rng.choice(["constant", "edge", "reflect", "wrap"]))
    return b(PadOp, x, **properties)


def _slice_scatter(rng: random.Random, b: GraphBuilder, x: SSAValue) -> SSAValue:
    limits = _limits(rng, shape(x))
    return b(SliceScatterOp, x, b(NegativeOp, b(SliceOp, x, **limits)), **limits)


def _concat_parts(rng: random.Random, b: GraphBuilder, x: SSAValue) -> SSAValue:
    axis = _axis(rng, x)
    cut = rng.randint(0, shape(x)[axis])
    parts = b.all(SplitOp, x, axis=int_value(axis), sizes=int_array([cut, shape(x)[axis] - cut]))
    return b(ConcatOp, *parts[::-1], x, axis=int_value(axis))


def _position(rng: random.Random, b: GraphBuilder, x: SSAValue) -> SSAValue:
    op = rng.choice([iota, random_numbers])(shape(x))
    b.ops.append(op)
    return b(AddOp, x, op.results[0])


def _set_row(rng: random.Random, b: GraphBuilder, x: SSAValue) -> SSAValue:
    axis = _axis(rng, x)
    rows = b.all(UnstackOp, x, axis=int_value(axis))
    return b(SelectScatterOp, x, rows[0], axis=int_value(axis), index=int_value(-1)) if rows else x


def _restacked(rng: random.Random, b: GraphBuilder, x: SSAValue) -> SSAValue:
    rows = b.all(UnstackOp, x, axis=int_value(_axis(rng, x)))
    return b(StackOp, *rows, rows[0], axis=int_value(rng.randrange(len(shape(x))))) if rows else x


STEPS: list[Step] = [
    _pad,
    _slice_scatter,
    _concat_parts,
    _position,
    _set_row,
    _restacked,
    lambda rng, b, x: b(SliceOp, x, **_limits(rng, shape(x))),
    lambda rng, b, x: b(FlipOp, x, axes=int_array([_axis(rng, x)])),
    lambda rng, b, x: b(RollOp, x, shifts=int_array([rng.randint(-9, 9)]), axes=int_array([_axis(rng, x)])),
    lambda rng, b, x: b(RollOp, x, shifts=int_array([rng.randint(-9, 9)])),
    lambda rng, b, x: b(TileOp, x, repeats=int_array([rng.choice([1, 2])] * len(shape(x)))),
    lambda rng, b, x: b(RepeatOp, x, repeats=int_value(rng.choice([1, 2, 3])), axis=int_value(_axis(rng, x))),
    lambda rng, b, x: b(DiagonalOp, x, offset=int_value(rng.randint(-2, 2))) if len(shape(x)) > 1 else x,
    lambda rng, b, x: b(rng.choice([TrilOp, TriuOp]), x, k=int_value(rng.randint(-2, 2))) if len(shape(x)) > 1 else x,
    lambda rng, b, x: b(PermuteDimsOp, x, axes=int_array(rng.sample(range(len(shape(x))), len(shape(x))))),
    lambda rng, b, x: b(ExpandDimsOp, x, axis=int_value(rng.randint(-1, len(shape(x))))),
    lambda rng, b, x: b(ReshapeOp, x, shape=int_array([-1])) if prod(shape(x)) else x,
    lambda rng, b, x: b(SumOp, x, axes=int_array([_axis(rng, x)])) if len(shape(x)) > 1 else x,
    lambda rng, b, x: b(NegativeOp, x),
    lambda rng, b, x: b(AddOp, x, b(FlipOp, x)),
]


def chain(seed: int) -> ModuleOp:
    """A program of about ten steps, each on the result of the one before; some results are given back, too."""
    rng = random.Random(seed)
    block = Block(arg_types=[TensorType(f32, rng.choice([[6], [3, 4], [5, 1, 3], [2, 3, 2], [4, 4]]))])
    builder, value = GraphBuilder(), block.args[0]
    kept: list[SSAValue] = []
    for _ in range(10):
        step = rng.choice(STEPS)
        if not shape(value) or prod(shape(value)) > 400:
            break
        value = step(rng, builder, value)
        kept += [value] * (rng.random() < 0.15)
    results = [value, *kept]
    block.add_ops([*builder.ops, ReturnOp(*results)])
    types = FunctionType.from_lists([v.type for v in block.args], [v.type for v in results])
    return ModuleOp([FuncOp("main", types, Region(block))])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("part", range(4))
def test_chains_give_the_same_after_all_passes(part: int) -> None:
    """Fused, simplified and in C: the bits of the reference."""
    for seed in range(part, scaled(48), 4):
        text = text_of(chain(seed))
        module = parse(text)
        arguments = random_arguments(module, seed)
        expected = evaluate(module, arguments)
        staged = apply(parse(text), "canonicalize,cse,decompose,canonicalize,fuse-injective,fuse-elementwise,fuse-row")
        assert_same_bits(evaluate(staged, arguments), expected, f"(seed {seed})")
        if seed % 3 == 0 and (shutil.which("cc") or shutil.which("gcc")):
            found: Any = fuse_opt.compile(parse(text), "cpu")(*arguments)
            results = list(found) if len(expected) > 1 else [found]
            for a, e in zip(results, expected, strict=True):
                np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-5, err_msg=f"(seed {seed})")


@pytest.mark.parametrize("seed", range(0, 240, 10))
def test_every_load_is_inside_its_operand(seed: int) -> None:
    """Of a non-empty operand nothing outside is read, whatever the wanted element, chosen or not."""
    for op in graph_ops(apply(chain(seed), "decompose")):
        if not isinstance(op, StructuredOp) or op.COMBINE:
            continue
        extents = shape(op.results[0])
        index = dimensions("i", extents)
        for number, operand in enumerate(op.operands):
            source = op.operand_index(number, index, ())
            if 0 in shape(operand):
                continue
            for place, n in zip(source, shape(operand), strict=True):
                dims = sorted(place.dims(), key=lambda dim: dim.name)
                for values in np.ndindex(*(max(dim.extent, 1) for dim in dims)):
                    at = place.evaluate(dict(zip(dims, values, strict=True)))
                    assert 0 <= at < n, f"{op.name} reads {at} of {n}"
