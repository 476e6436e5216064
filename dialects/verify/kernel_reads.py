"""Which elements a kernel reads of what a result is written over, and when: for the plan verifier, shared with no planner.

The ops' index maps are evaluated at numbers, for every instance of a small kernel and for some of a large one, from each
result down to the operands. An instance is an element of a pointwise kernel, or a row or an element of one in a kernel with
reductions. Stages: a reduction ends one, and what depends on it is in a later one; a stage's work for elements is done
in one loop over the columns; its work for the row and other loops come before or behind that in any order. So what
a result overwrites in its stage must have been read by the same instance, at its own place, or in an earlier stage of its row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from xdsl.ir import BlockArgument, SSAValue

from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.shapes import is_static, shape
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.dialects.types.index_expr import Dim, Index, IndexExpr, dimensions
from fuse_opt.dialects.verify.at_numbers import at_numbers
from fuse_opt.dialects.verify.contracted_reads import ContractedReads, is_product
from fuse_opt.dialects.verify.kernel_parts import Parts
from fuse_opt.dialects.verify.sample_points import (
    FEW,
    MANY,
    Point,
    bound,
    element_of,
    evaluated,
    place_of,
    raveled,
    row_extents,
    samples,
    unraveled,
)

_RESULTS: dict[tuple[object, ...], str | None] = {}
_REMEMBERED = 4096

ANYWHERE = -(1 << 62)
"""A coordinate that data says, and the place of an element that has one."""

ROW, ELEMENT, OTHER = "row", "element", "other"
"""Loops of a stage: once for the row, over the columns, over anything else."""


class KernelReads:
    """What a kernel reads, worked out once for all results that are written in place."""

    def __init__(self, kernel: KernelOp) -> None:
        self.kernel = kernel

    @cached_property
    def _at(self) -> KernelOp:
        return at_numbers(self.kernel)

    def clash(self, result: int, operands: frozenset[int]) -> str | None:
        """Why generated code must not write the result over the storage that is given as these operands, or None."""
        key = (*self._identity, result, operands)
        if key not in _RESULTS:
            if len(_RESULTS) >= _REMEMBERED:
                _RESULTS.clear()
            _RESULTS[key] = self._clash(result, operands)
        return _RESULTS[key]

    @cached_property
    def _identity(self) -> tuple[object, ...]:
        return _identity(self._at)

    @cached_property
    def _body(self) -> _Body | None:
        """The kernel's body; None of one that is no generated code."""
        ops = [op for op in self._at.block.ops if op.results]
        known = [op for op in ops if isinstance(op, StructuredOp) and op.stored_value() is None]
        values = [*self._at.block.args, *(value for op in ops for value in op.results)]
        return None if len(known) < len(ops) or not all(map(is_static, values)) else _Body(self._at, known)

    def _clash_of_product(self, result: int, operands: frozenset[int]) -> str | None:
        """Code for a product: its epilogue is one pass over elements, which reads what is contracted where it stores."""
        contracted = ContractedReads(self._at)
        ops = [op for op in contracted.behind if op.results]
        known = [op for op in ops if isinstance(op, StructuredOp) and op.stored_value() is None]
        values = [*self._at.block.args, *(value for op in self._at.block.ops for value in op.results)]
        if len(known) < len(ops) or not all(map(is_static, values)):
            return "is no generated kernel: an op of it has no scalar meaning, or an unknown shape"
        reason = contracted.clash(result, operands)
        return reason or _Body(self._at, known).check(result, operands, contracted.stored, known)

    @cached_property
    def _parts(self) -> Parts:
        return Parts(self._at)

    def _clash(self, result: int, operands: frozenset[int]) -> str | None:
        if is_product(self._at):
            return self._clash_of_product(result, operands)
        if (body := self._body) is None:
            return "is no generated kernel: an op of it has no scalar meaning, or an unknown shape"
        kind = self._at.schedule_kind()
        reason = None if kind == "pack" else body.check(result, operands, range(len(self._at.results)), body.ops)
        if kind in ("pointwise", "row", "column", "split", "tile") or (reason is None and kind != "pack"):
            return reason
        parts = self._parts
        for tops in (parts.family(parts.tops[result]), {parts.tops[result]}):
            stored = [number for number, top in enumerate(parts.tops) if top in tops]
            if any(parts.reads(number) & operands for number in range(len(parts.tops)) if number not in stored):
                found = "reads it in another part, which runs at the same time"
            else:
                ops = [op for op in body.ops if parts.top(op.results[0]) in tops]
                found = body.check(result, operands, stored, ops)
            if found is None:
                return None
            reason = reason or found
        return reason


def _identity(kernel: KernelOp) -> tuple[object, ...]:
    """Equal for kernels that compute alike."""
    number: dict[SSAValue, tuple[int, int]] = {value: (-1, place) for place, value in enumerate(kernel.block.args)}
    ops: list[object] = []
    for place, op in enumerate(kernel.block.ops):
        used = tuple(number[value] for value in op.operands)
        types = tuple(value.type for value in op.results)
        ops.append((type(op), used, types, frozenset(op.properties.items()), op if op.regions else None))
        number.update((value, (place, k)) for k, value in enumerate(op.results))
    return (kernel.schedule_kind(), tuple(value.type for value in kernel.block.args), tuple(ops))


@dataclass(frozen=True, slots=True)
class _Map:
    """Where an op reads an operand, as expressions in its result's dimensions and the reduced ones."""

    operand: SSAValue
    index: Index


@dataclass(frozen=True, slots=True)
class _Space:
    """Rows of columns; a pointwise kernel has one column."""

    rows: Point
    columns: Point
    is_pointwise: bool = False
    steps: Point | None = None
    """By dimension of rows, then of columns: how far elements are apart; None where results are of rows only."""

    def is_row(self, size: int) -> bool:
        """Whether a result of so many elements is stored once for a row."""
        return not self.is_pointwise and (self.steps is None or size != prod(self.rows) * prod(self.columns))

    def element(self, row: int, column: Point) -> int:
        at = (*unraveled(row, self.rows), *column)
        return row if self.steps is None else sum(n * step for n, step in zip(at, self.steps, strict=True))

    def row_of(self, element: int) -> int:
        if self.steps is None:
            return element
        digits = [element // max(step, 1) % extent for step, extent in zip(self.steps, self.rows, strict=False)]
        return raveled(digits, self.rows)


class _Body:
    """The body of a generated kernel, to be read backwards from its results at given elements; of a product, what is behind."""

    def __init__(self, kernel: KernelOp, ops: Sequence[StructuredOp]) -> None:
        self.results = list(kernel.yielded())
        self.ops = ops
        self.maps: dict[SSAValue, tuple[Index, Index, list[_Map]]] = {}
        own = set(ops)
        given = [value for op in kernel.block.ops if op not in own for value in op.results]
        self.shapes: dict[SSAValue, Point] = {
            value: shape(value) for value in (*kernel.block.args, *given, *(op.results[0] for op in ops))
        }
        self.stage: dict[SSAValue, int] = dict.fromkeys((*kernel.block.args, *given), 0)
        self._walks: dict[tuple[int, ...], list[_Walk] | None] = {}
        for op in ops:
            at, over = dimensions("at", shape(op.results[0])), dimensions("over", op.reduced_extents())
            reads = [_Map(value, op.operand_index(k, at, over)) for k, value in enumerate(op.operands)]
            self.maps[op.results[0]] = at, over, reads
            self.stage[op.results[0]] = max((self.stage[v] for v in op.operands), default=0) + bool(op.COMBINE)

    def check(
        self, result: int, operands: frozenset[int], stored: Sequence[int], ops: Sequence[StructuredOp]
    ) -> str | None:
        """The clash when these ops are one pass that stores these results."""
        key = tuple(stored)
        if key not in self._walks:
            self._walks[key] = self._walked(stored, [op for op in ops if op.COMBINE])
        if (walks := self._walks[key]) is None:
            return "is not one pass: its results are not the rows or the elements of one space"
        before: _Walk | None = None
        for walk in walks:
            if before is not None and before.row == walk.row and before.reductions != walk.reductions:
                return "is not one pass: a reduction would run again for each element"
            if (reason := walk.clash(result, operands)) is not None:
                return reason
            before = walk
        return None

    def _walked(self, stored: Sequence[int], reductions: Sequence[StructuredOp]) -> list[_Walk] | None:
        """What some instances read that store these results, row by row; None when they are not one pass."""
        space = self._space({prod(shape(self.results[number])) for number in stored}, reductions)
        if space is None:
            return None
        rows = samples(prod(space.rows), MANY if space.is_pointwise else FEW)
        walks = [_Walk(self, space, row, column) for row in rows for column in samples(prod(space.columns))]
        for walk in walks:
            walk.run(stored)
        return walks

    def _space(self, sizes: set[int], reductions: Sequence[StructuredOp]) -> _Space | None:
        """The rows of the longest reduction that all results fit: one for each row, or for each element."""
        if not reductions:
            return _Space((max(sizes),), (), True) if len(sizes) == 1 else None
        for op in sorted(reductions, key=lambda op: -prod(op.reduced_extents())):
            rows, columns = row_extents(op.results[0].type), op.reduced_extents()
            elements = prod(rows) * prod(columns)
            if sizes == {prod(rows)} and elements != prod(rows):
                return _Space(rows, columns)
            if sizes <= {prod(rows), elements}:
                fitting = [n for n, value in enumerate(op.operands) if prod(shape(value)) == elements]
                found = (self._steps(op, n, rows, columns) for n in fitting)
                steps = next((steps for steps in found if steps is not None), None)
                if steps is not None or sizes == {prod(rows)}:
                    return _Space(rows, columns, steps=steps)
        return None

    def _steps(self, op: StructuredOp, operand: int, rows: Point, columns: Point) -> Point | None:
        """How far the elements of an operand are apart, when a row and a column are one each, and all of them.

        The addresses are a mixed-radix number then: its steps are measured, and tried at samples.
        """
        extents = (*rows, *columns)
        if not prod(extents):
            return (0,) * len(extents)

        def address(at: Sequence[int]) -> int:
            return self.address(op, operand, tuple(at[: len(rows)]), tuple(at[len(rows) :]))

        origin = [0] * len(extents)
        steps = [address([*origin[:k], 1, *origin[k + 1 :]]) if n > 1 else 0 for k, n in enumerate(extents)]
        place = 1
        for step, extent in sorted(zip(steps, extents, strict=True)):
            if extent > 1:
                if step != place:
                    return None
                place *= extent
        picked = (unraveled(n, extents) for n in samples(prod(extents)))
        fits = all(address(at) == sum(a * s for a, s in zip(at, steps, strict=True)) for at in picked)
        return tuple(steps) if fits else None

    def address(self, op: StructuredOp, operand: int, at: Point, over: Point) -> int:
        """The element of an operand that the op reads for a row, by its place in memory, and a column."""
        first, second, reads = self.maps[op.results[0]]
        element = element_of(raveled(at, row_extents(op.results[0].type)), op.results[0].type)
        env = {**bound(first, element), **bound(second, over)}
        return place_of(evaluated(reads[operand].index, env), op.operands[operand].type)


@dataclass(frozen=True, slots=True)
class _Read:
    operand: int
    address: int
    stage: int
    loop: str


def _coordinate(expression: IndexExpr, env: Mapping[Dim, int]) -> int:
    """One of the element that is read; one that data says may be anywhere, the others of the element are what they are."""
    if expression.loaded() or (ANYWHERE in env.values() and any(env[dim] == ANYWHERE for dim in expression.dims())):
        return ANYWHERE
    return expression.evaluate(env)


class _Walk:
    """What one row and one of its columns read, from the results down."""

    def __init__(self, body: _Body, space: _Space, row: int, column: int) -> None:
        self.body, self.space, self.row = body, space, row
        self.column = unraveled(column, space.columns)
        self.element = space.element(row, self.column)
        self.reads: dict[_Read, None] = {}
        self.reductions: set[tuple[SSAValue, Point]] = set()

    def target(self, result: int) -> tuple[int, int, str]:
        """Where this instance stores a result, in which stage and loop."""
        value = self.body.results[result]
        is_row = self.space.is_row(prod(self.body.shapes[value]))
        return self.row if is_row else self.element, self.body.stage[value], ROW if is_row else ELEMENT

    def run(self, results: Sequence[int]) -> None:
        """Follows results of the instance down to what they are made of."""
        seen: set[tuple[SSAValue, Point, int, str]] = set()
        for result in results:
            value = self.body.results[result]
            address, stage, loop = self.target(result)
            pending = [(value, element_of(address, value.type), stage, loop)]
            while pending:
                item = pending.pop()
                if item not in seen:
                    seen.add(item)
                    pending.extend(self._next(*item))

    def _next(self, value: SSAValue, at: Point, stage: int, loop: str) -> Iterator[tuple[SSAValue, Point, int, str]]:
        if isinstance(value, BlockArgument):
            place = ANYWHERE if ANYWHERE in at else place_of(at, value.type)
            self.reads[_Read(value.index, place, stage, loop)] = None
            return
        op = value.owner
        if not isinstance(op, StructuredOp) or value not in self.body.maps:
            return  # what is contracted, of which an instance has its element
        first, second, reads = self.body.maps[value]
        overs: list[Point] = [()]
        if op.COMBINE:
            self.reductions.add((value, at))
            extents = op.reduced_extents()
            stage, loop = self.body.stage[value] - 1, ELEMENT if extents == self.space.columns else OTHER
            overs = [self.column] if loop == ELEMENT else [unraveled(n, extents) for n in samples(prod(extents))]
        for over in overs:
            env: dict[Dim, int] = {}
            for read in reads:
                if read.index is first:  # at the place of the result
                    yield read.operand, at, stage, loop
                    continue
                env = env or {**bound(first, at), **bound(second, over)}
                yield read.operand, tuple(_coordinate(part, env) for part in read.index), stage, loop

    def clash(self, result: int, operands: frozenset[int]) -> str | None:
        address, stage, loop = self.target(result)
        for read in self.reads:
            if read.operand not in operands:
                continue
            if read.address == ANYWHERE:
                return "reads it at positions that are data"
            owner = read.address if loop == ROW else self.space.row_of(read.address)
            if owner != self.row or (read.address != address and read.stage >= stage):
                return f"reads it at other elements than the one it writes: {read.address} for {address}"
            if read.stage > stage or (read.stage == stage and read.loop != loop):
                return f"reads it at element {address} after it has written it, or in another loop of that stage"
        return None
