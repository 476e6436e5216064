"""What a forward graph keeps for its backward graph, in bytes: a budget of both has it in either."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fuse_opt.frontends.torch.fx.api import torch


def saved_bytes(graph_module: Any) -> int:
    """
    Bytes of values that a forward graph hands to its backward graph; arguments and views of them are the caller's, and values
    of unknown extents do not count.
    """
    context: Any = import_module("torch._guards").TracingContext.try_get()
    first = getattr(None if context is None else context.fw_metadata, "num_forward", None)
    return 0 if first is None else saved_bytes_of(graph_module, first)


def saved_bytes_of(graph_module: Any, first: int) -> int:
    """The same where that is the results from number `first` on."""
    nodes = list(graph_module.graph.nodes)
    known = {_memory(node) for node in nodes if node.op == "placeholder"}
    total = 0
    for node in nodes[-1].args[0][first:]:
        if hasattr(node, "meta") and (memory := _memory(node)) not in known:
            known.add(memory)
            total += _bytes(node.meta["val"])
    return total


def _memory(node: Any) -> int | None:
    """What values that share memory have in common; None of no tensor."""
    value = node.meta.get("val")
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


def _bytes(value: Any) -> int:
    if not isinstance(value, torch.Tensor) or not all(type(extent) is int for extent in value.shape):
        return 0
    return value.numel() * value.element_size()
