"""The functions that library calls run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from xdsl.dialects import func
from xdsl.ir import Operation

from fuse_opt.dialects.fused import PARTITION
from fuse_opt.dialects.gpu import LibraryCallOp
from fuse_opt.dialects.implementation.subgraph import Subgraph
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.lowering.emit.attributes import text_of
from fuse_opt.lowering.errors import LoweringError
from fuse_opt.lowering.program import CHAIN, ORDERS, REFERENCE, ConfigValue, Run
from fuse_opt.lowering.program.float_formats import Array
from fuse_opt.lowering.reference.interpreter import evaluate_function, logical_array, memory_array
from fuse_opt.lowering.reference.kernels import find_implementation
from fuse_opt.lowering.reference.kernels.partitions import find_partition_build


def routine_of(op: LibraryCallOp, symbols: Mapping[str, Operation]) -> Run:
    """What a call runs; `symbols` are those of its module. Raises LoweringError for what nobody has registered."""
    if op.implementation.data == REFERENCE:
        return partial(_run_reference, _reference_function(op, symbols))
    if op.implementation.data == PARTITION:
        return _partition(op, symbols)
    if CHAIN in op.config.data:
        run = partial(_run_reference, _reference_function(op, symbols))
        return run if op.workspace is None else _without_workspace(run)
    found = find_implementation(op.operation.data, op.implementation.data)
    if found is None:
        raise LoweringError(
            f"'{op.implementation.data}' is not a registered implementation of '{op.operation.data}'", op
        )
    run = found.run if op.workspace is None or found.takes_workspace else _without_workspace(found.run)
    return partial(_run_in_orders, run) if ORDERS in op.config.data else run


def _partition(op: LibraryCallOp, symbols: Mapping[str, Operation]) -> Run:
    """What the backend makes of the function that has the partition's ops."""
    backend = text_of(op.config.data.get("backend"))
    if (build := find_partition_build(backend)) is None:
        problem = f"nothing builds partitions of '{backend}'"
        raise LoweringError(f"'fused.partition': {problem}; name the backend's file or run unfuse", op)
    block = _reference_function(op, symbols).body.block
    ops = [inner for inner in block.ops if isinstance(inner, GraphOp)]
    try:
        return build(Subgraph.of(ops, block.args, block.last_op.operands if block.last_op else ()))
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise LoweringError(f"'fused.partition': backend '{backend}' raised {said}; run unfuse", op) from error


def _reference_function(op: LibraryCallOp, symbols: Mapping[str, Operation]) -> func.FuncOp:
    """The function with the ops of a call."""
    name = text_of(op.config.data.get("function"))
    function = symbols.get(name)
    if not isinstance(function, func.FuncOp):
        raise LoweringError(f"'gpu.library_call' of the reference: there is no function '{name}'", op)
    return function


def _run_reference(
    function: func.FuncOp, inputs: Sequence[Array], outputs: Sequence[Array], config: Mapping[str, ConfigValue]
) -> None:
    types = function.function_type
    given = [logical_array(array, type_) for array, type_ in zip(inputs, types.inputs, strict=True)]
    results = zip(outputs, evaluate_function(function, given), types.outputs, strict=True)
    for out, value, type_ in results:
        np.copyto(out, memory_array(value, type_))


def _run_in_orders(
    run: Run, inputs: Sequence[Array], outputs: Sequence[Array], config: Mapping[str, ConfigValue]
) -> None:
    """Runs on views that have their axes as types write them."""
    orders = config[ORDERS]
    assert isinstance(orders, tuple)
    arrays = [*inputs, *outputs]
    views = [_in_order(array, str(order)) for array, order in zip(arrays, orders, strict=False)]
    views += arrays[len(orders) :]  # a workspace
    run(views[: len(inputs)], views[len(inputs) :], config)


def _in_order(array: Array, order: str) -> Array:
    """A view; of panels a copy, which only what is read lies in."""
    axes, _, panel = order.partition("|")
    if panel:
        place = int(panel.partition(":")[0])
        rest = list(range(1, array.ndim - 1))
        array = array.transpose(*rest[:place], 0, array.ndim - 1, *rest[place:])
        array = array.reshape(*array.shape[:place], -1, *array.shape[place + 2 :])
    return array.transpose(np.argsort(np.array(axes.split(), int))) if axes else array


def _without_workspace(run: Run) -> Run:
    """A function of the reference, in the place of compiled code that works in memory of the plan's."""
    return lambda inputs, outputs, config: run(inputs, outputs[:-1], config)
