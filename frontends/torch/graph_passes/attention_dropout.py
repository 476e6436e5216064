"""Attention that drops weights, in a traced graph before autograd: products, a softmax and dropout, which one kernel runs.

PyTorch's own composition scales queries and keys in passes of their own. What is dropped is drawn by PyTorch as in eager.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fuse_opt.frontends.torch.fx.api import example_of, is_tensor, static_shape, torch

functional: Any = torch.nn.functional
_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


def dropped_attention(node: Any) -> dict[str, Any] | None:
    """The arguments of a call of attention that drops weights, by name; None for other calls, or of unknown extents."""
    if node.op != "call_function" or node.target is not functional.scaled_dot_product_attention:
        return None
    given: dict[str, Any] = {**dict(zip(_NAMES, node.args, strict=False)), **node.kwargs}
    p, mask = given.get("dropout_p", 0.0), given.get("attn_mask")
    if not isinstance(p, float) or not 0 < p < 1 or not isinstance(given.get("scale"), (float, type(None))):
        return None
    values = [example_of(given.get(name)) for name in ("query", "key", "value")]
    if mask is not None:
        values.append(example_of(mask))
    if not all(is_tensor(value) and static_shape(value) is not None for value in values):
        return None
    ranks = {len(value.shape) for value in values[:3]}
    return given if ranks == {4} and _are_plain(given, values) else None


def _are_plain(given: dict[str, Any], values: Sequence[Any]) -> bool:
    """Whether heads go together, or are grouped, and there is one sort of mask at most."""
    q, k, v = values[:3]
    if given.get("is_causal", False) not in (True, False) or (given.get("is_causal") and len(values) > 3):
        return False
    grouped = given.get("enable_gqa", False) is True and k.shape[1] == v.shape[1] and q.shape[1] % k.shape[1] == 0
    return q.shape[0] == k.shape[0] == v.shape[0] and (grouped or q.shape[1] == k.shape[1] == v.shape[1])


def composed(graph: Any, node: Any, given: dict[str, Any], values: dict[Any, Any]) -> Any:
    """Builds what `dropped_attention` found in another graph, in which nodes have these values."""

    def call(function: Any, *args: Any, **options: Any) -> Any:
        return graph.call_function(function, args, options)

    q, k, v = (values[given[name]] for name in ("query", "key", "value"))
    (_, heads, queries, depth), (_, groups, keys, _) = (example_of(given[name]).shape for name in ("query", "key"))
    if heads != groups:
        k, v = (call(torch.repeat_interleave, x, heads // groups, dim=1) for x in (k, v))
    scale = given.get("scale")
    scores = call(torch.matmul, q, call(torch.transpose, k, -2, -1))
    scores = call(torch.mul, scores, depth**-0.5 if scale is None else scale)
    softmax: Any = torch.softmax
    if given.get("is_causal"):
        device = example_of(given["query"]).device
        rows, columns = (call(torch.arange, count, device=device) for count in (queries, keys))
        kept = call(torch.ge, call(torch.unsqueeze, rows, 1), columns)
        scores = call(torch.where, kept, scores, float("-inf"))
    if (mask := given.get("attn_mask")) is not None:
        softmax, is_choice = torch._safe_softmax, example_of(mask).dtype is torch.bool
        mask = values[mask]
        scores = call(torch.where, mask, scores, float("-inf")) if is_choice else call(torch.add, scores, mask)
    weights = call(functional.dropout, call(softmax, scores, -1), given["dropout_p"], True)
    result = call(torch.matmul, weights, v)
    result.meta = dict(node.meta)
    return result
