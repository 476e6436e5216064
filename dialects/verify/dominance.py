"""Dominance: every operand is defined before its use, in a region that encloses it, on every path to it.

xDSL verifies neither this nor, at the use, that regions isolated from above see only their own values; a pass that moves
ops can break both without any other verifier noticing. The check is near-linear and does not recurse.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from xdsl.ir import Block, BlockArgument, ErasedSSAValue, Operation, OpResult, Region, SSAValue
from xdsl.traits import IsolatedFromAbove
from xdsl.utils.exceptions import VerifyException

_TOO_EARLY = "the value is used before its definition"


class DominanceError(VerifyException):
    """An operand of `op` is not defined where `op` uses it."""

    def __init__(self, message: str, op: Operation) -> None:
        super().__init__(message)
        self.op = op


def verify_dominance(module: Operation) -> None:
    """Checks every use in `module` and the regions in it. Raises DominanceError for the first one that is not dominated."""
    order = {op: number for number, op in enumerate(walk(module))}
    checker = _Checker(order)
    for op in order:
        for number, value in enumerate(op.operands):
            if (fault := checker.fault(op, value)) is not None:
                raise DominanceError(f"'{op.name}' operand {number}: {fault}", op)


def walk(root: Operation) -> Iterator[Operation]:
    """`root` and all ops nested in it in textual order, an op before those in its regions; without recursion."""
    pending: list[Iterator[Operation]] = [iter((root,))]
    while pending:
        for op in pending[-1]:
            yield op
            if op.regions:
                pending.append(chain.from_iterable(block.ops for region in op.regions for block in region.blocks))
                break
        else:
            pending.pop()


class _Checker:
    def __init__(self, order: dict[Operation, int]) -> None:
        self._order = order
        """Textual position of every op of the module."""
        self._trees: dict[Region, _DominatorTree] = {}
        self._isolated: dict[type[Operation], bool] = {}

    def fault(self, user: Operation, value: SSAValue) -> str | None:
        """Why `user` must not use `value`, or None."""
        owner: Operation | Block
        block: Block | None
        if type(value) is OpResult:  # asked so, as classes of xDSL take long to say of what else there is
            owner, block = value.op, value.op.parent
        elif type(value) is BlockArgument:
            owner = block = value.block
        elif isinstance(value, ErasedSSAValue):
            return "the value was erased"
        else:
            owner = value.owner
            block = owner if isinstance(owner, Block) else owner.parent
        if block is user.parent and block is not None:  # by far the most frequent case
            return None if owner is block or self._precedes(owner, user) else _TOO_EARLY
        if block is None or not self._is_inside(block):
            return "the value is defined outside of the module"
        return self._fault_across_blocks(user, owner, block)

    def _fault_across_blocks(self, user: Operation, owner: Operation | Block, block: Block) -> str | None:
        ancestor: Operation | None = user
        crossed: Operation | None = None
        while ancestor is not None and (ancestor.parent is None or ancestor.parent.parent is not block.parent):
            ancestor = ancestor.parent_op()
            if crossed is None and ancestor is not None and self._is_isolated(ancestor):
                crossed = ancestor
        if ancestor is None or ancestor.parent is None:
            return "the value is defined in another region; it is visible there and in regions nested in that one only"
        if ancestor is owner:
            return "the value is a result of the op whose region uses it"
        if crossed is not None:
            return (
                f"the value is defined outside of the enclosing '{crossed.name}', which is isolated from above; "
                "hand it in as an operand"
            )
        if ancestor.parent is block:
            return None if owner is block or self._precedes(owner, ancestor) else _TOO_EARLY
        region = block.parent
        if region is None or self._tree(region).dominates(block, ancestor.parent):
            return None
        return "the block that defines the value does not dominate this use"

    def _precedes(self, owner: Operation | Block, user: Operation) -> bool:
        """Of an op; a block is not asked about."""
        return self._order[owner] < self._order[user]  # pyright: ignore[reportArgumentType]

    def _is_inside(self, block: Block) -> bool:
        parent = block.parent_op()
        return parent is not None and parent in self._order

    def _is_isolated(self, op: Operation) -> bool:
        kind = type(op)
        if (found := self._isolated.get(kind)) is None:
            found = self._isolated[kind] = op.has_trait(IsolatedFromAbove, value_if_unregistered=False)
        return found

    def _tree(self, region: Region) -> _DominatorTree:
        if (found := self._trees.get(region)) is None:
            found = self._trees[region] = _DominatorTree(region)
        return found


class _DominatorTree:
    """Which block of a region dominates which (Cooper, Harvey & Kennedy 2001); all dominate an unreachable one."""

    def __init__(self, region: Region) -> None:
        postorder = _postorder(region.blocks[0])
        number = {block: n for n, block in enumerate(reversed(postorder))}
        predecessors: dict[int, list[int]] = {n: [] for n in number.values()}
        for block, n in number.items():
            for successor in _successors(block):
                predecessors[number[successor]].append(n)
        self._interval = dict(zip(number, _subtrees(_immediate_dominators(predecessors)), strict=True))

    def dominates(self, dominator: Block, block: Block) -> bool:
        if block not in self._interval:
            return True
        if dominator not in self._interval:
            return False
        start, end = self._interval[dominator]
        return start <= self._interval[block][0] < end


def _subtrees(parent: list[int]) -> list[tuple[int, int]]:
    """By node of a tree in which parents have lower numbers: the half-open interval of its subtree in preorder."""
    size = [1] * len(parent)
    for node in range(len(parent) - 1, 0, -1):
        size[parent[node]] += size[node]
    start, free = [0] * len(parent), [1] * len(parent)
    for node in range(1, len(parent)):
        start[node] = free[parent[node]]
        free[parent[node]] += size[node]
        free[node] = start[node] + 1
    return [(first, first + count) for first, count in zip(start, size, strict=True)]


def _immediate_dominators(predecessors: dict[int, list[int]]) -> list[int]:
    """By block in reverse postorder; the entry, 0, is its own."""
    unknown = len(predecessors)
    parent = [0] + [unknown] * (unknown - 1)
    changed = True
    while changed:
        changed = False
        for n in range(1, unknown):
            found = unknown
            for candidate in predecessors[n]:
                if parent[candidate] == unknown:
                    continue
                while found != unknown and candidate != found:
                    if candidate > found:
                        candidate = parent[candidate]
                    else:
                        found = parent[found]
                found = candidate
            if found != parent[n]:
                parent[n] = found
                changed = True
    return parent


def _postorder(entry: Block) -> list[Block]:
    done: list[Block] = []
    seen = {entry}
    pending = [(entry, iter(_successors(entry)))]
    while pending:
        block, successors = pending[-1]
        for successor in successors:
            if successor not in seen:
                seen.add(successor)
                pending.append((successor, iter(_successors(successor))))
                break
        else:
            done.append(block)
            pending.pop()
    return done


def _successors(block: Block) -> tuple[Block, ...]:
    last = block.last_op
    return () if last is None else tuple(s for s in last.successors if s.parent is block.parent)
