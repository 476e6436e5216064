"""Sums of many terms in a traced graph, and what is made of them before the import: a rewrite takes terms together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

from fuse_opt.frontends.torch.fx.api import aten, fx, is_tensor, static_shape

Join = Callable[[Any, Any, Sequence[Any]], Any]
"""Of a graph, the node that ends a sum and its terms, in order: a node with the same value, or None."""

_PURE = (
    aten.add.Tensor,
    aten.mm.default,
    aten.permute.default,
    aten.t.default,
    aten.new_zeros.default,
    aten.full.default,
    aten.select_scatter.default,
    aten.slice_scatter.default,
    aten.unsqueeze.default,
    aten.cat.default,
)
"""What is erased when nobody reads it any more."""


def join_terms(graph_module: Any, joins: Sequence[Join]) -> Any:
    """The graph with sums as what the first of the joins that has an answer makes of them; the given one is not changed."""
    if not any(_is_sum(node) for node in graph_module.graph.nodes):
        return graph_module
    graph = fx.Graph()
    copies: dict[Any, Any] = {}
    for node in graph_module.graph.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    changed = False
    for root in list(graph.nodes):
        if not _is_sum(root) or _is_term(root):
            continue
        terms = list(_terms(root))
        with graph.inserting_before(root):
            joined = next((made for join in joins if (made := join(graph, root, terms)) is not None), None)
        if joined is not None and joined.meta["val"].stride() == root.meta["val"].stride():
            root.replace_all_uses_with(joined)
            changed = True
    if not changed:
        return graph_module
    for node in reversed(list(graph.nodes)):
        if node.target in _PURE and not node.users:
            graph.erase_node(node)
    return fx.GraphModule(graph_module, graph)


def emit(graph: Any, target: Any, *arguments: Any) -> Any:
    """A call with what it gives for fake tensors."""
    node = graph.call_function(target, arguments)
    values = fx.map_arg(arguments, _value)
    tensors: Sequence[Any] = [
        value for value in import_module("torch.utils._pytree").tree_leaves(values) if is_tensor(value)
    ]
    with tensors[0].fake_mode:
        node.meta["val"] = target(*values)
    return node


def plus(graph: Any, value: Any, terms: Sequence[Any]) -> Any:
    """The value with terms added, from the left."""
    for term in terms:
        value = emit(graph, aten.add.Tensor, value, term)
    return value


def _value(node: Any) -> Any:
    return node.meta["val"]


def _is_sum(node: Any) -> bool:
    """Whether the node adds two tensors of floating-point numbers, of one shape and type."""
    if node.op != "call_function" or node.target is not aten.add.Tensor or node.kwargs or len(node.args) != 2:
        return False
    values: list[Any] = [operand.meta.get("val") if isinstance(operand, fx.Node) else None for operand in node.args]
    first, second = values
    if not is_tensor(first) or not is_tensor(second) or not first.is_floating_point():
        return False
    shape = static_shape(first)
    return shape is not None and shape == static_shape(second) and first.dtype == second.dtype


def _is_term(node: Any) -> bool:
    """Whether the sum is a part of a larger one, and of nothing else."""
    return len(node.users) == 1 and _is_sum(next(iter(node.users)))


def _terms(root: Any) -> Iterator[Any]:
    waiting = list(reversed(root.args))
    while waiting:
        term = waiting.pop()
        if _is_sum(term) and len(term.users) == 1:
            waiting += reversed(term.args)
        else:
            yield term
