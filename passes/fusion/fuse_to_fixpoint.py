"""Run fusion passes in rounds until a round merges nothing, and report what each round did."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from fuse_opt.dialects.fused import KernelOp
from fuse_opt.passes.fusion.engine.worklist import FusionPass
from fuse_opt.passes.fusion.rules import FUSION_RULES
from fuse_opt.passes.remarks import remark
from fuse_opt.passes.rewrite_pass import RewritePass


@dataclass(frozen=True)
class FuseToFixpointPass(RewritePass):
    """Applies the passes of `rules`, in this order, again and again.

    What stops a pass in one round may be gone in the next: two readers of a value became one, or a group that lay between
    joined one side. A remark `round` says how many kernels and bare ops each round leaves. Decisions are those of the
    passes it runs: fuel and decision files hold for them.

    Requires: nothing. Ensures: none of the passes would change anything.
    """

    name = "fuse-to-fixpoint"

    rules: tuple[str, ...] = FUSION_RULES
    max_rounds: int = 16
    """Rounds at most."""

    def __post_init__(self) -> None:
        if self.max_rounds < 1:
            raise ValueError(f"option 'max-rounds': expected 1 or more, got {self.max_rounds}")
        for rule in self.rules:
            _fusion_pass(rule)

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        before = _counts(op)
        for number in range(1, self.max_rounds + 1):
            for rule in self.rules:
                _fusion_pass(rule)().apply(ctx, op)
            after = _counts(op)
            kernels, bare = after
            message = f"round {number}: kernels: {before[0]} before, {kernels} after; ops in none: {before[1]}, {bare}"
            remark(self.name, op, "round", message, round=number, kernels=kernels, bare_ops=bare)
            if after == before:
                return
            before = after


def _fusion_pass(name: str) -> type[FusionPass]:
    """The fusion pass of that name. Raises ValueError."""
    try:
        module = import_module(f"{__package__}.{name.replace('-', '_')}")
    except (ImportError, ValueError):
        module = None
    found = (
        [
            class_
            for class_ in vars(module).values()
            if isinstance(class_, type) and issubclass(class_, FusionPass) and class_.__dict__.get("name") == name
        ]
        if module is not None
        else []
    )
    if not found:
        raise ValueError(f"option 'rules': '{name}' is no fusion pass; expected names such as fuse-row")
    return found[0]


def _counts(module: ModuleOp) -> tuple[int, int]:
    """How many kernels there are, and how many ops outside of them."""
    kernels = sum(isinstance(op, KernelOp) for op in module.walk())
    inside = sum(len(op.block.ops) for op in module.walk() if isinstance(op, KernelOp))
    return kernels, sum(1 for _ in module.walk()) - kernels - inside
