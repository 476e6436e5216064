"""Graphs with symbols for extents: a program for each set of extents that is met."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from importlib import import_module
from typing import Any

from fuse_opt.dialects.types.extents import is_symbol
from fuse_opt.dialects.types.size import Size
from fuse_opt.frontends.torch.fx.api import fx, is_tensor, static_shape, torch
from fuse_opt.frontends.torch.fx.strides import storage_view
from fuse_opt.frontends.torch.fx.symbols import extent_of, known_shape

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


def sized_metas_of(graph_module: Any) -> tuple[Metas, list[tuple[str, int, int | None]]] | None:
    """
    The same with sizes in the place of symbolic numbers, and by symbol where a call finds it: the position of an argument, and of
    a tensor the axis. To be called while sizes are asked for. None where there is a number that sizes cannot say.
    """
    found: dict[Any, Any] = {}
    numbers: dict[str, tuple[str, int, int | None]] = {}
    extents: dict[str, tuple[str, int, int | None]] = {}
    position = 0
    for node in graph_module.graph.nodes:
        value = _attribute(graph_module, node.target) if node.op == "get_attr" else node.meta.get("val")
        found[node] = value = _sized(value)
        if node.op != "placeholder":
            continue
        if is_tensor(value):
            if storage_view(value) is None:
                return None
            for axis, extent in enumerate(known_shape(value) or ()):
                if (symbol := is_symbol(extent)) is not None:
                    extents.setdefault(symbol.name, (symbol.name, position, axis))
        elif not is_known(value):
            return None
        elif (symbol := is_symbol(value) if isinstance(value, Size) else None) is not None:
            numbers.setdefault(symbol.name, (symbol.name, position, None))
        position += 1
    return found.get, list({**extents, **numbers}.values())


def _sized(value: Any) -> Any:
    """A symbolic number as a size, where it is known before the graph runs."""
    if not isinstance(value, torch.SymInt):
        return value
    return value if (extent := extent_of(value)) is None else extent


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
