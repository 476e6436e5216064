"""How a kernel's operands are read next to where its results are written: what may run in place, and by which scheme.

A row kernel runs in stages: a reduction closes one, and what depends on it is in a later one. An element that a result
overwrites must not be read in a later stage, nor in another loop of the same one. What lowering owes in return: no result
is stored in an earlier stage than its value is known in, what a stage does for an element of a row is done in one loop,
and one instance (an element, or a row) loads all that it reads before it stores anything.

The parts of a pack run at the same time: what one of them reads, another one must not overwrite.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import prod
from typing import Literal, cast

from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.analysis.kernel_parts import PACK, kernel_passes
from fuse_opt.dialects.analysis.loop_body import LoopBody, ScalarNode, Store, Unschedulable, resolve, seen_through
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import are_sizes_asked_for, is_sized, may_rows_be_long, shape, tensor
from fuse_opt.dialects.types.dtypes import dtype_of
from fuse_opt.dialects.types.index_expr import IndexExpr


@dataclass(frozen=True, slots=True)
class KernelAccess:
    """One pass over elements or rows, several side by side, or (`scheme` None) why it is none: a code and a sentence."""

    scheme: Literal["pointwise", "row", "pack"] | None
    replaceable: tuple[frozenset[int], ...] = ()
    """By result: the operands of its size that every instance reads, if at all, only where and before it stores the result."""
    code: str = ""
    message: str = ""


COLUMN, SPLIT, TILE = "column", "split", "tile"
"""Schedule kinds of a pass over rows: many rows at a time, or parts of a row; and of one over elements: by blocks."""
GENERATED_KINDS = frozenset(("pointwise", "row", COLUMN, SPLIT, TILE, PACK))
_NEVER = -1
_OPAQUE: dict[type[Operation], bool] = {}
_ACCESSES: dict[tuple[object, ...], KernelAccess] = {}
_REMEMBERED = 4096


_NUMBERS: dict[Attribute, int] = {}
_NUMBERED: dict[int, tuple[Attribute, int]] = {}
"""By the identity of an attribute, which so lives as long as it is here."""
_COUNT = count()
_MOST_NUMBERED = 1 << 16


def attribute_number(attribute: Attribute) -> int:
    """
    A number that no other attribute has, and as a rule all equal ones have: xDSL works out the hash of an attribute each time it
    is asked for, and that of a type is one of all its parts.
    """
    if (known := _NUMBERED.get(id(attribute))) is not None:
        return known[1]
    if len(_NUMBERED) >= _MOST_NUMBERED:
        _NUMBERED.clear()
        _NUMBERS.clear()  # what was numbered before is another one's from now on
    found = _NUMBERS.setdefault(attribute, next(_COUNT))
    _NUMBERED[id(attribute)] = attribute, found
    return found


def is_library(kernel: KernelOp) -> bool:
    """Whether a kernel is run by an implementation as a whole, and not by generated code."""
    return kernel.implementation is not None or any(_is_opaque(op) for op in kernel.block.ops)


def _is_opaque(op: Operation) -> bool:
    """Whether it is an OpaqueOp: answered once for each class, as passes ask it of each op several times."""
    if (known := _OPAQUE.get(type(op))) is None:
        known = _OPAQUE[type(op)] = isinstance(op, OpaqueOp)
    return known


def dispatched_ops(kernel: KernelOp) -> list[GraphOp]:
    """
    What implementations run of a kernel: its opaque ops, or its only op, of any kind, where it names what runs that, but for
    those whose results are left beside it.
    """
    if kernel.saved is not None:
        saved = kernel.saved_ops()
        return [op for op in kernel.ops() if op not in saved]
    found = [cast("GraphOp", op) for op in kernel.block.ops if _is_opaque(op)]
    if found or kernel.implementation is None:
        return found
    ops = kernel.ops()
    return ops if len(ops) == 1 else []


def library_op(kernel: KernelOp) -> GraphOp | None:
    """
    The op that is all of the kernel, but for what is left beside it, and all of whose results it yields, when a library can
    run it.
    """
    saved = kernel.saved_ops()
    ops = [op for op in kernel.ops() if op not in saved] if saved else kernel.ops()
    if len(ops) != 1 or dispatched_ops(kernel) != ops:
        return None
    left = [value for op in saved for value in op.results]
    return ops[0] if list(kernel.yielded()) == [*ops[0].results, *left] else None


def kernel_access(kernel: KernelOp, *, scheduled: bool = True) -> KernelAccess:
    """
    How the kernel runs when code is generated for it by its schedule, or by the best one where it has none or
    `scheduled` is false; the same object for kernels that compute the same.
    """
    kind = generated_kind(kernel) if scheduled else None
    key = (kind, are_sizes_asked_for(), *kernel_structure(kernel))
    if (found := _ACCESSES.get(key)) is None:
        if len(_ACCESSES) >= _REMEMBERED:
            _ACCESSES.clear()
        found = _ACCESSES[key] = _analyse(kernel, kind)
    return found


def generated_kind(kernel: KernelOp) -> str | None:
    """The schedule kind by which code is generated for the kernel; None where that is left open."""
    kind = kernel.schedule_kind()
    return kind if kind in GENERATED_KINDS else None


def kernel_structure(kernel: KernelOp) -> tuple[object, ...]:
    """What kernels that compute the same have in common, and others have not."""
    block = kernel.block
    numbers: dict[SSAValue, int] = {}
    types: list[int] = []
    for value in block.args:
        numbers[value] = len(numbers)
        types.append(attribute_number(value.type))
    shape: list[object] = []
    for op in block.ops:
        shape.append((*_itself(op), *[numbers[value] for value in op.operands]))
        for value in op.results:
            numbers[value] = len(numbers)
            types.append(attribute_number(value.type))
    return (len(block.args), *types, *shape)


def structure_now(kernel: KernelOp) -> tuple[object, ...]:
    """What analyses of a kernel follow from: its structure, and what is asked of shapes now."""
    return (are_sizes_asked_for(), may_rows_be_long(), *kernel_structure(kernel))


def _itself(op: Operation) -> tuple[object, ...]:
    """What there is of an op beside its types and what it reads."""
    found = op.properties
    properties = frozenset([(name, attribute_number(each)) for name, each in found.items()]) if found else None
    return type(op), properties, op if op.regions else len(op.results)


def group_structure(results: Sequence[SSAValue], members: Collection[Operation]) -> tuple[object, ...]:
    """What groups that give such `results` have in common, if they compute the same by the same kernels, and others have not."""
    boundaries = seen_through(members)
    numbers: dict[SSAValue, int] = {}
    types: list[int] = []

    def number(given: SSAValue) -> int:
        value = resolve(given, boundaries)
        if (known := numbers.get(value)) is None:
            known = numbers[value] = len(numbers)
            types.append(attribute_number(value.type))
        return known

    shape: list[object] = []
    for outer in members:
        inner = list(outer.block.ops) if isinstance(outer, KernelOp) else [outer]
        shape.append(len(inner))
        shape.extend((*_itself(op), *map(number, op.operands), *map(number, op.results)) for op in inner)
    return (*map(number, results), None, *types, *shape)


def _analyse(kernel: KernelOp, kind: str | None) -> KernelAccess:
    values = [*kernel.block.args, *(value for op in kernel.block.ops for value in op.results)]
    if not all(is_sized(value) for value in values):
        return KernelAccess(None, (), "dynamic-shape", "has unknown shapes; give them or run infer-shapes")
    try:
        passes = kernel_passes(kernel, kind)
    except Unschedulable as error:
        return KernelAccess(None, (), error.code, str(error))
    except VerifyException as error:
        return KernelAccess(None, (), "no-scalar", str(error))
    replaceable = replaceable_by(kernel, passes)
    first, *others = passes
    return KernelAccess("pack" if others else "row" if first.is_row else "pointwise", replaceable)


def replaceable_by(kernel: KernelOp, passes: Sequence[LoopBody]) -> tuple[frozenset[int], ...]:
    """By result, what `KernelAccess.replaceable` has of a kernel that is these passes; nothing for what they do not store."""
    found = [frozenset[int]() for _ in kernel.results]
    of_size: dict[tuple[int, int], list[int]] = {}
    for number, value in enumerate(kernel.operands):
        of_size.setdefault(_layout(value), []).append(number)
    reads = [_reads(loop_body) for loop_body in passes]
    readers = Counter(number for read in reads for number in read.loads)
    for loop_body, own in zip(passes, reads, strict=True):
        for store in loop_body.stores:
            same_size = of_size.get(_layout(kernel.results[store.result]), ())
            free = [n for n in same_size if readers[n] == (n in own.loads)]
            ok = [n for n in free if all(_comes_before(read, store, own) for read in own.loads.get(n, ()))]
            found[store.result] = frozenset(ok)
    return tuple(found)


def _layout(value: SSAValue) -> tuple[int, int]:
    """Elements, and bytes of one."""
    element = dtype_of(tensor(value).element_type)
    return prod(shape(value)), 0 if element is None else element.itemsize


@dataclass(frozen=True, slots=True)
class _Reads:
    """When nodes are made: the stage in which they are known, and the last in which they may be made (again)."""

    loads: dict[int, list[ScalarNode]]
    known: dict[ScalarNode, int]
    last_in_row: dict[ScalarNode, int]
    """The last stage that uses the node for a whole row at once."""
    last_in_element: dict[ScalarNode, int]
    """The last stage that uses the node for an element of a row."""
    last_in_other_loop: dict[ScalarNode, int]
    """The last stage that uses the node in a reduction over anything else than the elements of a row."""
    addresses: dict[ScalarNode, IndexExpr] = field(default_factory=dict[ScalarNode, IndexExpr])

    def address(self, node: ScalarNode) -> IndexExpr:
        if (found := self.addresses.get(node)) is None:
            found = self.addresses[node] = node.address
        return found


def _reads(loop_body: LoopBody) -> _Reads:
    loads: dict[int, list[ScalarNode]] = {}
    known: dict[ScalarNode, int] = {}
    for node in loop_body.nodes:
        stage = max((known[p] for p in node.operands), default=0)
        known[node] = stage + 1 if _is_reduction(node) else stage
        if node.op is None and isinstance(node.value, BlockArgument):
            loads.setdefault(node.value.index, []).append(node)
    row = dict.fromkeys(loop_body.nodes, _NEVER)
    element = dict.fromkeys(loop_body.nodes, _NEVER)
    other = dict.fromkeys(loop_body.nodes, _NEVER)
    for store in loop_body.stores:
        last = row if store.per_row else element
        last[store.node] = max(last[store.node], known[store.node])
    for node in reversed(loop_body.nodes):
        for operand in node.operands:
            if _is_reduction(node):
                last = element if node.loop == loop_body.columns else other
                last[operand] = max(last[operand], known[node] - 1)
                continue
            for last in (row, element, other):
                last[operand] = max(last[operand], last[node])
    return _Reads(loads, known, row, element, other)


def _is_reduction(node: ScalarNode) -> bool:
    return node.op is not None and bool(node.op.COMBINE)


def _comes_before(read: ScalarNode, store: Store, reads: _Reads) -> bool:
    """Whether the element that a store overwrites was read by then, by the same instance, and by no other.

    Of one stage, only what is done in the same instance is ordered: the work for the row as a whole, the elements of the
    row and other loops may come in any order.
    """
    same, others = reads.last_in_element, reads.last_in_row
    if store.per_row:
        same, others = others, same
    stage = reads.known[store.node]
    if same[read] > stage or others[read] >= stage or reads.last_in_other_loop[read] >= stage:
        return False
    return reads.address(read) == store.address
