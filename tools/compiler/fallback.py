"""Programs of which the target's compiler refuses a kernel: its ops run unfused, or at last on the reference."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from xdsl.dialects.builtin import DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from fuse_opt.dialects.analysis.storage import forget_plan, functions_of
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.passes.fusion.unfuse import inline_kernel
from fuse_opt.tools.compiler.builders import Backend, Builder

_REFERENCE = "reference"
_NOT_COMPILED = (_REFERENCE, "library")
_MOST_SHOWN = 3
_STACK_LEVEL = 5
"""From the warning to who called `compile`."""


def build_unfusing(
    builder: Builder, complete: Callable[[ModuleOp], None], module: ModuleOp, name: str | None
) -> Backend:
    """
    What the builder gives for a function of the module. Where it refuses a kernel, each kernel is built alone, and those
    that are refused come apart in the module (an op that is refused alone is left to the reference); `complete` brings
    their ops into kernels again, with schedules and memory, and the program is built again, with one warning. Raises the
    refusal where no kernel is at fault, and one that is final at once. Without a device there is the text to read.
    """
    try:
        return _built(builder, complete, module, name)
    except builder.unavailable as error:
        assert builder.text is not None
        return builder.text(module, name, str(error))


def _built(builder: Builder, complete: Callable[[ModuleOp], None], module: ModuleOp, name: str | None) -> Backend:
    try:
        return builder.build(module, name)
    except builder.final:
        raise
    except builder.refusal as first:
        error = first
    done: list[str] = []
    while failing := _refused(module, builder):
        for kernel, reason in failing:
            done.append(f"{_names(kernel)} {_take_apart(kernel)} ({_first_line(reason)})")
        complete(module)
    if not done:
        raise error
    more = f"; and {len(done) - _MOST_SHOWN} more" if len(done) > _MOST_SHOWN else ""
    message = f"kernels do not compile: {'; '.join(done[:_MOST_SHOWN])}{more}"
    warnings.warn(message, RuntimeWarning, stacklevel=_STACK_LEVEL)
    return builder.build(module, name)


def _refused(module: ModuleOp, builder: Builder) -> list[tuple[KernelOp, Exception]]:
    """The kernels that are refused when each is the only one, and why; not those that no compiler sees."""
    found: list[tuple[KernelOp, Exception]] = []
    for function in functions_of(module):
        for kernel in function.body.block.ops:
            if not isinstance(kernel, KernelOp) or kernel.schedule_kind() in _NOT_COMPILED:
                continue
            try:
                builder.build(_alone(kernel), None)
            except builder.refusal as error:
                found.append((kernel, error))
    return found


def _alone(kernel: KernelOp) -> ModuleOp:
    """A program of this kernel, with its schedule and nothing that other kernels have a part in."""
    block = Block(arg_types=[value.type for value in kernel.operands])
    copy = kernel.clone(dict(zip(kernel.operands, block.args, strict=True)))
    copy.drop_places()
    copy.inplace = copy.segment = None
    types = [value.type for value in kernel.results]
    block.add_ops([copy, ReturnOp(*copy.results)])
    return ModuleOp([FuncOp("main", ([*block.arg_types], types), Region(block))])


def _take_apart(kernel: KernelOp) -> str:
    """Replaces the kernel by its ops; a kernel of one op stays, for the reference. Says which."""
    function = kernel.parent_op()
    assert isinstance(function, FuncOp)
    forget_plan(function)
    if len(kernel.ops()) == 1:
        kernel.schedule, kernel.implementation = DictionaryAttr({"kind": StringAttr(_REFERENCE)}), None
        kernel.set_workspace(0)
        kernel.set_unread(())
        return "runs on the reference"
    inline_kernel(kernel)
    return "run unfused"


def _names(kernel: KernelOp) -> str:
    return "+".join(op.name.partition(".")[2] for op in kernel.ops())


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return next((line for line in lines if "error" in line), lines[0] if lines else type(error).__name__)
