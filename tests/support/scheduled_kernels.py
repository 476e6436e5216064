"""Kernels of every schedule at awkward extents, their tasks handed out in pieces, and how close results must be."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from ir_testing import apply, evaluate, parse, random_arguments
from lowered_programs import Array
from narrow_floats import decode, name_of
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.dialects.func import FuncOp

SIZES = (1, 3, 7, 8, 9, 513)
STEP = {"float16": 2**-11, "bf16": 2**-8, "float32": 2**-24, "float64": 2**-53}
"""By float type: half its spacing at 1."""


class Kernels:
    """A function of many kernels, for one compilation."""

    def __init__(self) -> None:
        self.arguments: list[str] = []
        self.lines: list[str] = []
        self.results: list[tuple[str, str]] = []

    def add(self, schedule: str, operands: Sequence[str], body: Sequence[str], results: Sequence[str]) -> None:
        """A kernel over %a, %b ... with ops that make %r, %s ..., which have the types of `results`."""
        number = len(self.lines)
        names = [f"%x{number}_{k}" for k in range(len(operands))]
        self.arguments += [f"{name}: tensor<{kind}>" for name, kind in zip(names, operands, strict=True)]
        inner = ", ".join(
            f"%{'abc'[k]} = {n} : tensor<{t}>" for k, (n, t) in enumerate(zip(names, operands, strict=True))
        )
        outs = ", ".join(f"tensor<{kind}>" for kind in results)
        given = ", ".join(f"%{'rst'[k]}" for k in range(len(results)))
        attributes = f"attributes {{schedule = {{{schedule}}}}} " if schedule else ""
        yielded = f"fused.yield {given} : {outs}"
        text = "\n    ".join([*body, yielded])
        self.lines.append(
            f"  %y{number}:{len(results)} = fused.kernel({inner}) -> ({outs}) {attributes}{{\n    {text}\n  }}"
        )
        self.results += [(f"%y{number}#{k}", kind) for k, kind in enumerate(results)]

    def text(self) -> str:
        kinds = ", ".join(f"tensor<{kind}>" for _, kind in self.results)
        names = ", ".join(name for name, _ in self.results)
        head = f"func.func @main({', '.join(self.arguments)}) -> ({kinds}) {{"
        return "\n".join([head, *self.lines, f"  func.return {names} : {kinds}", "}"])


def with_expected(text: str) -> tuple[ModuleOp, list[Array], list[Array]]:
    """The module of a text, arguments for it, and what the reference gives for them."""
    module = parse(text)
    arguments = random_arguments(module, 3)
    with np.errstate(all="ignore"):
        return module, arguments, evaluate(module, [a.copy() for a in arguments])


def typed(extents: Sequence[int], element: str) -> str:
    return "x".join([*map(str, extents), element])


def reduce(
    kernels: Kernels, schedule: str, op: str, extents: Sequence[int], axes: Sequence[int], element: str = "f32"
) -> None:
    kept = typed([n for axis, n in enumerate(extents) if axis not in axes], element)
    listed = f": {', '.join(map(str, axes))}" if axes else ""
    source = typed(extents, element)
    line = f"%r = graph.{op} %a {{axes = array<i64{listed}>}} : (tensor<{source}>) -> tensor<{kept}>"
    kernels.add(schedule, [source], [line], [kept])


def normalize(kernels: Kernels, schedule: str, extents: Sequence[int], axis: int, element: str = "f32") -> None:
    """Three stages: the largest, the sum of exponentials, the quotient; and what is stored once for a row."""
    full, kept = typed(extents, element), typed([1 if k == axis else n for k, n in enumerate(extents)], element)
    reduced = f"{{axes = array<i64: {axis}>, keepdims = true}} : (tensor<{full}>) -> tensor<{kept}>"
    body = [
        f"%m = graph.max %a {reduced}",
        f"%d = graph.subtract %a, %m : (tensor<{full}>, tensor<{kept}>) -> tensor<{full}>",
        f"%e = graph.exp %d : (tensor<{full}>) -> tensor<{full}>",
        f"%t = graph.sum %e {reduced}",
        f"%q = graph.reciprocal %t : (tensor<{kept}>) -> tensor<{kept}>",
        f"%r = graph.multiply %e, %q : (tensor<{full}>, tensor<{kept}>) -> tensor<{full}>",
        f"%s = graph.add %m, %b : (tensor<{kept}>, tensor<{kept}>) -> tensor<{kept}>",
    ]
    kernels.add(schedule, [full, kept], body, [full, kept])


def permute(kernels: Kernels, schedule: str, extents: Sequence[int], axes: Sequence[int], element: str = "f32") -> None:
    """A transpose, added to a straight operand and to one that is broadcast."""
    source, target = typed(extents, element), typed([extents[axis] for axis in axes], element)
    line = typed([extents[axes[-1]]], element)
    listed = ", ".join(map(str, axes))
    body = [
        f"%p = graph.permute_dims %a {{axes = array<i64: {listed}>}} : (tensor<{source}>) -> tensor<{target}>",
        f"%q = graph.subtract %p, %b : (tensor<{target}>, tensor<{target}>) -> tensor<{target}>",
        f"%r = graph.multiply %q, %c : (tensor<{target}>, tensor<{line}>) -> tensor<{target}>",
    ]
    kernels.add(schedule, [source, target, line], body, [target])


COLUMN, SPLIT, TILE = 'kind = "column"', 'kind = "split"', 'kind = "tile"'


def reductions(schedule: str) -> Kernels:
    kernels = Kernels()
    for rows in SIZES:
        for columns in SIZES:
            reduce(kernels, schedule, "sum" if rows != 9 else "max", (rows, columns), (0,))
    for extents, axes in (
        ((3, 513, 7), (1,)),
        ((7, 9, 8), (0, 2)),
        ((3, 8, 70), (0, 1)),
        ((513,), (0,)),
        ((65, 66), (1,)),
    ):
        reduce(kernels, schedule, "sum", extents, axes)
    return kernels


def kinds(schedule: str) -> Kernels:
    """Element types, empty tensors and none."""
    kernels = Kernels()
    for element in ("f16", "bf16", "f64", "i8", "ui8", "i64"):
        reduce(kernels, schedule, "sum" if element not in ("i8", "ui8") else "max", (41, 19), (0,), element)
    reduce(kernels, schedule, "any", (9, 33), (0,), "i1")
    reduce(kernels, schedule, "prod", (9, 33), (0,))
    reduce(kernels, schedule, "min", (300, 2), (0,))
    reduce(kernels, schedule, "sum", (0, 5), (0,))
    reduce(kernels, schedule, "sum", (5, 0, 3), (1,))
    reduce(kernels, schedule, "sum", (), ())
    return kernels


def stages(schedule: str) -> Kernels:
    kernels = Kernels()
    for extents, axis in (((9, 513), 0), ((300, 71), 0), ((3, 40, 9), 1), ((2, 700), 1), ((70, 3), 1), ((1, 1), 0)):
        normalize(kernels, schedule, extents, axis)
    normalize(kernels, schedule, (33, 17), 0, "f16")
    normalize(kernels, schedule, (33, 17), 0, "f64")
    return kernels


def tiles(schedule: str) -> Kernels:
    kernels = Kernels()
    for rows in SIZES:
        for columns in SIZES:
            permute(kernels, schedule, (rows, columns), (1, 0))
    for element in ("f16", "bf16", "f64", "i8", "i64"):
        permute(kernels, schedule, (33, 21), (1, 0), element)
    permute(kernels, schedule, (3, 17, 9, 20), (0, 3, 2, 1))
    permute(kernels, schedule, (5, 24, 40), (2, 0, 1))
    permute(kernels, schedule, (5, 24, 40), (1, 0, 2))
    permute(kernels, schedule, (0, 4), (1, 0))
    return kernels


def moves(schedule: str) -> Kernels:
    """What is only moved: squares in registers, and what is left over at both ends; every size of element."""
    kernels = Kernels()
    for element in ("f32", "f64", "i64", "i32", "i16", "f16", "bf16", "i8", "ui8", "i1"):
        for extents, axes in (((33, 50), (1, 0)), ((3, 16, 40), (0, 2, 1)), ((17, 2, 35), (2, 1, 0))):
            source, target = typed(extents, element), typed([extents[axis] for axis in axes], element)
            listed = f"{{axes = array<i64: {', '.join(map(str, axes))}>}}"
            line = f"%r = graph.permute_dims %a {listed} : (tensor<{source}>) -> tensor<{target}>"
            kernels.add(schedule, [source], [line], [target])
    return kernels


def lanes(schedule: str) -> Kernels:
    """Rows so long that reductions have several accumulators, with a last part of any length."""
    kernels = Kernels()
    for columns in (32, 33, 100, 128, 191, 512, 1000):
        for op in ("max", "min", "sum"):
            reduce(kernels, schedule, op, (5, columns), (1,))
    for element, op in (
        ("f16", "max"),
        ("bf16", "sum"),
        ("f64", "min"),
        ("i8", "max"),
        ("ui8", "min"),
        ("i64", "prod"),
    ):
        reduce(kernels, schedule, op, (3, 777), (1,), element)
    reduce(kernels, schedule, "any", (3, 777), (1,), "i1")
    reduce(kernels, schedule, "sum", (3, 4, 5, 130), (1, 3))
    normalize(kernels, schedule, (3, 700), 1)
    normalize(kernels, schedule, (3, 700), 1, "f16")
    return kernels


def elements(schedule: str) -> Kernels:
    """Short innermost dimensions, few long rows, and every way to broadcast."""
    kernels = Kernels()
    for extents in ((70, 3), (5, 9, 2), (2, 70001), (3, 1, 7), (1, 1), (), (0, 3), (4, 3, 1, 5)):
        for axis in range(max(len(extents), 1)):
            small = typed([n if k == axis else 1 for k, n in enumerate(extents)], "f32")
            full = typed(extents, "f32")
            line = f"%r = graph.add %a, %b : (tensor<{full}>, tensor<{small}>) -> tensor<{full}>"
            kernels.add(schedule, [full, small], [line], [full])
    source, transposed = "40x6xf32", "6x40xf32"
    flipped = f"%r = graph.flip %a {{axes = array<i64: 1>}} : (tensor<{source}>) -> tensor<{source}>"
    kernels.add(schedule, [source], [flipped], [source])
    kernels.add(
        schedule,
        [transposed],
        [f"%r = graph.permute_dims %a {{axes = array<i64: 1, 0>}} : (tensor<{transposed}>) -> tensor<{source}>"],
        [source],
    )
    return kernels


CASES: dict[str, Callable[[], Kernels]] = {
    "column": lambda: reductions(COLUMN),
    "column in parts": lambda: reductions(f"{COLUMN}, splits = 4 : i64, block = 32 : i64"),
    "split": lambda: reductions(f"{SPLIT}, splits = 5 : i64"),
    "column kinds": lambda: kinds(f"{COLUMN}, splits = 3 : i64"),
    "split kinds": lambda: kinds(SPLIT),
    "column stages": lambda: stages(COLUMN),
    "column stages in parts": lambda: stages(f"{COLUMN}, splits = 3 : i64"),
    "split stages": lambda: stages(f"{SPLIT}, splits = 3 : i64"),
    "tile": lambda: tiles(TILE),
    "moves": lambda: moves(TILE),
    "lanes of rows": lambda: lanes('kind = "row"'),
    "lanes of parts": lambda: lanes(f"{SPLIT}, splits = 2 : i64"),
    "small tile": lambda: tiles(f"{TILE}, block = 8 : i64"),
    "pointwise": lambda: elements('kind = "pointwise"'),
}


def lowered(module: ModuleOp, grain: int | None) -> ModuleOp:
    """The module as loops, whose tasks are all handed out, `grain` at least at a time."""
    module = apply(module, ["convert-fused-to-loops"])
    for op in module.body.block.ops:
        if isinstance(op, FuncOp) and "fused.grain" in op.attributes and grain is not None:
            op.attributes["fused.grain"] = IntegerAttr(grain, i64)
    return module


def assert_within_bounds(actual: Sequence[Array], expected: Sequence[Array], about: str) -> None:
    """Integers are equal; floats within the spacing of their type, times the length of the longest sum of the tests."""
    for number, (a, e) in enumerate(zip(actual, expected, strict=True)):
        assert (a.dtype, a.shape) == (e.dtype, e.shape)
        step = 64 * STEP.get(name_of(e.dtype), 0.0)
        wide, other = decode(e).astype(np.float64), decode(a).astype(np.float64)
        scale = np.maximum(np.abs(wide), 8.0 if step else 0.0)
        fine = (wide == other) | (np.abs(wide - other) <= step * scale)
        assert np.all(fine), f"{about}, result {number}: {other[~fine][:3]} instead of {wide[~fine][:3]}"


def in_pieces(rng: random.Random) -> Any:
    """A loop that hands out tasks in pieces of any size, in any order."""
    task_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_long, ctypes.c_long)

    def run(task: Any, argument: int, count: int, grain: int) -> None:
        cuts = sorted({0, count, *rng.sample(range(count), min(count // 3, 5))})
        pieces = list(pairwise(cuts))
        rng.shuffle(pieces)
        for begin, end in pieces:
            task(argument, begin, end)

    return ctypes.CFUNCTYPE(None, task_type, ctypes.c_void_p, ctypes.c_long, ctypes.c_long)(run)
