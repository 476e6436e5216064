"""What onnxruntime, in f32 where it has no kernel for narrow floats, or else ONNX's reference gives for one node."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

onnx: Any = import_module("onnx")
reference: Any = import_module("onnx.reference")
runtime: Any = import_module("onnxruntime")
ml_dtypes: Any = import_module("ml_dtypes")
helper: Any = onnx.helper
runtime.set_default_logger_severity(4)

Array = NDArray[Any]
NARROW = ("float16", "bfloat16")
WRONG_REFERENCE = ("LRN", "GlobalMaxPool", "MaxPool", "ReverseSequence")
"""Operators of which ONNX's reference has some values wrong, or takes operands that are out of range."""
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def proto_type(array: Array) -> int:
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


def single(node: Any, arrays: Sequence[Array | None], opset: int) -> Any:
    """A model of one node."""
    given = {name: array for name, array in zip(node.input, arrays, strict=True) if name and array is not None}
    inputs = [helper.make_tensor_value_info(name, proto_type(array), array.shape) for name, array in given.items()]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = helper.make_graph([node], "one", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


_POOLS = ("MaxPool", "AveragePool", "LpPool")


def _fit(node: Any, arrays: Sequence[Array | None]) -> bool:
    """Whether the padded images of a pool are as large as its windows."""
    said = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    extents = arrays[0].shape[2:] if arrays[0] is not None else ()
    count, kernel = len(extents), said["kernel_shape"]
    gaps, pads = said.get("dilations", [1] * count), said.get("pads", [0] * (2 * count))
    if said.get("auto_pad", b"").startswith(b"SAME"):
        return True
    reach = [
        d * (k - 1) + 1 - before - after for k, d, before, after in zip(kernel, gaps, pads, pads[count:], strict=False)
    ]
    return all(n >= r for n, r in zip(extents, reach, strict=True))


def evaluated(node: Any, arrays: Sequence[Array | None], opset: int, second: bool = False) -> list[Array] | None:
    """
    The outputs of a node: by onnxruntime, in f32 where it has no kernel for narrow floats, else by ONNX's reference, which is
    asked first for a `second` opinion. None where nobody computes them.
    """
    if node.op_type in _POOLS and not _fit(node, arrays):
        return None  # onnxruntime has a result of windows that do not fit, as it rounds their number to zero
    model = single(node, arrays, opset)
    given = {name: array for name, array in zip(node.input, arrays, strict=True) if name and array is not None}
    try:
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        onnx.checker.check_model(inferred)
    except Exception:  # of onnx's checker: whatever it finds
        return None
    if second:
        return _by_reference(node, model, given)
    found = _by_runtime(node, model, given)
    if found is None and any(array.dtype.name in NARROW for array in given.values()):
        wide = {k: a.astype(np.float32) if a.dtype.name in NARROW else a for k, a in given.items()}
        other = single(node, [wide.get(name) for name in node.input], opset)
        found = _by_runtime(node, other, wide)
        if found:
            types = {value.name: value.type.tensor_type.elem_type for value in inferred.graph.output}
            kinds = [helper.tensor_dtype_to_np_dtype(types[name]) if name else None for name in node.output]
            found = [a if kind is None else a.astype(kind) for a, kind in zip(found, kinds, strict=True)]
    return _by_reference(node, model, given) if found is None else found or None


def _by_runtime(node: Any, model: Any, given: Mapping[str, Array]) -> list[Array] | None:
    """None where onnxruntime has no kernel; nothing where it refuses what is given."""
    if any(array.dtype == BFLOAT16 for array in given.values()):
        return None
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    try:
        session = runtime.InferenceSession(model.SerializeToString(), options)
    except Exception:  # NOT_IMPLEMENTED, and others of its own
        return None
    try:
        return _by_output(node, session.run(None, given))
    except Exception:  # INVALID_ARGUMENT, and others
        return []


def _by_reference(node: Any, model: Any, given: Mapping[str, Array]) -> list[Array] | None:
    if node.op_type in WRONG_REFERENCE:
        return None
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return _by_output(node, reference.ReferenceEvaluator(model).run(None, given))
    except Exception:  # of the reference: it has few messages of its own
        return None


def _by_output(node: Any, found: Sequence[Any]) -> list[Array]:
    arrays = iter(found)
    return [np.asarray(next(arrays)) if name else np.zeros(0) for name in node.output]
