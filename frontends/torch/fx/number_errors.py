"""Numbers of extents that Python refuses (`1.0 / (n - 5)` at 5): AOTAutograd makes tensors of such, which give infinity."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from fuse_opt.frontends.torch.fx.api import example_of, fx, torch

_python: Any = operator
_DIVISIONS = (_python.truediv, _python.floordiv, _python.mod)


def refuse_as_python(graph_module: Any, compiled: Callable[..., Any]) -> Callable[..., Any]:
    """
    A compiled graph, but the graph as it was traced for extents of which it computes a number that there is none of: that raises
    what Python does, after what it does before. The same function where bounds prove that there are none.
    """
    if (numbers := _numbers(graph_module)) is None:
        return compiled

    def call(*args: Any) -> Any:
        try:
            numbers(*args)
        except (ArithmeticError, ValueError):
            return graph_module(*args)
        return compiled(*args)

    return call


def _numbers(graph_module: Any) -> Callable[..., Any] | None:
    """What computes the numbers of a graph that may be refused, from its arguments; None where there are none."""
    nodes = list(graph_module.graph.nodes)
    needed = {node for node in nodes if _may_be_refused(node)}
    if not needed:
        return None
    for node in reversed(nodes):
        if node in needed:
            needed.update(node.all_input_nodes)
    graph, copies = fx.Graph(), dict[Any, Any]()
    for node in nodes:
        if node.op == "placeholder" or (node in needed and _is_number(node)):
            copies[node] = graph.node_copy(node, copies.__getitem__)
        elif node in needed:
            return None  # follows from data
    graph.output(None)
    return fx.GraphModule(graph_module, graph).forward


def _is_number(node: Any) -> bool:
    return isinstance(example_of(node), torch.SymInt | torch.SymFloat | int | float)


def _may_be_refused(node: Any) -> bool:
    """Whether a node is a quotient by what may be 0, a power that may have such a base, or a function that is not everywhere."""
    if node.op != "call_function" or not isinstance(example_of(node), torch.SymInt | torch.SymFloat):
        return False
    if node.target in _DIVISIONS:
        return not is_above_zero(node.args[1])
    if node.target is _python.pow:
        return not is_above_zero(node.args[0])
    return getattr(node.target, "__name__", "").startswith("_sym_")


def is_above_zero(item: Any) -> bool:
    """Whether that is proven: by its bounds, or of what is computed from such without a difference."""
    value = example_of(item) if isinstance(item, fx.Node) else item
    if not isinstance(value, torch.SymInt | torch.SymFloat):
        return isinstance(value, int | float) and value > 0
    if value.node.shape_env.bound_sympy(value.node.expr).lower > 0:
        return True
    positive = (_python.truediv, _python.mul, _python.add)
    return isinstance(item, fx.Node) and item.target in positive and all(map(is_above_zero, item.args))
