"""What the reducer may leave out of a program: functions, results, ops, kernels, arguments, attributes, extents.

An edit lists its items in the order of the program and drops some of them from a module in place. Items are known by their
number, so that the same choice means the same on every copy of a module. What an edit makes need not verify.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import IsTerminator

from fuse_opt.dialects.fused import KernelOp

_NEARBY = 64
"""Ops before an op among whose results a replacement of the same type is looked for."""
_TYPE = re.compile(r"tensor<[^<>]*>")
_TYPE_OR_LIST = re.compile(r"tensor<[^<>]*>|array<i64: [^<>]*>")
_NUMBER = re.compile(r"(?<![a-wyz\d])\d+")
"""An extent, or an element of a list; not the 64 of its type."""


@dataclass(frozen=True)
class Edit:
    """One way to make a program smaller: how many items it has there, and how to drop those of some numbers."""

    name: str
    count: Callable[[ModuleOp], int]
    drop: Callable[[ModuleOp, Sequence[int]], None]


def functions(module: ModuleOp) -> list[FuncOp]:
    """The functions with a body."""
    return [op for op in module.ops if isinstance(op, FuncOp) and not op.is_declaration]


def droppable(module: ModuleOp) -> list[Operation]:
    """The ops of functions and of kernels in them, without terminators."""
    return [
        op
        for function in functions(module)
        for op in function.walk()
        if op is not function and not op.has_trait(IsTerminator, value_if_unregistered=False)
    ]


def _kernels(module: ModuleOp) -> list[KernelOp]:
    return [op for op in module.walk() if isinstance(op, KernelOp)]


def _drop_functions(module: ModuleOp, chosen: Sequence[int]) -> None:
    for op in [list(module.ops)[number] for number in chosen]:
        op.detach()
        op.erase(safe_erase=False)


def _returned(module: ModuleOp) -> list[tuple[FuncOp, int]]:
    return [
        (f, k) for f in functions(module) if len(f.body.blocks) == 1 for k in range(len(_last(f.body.block).operands))
    ]


def _last(block: Block) -> Operation:
    assert block.last_op is not None, "a block of a verified function has a terminator"
    return block.last_op


def _drop_results(module: ModuleOp, chosen: Sequence[int]) -> None:
    items = _returned(module)
    for function, number in [items[k] for k in reversed(chosen)]:
        terminator = _last(function.body.block)
        terminator.operands = [v for k, v in enumerate(terminator.operands) if k != number]
        if function.res_attrs is not None:
            function.res_attrs = ArrayAttr([a for k, a in enumerate(function.res_attrs.data) if k != number])
        function.update_function_type()


def _drop_ops(module: ModuleOp, chosen: Sequence[int], replacement: Callable[[SSAValue], SSAValue]) -> None:
    """Erases ops, the last one first: what is still read afterwards is read from its replacement."""
    ops = droppable(module)
    gone = {ops[number] for number in chosen}
    for op in [ops[number] for number in reversed(chosen)]:
        if _is_inside(op, gone):
            continue
        for result in op.results:
            if result.uses:
                result.replace_all_uses_with(replacement(result))
        op.detach()
        op.erase(safe_erase=False)


def _is_inside(op: Operation, others: set[Operation]) -> bool:
    parent = op.parent_op()
    while parent is not None and parent not in others:
        parent = parent.parent_op()
    return parent is not None


def _new_argument(value: SSAValue) -> SSAValue:
    """A new argument of the function, handed on to the kernel that holds the value where one does."""
    parent = value.owner.parent_op()
    chain: list[KernelOp] = []
    while parent is not None and not isinstance(parent, FuncOp):
        if isinstance(parent, KernelOp):
            chain.append(parent)
        parent = parent.parent_op()
    assert parent is not None, "an op to be dropped is in a function"
    block = parent.body.blocks[0]
    found = block.insert_arg(value.type, len(block.args))
    if parent.arg_attrs is not None:
        parent.arg_attrs = ArrayAttr([*parent.arg_attrs.data, DictionaryAttr({})])
    parent.update_function_type()
    for kernel in reversed(chain):
        kernel.operands = [*kernel.operands, found]
        found = kernel.block.insert_arg(value.type, len(kernel.block.args))
    return found


def _earlier_value(value: SSAValue) -> SSAValue:
    """A value of the same type that dominates it: of its op's operands, else the nearest one; else a new argument."""
    assert isinstance(value, OpResult)
    op = value.op
    for found in (*op.operands, *islice(_values_before(op), _NEARBY)):
        if found.type == value.type:
            return found
    return _new_argument(value)


def _values_before(op: Operation) -> Iterator[SSAValue]:
    block, previous = op.parent, op.prev_op
    while previous is not None:
        yield from previous.results
        previous = previous.prev_op
    if block is not None:
        yield from reversed(block.args)


def _inline_kernels(module: ModuleOp, chosen: Sequence[int]) -> None:
    kernels = _kernels(module)
    for kernel in [kernels[number] for number in chosen]:
        inside = dict(zip(kernel.block.args, kernel.operands, strict=True))
        parent = kernel.parent
        assert parent is not None
        yielded = list(kernel.yielded())
        for op in kernel.ops():
            op.detach()
            op.operands = [inside.get(v, v) if isinstance(v, BlockArgument) else v for v in op.operands]
            parent.insert_op_before(op, kernel)
        for result, value in zip(kernel.results, yielded, strict=True):
            result.replace_all_uses_with(inside.get(value, value) if isinstance(value, BlockArgument) else value)
        kernel.detach()
        kernel.erase(safe_erase=False)


def _yielded(module: ModuleOp) -> list[tuple[KernelOp, int]]:
    """The results of kernels that nobody reads."""
    return [(kernel, k) for kernel in _kernels(module) for k, r in enumerate(kernel.results) if not r.uses]


def _drop_yielded(module: ModuleOp, chosen: Sequence[int]) -> None:
    items = _yielded(module)
    dropped: dict[KernelOp, set[int]] = {}
    for kernel, number in [items[k] for k in chosen]:
        dropped.setdefault(kernel, set()).add(number)
    for kernel, numbers in dropped.items():
        kept = [k for k in range(len(kernel.results)) if k not in numbers]
        terminator = _last(kernel.block)
        terminator.operands = [terminator.operands[k] for k in kept]
        types = [kernel.results[k].type for k in kept]
        body = kernel.detach_region(kernel.body)
        smaller = KernelOp(list(kernel.operands), types, body, dict(kernel.attributes))
        Rewriter.insert_op(smaller, InsertPoint.before(kernel))
        for k, result in zip(kept, smaller.results, strict=True):
            result.name_hint = kernel.results[k].name_hint
            kernel.results[k].replace_all_uses_with(result)
        kernel.detach()
        kernel.erase(safe_erase=False)


def _arguments(module: ModuleOp) -> list[tuple[FuncOp | KernelOp, BlockArgument]]:
    """The arguments of functions and kernels that nobody reads."""
    holders: list[FuncOp | KernelOp] = [op for op in module.walk() if isinstance(op, KernelOp)]
    holders += functions(module)
    return [(h, argument) for h in holders for argument in h.body.blocks[0].args if not argument.uses]


def _drop_arguments(module: ModuleOp, chosen: Sequence[int]) -> None:
    items = _arguments(module)
    for holder, argument in [items[number] for number in reversed(chosen)]:
        _drop_argument(holder, argument)


def _drop_argument(holder: FuncOp | KernelOp, argument: BlockArgument) -> None:
    number = argument.index
    holder.body.blocks[0].erase_arg(argument)
    if isinstance(holder, KernelOp):
        holder.operands = [v for k, v in enumerate(holder.operands) if k != number]
        holder.drop_decisions()  # in-place pairs count operands
        return
    if holder.arg_attrs is not None:
        holder.arg_attrs = ArrayAttr([a for k, a in enumerate(holder.arg_attrs.data) if k != number])
    holder.update_function_type()


def _same(module: ModuleOp) -> list[tuple[FuncOp, BlockArgument, BlockArgument]]:
    """Arguments of functions, each with the first one of its type."""
    found: list[tuple[FuncOp, BlockArgument, BlockArgument]] = []
    for function in functions(module):
        first: dict[object, BlockArgument] = {}
        for argument in function.body.blocks[0].args:
            if first.setdefault(argument.type, argument) is not argument:
                found.append((function, argument, first[argument.type]))
    return found


def _merge_arguments(module: ModuleOp, chosen: Sequence[int]) -> None:
    items = _same(module)
    for function, argument, first in [items[number] for number in reversed(chosen)]:
        argument.replace_all_uses_with(first)
        _drop_argument(function, argument)


def _attributes(module: ModuleOp) -> list[tuple[Operation, str | int]]:
    """Discardable attributes and decisions of ops by name, attributes of arguments by the argument's number."""
    found: list[tuple[Operation, str | int]] = []
    for op in module.walk():
        found += [(op, name) for name in op.attributes]
        if isinstance(op, KernelOp):
            found += [(op, name) for name in op.properties]
        if isinstance(op, FuncOp) and op.arg_attrs is not None:
            found += [(op, k) for k, a in enumerate(op.arg_attrs.data) if a.data]
    return found


def _drop_attributes(module: ModuleOp, chosen: Sequence[int]) -> None:
    items = _attributes(module)
    for op, name in [items[number] for number in chosen]:
        if isinstance(name, str):
            (op.attributes if name in op.attributes else op.properties).pop(name)
        elif isinstance(op, FuncOp) and op.arg_attrs is not None:
            op.arg_attrs = ArrayAttr([DictionaryAttr({}) if k == name else a for k, a in enumerate(op.arg_attrs.data)])


EDITS: tuple[Edit, ...] = (
    Edit("functions", lambda module: len(list(module.ops)), _drop_functions),
    Edit("results", lambda module: len(_returned(module)), _drop_results),
    Edit("ops", lambda m: len(droppable(m)), lambda m, chosen: _drop_ops(m, chosen, _new_argument)),
    Edit("steps", lambda m: len(droppable(m)), lambda m, chosen: _drop_ops(m, chosen, _earlier_value)),
    Edit("kernels", lambda module: len(_kernels(module)), _inline_kernels),
    Edit("results of kernels", lambda module: len(_yielded(module)), _drop_yielded),
    Edit("arguments", lambda module: len(_arguments(module)), _drop_arguments),
    Edit("equal arguments", lambda module: len(_same(module)), _merge_arguments),
    Edit("attributes", lambda module: len(_attributes(module)), _drop_attributes),
)
"""In the order in which they are tried: what drops most comes first."""


def extents(text: str) -> list[int]:
    """The extents above 1 in the types of a text, the largest first."""
    found = {int(n) for type_ in _TYPE.findall(text) for n in _NUMBER.findall(_shape(type_))}
    return sorted((n for n in found if n > 1), reverse=True)


def with_extent(text: str, old: int, new: int, lists: bool) -> str:
    """The text with another extent in all types; in lists of integers, too, when `lists`."""

    def changed(match: re.Match[str]) -> str:
        head = match[0] if match[0].startswith("array") else _shape(match[0])
        rest = match[0][len(head) :]
        return _NUMBER.sub(lambda n: str(new) if int(n[0]) == old else n[0], head) + rest

    return (_TYPE_OR_LIST if lists else _TYPE).sub(changed, text)


def _shape(type_: str) -> str:
    """`tensor<8x4x` of `tensor<8x4xf32>`."""
    return type_[: type_.rfind("x") + 1]
