"""Workspaces in a plan: bytes that an implementation asks for beside operands and results, alive at its own step alone."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.func import FuncOp

from fuse_opt.dialects.fused import OutlinedOp

ALIGNMENT = 64
"""Bytes: a library may use any vector on it, and tasks beside each other share no cache line."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """What a kernel's implementation asks for."""

    kernel: OutlinedOp
    step: int
    nbytes: int

    @property
    def name(self) -> str:
        """How messages call it."""
        implementation = self.kernel.implementation
        return f'the workspace of "{"" if implementation is None else implementation.data}"'


def workspaces_of(function: FuncOp) -> list[Workspace]:
    """Those of a function of one block, in order."""
    kernels = ((step, op) for step, op in enumerate(function.body.block.ops) if isinstance(op, OutlinedOp))
    return [Workspace(op, step, nbytes) for step, op in kernels if (nbytes := op.workspace_bytes())]


def plan_alignment(function: FuncOp, wanted: int) -> int:
    """The alignment of a plan: the one that is wanted, or that of a workspace where there is one."""
    return max(wanted, ALIGNMENT) if workspaces_of(function) else wanted
