"""Operators that ONNX defines by other operators: the function body of a node without a handler of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import DYNAMIC_INDEX

from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.frontends.builder import Value, numpy_name
from fuse_opt.frontends.onnx.operators.node import Slot

EXPANDED = frozenset(("LinearAttention",))
"""Operators without a handler whose function bodies hold supported operators only."""


def function_of(onnx: Any, proto: Any, domain: str, opset: int, slots: Sequence[Slot | None]) -> Any | None:
    """The FunctionProto that stands for a node, of the newest version not above `opset`; None where there is none."""
    try:
        schema = onnx.defs.get_schema(proto.op_type, max(opset, 1), domain)
    except onnx.defs.SchemaError:
        return None
    function = onnx.FunctionProto()
    if versions := [v for v in schema.function_opset_versions if v <= opset]:
        function.ParseFromString(schema.get_function_with_opset_version(max(versions)))
    elif versions := [v for v in schema.context_dependent_function_opset_versions if v <= opset]:
        types = [b"" if slot is None else _type_of(slot, onnx).SerializeToString() for slot in slots]
        text = schema.get_context_dependent_function_with_opset_version(max(versions), proto.SerializeToString(), types)
        function.ParseFromString(text)
    return function if function.node else None


def _type_of(slot: Slot, onnx: Any) -> Any:
    helper = onnx.helper
    if slot.array is not None:
        return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(slot.array.dtype), slot.array.shape)
    value = cast(Value, slot.value)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(numpy_name(dtype(value))))
    return helper.make_tensor_type_proto(element, [None if n == DYNAMIC_INDEX else n for n in shape(value)])


def resolved(onnx: Any, node: Any, given: Mapping[str, Any], absent: AbstractSet[str]) -> Any:
    """A node of a function's body with the call's attributes, and without the operands that the call leaves out."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for position, name in enumerate(copy.input):
        if name in absent:
            copy.input[position] = ""
    del copy.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            copy.attribute.add().CopyFrom(attribute)
        elif attribute.ref_attr_name in given:
            added = copy.attribute.add()
            added.CopyFrom(given[attribute.ref_attr_name])
            added.name = attribute.name
    return copy
