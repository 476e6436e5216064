"""How far recomputation is from the least: `python benchmarks/recompute_exact.py [--cases 200] [--seed 0]`, which needs scipy.

Random programs of at most 20 ops, products and pointwise ones. `rematerialize` computes pointwise ops again whatever the time;
what it then keeps over the product over which most is kept is compared with the least that an integer program finds for as many
ops, and the same order of products. Prints cases beyond 1.10, and ratios: median, 95 of 100, largest; those without
recomputation as well.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

import fuse_opt
from fuse_opt.dialects.analysis.storage import functions_of
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.passes.recompute.times import Times

PASS = "rematerialize{slower=1.0 smallest-bytes=0}"
BOUND = 1.10
WIDTHS = (64, 128)


@dataclass(frozen=True)
class Op:
    """One value of a program: a product of the value `reads[0]`, or a pointwise op."""

    is_product: bool
    reads: tuple[int, ...]
    width: int

    @property
    def nbytes(self) -> int:
        return 4 * 64 * self.width


def program(choose: random.Random) -> list[Op]:
    """Ops that read the program's argument, -1, or what comes before them; late ones like to read early ones."""
    ops: list[Op] = []

    def width(value: int) -> int:
        return 64 if value < 0 else ops[value].width

    for number in range(choose.randint(8, 20)):
        last = number - 1
        if choose.random() < 0.35:
            ops.append(Op(True, (last,), choose.choice(WIDTHS)))
            continue
        same = [value for value in range(-1, number) if width(value) == width(last)]
        second = (choose.choice(same),) if choose.random() < 0.6 else ()
        ops.append(Op(False, (last, *second), width(last)))
    return ops


def text(ops: Sequence[Op]) -> str:
    """The program as MLIR; what is not read is a result."""

    def type_of(value: int) -> str:
        return f"tensor<64x{64 if value < 0 else ops[value].width}xf32>"

    def name(value: int) -> str:
        return "%x" if value < 0 else f"%v{value}"

    lines: list[str] = []
    for number, op in enumerate(ops):
        given, types = [name(value) for value in op.reads], [type_of(value) for value in op.reads]
        words = ("exp", "multiply")[len(op.reads) - 1]
        if op.is_product:
            rows, columns = 64 if op.reads[0] < 0 else ops[op.reads[0]].width, op.width
            given, types, words = [*given, f"%w{rows}_{columns}"], [*types, f"tensor<{rows}x{columns}xf32>"], "matmul"
        lines.append(f"{name(number)} = graph.{words} {', '.join(given)} : ({', '.join(types)}) -> {type_of(number)}")
    ends = results(ops)
    arguments = ", ".join(
        ["%x: tensor<64x64xf32>", *(f"%w{a}_{b}: tensor<{a}x{b}xf32>" for a in WIDTHS for b in WIDTHS)]
    )
    returned = f"{', '.join(map(name, ends))} : {', '.join(map(type_of, ends))}"
    body = "\n  ".join([*lines, f"func.return {returned}"])
    return f"func.func @main({arguments}) -> ({', '.join(map(type_of, ends))}) {{\n  {body}\n}}\n"


def results(ops: Sequence[Op]) -> list[int]:
    read = {value for op in ops for value in op.reads}
    return [number for number in range(len(ops)) if number not in read]


def kept(module: ModuleOp) -> tuple[int, int]:
    """The most bytes that are kept over a product, and the number of pointwise ops."""
    (function,) = functions_of(module)
    count = sum(isinstance(op, StructuredOp) for op in function.body.block.ops)
    return max(Times(function).loads().values(), default=0), count


class Exact:
    """
    The integer program: `keeps[j, i]` where value i is kept over product j, `makes[j, i]` where pointwise op i is computed
    between products j and j + 1, from what is kept over product j, its result, and what is computed there, too.
    """

    def __init__(self, ops: Sequence[Op]) -> None:
        self.ops = ops
        self.products = [number for number, op in enumerate(ops) if op.is_product]
        self._at = {number: j for j, number in enumerate(self.products, 1)}
        count, values = len(self.products), len(ops)
        self.keeps = {(j, i): (j - 1) * values + i for j in range(1, count + 1) for i in range(values)}
        pointwise = [i for i, op in enumerate(ops) if not op.is_product]
        made = ((j, i) for j in range(count + 1) for i in pointwise)
        self.makes = {key: len(self.keeps) + k for k, key in enumerate(made)}
        self.size = len(self.keeps) + len(self.makes) + 1
        self._rows: list[tuple[dict[int, float], float]] = []

    def least(self, most_made: int) -> int:
        """The least bytes kept over any product, where so many pointwise ops are computed."""
        for j in range(len(self.products) + 1):
            self._interval(j)
        for j in range(1, len(self.products) + 1):
            load = {self.keeps[j, i]: float(op.nbytes) for i, op in enumerate(self.ops)}
            self._at_most({**load, self.size - 1: -1.0}, 0.0)
        self._at_most(dict.fromkeys(self.makes.values(), 1.0), float(most_made))
        entries = [(row, column, value) for row, (line, _) in enumerate(self._rows) for column, value in line.items()]
        rows, columns, data = zip(*entries, strict=True)
        optimize: Any = import_module("scipy.optimize")
        sparse: Any = import_module("scipy.sparse")
        matrix = sparse.csr_array((data, (rows, columns)), shape=(len(self._rows), self.size))
        cost = np.zeros(self.size)
        cost[-1] = 1.0
        upper = np.ones(self.size)
        upper[-1] = np.inf
        integral = np.ones(self.size)
        integral[-1] = 0
        found = optimize.milp(
            cost,
            constraints=optimize.LinearConstraint(matrix, ub=[bound for _, bound in self._rows]),
            bounds=optimize.Bounds(0, upper),
            integrality=integral,
            options={"time_limit": 60.0},
        )
        assert found.success, found.message
        return round(found.fun)

    def _interval(self, j: int) -> None:
        for i in range(len(self.ops)):
            if (j, i) in self.makes:
                for value in self.ops[i].reads:
                    self._needs(self.makes[j, i], j, value)
            if (j + 1, i) in self.keeps:
                self._needs(self.keeps[j + 1, i], j, i)
        if j < len(self.products):
            for value in self.ops[self.products[j]].reads:
                self._needs(None, j, value)
        else:
            for value in results(self.ops):
                self._needs(None, j, value)

    def _needs(self, what: int | None, j: int, value: int) -> None:
        """That `what`, or the program, has a value between products j and j + 1."""
        if value < 0 or self._at.get(value) == j:
            return
        there = [table[j, value] for table in (self.keeps, self.makes) if (j, value) in table]
        line = dict.fromkeys(there, -1.0)
        if what is not None:
            line[what] = 1.0
        self._at_most(line, -1.0 if what is None else 0.0)

    def _at_most(self, line: dict[int, float], bound: float) -> None:
        self._rows.append((line, bound))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the cases; 1 where any is beyond the bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(argv)
    ratios: list[float] = []
    without: list[float] = []
    seed = given.seed
    while len(ratios) < given.cases:
        seed += 1
        ops = program(random.Random(seed))
        source = text(ops)
        before, _ = kept(fuse_opt.optimize(source, ["infer-shapes"]))
        after, made = kept(fuse_opt.optimize(source, [PASS]))
        exact = Exact(ops).least(made)
        if before == 0:
            continue
        if after == exact == 0:
            ratios.append(1.0)
        else:
            ratios.append(after / exact if exact else float("inf"))
        without.append(before / exact if exact else float("inf"))
        if ratios[-1] > BOUND:
            print(f"seed {seed}: {len(ops)} ops, {before} -> {after} bytes, at least {exact}: {ratios[-1]:.3f}")
    beyond = sum(ratio > BOUND for ratio in ratios)
    for words, found in (("with it", ratios), ("without", without)):
        spread = f"{np.median(found):.3f} {np.quantile(found, 0.95, method='lower'):.3f} {max(found):.3f}"
        print(f"{words}: {spread}")
    print(f"{len(ratios)} cases, {beyond} beyond {BOUND:.2f}")
    return int(beyond > 0)


if __name__ == "__main__":
    sys.exit(main())
