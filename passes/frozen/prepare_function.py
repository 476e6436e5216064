"""The function behind a function's prepared arguments: found or begun, and extended by what a pass moves to it."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, SymbolRefAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue

from fuse_opt.dialects.analysis.prepared import PREPARED, frozen_arguments, prepared_arguments, prepared_of
from fuse_opt.dialects.analysis.storage import argument_attributes, forget_places
from fuse_opt.dialects.fused import KernelOp


class PrepareFunction:
    """What is known of `@f.prepare` while it grows. Values of `@f` are named by those of `@f` throughout."""

    def __init__(self, function: FuncOp) -> None:
        self.function = function
        found = prepared_of(function)
        self._frozen = frozen_arguments(function)
        if found is None:
            types = [function.body.block.args[number].type for number in self._frozen]
            self.prepare = FuncOp(_free_name(function), (types, []), Region(Block(arg_types=types)), "private")
            self.prepare.body.block.add_op(ReturnOp())
            self.prepare.location = function.location
        else:
            self.prepare = found.function
        self.is_new = found is None
        self._given: list[SSAValue] = []
        arguments = function.body.block.args
        self.values: dict[SSAValue, SSAValue] = {}
        """By value of the function, the equal one of the second function."""
        for number, value in zip(self._frozen, self.prepare.body.block.args, strict=True):
            self.values[arguments[number]] = value
            if self.is_new:
                value.name_hint = arguments[number].name_hint
        for number, value in zip(prepared_arguments(function), self._returned().operands, strict=True):
            self.values[arguments[number]] = value

    def _returned(self) -> ReturnOp:
        last = self.prepare.body.block.last_op
        assert isinstance(last, ReturnOp)
        return last

    def compute(self, op: Operation) -> None:
        """Lets the second function compute what an op of the function does; its operands' values must be there."""
        copy = op.clone(self.values)
        copy.location = op.location
        if isinstance(copy, KernelOp):
            copy.drop_places()
            copy.inplace = copy.segment = None
        self.add(copy)
        self.values.update(zip(op.results, copy.results, strict=True))

    def add(self, op: Operation) -> None:
        """Puts an op of the second function at its end."""
        self.prepare.body.block.insert_op_before(op, self._returned())

    def give(self, value: SSAValue, hint: str | None) -> BlockArgument:
        """A new argument of the function for a value of the second one, which `finish` has that return."""
        return self.give_all([(value, hint)])[0]

    def give_all(self, values: Sequence[tuple[SSAValue, str | None]]) -> Sequence[BlockArgument]:
        """New arguments for several values, each with the hint of a name; all at once, as adding one copies those before it."""
        block = self.function.body.block
        first = len(block.args)
        found = [BlockArgument(value.type, block, first + number) for number, (value, _) in enumerate(values)]
        block._args = (*block.args, *found)  # pyright: ignore[reportPrivateUsage]
        for argument, (value, hint) in zip(found, values, strict=True):
            argument.name_hint = hint
            self._given.append(value)
        return found

    def finish(self) -> None:
        """
        States the types and attributes of both, and puts a new second function behind the first; what nobody reads any more is
        not given. To be called once something is given.
        """
        self._describe_given()
        for function in (self.function, self.prepare):
            function.update_function_type()
        forget_places(self.prepare)
        if self.is_new:
            assert self.function.parent is not None
            self.function.parent.insert_op_after(self.prepare, self.function)
            self.is_new = False

    def _describe_given(self) -> None:
        block, last = self.function.body.block, self._returned()
        numbers = [*prepared_arguments(self.function), *range(len(block.args) - len(self._given), len(block.args))]
        returned = zip(numbers, (*last.operands, *self._given), strict=True)
        known: list[DictionaryAttr | None] = [
            DictionaryAttr(argument_attributes(self.function, number))
            for number in range(len(block.args) - len(self._given))
        ]
        known += [DictionaryAttr({PREPARED: SymbolRefAttr(self.prepare.sym_name.data)})] * len(self._given)
        kept: list[SSAValue] = []
        for number, value in returned:
            if block.args[number].uses:
                kept.append(value)
            else:
                known[number] = None
        last.operands = kept
        for argument in [block.args[number] for number in numbers if known[number] is None]:
            block.erase_arg(argument)
        self.function.arg_attrs = ArrayAttr([entry for entry in known if entry is not None])
        self._given.clear()


def _free_name(function: FuncOp) -> str:
    """`f.prepare`, with a number behind it where there is such a symbol."""
    module = function.parent_op()
    names = {op.sym_name.data for op in module.walk() if isinstance(op, FuncOp)} if module is not None else set[str]()
    name = first = f"{function.sym_name.data}.prepare"
    number = 0
    while name in names:
        number += 1
        name = f"{first}.{number}"
    return name
