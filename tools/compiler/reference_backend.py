"""Programs on the reference: every op on its own, by NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from fuse_opt.dialects.types.encodings import OrderAttr, encoding_of
from fuse_opt.dialects.types.storage_kinds import part_types
from fuse_opt.lowering.reference.interpreter import evaluate_function
from fuse_opt.tools.compiler.located import Source, located
from fuse_opt.tools.compiler.signature import Array, Signature


@dataclass(frozen=True)
class ReferenceStats:
    """What the reference does: every op on its own, all intermediate values in memory of their own."""

    launches: int
    kernels: int = 0
    library_calls: int = 0
    arena_bytes: int = 0
    lower_bound_bytes: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    compile_s: float = 0.0
    segments: int = 0


class Reference:
    """A function on the reference evaluator."""

    source = ""

    def __init__(self, origin: Source, function: FuncOp) -> None:
        self._origin = origin
        self._function = function
        self.signature = Signature.of(function)
        """Its arguments and results."""
        self.stats = ReferenceStats(sum(1 for _ in self._function.body.block.ops) - 1)

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        """Of a function with values of storage kinds the arguments and results are their parts, which nobody checks here."""
        inputs = list(arrays) if self.signature.has_stored else self.signature.convert_inputs(arrays)
        targets = None if out is None else self.signature.check_outputs(out)
        with located(self._origin, self._function):
            results = evaluate_function(self._function, inputs)
        if targets is None:
            results = [a.copy() if any(np.may_share_memory(a, b) for b in inputs) else a for a in results]
            types = [part for type_ in self._function.function_type.outputs for part in part_types(type_)]
            results = [_laid_out(array, type_) for array, type_ in zip(results, types, strict=True)]
        else:
            results = [_copied(target, result) for target, result in zip(targets, results, strict=True)]
        return results[0] if len(results) == 1 else tuple(results)


def _copied(target: Array, result: Array) -> Array:
    np.copyto(target, result)
    return target


def _laid_out(array: Array, type_: Attribute) -> Array:
    """The array with the strides of its type."""
    found = encoding_of(type_)
    if not isinstance(found, OrderAttr):
        return array
    order = found.order
    return np.ascontiguousarray(array.transpose(order)).transpose([order.index(axis) for axis in range(len(order))])
