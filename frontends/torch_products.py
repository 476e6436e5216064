"""Sums of matrix products, as the gradient of a weight that is used several times: one product of what is joined.

A1 B1 + ... + An Bn is [A1 ... An] times [B1; ...; Bn]: the products are not written to memory, and no sum reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from fuse_opt.frontends.torch_api import aten, fx, is_tensor, static_shape, torch

_FEWEST = 3
"""Products that are worth joining."""
_REPLACED = (aten.add.Tensor, aten.mm.default, aten.permute.default, aten.t.default)


def join_products(graph_module: Any) -> Any:
    """The graph with sums of narrow products as one product; the given one is not changed."""
    if not any(_is_sum(node) for node in graph_module.graph.nodes):
        return graph_module
    graph = fx.Graph()
    copies: dict[Any, Any] = {}
    for node in graph_module.graph.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    changed = False
    for node in list(graph.nodes):
        if _is_sum(node) and not any(_is_sum(user) and len(node.users) == 1 for user in node.users):
            changed |= _join(graph, node)
    if not changed:
        return graph_module
    _erase_unused(graph)
    return fx.GraphModule(graph_module, graph)


def _is_sum(node: Any) -> bool:
    """Whether the node adds two matrices of the same shape and type."""
    if node.op != "call_function" or node.target is not aten.add.Tensor or node.kwargs or len(node.args) != 2:
        return False
    values: list[Any] = [operand.meta.get("val") if isinstance(operand, fx.Node) else None for operand in node.args]
    first, second = values
    if not is_tensor(first) or not is_tensor(second) or first.dtype not in (torch.float32, torch.float64):
        return False
    shape = static_shape(first)
    return shape is not None and len(shape) == 2 and shape == static_shape(second) and first.dtype == second.dtype


def _join(graph: Any, root: Any) -> bool:
    """Takes the products out of the sum that ends in a node, where there are enough of them."""
    products: list[tuple[Any, Any]] = []
    others: list[Any] = []
    waiting = list(reversed(root.args))
    while waiting:
        term = waiting.pop()
        if _is_sum(term) and len(term.users) == 1:
            waiting += reversed(term.args)
        elif (found := _product(term)) is not None:
            products.append(_factors(graph, root, *found))
        else:
            others.append(term)
    if len(products) < _FEWEST:
        return False
    with graph.inserting_before(root):
        left = _emit(graph, aten.cat.default, [a for a, _ in products], 1)
        right = _emit(graph, aten.cat.default, [b for _, b in products], 0)
        result = _emit(graph, aten.mm.default, left, right)
        for term in others:
            result = _emit(graph, aten.add.Tensor, result, term)
    root.replace_all_uses_with(result)
    return True


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


def _factors(graph: Any, root: Any, product: Any, transposed: bool) -> tuple[Any, Any]:
    a, b = product.args
    if not transposed:
        return a, b
    with graph.inserting_before(root):
        return _turned(graph, b), _turned(graph, a)


def _turned(graph: Any, node: Any) -> Any:
    return _emit(graph, aten.permute.default, node, [1, 0])


def _emit(graph: Any, target: Any, *arguments: Any) -> Any:
    """A call with what it gives for fake tensors."""
    node = graph.call_function(target, arguments)
    values = fx.map_arg(arguments, _value)
    tensors: Sequence[Any] = [
        value for value in import_module("torch.utils._pytree").tree_leaves(values) if is_tensor(value)
    ]
    with tensors[0].fake_mode:
        node.meta["val"] = target(*values)
    return node


def _value(node: Any) -> Any:
    return node.meta["val"]


def _erase_unused(graph: Any) -> None:
    for node in reversed(list(graph.nodes)):
        if node.target in _REPLACED and not node.users:
            graph.erase_node(node)
