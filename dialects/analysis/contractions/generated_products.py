"""Kernels with opaque ops in them for which code is generated, with what follows these, by schedule kind."""

from __future__ import annotations

from collections.abc import Callable

from fuse_opt.dialects.analysis.contractions.attention import ATTENTION, attention_of
from fuse_opt.dialects.analysis.contractions.convolutions import CONV, convolution_of
from fuse_opt.dialects.analysis.contractions.products import MATMUL, product_of
from fuse_opt.dialects.analysis.loop_body import Unschedulable
from fuse_opt.dialects.fused import KernelOp

_ANALYSES: dict[str, Callable[[KernelOp], object]] = {
    MATMUL: product_of,
    ATTENTION: attention_of,
    CONV: convolution_of,
}
"""What finds the ops and what is around them, or raises Unschedulable."""
PRODUCT_KINDS = tuple(_ANALYSES)
"""Schedule kinds of generated code of opaque ops."""
NOT_OF_THE_KIND = frozenset(("no-product", "no-attention", "no-convolution"))
"""Reasons that say no more than that a kernel has no op of the kind."""


def product_kind_problem(kernel: KernelOp, kind: str) -> Unschedulable | None:
    """Why a kernel cannot run by a kind of these; None where it can."""
    if kernel.implementation is not None and kernel.implementation.data != f"fuse.{kind}":
        return Unschedulable("named", f'it names the implementation "{kernel.implementation.data}"')
    return kind_problem(kernel, kind)


def kind_problem(kernel: KernelOp, kind: str) -> Unschedulable | None:
    """The same, whatever implementation it names."""
    try:
        _ANALYSES[kind](kernel)
    except Unschedulable as problem:
        return problem
    return None


def why_no_product(kernel: KernelOp) -> str:
    """Why a kernel with an opaque op is a library's, as the end of a sentence; empty where it has no op of these kinds."""
    problems = [product_kind_problem(kernel, kind) for kind in _ANALYSES]
    return next((f": {problem}" for problem in problems if problem and problem.code not in NOT_OF_THE_KIND), "")
