"""Calls in a function on buffers: of a library's implementation, of the reference, of what a backend makes of a partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute, Operation, Region, SSAValue

from fuse_opt.dialects.fused import PARTITION, KernelOp, OutlinedOp, PartitionOp, YieldOp
from fuse_opt.dialects.gpu import LibraryCallOp
from fuse_opt.dialects.implementation.chains import Link
from fuse_opt.dialects.implementation.offers import BackendFault, find_offer
from fuse_opt.dialects.implementation.queries import called_implementation, saved_beside
from fuse_opt.dialects.implementation.site import Site
from fuse_opt.dialects.implementation.switch import platform_of
from fuse_opt.dialects.interfaces.layouts import any_encoded, encoding
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.properties import int_array, plain_properties
from fuse_opt.lowering.convert.call_orders import orders_entry, orders_of, saved_entry, takes_orders
from fuse_opt.lowering.convert.memory import ProgramMemory
from fuse_opt.lowering.errors import LoweringError
from fuse_opt.lowering.kernel.naming import kernel_comment, kernel_name
from fuse_opt.lowering.program import CHAIN, CHAIN_OPERANDS, INSIDE, REFERENCE
from fuse_opt.lowering.reference.kernels import find_implementation


class Calls:
    """Makes the calls of one function; what they say they run op by op becomes functions of the module."""

    def __init__(
        self,
        function: func.FuncOp,
        memory: ProgramMemory,
        unique: Callable[[str], str],
        define: Callable[[func.FuncOp, func.FuncOp], None],
    ) -> None:
        self._function = function
        self._memory = memory
        self._unique = unique
        self._define = define

    def library_call(self, kernel: KernelOp, op: GraphOp, results: Sequence[SSAValue]) -> Operation:
        name = called_implementation(kernel)
        found = find_implementation(op.name, name)
        if found is None:
            if name is None:
                raise LoweringError(f"'{op.name}' is opaque and no implementation is registered for it", op)
            message = f"'{op.name}': '{name}' is not an implementation of it; remove the property, or register it"
            raise LoweringError(message, op)
        try:
            plain_properties(op)
        except TypeError as error:
            raise LoweringError(f"'{op.name}': {error}", op) from error
        orders = orders_of((*op.operands, *op.results))
        if orders is None or (any(orders) and not takes_orders(kernel)):
            foreign = next(v for v in (*op.operands, *op.results) if encoding(v) is not None)
            raise LoweringError(
                f"'{op.name}': '{found.name}' takes operands and gives results in row-major order, got '{foreign.type}'; "
                "run assign-layouts, or convert it by graph.to_layout", op
            )  # fmt: skip
        if not found.by_python and platform_of(self._function) == "cpu":
            return self.absorbing_call(kernel, op, ())
        inputs = [self._memory.shaped(kernel.operands[kernel.block.args.index(value)]) for value in op.operands]  # pyright: ignore[reportArgumentType]
        outputs = [self._memory.shaped(value) for value in results]
        _check_workspace(kernel, op, found.name, ())
        workspace, saved = self._memory.workspace(kernel), saved_entry(kernel)
        touched = () if saved else op.elements_touched()
        config = {**op.properties, **orders_entry(orders), **saved}
        return LibraryCallOp(found.name, op.name, inputs, outputs, config, workspace, touched)

    def absorbing_call(self, kernel: KernelOp, op: GraphOp | None, links: Sequence[Link]) -> Operation:
        """
        A call of an op with a chain behind it: of all the kernel's operands, with the steps as texts, and a function of the ops
        for who looks at memory between steps.
        """
        assert op is not None and kernel.implementation is not None
        name = kernel.implementation.data
        _check_workspace(kernel, op, name, links)
        config = {
            **op.properties,
            CHAIN: ArrayAttr(StringAttr(link.text()) for link in links),
            CHAIN_OPERANDS: int_array([kernel.block.args.index(value) for value in op.operands]),  # pyright: ignore[reportArgumentType]
            "function": StringAttr(self._reference_function(kernel)),
            **orders_entry(orders_of((*kernel.operands, *kernel.results)) or ()),
            **saved_entry(kernel),
        }
        inputs = [self._memory.shaped(value) for value in kernel.operands]
        outputs = [self._memory.shaped(value) for value in kernel.results]
        return LibraryCallOp(name, op.name, inputs, outputs, config, self._memory.workspace(kernel))

    def reference_call(self, kernel: KernelOp) -> Operation:
        return self._call_of_body(kernel, REFERENCE, {"function": StringAttr(self._reference_function(kernel))})

    def partition_call(self, partition: PartitionOp) -> Operation:
        """A call of what the backend makes of the body."""
        backend = partition.backend.data
        name = self._function_of_body(partition, f"partition_{backend}", f"what {backend} runs")
        inside = self._memory.inside(partition)
        config: dict[str, Attribute] = {"function": StringAttr(name), "backend": partition.backend}
        if inside:
            config[INSIDE] = IntegerAttr(len(inside), i64)
        return self._call_of_body(partition, PARTITION, config, inside)

    def _call_of_body(
        self, kernel: OutlinedOp, implementation: str, config: dict[str, Attribute], inside: Sequence[SSAValue] = ()
    ) -> Operation:
        """A call of a function of the module that has the body; `inside` are more buffers that it writes to."""
        inputs = [self._memory.shaped(value) for value in kernel.operands]
        outputs = [*(self._memory.shaped(value) for value in kernel.results), *inside]
        return LibraryCallOp(implementation, kernel.name, inputs, outputs, config, self._memory.workspace(kernel))

    def _reference_function(self, kernel: KernelOp) -> str:
        """The name of a function of the module with the kernel's ops, which the reference runs."""
        name = f"reference_{kernel_name(kernel).removeprefix('kernel_')}"
        return self._function_of_body(kernel, name, kernel_comment(kernel))

    def _function_of_body(self, kernel: OutlinedOp, name: str, comment: str) -> str:
        """The name of a new function of tensors, with the ops of the body."""
        name = self._unique(name)
        body = Region()
        kernel.body.clone_into(body)
        last = body.block.last_op
        assert isinstance(last, YieldOp)
        returned = func.ReturnOp(*last.operands)
        last.detach()
        last.erase()
        body.block.add_op(returned)
        types = [value.type for value in kernel.operands], [value.type for value in kernel.results]
        function = func.FuncOp(name, types, body, "private")
        function.attributes[REFERENCE] = StringAttr(comment)
        self._define(function, self._function)
        return name


def _check_workspace(kernel: KernelOp, op: GraphOp, name: str, links: Sequence[Link]) -> None:
    """Raises LoweringError where the implementation asks for more memory than the kernel says: nobody else gives it any."""
    offer = find_offer(op.name, name)
    if offer is None or not offer.takes_workspace:
        return
    try:
        wanted = offer.workspace_bytes(Site.of(op, links=links, saved=saved_beside(kernel)))
    except BackendFault as fault:
        raise LoweringError(str(fault), op) from fault
    if wanted > (given := kernel.workspace_bytes()):
        raise LoweringError(
            f"'{op.name}' is run by '{name}', which takes a workspace of {wanted} bytes, got {given}; run "
            "select-implementation and plan-memory again",
            kernel,
        )


def is_fallback(kernel: KernelOp, op: GraphOp) -> bool:
    """Whether no function is named for an op on values in other orders: those that are called take row-major order."""
    return kernel.implementation is None and any_encoded((*op.operands, *op.results))
