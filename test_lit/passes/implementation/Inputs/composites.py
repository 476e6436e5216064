"""A backend of whole ops that are no opaque ones, for tests: softmax at a price, a norm in fast numerics, exp on demand.

Its softmax leaves the largest elements of rows, too, for who says that it is to be.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fuse_opt.backend import Backend, Cost, Saved, Site

backend = Backend("whole")


def accepts(site: Site) -> str | None:
    """None for ops on f32."""
    return None if site.dtypes == {"f32"} else "dtype"


def cost(site: Site) -> Cost:
    """Half of what a pass over memory takes."""
    return Cost(nbytes=site.nbytes / 2)


def saves(site: Site, saved: Saved) -> str | None:
    """None for the largest elements of rows, which it looks for anyway."""
    if saved.op != "graph.max":
        return "op"
    return None if dict(saved.config).get("axes") == (len(site.operands[0].shape) - 1,) else "axes"


@backend.implementation("graph.softmax", accepts=accepts, cost=cost, inplace=((0, 0),), saves=saves)
def softmax(inputs: Sequence[Any], outputs: Sequence[Any], config: Mapping[str, Any]) -> None:
    """Over rows."""
    axis = int(config["axis"])
    most = inputs[0].max(axis, keepdims=True)
    weights = np.exp(inputs[0] - most)
    for out in outputs[1:]:
        out[...] = most.reshape(out.shape)
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
