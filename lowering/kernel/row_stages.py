"""The loops of one row: which reductions share one, in what order they run, what they hand on in row buffers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from fuse_opt.dialects.analysis.loop_body import ScalarNode, Store
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.extents import estimate, most
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr, linearize
from fuse_opt.dialects.types.size import Size
from fuse_opt.lowering.kernel.element_emitter import KernelNodes, Stage, body_cost
from fuse_opt.lowering.kernel.iteration_space import as_expr, extent

COSTLY = 3
"""Simple operations from which on a scalar is kept rather than computed again."""
STRIDED = 8
"""What a load counts whose neighbours are not neighbours in memory."""
WIDENED = 4
"""What a load counts whose element is converted or becomes a mask."""
LARGEST_ROW = 64 << 10
"""Bytes of one row buffer: with its neighbours it has to stay in the first or second level cache."""
LARGEST_ROWS = 256 << 10
"""Bytes of all row buffers of a kernel, which lie on the stack."""
DEAR = 8
"""Simple operations from which on a scalar is kept in a result's memory: fewer wait for operands themselves, and rows of a result
seldom begin where a vector does."""


@dataclass(eq=False)
class KeptRow:
    """A scalar that stage `source` computes for every element and later ones read back."""

    node: ScalarNode
    source: Stage
    readers: list[Stage]
    dims: tuple[Dim, ...]
    cost: int
    """Simple operations of an element."""
    is_endless: bool = False
    """Whether memory of the function's own has no room for it."""

    def is_long(self, nbytes: int) -> bool:
        """Whether memory of a result does better than that of the function's own, with so many bytes or more."""
        count = extent(self.dims)
        if self.cost < DEAR or isinstance(count, Size):
            return False
        return count * dtype(self.node.value).compute.itemsize >= nbytes

    @property
    def position(self) -> IndexExpr:
        return linearize(tuple(as_expr(dim) for dim in self.dims), [dim.extent for dim in self.dims])


def plan_stages(nodes: KernelNodes, stores: list[Store], columns: tuple[Dim, ...], in_place: bool) -> list[Stage]:
    """The loops of a row in order. `stores` are those of every element; in place they come after all other reads."""
    levels: dict[ScalarNode, int] = {}
    below: dict[ScalarNode, int] = {}
    for node in nodes.loop_body.nodes:
        level = max((below[operand] for operand in node.operands), default=0)
        if node.op is not None and node.op.COMBINE:
            levels[node] = level
            level += 1
        below[node] = level
    stages: dict[tuple[int, tuple[Dim, ...]], Stage] = {}
    last = max(levels.values(), default=-1)
    for node, level in sorted(levels.items(), key=lambda item: item[1]):
        assert node.op is not None
        dims = nodes.loop(node.loop)
        stages.setdefault((level, dims), Stage(dims)).reductions.append(node)
    if stores:
        level = last + 1 if in_place else max(below[store.node] for store in stores)
        stages.setdefault((level, columns), Stage(columns)).stores.extend(stores)
    return [stages[key] for key in sorted(stages, key=lambda key: (key[0], bool(stages[key].stores)))]


@dataclass(frozen=True, slots=True)
class KeepRules:
    """When a scalar of a row is worth keeping: its cost, what of that a load of neighbours is, and the memory there is."""

    costly: int = COSTLY
    load: int = 1
    largest: int = LARGEST_ROW
    room: int = LARGEST_ROWS
    along: Dim | None = None
    """The dimension whose elements are made side by side; the innermost one of a loop where None."""
    long_rows: bool = False
    """Whether rows whose extents are sizes may be larger than these; else a call with such rows is not the kernel's."""
    lends: bool = False
    """Whether other rows may be: memory for them is found in results."""
    lent: int = 0
    """Bytes of a row from which on it is kept in a result's memory, where that can be and computing it takes so long that the
    memory is fetched meanwhile: not all at once while the next row is read, and a first level cache has one row less to hold."""
    refused: frozenset[tuple[ScalarNode, tuple[Dim, ...]]] = frozenset()
    """What is not kept in loops over these dimensions, as nothing has room for it."""


def plan_kept_rows(nodes: KernelNodes, stages: list[Stage], rules: KeepRules = KeepRules()) -> list[KeptRow]:
    """The scalars that several loops of a row need and that are too costly to be computed again, as memory allows."""
    kept: dict[tuple[ScalarNode, tuple[Dim, ...]], KeptRow] = {}
    computed: dict[tuple[ScalarNode, tuple[Dim, ...]], Stage] = {}
    costs = _Costs(nodes, rules)
    room = rules.room
    for stage in stages:
        own: set[ScalarNode] = set()
        stack = stage.roots()
        while stack:
            node = stack.pop()
            if node in own or not nodes.varies(node, stage.dims):
                continue
            own.add(node)
            key = (node, stage.dims)
            count = extent(stage.dims)
            size = most(count) * dtype(node.value).compute.itemsize
            is_endless, least = size > rules.largest, rules.costly
            if is_endless and isinstance(count, Size):
                size, is_endless = (size, True) if rules.long_rows else (rules.largest, False)
            elif is_endless:
                is_endless, least = rules.lends, DEAR
            if key in kept:
                kept[key].readers.append(stage)
            elif (
                key in computed
                and (size <= min(room, rules.largest) or is_endless)
                and key not in rules.refused
                and (cost := costs.of(node, stage.dims, kept)) >= least
            ):
                room -= 0 if is_endless else size
                kept[key] = KeptRow(node, computed[key], [stage], stage.dims, cost, is_endless)
            else:
                stack.extend(node.operands)
        for node in own:
            computed.setdefault((node, stage.dims), stage)
    return list(kept.values())


def plan_lent_rows(
    nodes: KernelNodes, stages: list[Stage], rules: KeepRules, may_lend: bool
) -> tuple[list[KeptRow], dict[KeptRow, Store]]:
    """What is kept of rows; of those that are long, the stores of results that lend theirs, if they may at all: of those that
    memory of the function's own has no room for no others are kept."""
    while True:
        found = plan_kept_rows(nodes, stages, rules)
        endless = [kept for kept in found if kept.is_endless]
        long = [kept for kept in found if kept.is_endless or (rules.lends and kept.is_long(rules.lent))]
        is_alone = len(nodes.loop_body.stores) == 1  # of several results others may be read back, too
        lenders = find_lenders(nodes, long, stages) if is_alone and may_lend else {}
        homeless = [kept for kept in endless if kept not in lenders]
        if not homeless:
            return found, lenders
        refused = {(kept.node, kept.dims) for kept in homeless}
        rules = replace(rules, refused=rules.refused | refused)


def move_store(nodes: KernelNodes, kept: KeptRow, stages: Sequence[Stage]) -> Store | None:
    """Where a kept scalar is a result, too: its store, which the loop that computes it does from now on, so that others
    read it back from the result. None where there is no such store over neighbours in memory."""
    element = dtype(kept.node.value)
    if element.compute is not element:
        return None
    for stage in stages:
        store = next((store for store in stage.stores if store.node is kept.node), None)
        if store is None or stage.dims != kept.dims or (stage is not kept.source and len(stage.roots()) == 1):
            continue
        factors = nodes.space.apply(store.address).coefficients()
        if factors is None or factors.get(kept.dims[-1], 0) != 1:
            continue
        stage.stores.remove(store)
        kept.source.stores.append(store)
        return store
    return None


def find_lenders(nodes: KernelNodes, rows: Sequence[KeptRow], stages: Sequence[Stage]) -> dict[KeptRow, Store]:
    """
    Stores of results whose rows hold kept scalars until then, as far as there are any. What is kept first is read for the last
    time where what comes after it is made, if not before: an element is loaded there before its place is stored to. Nothing
    else may read or write the results' memory.
    """
    order = {node: place for place, node in enumerate(nodes.loop_body.nodes)}
    found: dict[KeptRow, Store] = {}
    held: dict[int, list[KeptRow]] = {}

    def comes_before(one: KeptRow, other: KeptRow) -> bool:
        end = max(stages.index(reader) for reader in one.readers)
        return end <= stages.index(other.source) and order[one.node] < order[other.node]

    for kept in rows:
        for store in _possible_lenders(nodes, kept, stages):
            others = held.setdefault(store.result, [])
            if all(comes_before(other, kept) or comes_before(kept, other) for other in others):
                others.append(kept)
                found[kept] = store
                break
    return found


def _possible_lenders(nodes: KernelNodes, kept: KeptRow, stages: Sequence[Stage]) -> Iterator[Store]:
    """Stores over the same neighbours, of elements of the type, in the last loop that reads the scalar or in a later one."""
    element = dtype(kept.node.value)
    if element.compute is not element:
        return
    last = max(stages.index(stage) for stage in (kept.source, *kept.readers))
    for stage in stages[last:]:
        for store in stage.stores if stage.dims == kept.dims and stage is not kept.source else ():
            factors = nodes.space.apply(store.address).coefficients()
            unit = factors is not None and factors.get(kept.dims[-1], 0) == 1
            if unit and dtype(store.node.value) is element:
                yield store


def early_stores(nodes: KernelNodes, stores: Sequence[Store], stage: Stage) -> list[ScalarNode]:
    """The scalars to store that need no reduction of the stage: read before it may overwrite what they read."""
    late = set(stage.reductions)
    for node in nodes.loop_body.nodes:
        if not late.isdisjoint(node.operands):
            late.add(node)
    return [store.node for store in stores if store.node not in late]


def nodes_below(roots: Iterable[ScalarNode], known: Collection[ScalarNode] = ()) -> set[ScalarNode]:
    """All nodes that the roots are made of but the known ones: reductions among them, but not what these reduce."""
    found: set[ScalarNode] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in found or node in known:
            continue
        found.add(node)
        if node.op is None or not node.op.COMBINE:
            stack.extend(node.operands)
    return found


@dataclass
class _Costs:
    """What computing a scalar for one element takes, with all that varies with the loop below it."""

    nodes: KernelNodes
    rules: KeepRules

    def of(self, root: ScalarNode, dims: tuple[Dim, ...], kept: Collection[tuple[ScalarNode, tuple[Dim, ...]]]) -> int:
        total = 0
        seen: set[ScalarNode] = set()
        stack = [root]
        while stack:
            node = stack.pop()
            if node in seen or not self.nodes.varies(node, dims):
                continue
            seen.add(node)
            if (node, dims) in kept:
                total += 1
                continue
            total += self._of_one(node, dims)
            stack.extend(node.operands)
        return total

    def _of_one(self, node: ScalarNode, dims: tuple[Dim, ...]) -> int:
        if node.op is not None:
            return 0 if node.op.COMBINE else body_cost(node.op)
        step = self.nodes.addresses[node].step(self.rules.along or dims[-1])
        if step is None or abs(estimate(step)) > 1:
            return STRIDED
        element = dtype(node.value)
        return self.rules.load if element.compute is element and element.itemsize > 1 else WIDENED
