"""At how many places a group of pointwise ops reads each value: what fusing views repeats, without tracing the group.

A path is the chain of views between a result of the group and a value; elementwise ops add nothing to it. Values are
computed once for each path. Different paths may lead to the same index, so the counts are upper bounds of what `pull`
makes. The paths of a merged group follow from those of its parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.layouts import address, element_index, memory_extents
from fuse_opt.dialects.interfaces.shapes import is_sized, shape
from fuse_opt.dialects.interfaces.structured_op import FusionKind, StructuredOp
from fuse_opt.dialects.types.extents import estimate
from fuse_opt.dialects.types.index_expr import dimensions

Path = tuple[int, ...]
Paths = frozenset[Path]

HERE: Paths = frozenset({()})
_NOWHERE: Paths = frozenset()
MAX_PATHS = 8
"""Of one value; with more, the group is as good as unschedulable."""


@dataclass(frozen=True, slots=True)
class Access:
    """The paths at which a group reads what comes from outside, and how often its ops are computed for one element."""

    reads: Mapping[SSAValue, Paths] = field(default_factory=dict[SSAValue, Paths])
    sizes: Mapping[int, int] = field(default_factory=dict[int, int])
    """How many ops that are no views have results of so many elements."""
    places: int = 0
    """The same ops, each counted once for every path."""

    def repetition(self, elements: int) -> float:
        """How often a value is computed on average in one loop of so many elements, at most."""
        once = sum(max(size, elements) * count for size, count in self.sizes.items())
        return self.places * elements / once if once else 0.0

    @property
    def too_many(self) -> bool:
        return max(map(len, self.reads.values()), default=0) > MAX_PATHS


@dataclass(frozen=True, slots=True)
class _OpAccess:
    """What an op adds to the paths of its result, by operand; and its own access when it is a kernel."""

    steps: Sequence[tuple[SSAValue, Paths]]
    size: int | None
    """Elements of the result; None for views."""
    kernel: Access | None = None


@dataclass
class AccessPaths:
    """Numbers for views, by what they do to an index: equal views of equal shapes have one."""

    numbers: dict[tuple[object, ...], int] = field(default_factory=dict[tuple[object, ...], int])
    strided: list[bool] = field(default_factory=list[bool])
    """By number: whether neighbouring results lie apart in the operand."""
    known: dict[Operation, _OpAccess] = field(default_factory=dict[Operation, _OpAccess])
    """Of ops that were looked at; they must stay as they are."""

    def of(self, ops: Sequence[Operation], results: Iterable[SSAValue]) -> Access:
        """The access of ops, bare ones and kernels, in a topological order."""
        if len(ops) == 1 and isinstance(op := ops[0], StructuredOp) and op.fusion_kind() <= FusionKind.BROADCAST:
            return Access(dict.fromkeys(op.operands, HERE), {_elements(op): 1}, 1)
        found: dict[SSAValue, Paths] = dict.fromkeys(results, HERE)
        sizes: Counter[int] = Counter()
        places = self._count(ops, found, sizes)
        return Access(found, sizes, places)

    def _count(self, ops: Sequence[Operation], found: dict[SSAValue, Paths], sizes: Counter[int]) -> int:
        """
        The places of ops, of which values are wanted at the paths found, in whose place come those at which they read. A kernel
        counts as its ops do once it is taken apart: each result at its own paths.
        """
        places = 0
        for op in reversed(ops):
            if isinstance(op, KernelOp) and _are_wanted_apart(found, op.results):
                places += self._count_results(op, found, sizes)
                continue
            own = self._of_op(op)
            paths = _taken(found, op.results, _NOWHERE)
            if own.kernel is not None:
                sizes.update(own.kernel.sizes)
                places += own.kernel.places * len(paths)
            elif own.size is not None:
                sizes[own.size] += 1
                places += len(paths)
            _add(found, own.steps, paths)
        return places

    def _count_results(self, kernel: KernelOp, found: dict[SSAValue, Paths], sizes: Counter[int]) -> int:
        """The same of a kernel whose results are wanted at other paths each."""
        inner: dict[SSAValue, Paths] = {}
        for result, value in zip(kernel.results, kernel.yielded(), strict=True):
            inner[value] = inner.get(value, _NOWHERE) | found.pop(result, _NOWHERE)
        places = self._count(kernel.ops(), inner, sizes)
        _add(found, _outside(kernel, inner), HERE)
        return places

    def _of_op(self, op: Operation) -> _OpAccess:
        if (found := self.known.get(op)) is None:
            found = self.known[op] = self._of_kernel(op) if isinstance(op, KernelOp) else self._of_bare(op)
        return found

    def _of_kernel(self, kernel: KernelOp) -> _OpAccess:
        inner = self.of(kernel.ops(), kernel.yielded())
        return _OpAccess(_outside(kernel, inner.reads), None, inner)

    def _of_bare(self, op: Operation) -> _OpAccess:
        if not isinstance(op, StructuredOp) or op.fusion_kind() <= FusionKind.BROADCAST:
            steps = [(value, HERE) for value in op.operands]
        else:
            steps = [(value, self._step(op, number)) for number, value in enumerate(op.operands)]
        return _OpAccess(steps, None if _is_view(op) else _elements(op))

    def merged(self, parts: Sequence[tuple[Access, Sequence[SSAValue], bool]]) -> Access:
        """Groups in a topological order as one: of each the access, the values it makes, and whether one is a result."""
        reads: dict[SSAValue, Paths] = {}
        sizes: Counter[int] = Counter()
        total = 0
        for access, made, is_result in reversed(parts):
            places = _taken(reads, made, HERE if is_result else _NOWHERE)
            _add(reads, access.reads.items(), places)
            sizes.update(access.sizes)
            total += access.places * len(places)
        return Access(reads, sizes, total)

    def is_strided(self, paths: Paths) -> bool:
        """Whether neighbouring results need elements that lie apart."""
        return any(self.strided[step] for path in paths for step in path)

    def _step(self, op: StructuredOp, number: int) -> Paths:
        """What an operand adds to the path of the result."""
        types: tuple[Attribute, ...] = (*(value.type for value in op.operands), op.results[0].type)
        key = (type(op), frozenset(op.properties.items()), number, types)
        if key not in self.numbers:
            self.numbers[key] = len(self.numbers)
            self.strided.append(_is_strided(op, number))
        return frozenset({(self.numbers[key],)})


def _are_wanted_apart(found: Mapping[SSAValue, Paths], results: Sequence[SSAValue]) -> bool:
    """Whether not all of them are at the same paths."""
    return len(results) > 1 and len({found.get(result, _NOWHERE) for result in results}) > 1


def _outside(kernel: KernelOp, reads: Mapping[SSAValue, Paths]) -> list[tuple[SSAValue, Paths]]:
    """What the body of a kernel reads, by operands of it."""
    inside = ((value, paths) for value, paths in reads.items() if isinstance(value, BlockArgument))
    return [(kernel.operands[value.index], paths) for value, paths in inside]


def _taken(found: dict[SSAValue, Paths], made: Iterable[SSAValue], paths: Paths) -> Paths:
    """The paths given, and those at which the values made are wanted, which are now known."""
    for value in made:
        if (more := found.pop(value, paths)) is not paths:
            paths = paths | more if paths else more
    return HERE if paths == HERE else paths


def _add(found: dict[SSAValue, Paths], steps: Iterable[tuple[SSAValue, Paths]], outer: Paths) -> None:
    """Notes that values are wanted at paths that begin with the outer ones."""
    for value, step in steps:
        paths = step if outer is HERE else outer if step is HERE else _joined(outer, step)
        known = found.get(value, paths)
        found[value] = paths if known is paths else known | paths


def _joined(outer: Paths, inner: Paths) -> Paths:
    return frozenset(first + then for first in outer for then in inner) if len(outer) <= MAX_PATHS else outer


def _elements(op: Operation) -> int:
    """Of the first result, where extents are sizes about so many."""
    return estimate(prod(shape(op.results[0])))


def _is_view(op: Operation) -> bool:
    return isinstance(op, StructuredOp) and op.is_view()


def _is_strided(op: StructuredOp, number: int) -> bool:
    if not all(map(is_sized, (*op.operands, *op.results))):
        return False
    dims = dimensions("i", memory_extents(op.results[0]))
    index = element_index(op.results[0], dims)
    factors = address(op.operands[number], op.operand_index(number, index, ())).coefficients()
    inner = [dim for index in dims for dim in index.dims()][-1:]
    return bool(inner) and factors is not None and abs(estimate(factors.get(inner[0], 0))) > 1
