"""Move what depends on frozen arguments alone to a second function, which runs when one of them changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from fuse_opt.dialects.analysis.prepared import called_functions, frozen_arguments
from fuse_opt.dialects.analysis.storage import byte_size
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.passes.frozen.prepare_function import PrepareFunction
from fuse_opt.passes.frozen.sources import Sources, may_move, with_body
from fuse_opt.passes.remarks import remark
from fuse_opt.passes.rewrite_pass import RewritePass


@dataclass(frozen=True)
class HoistFrozenPass(RewritePass):
    """Ops and kernels whose operands all follow from frozen arguments and constants move to `@f.prepare`.

    ```mlir
    func.func @f(%x: tensor<8xf32>, %w: tensor<8xf16> {graph.frozen}) -> tensor<8xf32> {
      %0 = graph.astype %w {dtype = f32} : (tensor<8xf16>) -> tensor<8xf32>
      %1 = graph.multiply %x, %0 : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
      func.return %1 : tensor<8xf32>
    }
    ```
    becomes
    ```mlir
    func.func @f(%x: tensor<8xf32>, %w: tensor<8xf16> {graph.frozen},
                 %0: tensor<8xf32> {graph.prepared = @f.prepare}) -> tensor<8xf32> {
      %1 = graph.multiply %x, %0 : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
      func.return %1 : tensor<8xf32>
    }
    func.func private @f.prepare(%w: tensor<8xf16>) -> tensor<8xf32> {
      %0 = graph.astype %w {dtype = f32} : (tensor<8xf16>) -> tensor<8xf32>
      func.return %0 : tensor<8xf32>
    }
    ```
    What other ops read becomes a result of `@f.prepare`, and a further argument of `@f`; who calls `@f` gives the same arguments
    as before. Not kept so: what is larger than the arguments that it is made from by more than `max-growth`; views, unless an
    op of a library reads them, which would have to be given a copy; what no frozen argument has a part in. These stay where
    they are, and are computed by both functions where both need them. Ops with directives stay, and so does what an op reads
    that must be in place. Run it before fusion, after which kernels are moved as wholes.
    """

    name = "hoist-frozen"

    max_growth: float = 4.0
    """A prepared tensor may have so many times the bytes of the frozen arguments that it is made from."""

    def __post_init__(self) -> None:
        if not self.max_growth >= 0:
            raise ValueError(f"option 'max-growth': expected 0 or more, got {self.max_growth}")

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        for function in called_functions(op):
            if frozen_arguments(function) and function.body.first_block is function.body.last_block:
                _Hoist(function, self).run()


class _Hoist:
    def __init__(self, function: FuncOp, options: HoistFrozenPass) -> None:
        self.function = function
        self.options = options
        self.ops = list(function.body.block.ops)
        self.sources = Sources(function)
        self.here: set[SSAValue] = set()
        """Values that the function itself needs."""
        self.there: set[SSAValue] = set()
        """Values that the second function needs."""
        self.moved: list[Operation] = []
        self.copied: set[Operation] = set()
        self.given: list[SSAValue] = []

    def run(self) -> None:
        for op in self.ops:
            if may_move(op):
                self.sources.follow(op)
        for op in reversed(self.ops):
            self._place(op)
        if self.given:
            self._move()

    def _place(self, op: Operation) -> None:
        """Decides which of the two functions has the op, from the readers of its results."""
        here = any(result in self.here for result in op.results)
        there = any(result in self.there for result in op.results)
        stays = not self.sources.covers(op) or (here and self._refuses(op)) or not (here or there)
        if stays:
            self.here.update(_operands(op))
        elif here:
            self.given += [result for result in reversed(op.results) if result in self.here]
        if not stays or there:
            self.there.update(op.operands)
            self.moved.append(op)
        if stays and there:
            self.copied.add(op)

    def _refuses(self, op: Operation) -> bool:
        """Whether the op's results are not worth memory of their own, or a person decided about them."""
        made_from = self.sources.nbytes(op.results[0])
        if made_from is None:
            return True  # constants: they fold, or are cheap to make
        nbytes = sum(byte_size(result) or 0 for result in op.results)
        code, why, flip = self._problem(op, made_from, nbytes)
        if code:
            remark(self.options.name, op, code, why, flip=flip, bytes=nbytes, from_bytes=made_from)
            return True
        return False

    def _problem(self, op: Operation, made_from: int, nbytes: int) -> tuple[str, str, str]:
        if nbytes > self.options.max_growth * made_from:
            growth = f"max-growth = {nbytes / max(made_from, 1):.3g}"
            return "larger", "is computed in each call: it is larger than what it is made from", growth
        readers = [use.operation for result in op.results for use in result.uses]
        if any(map(_must_be_in_place, readers)):
            return "directive", "is computed in each call: who reads it must overwrite it", "no must_inplace"
        if isinstance(op, StructuredOp) and op.is_view() and (op.is_alias() or not any(map(_wants_copies, readers))):
            return "free-view", "is computed in each call, as a view costs nothing", ""
        return "", "", ""

    def _move(self) -> None:
        second = PrepareFunction(self.function)
        for op in reversed(self.moved):
            second.compute(op)
        given = self.given[::-1]
        arguments = second.give_all([(second.values[value], value.name_hint) for value in given])
        for value, argument in zip(given, arguments, strict=True):
            op = value.owner
            assert isinstance(op, Operation)
            made_from = self.sources.nbytes(value) or 0
            why = f"is computed by '{second.prepare.sym_name.data}', when a frozen argument changes"
            remark(self.options.name, op, "hoisted", why, bytes=byte_size(value) or 0, from_bytes=made_from)
            _forget_in_place(value)
            value.replace_all_uses_with(argument)
        for op in self.moved:  # readers first
            if op not in self.copied:
                Rewriter.erase_op(op)
        second.finish()


def _operands(op: Operation) -> Iterable[SSAValue]:
    if isinstance(op, GraphOp | KernelOp | ReturnOp):
        return op.operands
    return [value for inner in op.walk() for value in inner.operands]


def _wants_copies(reader: Operation) -> bool:
    """Whether an op cannot read a view as a part of itself."""
    return not isinstance(reader, StructuredOp | ReturnOp)


def _must_be_in_place(reader: Operation) -> bool:
    return any("must_inplace" in op.attributes for op in with_body(reader))


def _forget_in_place(value: SSAValue) -> None:
    """Nobody overwrites a prepared tensor."""
    for use in value.uses:
        if isinstance(use.operation, KernelOp) and any(
            operand == use.index for _, operand in use.operation.inplace_pairs()
        ):
            use.operation.inplace = None
