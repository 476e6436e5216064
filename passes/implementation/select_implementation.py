"""Choose an implementation for each kernel of one opaque op: the one that is named, or a preferred one that offers it."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.passes import ModulePass

from fuse_opt.dialects.analysis.kernel_access import library_op
from fuse_opt.dialects.analysis.storage import functions_of
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.implementation.offers import Offer, find_offer, known_implementations, offers_of
from fuse_opt.dialects.implementation.queries import opaque_op
from fuse_opt.passes.remarks import RefusedError, remark


@dataclass(frozen=True)
class SelectImplementationPass(ModulePass):
    """Names the implementation that runs a kernel, where another one than the default is preferred.

    ```mlir
    %r = fused.kernel(%a = %x : tensor<4x4xf32>) -> (tensor<4x4xf32>) { ... graph.matmul ... }
    ```
    becomes, with `prefer=mylib.matmul` where that is registered for the op,
    ```mlir
    %r = fused.kernel(...) -> (tensor<4x4xf32>) attributes {implementation = "mylib.matmul"} { ... graph.matmul ... }
    ```
    An implementation that the kernel names is kept. Without a preferred one the default runs the kernel and nothing is
    written. A kernel of more than one op keeps what it has, for its ops were put together for that.

    Requires: nothing. Ensures: every implementation that a kernel of an opaque op names is registered for it. In-place
    pairs and slots of a kernel whose implementation is named now are dropped: infer them anew.
    """

    name = "select-implementation"

    prefer: tuple[str, ...] = ()
    """Implementations, or libraries (what is before the first dot of a name), in order of preference."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.prefer:
            self._check_known(op)
        for function in functions_of(op):
            for kernel in function.body.block.ops:
                if isinstance(kernel, KernelOp):
                    self._select(kernel)

    def _check_known(self, op: ModuleOp) -> None:
        known = known_implementations()
        for wanted in self.prefer:
            if not any(_is_called(name, wanted) for name in known):
                names = ", ".join(known) or "none"
                raise RefusedError(f"'{self.name}' option prefer: unknown '{wanted}'; expected one of {names}", op)

    def _select(self, kernel: KernelOp) -> None:
        if (op := opaque_op(kernel)) is None:
            return
        if kernel.implementation is not None:
            _check_given(kernel, op.name, kernel.implementation.data)
            remark(self.name, kernel, "kept", f'is run by "{kernel.implementation.data}", as it says')
            return
        if (
            library_op(kernel) is None
            or kernel.schedule_kind() == "reference"
            or (found := self._find(op.name)) is None
        ):
            return
        kernel.implementation = StringAttr(found.name)
        if kernel.inplace is not None:
            kernel.inplace = kernel.slots = None  # another implementation offered the pairs
        message = f"\"{found.name}\" is preferred to run '{op.name}'"
        remark(self.name, kernel, "selected", message, offers=len(offers_of(op.name)), workspace=found.workspace)

    def _find(self, op: str) -> Offer | None:
        offers = offers_of(op)
        return next((offer for wanted in self.prefer for offer in offers if _is_called(offer.name, wanted)), None)


def _is_called(name: str, wanted: str) -> bool:
    return name == wanted or name.startswith(f"{wanted}.")


def _check_given(kernel: KernelOp, op: str, name: str) -> None:
    if find_offer(op, name) is None:
        known = ", ".join(offer.name for offer in offers_of(op)) or "none"
        raise RefusedError(
            f"'fused.kernel' implementation \"{name}\" does not run '{op}': expected one of {known}; "
            "remove the property or register the implementation", kernel
        )  # fmt: skip
