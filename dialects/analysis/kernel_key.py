"""What a kernel is, whatever its values are called: the key by which measured schedules are found again."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.utils.hints import isa

from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.fused.kernel import DIRECTIVES, RECOMPUTED

_DIGITS = 16
_EXTENTS = re.compile(r"\d+(?=x)")
_NO_MEANING = (*DIRECTIVES, RECOMPUTED)
"""Attributes that say nothing about what is computed."""


@dataclass(frozen=True, slots=True)
class KernelKey:
    """Checksums of a kernel's structure: with extents, and without."""

    key: str
    family: str
    """That of kernels which differ in extents alone."""


def kernel_key(
    kernel: KernelOp, overwritten: Collection[int] = (), words: Mapping[str, str] | None = None
) -> KernelKey:
    """
    The keys of a kernel. They depend on its ops, their types and properties and who reads whom: not on names, places, decisions
    or the order of ops that do not read one another. `overwritten` are the operands whose storage a result may take over, `words`
    entries of schedules that every variant of the kernel has, such as {"math": "fast"}.
    """
    lines = list(_lines(kernel, overwritten))
    lines += [f"{name} = {word}" for name, word in sorted((words or {}).items())]
    text = "\n".join(lines)
    return KernelKey(f"k:{_digest(text)}", f"f:{_digest(_EXTENTS.sub('?', text))}")


def _lines(kernel: KernelOp, overwritten: Collection[int]) -> Iterator[str]:
    """A line for each op, what it reads before it, and for each operand where it is read first."""
    numbers: dict[SSAValue, int] = {}
    arguments: dict[SSAValue, int] = {argument: number for number, argument in enumerate(kernel.block.args)}

    def entered(value: SSAValue) -> str:
        mark = "!" if arguments[value] in overwritten else ""
        numbers[value] = len(numbers)
        return f"{numbers[value]} : {_text(value.type)}{mark}"

    for op in _in_order(kernel):
        for value in op.operands:
            if value in arguments and value not in numbers:
                yield entered(value)
        for value in op.results:
            numbers[value] = len(numbers)
        yield meaning(op, ", ".join(str(numbers[value]) for value in op.operands))
    for value in arguments:
        if value not in numbers and isinstance(value.type, TensorType):
            yield entered(value)
    yield "yield " + ", ".join(str(numbers[value]) for value in kernel.yielded())


def _in_order(kernel: KernelOp) -> Iterator[Operation]:
    """The ops of a kernel, each behind those that it reads, in the order in which results ask for them."""
    done: set[Operation] = set()
    for result in kernel.yielded():
        waiting = [result.owner]
        while waiting:
            op = waiting[-1]
            if not isinstance(op, Operation) or op in done:
                waiting.pop()
                continue
            missing = [v.owner for v in op.operands if isinstance(v.owner, Operation) and v.owner not in done]
            if missing:
                waiting += reversed(missing)
                continue
            done.add(waiting.pop())  # pyright: ignore[reportArgumentType]
            yield op


def meaning(op: Operation, read: str = "") -> str:
    """What an op computes, of what it reads: its name, what it has besides, and the types of its results."""
    found: dict[str, Attribute] = {**op.properties, **op.attributes}
    told = ", ".join(f"{name} = {_text(found[name])}" for name in sorted(found) if name not in _NO_MEANING)
    return f"{op.name} {read} {{{told}}} -> {', '.join(_text(value.type) for value in op.results)}"


def _text(attribute: Attribute) -> str:
    """The attribute as it is printed, which takes most of the time of a key; elements of constants are printed anew, not kept."""
    return str(attribute) if isa(attribute, DenseIntOrFPElementsAttr) else _printed(attribute)


@lru_cache(maxsize=1 << 12)
def _printed(attribute: Attribute) -> str:
    return str(attribute)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
