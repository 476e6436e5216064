"""When a kernel's result may take over an operand's storage; asked to choose pairs and to check those that are there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from xdsl.dialects.func import FuncOp

from fuse_opt.dialects.analysis.kernel_access import is_library, kernel_access
from fuse_opt.dialects.analysis.storage import SharedMemory, StorageClasses, byte_size, directed_results, value_name
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.implementation.queries import inplace_operands, named_kind
from fuse_opt.passes.remarks import location


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a pair is refused: a code, and a sentence about the operand."""

    code: str
    message: str


class InplaceRules:
    """Legality of pairs, kernel by kernel in block order; pairs that are taken count for those asked about later."""

    def __init__(self, function: FuncOp) -> None:
        self.classes = StorageClasses(function)
        self.kernels = [(step, op) for step, op in enumerate(self.classes.ops) if isinstance(op, KernelOp)]

    def at(self, step: int, kernel: KernelOp) -> KernelRules:
        """The rules for a kernel; all before it have been dealt with."""
        return KernelRules(self.classes, step, kernel)


class KernelRules:
    """Legality of one kernel's pairs."""

    def __init__(self, classes: StorageClasses, step: int, kernel: KernelOp) -> None:
        self.classes = classes
        self.kernel = kernel
        self.step = step
        self.memory = [classes.known(value) for value in kernel.operands]
        """By operand: what its storage is, as it was before the kernel."""
        self.sizes = [byte_size(value) or 0 for value in kernel.results]
        """By result, in bytes; 0 when it is not known."""
        self._no_inplace = directed_results(kernel, "no_inplace")

    @cached_property
    def _replaceable(self) -> tuple[frozenset[int], ...] | Reason:
        """By result the operands that the kernel's implementation lets it overwrite, or why there are none.

        Generated code: by the access maps, of products those behind them. A library: by what its implementation offers.
        """
        if self._is_product:
            return inplace_operands(self.kernel)
        if is_library(self.kernel):
            pairs = inplace_operands(self.kernel)
            return (
                pairs if any(pairs) else Reason("library", "is read by an implementation that offers no in-place pair")
            )
        access = kernel_access(self.kernel)
        if access.scheme is None:
            return Reason(access.code, f"is read by a kernel that runs op by op: {access.message}")
        return access.replaceable

    @cached_property
    def _is_product(self) -> bool:
        """Whether it is generated code of opaque ops, as the kernel says."""
        return named_kind(self.kernel) is not None

    def refuse(self, result: int, operand: int) -> Reason | None:
        """Why the result must not take over the operand's storage; None when it may."""
        memory, size = self.memory[operand], self.sizes[result]
        if result in self._no_inplace:
            return Reason("no-inplace", "is not taken over: the directive no_inplace forbids it")
        if not size or size != memory.nbytes:
            return Reason("size", f"has {memory.nbytes} bytes, the result has {size}")
        if (owner := _refuse_owner(memory)) is not None:
            return owner
        if memory.last_use > self.step:
            reader = memory.reader
            place = "" if reader is None or (at := location(reader)) == "-" else f" at {at}"
            what = "is read later" if reader is None else f"is read later, by '{reader.name}'{place}"
            return Reason("still-read", what)
        return self._refuse_access(result, operand)

    def _refuse_access(self, result: int, operand: int) -> Reason | None:
        if isinstance(self._replaceable, Reason):
            return self._replaceable
        allowed = self._replaceable[result]
        if is_library(self.kernel) and not self._is_product:
            if operand not in allowed:
                return Reason("library", "is read by an implementation that does not offer to overwrite it")
            allowed = frozenset((operand,))  # the same array as two of its operands was not promised
        for other, shared in enumerate(self.memory):
            if shared is self.memory[operand] and other not in allowed:
                also = "" if other == operand else f" as {value_name(self.kernel.operands[other])}"
                where = "other elements than the one written, or after it"
                if self._is_product:
                    where = "other elements than the one written, or as a part of what is multiplied"
                return Reason("other-index", f"is read{also} at {where}")
        return None

    def take(self, result: int, operand: int) -> None:
        """Makes the pair: from here on both are one storage."""
        self.classes.unite(self.kernel.results[result], self.kernel.operands[operand])


def _refuse_owner(memory: SharedMemory) -> Reason | None:
    if memory.argument is not None and not memory.donated:
        return Reason("caller-owned", "is the caller's; it may be overwritten when its argument carries graph.donated")
    if memory.constant:
        return Reason("constant", "is a constant")
    if memory.unplanned:
        return Reason("unplanned", "is made by an op outside of kernels; run wrap-kernels before")
    if memory.kept:
        return Reason("kept", "must keep its contents: of a directive, or because of an op that is no graph op")
    return None
