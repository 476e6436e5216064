"""A backend of whole ops that are no opaque ones, for tests: softmax at a price, a norm in fast numerics, exp on demand."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fuse_opt.backend import Backend, Cost, Site

backend = Backend("whole")


def accepts(site: Site) -> str | None:
    """None for ops on f32."""
    return None if site.dtypes == {"f32"} else "dtype"


def cost(site: Site) -> Cost:
    """Half of what a pass over memory takes."""
    return Cost(nbytes=site.nbytes / 2)


@backend.implementation("graph.softmax", accepts=accepts, cost=cost, inplace=((0, 0),))
def softmax(inputs: Sequence[Any], outputs: Sequence[Any], config: Mapping[str, Any]) -> None:
    """Over rows."""
    axis = int(config["axis"])
    weights = np.exp(inputs[0] - inputs[0].max(axis, keepdims=True))
    np.divide(weights, weights.sum(axis, keepdims=True), out=outputs[0])


@backend.implementation("graph.log_softmax", accepts=accepts, cost=cost, numerics="fast")
def log_softmax(inputs: Sequence[Any], outputs: Sequence[Any], config: Mapping[str, Any]) -> None:
    """Over rows, with logarithms of what underflows."""
    softmax(inputs, outputs, config)
    np.log(outputs[0], out=outputs[0])


@backend.implementation("graph.exp", accepts=accepts)
def exp(inputs: Sequence[Any], outputs: Sequence[Any], config: Mapping[str, Any]) -> None:
    """NumPy's."""
    np.exp(inputs[0], out=outputs[0])
