"""Loops and branches as C statements: a value that a loop carries is one variable, assigned where the body yields."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from fuse_opt.lowering.c.expressions import ExpressionPrinter, row_key, row_type, type_name
from fuse_opt.lowering.c.op_table import Level
from fuse_opt.lowering.hints import ROLLED, SCALAR, SIDE_BY_SIDE, STREAMED, UNROLL


class ControlPrinter(ExpressionPrinter):
    """Adds the `scf` dialect to expressions."""

    reductions: dict[str, str]
    """Declared combiners by name, in the order of their first use."""

    @abstractmethod
    def print_op(self, op: Operation) -> None:
        """Any op but a block's terminator."""

    def print_body(self, block: Block) -> None:
        """The ops of a block without its terminator, one level deeper."""
        self.indent += 1
        last = block.last_op
        for op in block.ops:
            if op is not last and op not in self.facts.dead:
                self.print_op(op)
        self.indent -= 1

    def print_for(self, op: scf.ForOp) -> None:
        induction, *carried = op.body.block.args
        for argument, initial, result in zip(carried, op.iter_args, op.res, strict=True):
            self._declare_carried(op, argument, initial, result)
        self._open_loop(op, induction, op.lb, op.ub, op.step)
        self.print_body(op.body.block)
        self._assign(op, self._yielded(op.body.block), carried)
        self._close(op.res)

    def print_if(self, op: scf.IfOp) -> None:
        names = [self.declare(result, op, fallback="r") for result in op.output]
        self.emit(f"if ({self.text(op.cond)}) {{")
        self._print_branch(op, op.true_region.block, names)
        if op.false_region.blocks and (
            op.output or op.false_region.block.first_op is not op.false_region.block.last_op
        ):
            self.emit("} else {")
            self._print_branch(op, op.false_region.block, names)
        self._close(op.output)

    def print_parallel(self, op: scf.ParallelOp) -> None:
        """A loop whose iterations may run in any order, with reductions that may be reassociated."""
        if len(op.lowerBound) != 1:
            raise self.refuse(op, f"no row for {len(op.lowerBound)} dimensions; nest loops of one dimension")
        reduce = op.body.block.last_op
        assert isinstance(reduce, scf.ReduceOp)
        combiners = [self._combiner(reduce, region.block) for region in reduce.reductions]
        names = [
            self._declare_accumulator(op, initial, result) for initial, result in zip(op.initVals, op.res, strict=True)
        ]
        if self.language.simd and op not in self.facts.nested_parallel:
            clauses = (self._clause(combiner, name) for combiner, name in zip(combiners, names, strict=True))
            length = op.attributes.get(SIDE_BY_SIDE)
            lanes = f" simdlen({length.value.data})" if isinstance(length, IntegerAttr) else ""
            self.emit(self.language.simd + lanes + "".join(clauses))
        self._open_loop(op, op.body.block.args[0], op.lowerBound[0], op.upperBound[0], op.step[0])
        self.print_body(op.body.block)
        self.indent += 1
        for combiner, result, argument in zip(combiners, op.res, reduce.args, strict=True):
            text = self.spell(self.find_row(combiner), combiner, (result, argument))
            self.emit(f"{self.text(result)} = {self._narrowed(combiner, text)};")
        self.indent -= 1
        self._close(op.res)

    def _open_loop(
        self, op: Operation, induction: BlockArgument, lower: SSAValue, upper: SSAValue, step: SSAValue
    ) -> None:
        start = self.text(lower)
        end = self.text(upper, Level.ADD)
        by = self.text(step)
        if (unroll := op.attributes.get(UNROLL)) is not None:
            self.emit(f"#pragma unroll {unroll.value.data}" if isinstance(unroll, IntegerAttr) else "#pragma unroll")
        for attribute, lines in ((STREAMED, self.language.streamed), (ROLLED, self.language.rolled)):
            for line in lines if attribute in op.attributes else ():
                self.emit(line)
        name = self.fresh_name(induction, "i")
        self.bind(induction, name)
        advance = f"++{name}" if by == "1" else f"{name} += {by}"
        self.emit(f"for ({self.c_type(induction.type, op)} {name} = {start}; {name} < {end}; {advance}) {{")
        if SCALAR in op.attributes or STREAMED in op.attributes:
            self.indent += 1
            for line in self.language.scalar:
                self.emit(line)
            self.indent -= 1

    def _close(self, results: Iterable[SSAValue]) -> None:
        """Ends a statement with a body; results that nobody reads are mentioned for the compiler's sake."""
        self.emit("}")
        for result in results:
            if not self.is_used(result):
                self.emit(f"(void){self.text(result)};")

    def _declare_carried(self, op: Operation, argument: BlockArgument, initial: SSAValue, result: SSAValue) -> None:
        name = self.scope.fresh(argument.name_hint or result.name_hint, "acc")
        self.emit(f"{self.c_type(argument.type, op)} {name} = {self.text(initial)};")
        self.bind(argument, name, mutable=True)
        self.bind(result, name)

    def _declare_accumulator(self, op: Operation, initial: SSAValue, result: SSAValue) -> str:
        """As stored: gcc reduces a vector of bytes, but not of _Bool."""
        name = self.fresh_name(result, "acc")
        self.emit(f"{self.c_type(result.type, op, stored=True)} {name} = {self.text(initial)};")
        self.bind(result, name)
        return name

    def _yielded(self, block: Block) -> Sequence[SSAValue]:
        last = block.last_op
        return last.operands if isinstance(last, scf.YieldOp) else ()

    def _print_branch(self, op: scf.IfOp, block: Block, names: Sequence[str]) -> None:
        self.print_body(block)
        for name, value in zip(names, self._yielded(block), strict=True):
            self.indent += 1
            self.emit(f"{name} = {self.text(value)};")
            self.indent -= 1

    def _assign(self, op: Operation, values: Sequence[SSAValue], variables: Sequence[SSAValue]) -> None:
        """All at once: what an earlier assignment would change is read first."""
        self.indent += 1
        pairs = [
            (self.text(variable), self.value(value), variable)
            for variable, value in zip(variables, values, strict=True)
            if self.text(variable) != self.value(value).text
        ]
        texts: list[str] = []
        for position, (name, expr, variable) in enumerate(pairs):
            if position and expr.mutable:
                temporary = self.scope.fresh(f"{name}_next")
                self.emit(f"{self.c_type(variable.type, op)} {temporary} = {expr.text};")
                texts.append(temporary)
            else:
                texts.append(expr.text)
        for (name, _, _), text in zip(pairs, texts, strict=True):
            self.emit(f"{name} = {text};")
        self.indent -= 1

    def _combiner(self, reduce: scf.ReduceOp, block: Block) -> Operation:
        """The one op of a reduction's region."""
        combiner, final = block.first_op, block.last_op
        if (
            combiner is None
            or combiner.next_op is not final
            or not isinstance(final, scf.ReduceReturnOp)
            or final.result.owner is not combiner
            or set(combiner.operands) != set(block.args)
        ):
            raise self.refuse(reduce, "no row for a combiner of several ops; write one arith op over both arguments")
        return combiner

    def _clause(self, combiner: Operation, name: str) -> str:
        language = self.language
        operator = language.reduction_operators.get(row_key(combiner))
        if operator is None:
            operator = self._declare_reduction(combiner)
        elif type_name(combiner.results[0].type) == "i1":
            operator = {"+": "^", "*": "&"}.get(operator, operator)
        return language.reduction.format(operator, name)

    def _declare_reduction(self, combiner: Operation) -> str:
        """Declares an extremum, which alone has neither an operator nor a private start value other than its own."""
        if not combiner.name.startswith(("arith.max", "arith.min")):
            raise self.refuse(combiner, "no row in its table of reductions")
        name = f"fo_{combiner.name.removeprefix('arith.')}_{row_type(combiner)}"
        if name not in self.reductions:
            row = self.find_row(combiner)
            kind = self.c_type(combiner.results[0].type, combiner, stored=True)
            for argument, text in zip(combiner.operands, ("omp_out", "omp_in"), strict=True):
                self.bind(argument, text)
            text = self.spell(row, combiner, combiner.operands)
            self.reductions[name] = self.language.declared_reduction.format(name=name, type=kind, text=text)
        return name

    def _narrowed(self, combiner: Operation, text: str) -> str:
        """Bytes combine as ints; the cast back keeps gcc's vectoriser on bytes."""
        if type_name(combiner.results[0].type) in ("i1", "i8", "i16"):
            return f"({self.c_type(combiner.results[0].type, combiner, stored=True)})({text})"
        return text
