"""Sums of matrix products, as the gradient of a weight that is used several times: one product of what is joined.

A1 B1 + ... + An Bn is [A1 ... An] times [B1; ...; Bn]: the products are not written to memory, and no sum reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fuse_opt.frontends.torch.fx.api import aten, is_tensor, torch
from fuse_opt.frontends.torch.graph_passes.sums import emit, plus

_FEWEST = 3
"""Products that are worth joining."""


def join_products(graph: Any, root: Any, terms: Sequence[Any]) -> Any:
    """The narrow products among the terms as one, with the others added to it; None where there are few."""
    if root.meta["val"].dim() != 2 or root.meta["val"].dtype not in (torch.float32, torch.float64):
        return None
    found = [_product(term) for term in terms]
    if len(found) - found.count(None) < _FEWEST:
        return None
    factors = [_factors(graph, *product) for product in found if product is not None]
    left = emit(graph, aten.cat.default, [a for a, _ in factors], 1)
    right = emit(graph, aten.cat.default, [b for _, b in factors], 0)
    others = [term for term, product in zip(terms, found, strict=True) if product is None]
    return plus(graph, emit(graph, aten.mm.default, left, right), others)


def _product(node: Any) -> tuple[Any, bool] | None:
    """The product that only this sum takes, and whether it takes it transposed; None for wide ones, which cost nothing more."""
    transposed = False
    while node.op == "call_function" and len(node.users) == 1:
        if _is_transposition(node):
            node, transposed = node.args[0], not transposed
            continue
        if node.target is not aten.mm.default or not all(is_tensor(a.meta.get("val")) for a in node.args):
            return None
        (rows, inner), (_, columns) = (tuple(a.meta["val"].shape) for a in node.args)
        narrow = all(isinstance(n, int) for n in (rows, inner, columns)) and inner * (rows + columns) < rows * columns
        return (node, transposed) if narrow else None
    return None


def _is_transposition(node: Any) -> bool:
    if node.target is aten.permute.default:
        return list(node.args[1]) == [1, 0]
    return node.target is aten.t.default and len(node.meta["val"].shape) == 2


def _factors(graph: Any, product: Any, transposed: bool) -> tuple[Any, Any]:
    a, b = product.args
    return (_turned(graph, b), _turned(graph, a)) if transposed else (a, b)


def _turned(graph: Any, node: Any) -> Any:
    return emit(graph, aten.permute.default, node, [1, 0])
