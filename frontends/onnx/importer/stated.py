"""What a model says of itself: its names, weights, and inputs, and whether arrays are as these say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fuse_opt.frontends.builder import Array, UnsupportedTypeError, numpy_name
from fuse_opt.frontends.onnx.importer.imported import Input
from fuse_opt.frontends.onnx.operators.node import OnnxError, UnsupportedError, element_of, onnx_module


def check_names(graph: Any) -> None:
    """Raises OnnxError where a name is not UTF-8: protobuf gives such strings as bytes."""
    named = (*graph.input, *graph.output, *graph.initializer, *graph.node)
    names: list[object] = [each.name for each in named]
    for node in graph.node:
        names += [node.op_type, node.domain, *node.input, *node.output]
    if wrong := next((name for name in names if isinstance(name, bytes)), None):
        raise OnnxError(f"expected names in UTF-8, got {wrong[:40]!r}")


def initializers(graph: Any) -> dict[str, Array]:
    onnx = onnx_module()
    if graph.sparse_initializer:
        raise UnsupportedError("sparse initializers are not supported; expected dense ones")
    found: dict[str, Array] = {}
    for tensor in graph.initializer:
        try:
            found[tensor.name] = onnx.numpy_helper.to_array(tensor)
        except (KeyError, TypeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise OnnxError(
                f"initializer '{tensor.name}': expected numbers of its type and extents; {reason}"
            ) from error
    return found


def tensor(value: Any, what: str) -> Any:
    """An input or output that is a tensor, or of which nothing is said."""
    kind = value.type.WhichOneof("value")
    if kind not in ("tensor_type", None):
        raise UnsupportedError(f"{what} '{value.name}': expected a tensor, got {kind.removesuffix('_type')}")
    return value


def input_of(value: Any, extents: Mapping[str, int]) -> Input:
    type_ = tensor(value, "input").type
    try:
        element = element_of(type_.tensor_type.elem_type)
    except UnsupportedTypeError as error:
        raise UnsupportedError(f"input '{value.name}': {error}") from error
    if not type_.tensor_type.HasField("shape"):
        return Input(value.name, element, None)
    stated = type_.tensor_type.shape.dim
    # Some exporters write -1 for an extent that is not known.
    dims = [dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else dim.dim_param for dim in stated]
    return Input(value.name, element, tuple(extents.get(dim, dim) if isinstance(dim, str) else dim for dim in dims))


def check(known: Input, array: Array) -> None:
    if array.dtype.name != numpy_name(known.element):
        raise OnnxError(f"input '{known.name}': expected {known.element}, got an array of {array.dtype.name}")
    if (stated := known.shape) is None:
        return
    fits = len(stated) == array.ndim and all(
        isinstance(extent, str) or extent == size for extent, size in zip(stated, array.shape, strict=True)
    )
    if not fits:
        raise OnnxError(f"input '{known.name}': expected {known}, got shape {list(array.shape)}")
