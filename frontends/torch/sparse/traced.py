"""Functions of tensors, sparse ones among them, as graphs of aten calls, by `make_fx` on fake tensors.

Dynamo takes no sparse tensors, and AOTAutograd none of csr; fake tensors do, and autograd's calls on them. What a graph
computes before gradients of results are known is the forward part, the other the backward part: values that the second reads
of the first are saved, but for views, which cost nothing to take again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from fuse_opt.frontends.torch.fx.api import as_list, is_tensor, torch
from fuse_opt.frontends.torch.fx.handler import NotCoveredError
from fuse_opt.frontends.torch.operators.decompositions import decompositions

Function = Callable[..., Any]


@dataclass(frozen=True)
class Traced:
    """A graph of a call: nodes, and which of them are arguments and results."""

    nodes: Sequence[Any]
    arguments: Sequence[Any]
    results: Sequence[Any]
    single: bool
    """Whether the function gives one tensor, not several."""
    tangents: Sequence[Any] = ()
    """The gradients of results."""
    gradients: Sequence[Any] = ()
    """The gradients of arguments; None where results do not depend on one."""
    saved: Sequence[Any] = ()
    """What the gradients need of the forward part, arguments among it."""


def trace(function: Function, arguments: Sequence[Any]) -> Traced:
    """The graph of a call of a function with such tensors. Raises TypeError where it gives something else than tensors."""
    single: list[bool] = []

    def listed(*given: Any) -> list[Any]:
        found = function(*given)
        single.append(is_tensor(found))
        return _tensors(found)

    with torch.no_grad():
        nodes, results = _graph(listed, [value.detach() for value in arguments])
    return Traced(nodes, _placeholders(nodes), results, single[-1])


def trace_with_gradients(function: Function, arguments: Sequence[Any], wanted: Sequence[int]) -> Traced:
    """
    The graph of a call and of the gradients of the `wanted` arguments. Raises NotCoveredError for a function that gives
    tensors of storage kinds, or none that depends on them.
    """
    plain = trace(function, arguments)
    values = [node.meta["val"] for node in plain.results]
    if any(value.layout != torch.strided for value in values):
        raise NotCoveredError("gives sparse tensors, of whose gradients it does not know the pattern")

    def joint(*given: Any) -> list[Any]:
        primals = [
            value.detach().requires_grad_(number in wanted) for number, value in enumerate(given[: len(arguments)])
        ]
        with torch.enable_grad():
            found = _tensors(function(*primals))
            pairs = [pair for pair in zip(found, given[len(arguments) :], strict=True) if pair[0].requires_grad]
            if not pairs:
                raise NotCoveredError("gives nothing that depends on what a gradient is asked for")
            inputs = [primals[number] for number in wanted]
            tracked, tangents = zip(*pairs, strict=True)
            gradients = torch.autograd.grad(tracked, inputs, tangents, allow_unused=True)
        return [value.detach() for value in found] + list(gradients)

    tangents = [torch.empty(tuple(value.shape), dtype=value.dtype) for value in values]
    nodes, results = _graph(joint, [*(value.detach() for value in arguments), *tangents])
    if any(is_write(node) for node in nodes):
        raise NotCoveredError("writes to tensors; gradients are taken of functions that do not")
    places, count, forward = _placeholders(nodes), len(arguments), plain.results
    given, gradients = places[count:], results[len(forward) :]
    saved = _saved(nodes, given, gradients)
    return Traced(nodes, places[:count], results[: len(forward)], plain.single, given, gradients, saved)


def is_view(node: Any) -> bool:
    """Whether what a call gives lies in the memory of its operand."""
    schema = getattr(node.target, "_schema", None)
    aliases = None if schema is None or not schema.returns else schema.returns[0].alias_info
    return aliases is not None and not aliases.is_write


def is_write(node: Any) -> bool:
    """Whether a call writes to an operand."""
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and schema is not None and schema.is_mutable


def _saved(nodes: Sequence[Any], tangents: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
    behind = set(tangents)
    for node in nodes:
        if any(source in behind for source in node.all_input_nodes):
            behind.add(node)
    found: dict[Any, None] = {}
    reached = [node for node in nodes if node in behind] + [node for node in gradients if node is not None]
    waiting = [source for node in reached for source in (*node.all_input_nodes, node) if source not in behind]
    while waiting:
        node = waiting.pop()
        if not node.all_input_nodes and node.op != "placeholder":
            continue  # a constant
        if is_view(node):
            waiting += node.all_input_nodes
        else:
            found[node] = None
    order = {node: number for number, node in enumerate(nodes)}
    return sorted(found, key=order.__getitem__)


def _graph(function: Function, arguments: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The nodes of a call, and its results."""
    make_fx = import_module("torch.fx.experimental.proxy_tensor").make_fx
    graph = make_fx(function, decompositions(products=False), tracing_mode="fake")(*arguments).graph
    *nodes, output = graph.nodes
    return nodes, as_list(output.args[0])


def _placeholders(nodes: Sequence[Any]) -> list[Any]:
    return [node for node in nodes if node.op == "placeholder"]


def _tensors(found: Any) -> list[Any]:
    values = as_list(found)
    if not all(map(is_tensor, values)):
        kinds = ", ".join(type(value).__name__ for value in values)
        raise TypeError(f"expected a function that gives tensors, got ({kinds})")
    return values
