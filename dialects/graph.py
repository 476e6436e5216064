"""The `graph` dialect: tensor ops, gathered from the modules that define them; no list of ops is kept anywhere."""

from __future__ import annotations

from types import ModuleType

from xdsl.ir import Dialect

from . import (
    graph_composites,
    graph_constant,
    graph_elementwise,
    graph_library,
    graph_reductions,
    graph_views,
)
from .graph_op import GraphOp


def _records(module: ModuleType) -> list[type[GraphOp]]:
    found = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, GraphOp)]
    return [op for op in found if op.__module__ == module.__name__ and hasattr(op, "name")]


GRAPH = Dialect(
    "graph",
    [
        *_records(graph_constant),
        *_records(graph_elementwise),
        *_records(graph_views),
        *_records(graph_reductions),
        *_records(graph_composites),
        *_records(graph_library),
    ],
)
