"""Convolutions of narrow floats on a GPU, in a traced graph before autograd: their channels lie innermost.

The matrix units take them so; cuDNN turns other orders for each call, and back. What is around keeps the order that it is given,
so that most of a model has it, and results of the graph are turned to the order that eager gives.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fuse_opt.frontends.torch.fx.api import example_of, fx, is_tensor, static_shape, torch
from fuse_opt.frontends.torch.graph_passes.pre_autograd import keep_sources

_CONVOLUTIONS = (torch.conv2d, torch.nn.functional.conv2d)
_NARROW = (torch.float16, torch.bfloat16)
_FEWEST = 2
"""Convolutions behind which what is turned once pays."""


def turn_convolutions(graph_module: Any, forced: bool = False) -> Any:
    """
    The graph with channels innermost before each such convolution; the given one where there are few, or a result's order could
    not be told. `forced` takes those on the processor, too. Tracing it may fail where it asks for views of memory.
    """
    sites = [node for node in graph_module.graph.nodes if _is_turned(node, forced)]
    if len(sites) < _FEWEST or any("as_strided" in str(node.target) for node in graph_module.graph.nodes):
        return graph_module
    results = _results(graph_module.graph, sites)
    if results is None:
        return graph_module
    graph, values = fx.Graph(), dict[Any, Any]()
    graph.output(graph.graph_copy(graph_module.graph, values))
    for node in sites:
        # Without a gradient the weights are turned, too: with one, that would come in another order than the weight's.
        for position in (0,) if torch.is_grad_enabled() else (0, 1):
            _turn(graph, values[node], position)
    (output,) = graph.find_nodes(op="output")
    for node in results:
        with graph.inserting_before(output):
            plain = graph.call_method("contiguous", (values[node],))
        output.replace_input_with(values[node], plain)
    changed = fx.GraphModule(graph_module, graph)
    keep_sources(graph_module, changed, values)
    return changed


def _turn(graph: Any, node: Any, position: int) -> None:
    arguments = list(node.args)
    with graph.inserting_before(node):
        options = {"memory_format": torch.channels_last}
        arguments[position] = graph.call_method("contiguous", (arguments[position],), options)
    node.args = tuple(arguments)


def _is_turned(node: Any, forced: bool) -> bool:
    if node.op != "call_function" or node.target not in _CONVOLUTIONS or len(node.args) < 2:
        return False
    x, weight = (example_of(argument) for argument in node.args[:2])
    if not is_tensor(x) or not is_tensor(weight) or static_shape(x) is None or 0 in x.shape or len(x.shape) != 4:
        return False
    return (forced or x.device.type == "cuda") and x.dtype in _NARROW and x.is_contiguous()


def _results(graph: Any, sites: Iterable[Any]) -> list[Any] | None:
    """The results of the graph that follow from the convolutions; None where one is no tensor in C order."""
    after: set[Any] = set(sites)
    for node in graph.nodes:
        if node.op != "output" and any(source in after for source in node.all_input_nodes):
            after.add(node)
    (output,) = graph.find_nodes(op="output")
    found = [node for node in output.all_input_nodes if node in after]
    examples = [example_of(node) for node in found]
    return found if all(is_tensor(each) and each.is_contiguous() for each in examples) else None
