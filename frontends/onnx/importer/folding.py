"""Evaluates the nodes of an ONNX model whose operands are all known, by onnx's own reference."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuse_opt.frontends.builder import Array
from fuse_opt.frontends.onnx.operators.node import OnnxError, Slot, onnx_module
from fuse_opt.frontends.onnx.operators.random import RANDOM

FOLDED = frozenset(
    (
        "BlackmanWindow",
        "Constant",
        "ConstantOfShape",
        "HammingWindow",
        "HannWindow",
        "MelWeightMatrix",
        "Range",
    )
)
"""Operators that only make constants: the values of their operands decide the shape of the result."""

_OURS = {
    "AveragePool", "Conv", "ConvTranspose", "GlobalAveragePool", "GlobalMaxPool", "LayerNormalization", "LRN", "LpPool",
    "MaxPool", "MaxUnpool",
}  # fmt: skip
"""Of which the reference has values or types wrong in places: LRN, indices of MaxPool, GlobalMaxPool, means of f16."""
_KEPT = RANDOM | _OURS | {"DequantizeLinear", "If", "Loop", "Scan", "SequenceMap"}
"""Operators that are not evaluated: random ones, what would make weights larger, those with graphs inside, and ours."""


class FoldingError(OnnxError):
    """ONNX's reference refuses a node whose operands are known: the model is wrong, or the reference does not cover the node."""


class Folder:
    """Evaluates single nodes."""

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx

    def may_fold(self, proto: Any, domain: str) -> bool:
        return domain == "" and proto.op_type not in _KEPT

    def evaluate(self, proto: Any, slots: Sequence[Slot | None], opset: int, domain: str) -> list[Array]:
        """The node's outputs. Raises FoldingError when the reference refuses the node."""
        helper = self._onnx.helper
        given = {name: slot.array for name, slot in zip(proto.input, slots, strict=True) if slot is not None}
        inputs = [helper.make_empty_tensor_value_info(name) for name in given]
        outputs = [helper.make_empty_tensor_value_info(name) for name in proto.output if name]
        graph = helper.make_graph([proto], "node", inputs, outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(domain, max(opset, 1))])
        label = f"operator {proto.op_type}" + (f", node '{proto.name}'" if proto.name else "")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                results = iter(onnx_module("onnx.reference").ReferenceEvaluator(model).run(None, given))
        except Exception as error:  # the reference raises all sorts of errors
            raise FoldingError(f"{label}: cannot be evaluated: {type(error).__name__}: {error}") from error
        return [np.asarray(next(results)) if name else np.zeros(0) for name in proto.output]
