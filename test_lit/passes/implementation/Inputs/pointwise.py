"""A backend of parts of graphs, for tests: pointwise ops of f32, by NumPy."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fuse_opt.backend import Backend, Site

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "graph.add": np.add,
    "graph.exp": np.exp,
    "graph.multiply": np.multiply,
    "graph.relu": lambda x: np.maximum(x, 0),
    "graph.tanh": np.tanh,
}

backend = Backend("pointwise")


def accepts(site: Site) -> str | None:
    """None for an op of FUNCTIONS on f32."""
    if site.name not in FUNCTIONS:
        return "op"
    return None if site.dtypes == {"f32"} else "dtype"


@backend.partition(accepts=accepts)
def build(part: Any) -> Any:
    """Goes over the nodes in order."""

    def run(inputs: Sequence[Any], outputs: Sequence[Any], config: Mapping[str, Any]) -> None:
        values: dict[int, Any] = dict(enumerate(inputs))
        for node in part.nodes:
            if node.name == "graph.constant":
                values[node.outputs[0]] = np.float32(node.config["value"])
            else:
                values[node.outputs[0]] = FUNCTIONS[node.name](*(values[number] for number in node.inputs))
        for out, number in zip(outputs, part.results, strict=True):
            np.copyto(out, values[number])

    return run
