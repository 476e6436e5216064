"""
PyTorch's `aot_eager` with strides of the traced graph. Those of fake tensors are others than those of tensors for some ops (an
index of permuted numbers), and backends that make memory of their own, Inductor among them, give what the graph says.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from torch_testing import torch

backends: Any = import_module("torch._dynamo.backends.common")
make_boxed_func: Any = import_module("functorch.compile").make_boxed_func


def _as_traced(module: Any, _: Any) -> Any:
    """Runs a graph as eager does, with results in the strides that they have in it."""
    values = [getattr(node, "meta", {}).get("val") for node in module.graph.output_node().args[0]]

    def call(*arguments: Any) -> list[Any]:
        return [_in_strides(value, found) for value, found in zip(values, module(*arguments), strict=True)]

    return make_boxed_func(call)


def _in_strides(value: Any, found: Any) -> Any:
    is_tensor = isinstance(value, torch.Tensor) and found.layout == torch.strided
    if not is_tensor or value.stride() == found.stride() or not all(type(n) is int for n in value.stride()):
        return found
    return torch.empty_strided(found.shape, value.stride(), dtype=found.dtype).copy_(found)


AS_TRACED = backends.aot_autograd(fw_compiler=_as_traced)
