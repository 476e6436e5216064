"""Graphs with symbols for extents: a program for each set of extents that is met."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from importlib import import_module
from typing import Any

from fuse_opt.frontends.torch.fx.api import fx, is_tensor, static_shape, torch

Metas = Callable[[Any], Any]
"""By node, its fake tensor or number."""


def metas_of(graph_module: Any) -> Metas | None:
    """What tracing noted at each node; None where arguments have symbols for extents."""
    found: dict[Any, Any] = {}
    for node in graph_module.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and not is_known(value):
            return None
        if node.op == "get_attr":
            value = _attribute(graph_module, node.target)
        found[node] = value
    return found.get


def is_known(value: Any) -> bool:
    """Whether an argument has no symbols."""
    if not is_tensor(value):
        return not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))
    if static_shape(value) is None:
        return False
    return value.layout != torch.strided or all(isinstance(n, int) for n in (*value.stride(), value.storage_offset()))


def _attribute(graph_module: Any, path: str) -> Any:
    value: Any = graph_module
    for part in path.split("."):
        value = getattr(value, part)
    return value


class Specialized:
    """A graph with symbols as a function that compiles a program for each set of extents when it is met."""

    _boxed_call = True

    def __init__(
        self, graph_module: Any, compile_for: Callable[[Callable[[], Metas]], Callable[[list[Any]], Any]]
    ) -> None:
        self._graph_module = graph_module
        self._compile_for = compile_for
        self._known: dict[Hashable, Callable[[list[Any]], Any]] = {}

    def __call__(self, args: list[Any]) -> Any:
        key = tuple((a.shape, a.stride()) if is_tensor(a) else a for a in args)
        if (call := self._known.get(key)) is None:
            call = self._known[key] = self._compile_for(lambda: self._metas(args))
        return call(args)

    def _metas(self, args: list[Any]) -> Metas:
        """The graph's values for these arguments, by running it on fake tensors."""
        fakes: Any = import_module("torch._subclasses.fake_tensor")
        mode = fakes.FakeTensorMode(
            allow_non_fake_inputs=True,
            shape_env=import_module("torch.fx.experimental.symbolic_shapes").ShapeEnv(),
        )
        found: dict[Any, Any] = {}

        class Noting(fx.Interpreter):
            def run_node(self, n: Any) -> Any:
                found[n] = fx.Interpreter.run_node(self, n)
                return found[n]

        with mode, torch.no_grad():
            fake = [mode.from_tensor(a, static_shapes=True) if is_tensor(a) else a for a in args]
            Noting(self._graph_module).run(*fake)
        for node in self._graph_module.graph.nodes:
            if node.op == "get_attr":
                found[node] = _attribute(self._graph_module, node.target)
        return found.get
