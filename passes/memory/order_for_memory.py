"""Run kernels in an order in which fewer bytes of the arena are in use at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from fuse_opt.dialects.analysis.storage import (
    SharedMemory,
    aliased_operand,
    directed_results,
    forget_plan,
    functions_of,
)
from fuse_opt.dialects.fused import KernelOp, OutlinedOp, PartitionOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.dialects.types.extents import corners, evaluate, symbols
from fuse_opt.passes.decisions.choices import Choices, choosing
from fuse_opt.passes.memory.decided_order import taken_moves, told_moves
from fuse_opt.passes.memory.inplace_rules import InplaceRules, KernelRules
from fuse_opt.passes.memory.inside_partitions import peak_inside
from fuse_opt.passes.memory.ordering.ordering import STRATEGIES, Order, reorder
from fuse_opt.passes.memory.ordering.problem import Node, Problem, Value, loads_of
from fuse_opt.passes.options import tunable
from fuse_opt.passes.remarks import RefusedError, remark
from fuse_opt.passes.rewrite_pass import RewritePass


@dataclass(frozen=True)
class OrderForMemoryPass(RewritePass):
    """Moves kernels, as far as none comes before what it depends on, where that lowers the bound of the arena.

    ```mlir
    %a = fused.kernel(%0 = %x : tensor<64xf32>) -> (tensor<64x64xf32>) { ... }
    %b = fused.kernel(%0 = %y : tensor<64xf32>) -> (tensor<64x64xf32>) { ... }
    %c = fused.kernel(%0 = %a : tensor<64x64xf32>) -> (tensor<64xf32>) { ... graph.sum ... }
    %d = fused.kernel(%0 = %b : tensor<64x64xf32>) -> (tensor<64xf32>) { ... graph.sum ... }
    ```
    becomes, since no two large values are alive at once then,
    ```mlir
    %a = fused.kernel(...) -> (tensor<64x64xf32>) { ... }
    %c = fused.kernel(...) -> (tensor<64xf32>) { ... graph.sum ... }
    %b = fused.kernel(...) -> (tensor<64x64xf32>) { ... }
    %d = fused.kernel(...) -> (tensor<64xf32>) { ... graph.sum ... }
    ```
    The bound is the most bytes of the arena in use at any step, after the in-place pairs that `infer-inplace` would choose.
    An order is taken when it lowers it by one part in 128 at least, else all stays as it is; where extents are unknown at usual
    ones, and if it is not higher at the ends of their ranges. Views and constants come right
    before their first reader then; in-place pairs, slots and segments, which were chosen for the old order, are dropped.

    Requires: nothing. Ensures: a bound that is not higher; a pair that `must_inplace` asks for stays legal.
    """

    name = "order-for-memory"

    strategy: str = field(default="auto", metadata=tunable("lpmf", "dfs"))
    """How orders are found: "lpmf" (least growth first), "dfs" (post-order), or "auto": both, and windows around peaks."""
    window: int = 24
    """How many kernels around a peak are ordered anew at once; 0 leaves that out."""
    alignment: int = 64
    """Sizes count as multiples of so many bytes, as in `plan-memory`."""

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        if self.strategy not in STRATEGIES:
            known = ", ".join(STRATEGIES)
            raise RefusedError(f"'{self.name}' option strategy: unknown '{self.strategy}'; use one of {known}", op)
        if not 0 <= self.window <= 64:
            raise RefusedError(f"'{self.name}' option window: expected 0 to 64 kernels, got {self.window}", op)
        if self.alignment < 1:
            raise RefusedError(f"'{self.name}' option alignment: expected 1 byte or more, got {self.alignment}", op)
        with choosing(self.name, op) as choices:
            for function in functions_of(op):
                nodes = ordered_ops(function)
                if len(nodes) >= 2:
                    self._order(function, nodes, memory_problems(function, self.alignment), choices)

    def _order(
        self, function: FuncOp, nodes: Sequence[Operation], problems: Sequence[Problem], choices: Choices
    ) -> None:
        problem, *others = problems
        if choices.replays:
            order, is_moved = told_moves(function.body.block, nodes, problem, choices)
        else:
            found = reorder(problem, self.strategy, self.window)
            if any(loads_of(each.permuted(found.order)).bound > loads_of(each).bound for each in others):
                message = "keeps its order: one that needs less at usual extents needs more at others"
                remark(self.name, function, "kept", message, before=found.given, after=found.bound)
                return
            self._report(function, found)
            order, is_moved = list(found.order), found.bound < found.given
            if is_moved:
                order = taken_moves(nodes, order, choices) if choices.is_asked else order
                is_moved = order != list(range(len(nodes)))
        if is_moved:
            _move(function, [nodes[number] for number in order])

    def _report(self, function: FuncOp, found: Order) -> None:
        if found.bound < found.given:
            remark(
                self.name,
                function,
                "ordered",
                "runs in an order of a lower bound",
                before=found.given,
                after=found.bound,
                method=found.method,
            )
        elif found.given:
            message = "keeps its order: no other that was tried needs clearly less of the arena"
            remark(self.name, function, "kept", message, before=found.given, after=found.bound)


def ordered_ops(function: FuncOp) -> list[Operation]:
    """The ops that are ordered: all but the end, and the views and constants that have readers to follow."""
    return [op for op in function.body.block.ops if not _follows(op) and not isinstance(op, ReturnOp)]


def _follows(op: Operation) -> bool:
    """Whether an op goes where it is used: a view that moves nothing, or a constant."""
    if not any(result.uses for result in op.results):
        return False
    if aliased_operand(op) is not None:
        return True
    return (
        isinstance(op, GraphOp) and not op.operands and (isinstance(op, StructuredOp) or op.stored_value() is not None)
    )


def memory_problems(function: FuncOp, alignment: int) -> list[Problem]:
    """
    What ordering the ops of `ordered_ops` means for memory, at usual values of symbols, and at the ends of their ranges. The
    function's in-place pairs play no part.
    """
    rules = InplaceRules(function)
    block = function.body.block
    values = [*block.args, *(value for op in block.ops for value in op.results)]  # of arguments, too: ops read them
    sizes = [rules.classes.known(value).nbytes for value in values]
    return [_ProblemBuilder(function, rules, alignment, at).build() for at in corners(symbols(sizes))]


class _ProblemBuilder:
    def __init__(self, function: FuncOp, rules: InplaceRules, alignment: int, at: Mapping[str, int]) -> None:
        """`at` has the values of symbols."""
        self.rules, self.at = rules, at
        self.alignment = alignment
        self.ops = ordered_ops(function)
        self.values: list[Value] = []
        self.numbers: dict[int, int] = {}
        """By class of values that share memory as views do."""

    def build(self) -> Problem:
        nodes = tuple(map(self._node, self.ops))
        return Problem(tuple(self.values), nodes)

    def _number(self, value: SSAValue) -> int:
        classes = self.rules.classes
        shared = classes.find(value)
        if shared not in self.numbers:
            self.numbers[shared] = len(self.values)
            self.values.append(_value(classes.known(value), self.alignment, self.at))
        return self.numbers[shared]

    def _node(self, op: Operation) -> Node:
        known = isinstance(op, GraphOp | OutlinedOp)
        used = op.operands if known else [v for inner in op.walk() for v in inner.operands if self._is_outer(v)]
        reads = tuple(dict.fromkeys(map(self._number, used)))
        writes = tuple(n for n in dict.fromkeys(map(self._number, op.results)) if n not in reads)  # of a view: none
        if not isinstance(op, OutlinedOp):
            return Node(reads, writes, ordered=not known)
        if workspace := op.workspace_bytes():  # a value that nobody reads lives at its own step alone
            writes = (*writes, len(self.values))
            self.values.append(Value(-(-workspace // self.alignment) * self.alignment))
        if isinstance(op, PartitionOp) and (inside := peak_inside(op, self.alignment)):
            writes = (*writes, len(self.values))
            self.values.append(Value(inside))
        if not isinstance(op, KernelOp):
            return Node(reads, writes, ordered=False)
        must = directed_results(op, "must_inplace")
        rules = self.rules.at(len(self.rules.classes.ops), op)  # as if nothing came after it
        results = sorted(range(len(op.results)), key=lambda result: (result not in must, result))
        return Node(reads, writes, tuple(self._pairs(rules, results)), reads_last=bool(must))

    def _is_outer(self, value: SSAValue) -> bool:
        return (
            value.owner is self.rules.classes.block or getattr(value.owner, "parent", None) is self.rules.classes.block
        )

    def _pairs(self, rules: KernelRules, results: Sequence[int]) -> Iterator[tuple[int, int]]:
        for result in results:
            written = self._number(rules.kernel.results[result])
            found: set[int] = set()
            for operand, value in enumerate(rules.kernel.operands):
                read = self._number(value)
                if read not in found and rules.refuse(result, operand) is None:
                    found.add(read)
                    yield written, read


def _value(memory: SharedMemory, alignment: int, at: Mapping[str, int]) -> Value:
    size = -(-evaluate(memory.nbytes, at) // alignment) * alignment
    callers = memory.argument is not None
    outside = callers or memory.constant or memory.returned or memory.unplanned
    lasts = memory.returned or memory.kept or memory.constant or (callers and not memory.donated)
    return Value(size, outside, lasts, memory.donated)


def _move(function: FuncOp, order: Sequence[Operation]) -> None:
    """Puts the ops in this order, views and constants between them, and drops what was decided for the old order."""
    block = function.body.block
    last = block.last_op
    assert last is not None
    for op in _with_followers(block, [*order, last])[:-1]:
        op.detach()
        block.insert_op_before(op, last)
    forget_plan(function)


def _with_followers(block: Block, order: Sequence[Operation]) -> list[Operation]:
    """All ops: each view and constant right before its first reader."""
    missing = {op for op in block.ops if _follows(op)}
    placed: list[Operation] = []
    for op in order:
        for operand in (
            op.operands if isinstance(op, OutlinedOp) else (v for inner in op.walk() for v in inner.operands)
        ):
            chain: list[Operation] = []
            value: SSAValue | None = operand
            while value is not None and isinstance(owner := value.owner, Operation) and owner in missing:
                chain.append(owner)
                missing.remove(owner)
                value = owner.operands[0] if owner.operands else None
            placed += reversed(chain)
        placed.append(op)
    return placed
