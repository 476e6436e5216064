"""Kernels with opaque ops in them for which code is generated, with what follows these, by schedule kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from xdsl.ir import Operation, SSAValue

from fuse_opt.dialects.analysis.contractions.attention import ATTENTION, attention_of
from fuse_opt.dialects.analysis.contractions.attention_gradients import ATTENTION_GRADIENT, attention_gradient_of
from fuse_opt.dialects.analysis.contractions.conv_kernels import WINOGRAD, conv_kernel_of, winograd_kernel_of
from fuse_opt.dialects.analysis.contractions.convolutions import CONV
from fuse_opt.dialects.analysis.contractions.products import MATMUL, product_of
from fuse_opt.dialects.analysis.kernel_access import replaceable_by, structure_now
from fuse_opt.dialects.analysis.loop_body import LoopBody, Unschedulable
from fuse_opt.dialects.fused import KernelOp


class _Found(Protocol):
    """What is common to the kinds: one pass behind the opaque ops, whose results are on no result's memory before."""

    @property
    def epilogue(self) -> LoopBody: ...
    def contracted(self) -> set[SSAValue]: ...


_ANALYSES: dict[str, Callable[[KernelOp], _Found]] = {
    MATMUL: product_of,
    ATTENTION: attention_of,
    ATTENTION_GRADIENT: attention_gradient_of,
    CONV: conv_kernel_of,
    WINOGRAD: winograd_kernel_of,
}
"""What finds the ops and what is around them, or raises Unschedulable."""
_PROBLEMS: dict[tuple[object, ...], tuple[str, str, int | None] | None] = {}
"""By kind and structure: message, code, and which op is to blame, by its place; None where there is none."""
_REPLACEABLE: dict[tuple[object, ...], tuple[frozenset[int], ...]] = {}
_REMEMBERED = 4096
PRODUCT_KINDS = tuple(_ANALYSES)
"""Schedule kinds of generated code of opaque ops."""
COMPOSITE_KINDS = (ATTENTION, ATTENTION_GRADIENT)
"""Those of kernels of several opaque ops."""
NOT_OF_THE_KIND = frozenset(("no-product", "no-attention", "no-attention-gradient", "no-convolution"))
"""Reasons that say no more than that a kernel has no op of the kind."""


def product_kind_problem(kernel: KernelOp, kind: str) -> Unschedulable | None:
    """Why a kernel cannot run by a kind of these; None where it can."""
    if kernel.implementation is not None and kernel.implementation.data not in (f"fuse.{kind}", f"gpu.{kind}"):
        return Unschedulable("named", f'it names the implementation "{kernel.implementation.data}"')
    return kind_problem(kernel, kind)


def kind_problem(kernel: KernelOp, kind: str) -> Unschedulable | None:
    """The same, whatever implementation it names; worked out once of kernels that compute the same."""
    key = (kind, *structure_now(kernel))
    if key not in _PROBLEMS:
        try:
            _ANALYSES[kind](kernel)
        except Unschedulable as problem:
            found = str(problem), problem.code, _place(problem.op, kernel)
        else:
            found = None
        if len(_PROBLEMS) >= _REMEMBERED:
            _PROBLEMS.clear()
        _PROBLEMS[key] = found
    if (known := _PROBLEMS[key]) is None:
        return None
    message, code, place = known
    return Unschedulable(code, message, None if place is None else list(kernel.block.ops)[place])


def _place(op: Operation | None, kernel: KernelOp) -> int | None:
    """Of an op of a kernel among its ops."""
    return next((place for place, each in enumerate(kernel.block.ops) if each is op), None)


def why_no_product(kernel: KernelOp) -> str:
    """Why a kernel with an opaque op is a library's, as the end of a sentence; empty where it has no op of these kinds."""
    problems = [product_kind_problem(kernel, kind) for kind in _ANALYSES]
    return next((f": {problem}" for problem in problems if problem and problem.code not in NOT_OF_THE_KIND), "")


def epilogue_operands(kernel: KernelOp, kind: str) -> tuple[frozenset[int], ...]:
    """
    By result of a kernel that runs by the kind: the operands that its storage may be. The epilogue alone reads them, where and
    just before it stores the result's element; what is contracted is read for other elements, by other tasks, too. Sums of
    blocks before the last one are never in a result's memory while an epilogue reads anything, but on a task's stack.
    """
    key = (kind, *structure_now(kernel))
    if (known := _REPLACEABLE.get(key)) is None:
        if len(_REPLACEABLE) >= _REMEMBERED:
            _REPLACEABLE.clear()
        known = _REPLACEABLE[key] = _epilogue_operands(kernel, kind)
    return known


def _epilogue_operands(kernel: KernelOp, kind: str) -> tuple[frozenset[int], ...]:
    try:
        found = _ANALYSES[kind](kernel)
    except Unschedulable:
        return (frozenset[int](),) * len(kernel.results)
    contracted = found.contracted()
    free = {number for number, argument in enumerate(kernel.block.args) if argument not in contracted}
    return tuple(operands & free for operands in replaceable_by(kernel, [found.epilogue]))
