"""Say on the module which backends may run its ops, for all passes that ask."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from fuse_opt.dialects.implementation.switch import allow_backends, allowed_backends, chosen_backends, default_backends
from fuse_opt.passes.remarks import RefusedError, remark


@dataclass(frozen=True)
class AttachBackendsPass(ModulePass):
    """Writes the list of backends that may run opaque ops on the module.

    ```mlir
    builtin.module { ... }
    ```
    becomes, with `backends=-fuse`,
    ```mlir
    builtin.module attributes {graph.backends = ["aten", "blas", "cublas", "cublaslt", "cudnn", "gpu", "numpy"]} { ... }
    ```
    Fusion then puts nothing into kernels that only others would run, and select-implementation chooses among those. A name
    adds a backend to those that are there by default, `-name` removes it, `none` removes all. Without a word nothing is
    changed, and nothing is written where the default ones may run.

    Requires: nothing. Ensures: the list is what the words say. What kernels name already is left to select-implementation.
    """

    name = "attach-backends"

    backends: tuple[str, ...] = ()
    """Names of backends to add, `-name` to remove one, `none` to remove all, in order."""
    unavailable: tuple[str, ...] = ()
    """Names of backends to remove from those that the module would have: a machine lacks what is behind them."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if not self.backends and not self.unavailable:
            return
        try:
            names = chosen_backends(self.backends) if self.backends else allowed_backends(op)
        except ValueError as error:
            raise RefusedError(f"'{self.name}' option backends: {error}", op) from error
        names = default_backends() if names is None else names
        for name in self.unavailable:
            remark(self.name, op, "unavailable", f"backend '{name}' cannot be used here; naming it says why")
        allow_backends(op, [name for name in names if name not in self.unavailable])
