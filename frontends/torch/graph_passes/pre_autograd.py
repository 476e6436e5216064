"""
Changes to a traced graph before autograd: calls that PyTorch takes apart into gathers, written as views instead, and those
that give their argument itself in eager, where a compiler is given a copy of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fuse_opt.frontends.torch.fx.api import as_list, example_of, fx, is_tensor, static_shape, torch
from fuse_opt.frontends.torch.graph_passes.attention_dropout import composed, dropped_attention

functional: Any = torch.nn.functional


def rewrite(graph_module: Any) -> Any:
    """
    The graph with nearest upsampling by whole factors as repetition, attention that drops weights as products with rows
    between them, and without dropout that drops nothing; the given one is not changed.
    """
    if not any(_is_changed(node) for node in graph_module.graph.nodes):
        return graph_module
    graph = fx.Graph()
    values: dict[Any, Any] = {}
    for node in graph_module.graph.nodes:
        factors = _factors(node)
        if _gives_argument(node):
            values[node] = values[node.args[0]]
        elif (attention := dropped_attention(node)) is not None:
            values[node] = composed(graph, node, attention, values)
        elif factors is None:
            values[node] = graph.node_copy(node, values.__getitem__)
        else:
            values[node] = _repeated(graph, values[node.args[0]], static_shape(example_of(node.args[0])), factors)
            values[node].meta = dict(node.meta)
    changed = fx.GraphModule(graph_module, graph)
    keep_sources(graph_module, changed, values)
    return changed


def keep_sources(given: Any, changed: Any, values: Mapping[Any, Any]) -> None:
    """Has the graph say what Dynamo said of the given one's arguments: where they come from, which are parameters."""
    changed.meta.update(given.meta)
    _copy_attribute(given, changed, "_param_name_to_source")
    for node in given.graph.find_nodes(op="placeholder"):
        _copy_attribute(node, values[node], "_dynamo_source")


def _copy_attribute(given: Any, to: Any, name: str) -> None:
    if hasattr(given, name):
        setattr(to, name, getattr(given, name))


def _is_changed(node: Any) -> bool:
    return _factors(node) is not None or _gives_argument(node) or dropped_attention(node) is not None


def _gives_argument(node: Any) -> bool:
    """Whether a call is dropout that drops nothing."""
    if node.op != "call_function" or node.target is not functional.dropout or not node.args:
        return False
    given = {**dict(zip(("input", "p", "training", "inplace"), node.args, strict=False)), **node.kwargs}
    p, training, inplace = given.get("p", 0.5), given.get("training", True), given.get("inplace", False)
    is_node = isinstance(node.args[0], fx.Node) and not any(
        isinstance(item, fx.Node) for item in (p, training, inplace)
    )
    return is_node and not inplace and (training is False or (type(p) in (int, float) and p == 0))


def _factors(node: Any) -> tuple[int, ...] | None:
    """By spatial axis, how often nearest upsampling repeats each element; None for other calls."""
    if node.op != "call_function" or node.target is not functional.interpolate or not node.args:
        return None
    names = ("input", "size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias")
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    x, y = example_of(node.args[0]), example_of(node)
    if given.get("mode", "nearest") != "nearest" or not is_tensor(x) or not is_tensor(y):
        return None
    small, large = static_shape(x), static_shape(y)
    if small is None or large is None or 0 in small or not x.is_contiguous():
        return None
    factors = tuple(n // m for n, m in zip(large[2:], small[2:], strict=True))
    scales = given.get("scale_factor")
    axes = zip(small[2:], large[2:], factors, _each(scales, len(factors)), strict=True)
    return factors if all(_repeats(m, n, factor, scale) for m, n, factor, scale in axes) else None


def _each(scales: Any, count: int) -> list[Any]:
    return as_list(scales) if isinstance(scales, (list, tuple)) else [scales] * count


def _repeats(small: int, large: int, factor: int, scale: Any) -> bool:
    """Whether element k of the result is element k // factor: its index is computed in f32, which may be off by one."""
    if small * factor != large:
        return False
    step = np.float32(1.0 / scale if isinstance(scale, float) else small / large)
    found = np.minimum(np.floor(np.arange(large, dtype=np.float32) * step).astype(np.int64), small - 1)
    return bool((found == np.arange(large) // factor).all())


def _repeated(graph: Any, x: Any, extents: Any, factors: tuple[int, ...]) -> Any:
    split, wide = list(extents[:2]), list(extents[:2])
    for n, factor in zip(extents[2:], factors, strict=True):
        split += [n, 1]
        wide += [n, factor]
    large = [*extents[:2], *(n * factor for n, factor in zip(extents[2:], factors, strict=True))]
    x = graph.call_function(torch.reshape, (x, split))
    return graph.call_function(torch.reshape, (graph.call_method("expand", (x, wide)), large))
