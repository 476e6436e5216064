"""Attention and norms as cuDNN has them, and what it is known to take: it is loaded to ask for its version alone.

They are calls of whole ops, which `select-composites` compares with code of the program. Those that are operations of the graph
interface are the backend `cudnn_graph`; norms move what code of the program does, so they run where a promise names them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from fuse_opt.dialects.implementation.attention_costs import attention_cost
from fuse_opt.dialects.implementation.site import Cost, Site
from fuse_opt.lowering.program import Config
from fuse_opt.lowering.reference.kernels.registry import native_implementation
from fuse_opt.runtime.backends.nvidia.cudnn_library import library_version
from fuse_opt.runtime.backends.nvidia.cudnn_operations import (
    ATTENTION,
    NORM,
    Operation,
    OperationGraph,
    Piece,
    attention_graph,
)
from fuse_opt.runtime.backends.nvidia.device_calls import with_room

# Values of enums in cudnn_graph.h.
_NORM_MODE, _NORM_PHASE = (2000, 27), (2001, 28)
"""Attributes and their types."""
_NORM_X, _NORM_SCALE, _NORM_BIAS, _NORM_EPSILON, _NORM_Y = 2002, 2005, 2006, 2007, 2013
_LAYER, _RMS, _INFERENCE = 0, 4, 0

_VERSIONS = {ATTENTION: 91300, NORM: 90000}
"""By operation: the first version that has it as one."""
_CHANNELS_LAST = (0, 2, 3, 1)
"""The order in which the library's own examples have the axes of what is normalized."""
_DEPTHS, _MOST_DEPTH = 8, 128
_MOST_ELEMENTS = 1 << 31
_BLOCK = 128
"""Queries, and keys, that are gone over at a time: others are computed for nothing."""
_LIBRARYS_OWN = 1 << 20
"""Bytes planned for what the library works in, which is known when a plan of its own has been made."""
BATCH_NORM = "graph.batch_norm"
"""The op that a function of the first interface runs."""


_Shapes = Sequence[tuple[int, ...]]


def graph_of(op: str, shapes: _Shapes, dtypes: Sequence[str], config: Config) -> OperationGraph | str:
    """An op on operands and a result as a graph of the library's, or the code of why it is none."""
    return _OPERATIONS[op](shapes, dtypes, config)


def _attention(shapes: _Shapes, dtypes: Sequence[str], config: Config) -> OperationGraph | str:
    """q, k and v alone, of f16 or bf16: there is no code of the library's for others."""
    if not {*dtypes} < {"f16", "bf16"}:
        return "dtype"
    if len(shapes) > 4:
        return "mask"
    if config.get("is_causal") or config.get("dropout_p"):
        return "causal" if config.get("is_causal") else "dropout"
    depth, width = shapes[0][-1], shapes[2][-1]
    if depth % _DEPTHS or width % _DEPTHS or max(depth, width) > _MOST_DEPTH:
        return "depth"
    scale = config.get("scale")
    number = float(scale) if isinstance(scale, int | float) else depth**-0.5
    q, k, v, out = (Piece(place, _by_heads(extents), dtypes[0]) for place, extents in enumerate(shapes))
    return attention_graph(q, k, v, out, number)


def _by_heads(extents: tuple[int, ...]) -> tuple[int, ...]:
    """[batch, heads, rows, depth]."""
    *outer, heads, rows, depth = (1, *extents) if len(extents) == 2 else extents
    return prod(outer), heads, rows, depth


def _layer_norm(shapes: _Shapes, dtypes: Sequence[str], config: Config) -> OperationGraph | str:
    return _norm(shapes, dtypes, config, _LAYER, (_NORM_SCALE, _NORM_BIAS))


def _rms_norm(shapes: _Shapes, dtypes: Sequence[str], config: Config) -> OperationGraph | str:
    return _norm(shapes, dtypes, config, _RMS, (_NORM_SCALE,))


def _norm(
    shapes: _Shapes, dtypes: Sequence[str], config: Config, mode: int, parameters: Sequence[int]
) -> OperationGraph | str:
    """Of the rows of a matrix, with all parameters that the mode has."""
    if not {*dtypes} <= {"f32", "f16", "bf16"} or len({*dtypes}) > 1:
        return "dtype"
    if len(shapes) != len(parameters) + 2:
        return "no-parameters"
    x, axis, epsilon = shapes[0], config.get("axis", -1), config.get("epsilon")
    assert isinstance(axis, int)
    inner = prod(x[axis % len(x) :])
    whole, row = (prod(x) // inner, inner, 1, 1), (1, inner, 1, 1)
    extents = (whole, *(row for _ in parameters), whole)
    pieces = [Piece(place, each, dtypes[0], _CHANNELS_LAST) for place, each in enumerate(extents)]
    number = float(epsilon) if isinstance(epsilon, int | float) else 1e-5
    settings = ((_NORM_MODE, mode), (_NORM_PHASE, _INFERENCE))
    names = (_NORM_X, *parameters, _NORM_Y, _NORM_EPSILON)
    tensors = tuple(zip(names, range(len(names)), strict=True))
    return OperationGraph((*pieces, Piece(None, number=number)), (Operation(NORM, tensors, settings),))


_OPERATIONS: Mapping[str, Callable[[_Shapes, Sequence[str], Config], OperationGraph | str]] = {
    "graph.scaled_dot_product_attention": _attention,
    "graph.layer_norm": _layer_norm,
    "graph.rms_norm": _rms_norm,
}


def _accepts(site: Site) -> str | None:
    tensors = (*site.operands, *site.results)
    if (reason := _general(site)) is not None:
        return reason
    found = graph_of(site.name, [t.shape for t in tensors], [t.dtype for t in tensors], site.config)
    return found if isinstance(found, str) else None


def _general(site: Site) -> str | None:
    tensors = (*site.operands, *site.results)
    if not site.is_static:
        return "extent-unknown"
    if not all(tensor.size for tensor in tensors):
        return "empty"
    return "extent" if any(tensor.size >= _MOST_ELEMENTS for tensor in tensors) else None


def _accepts_batch_norm(site: Site) -> str | None:
    """Channels on the second axis; parameters are of the type of sums, so x is, too."""
    if len(site.dtypes) != 1 or not site.dtypes <= {"f32", "f64"}:
        return "dtype"
    if site.config.get("axis", 1) != 1 or not 2 <= len(site.operands[0].shape) <= 5:
        return "axis"
    return _general(site)


def _probe(site: Site) -> str | None:
    """Why the library that is here does not run the operation on the device that is here; None where there is none of them."""
    version, kind = library_version(), ATTENTION if "attention" in site.name else NORM
    if version is None or version < _VERSIONS[kind]:
        return None if version is None else "version"
    from fuse_opt.runtime.backends.nvidia.cudnn_graph import plan_problem  # it asks this module for graphs

    tensors = (*site.operands, *site.results)
    graph = graph_of(site.name, [t.shape for t in tensors], [t.dtype for t in tensors], site.config)
    return plan_problem(graph) if isinstance(graph, OperationGraph) else graph


def _attention_cost(site: Site) -> Cost:
    """Of all blocks that queries and keys touch."""
    return attention_cost(site, "cudnn_graph.scaled_dot_product_attention", _BLOCK)


def _row_cost(site: Site) -> Cost:
    """A pass over memory, as code of the program is."""
    assert site.device is not None
    return Cost(nbytes=site.nbytes, call=site.device.launch)


def _register() -> None:
    native_implementation("cudnn.batch_norm", None, BATCH_NORM, _accepts_batch_norm, _row_cost, platform="cuda")
    for op in _OPERATIONS:
        native_implementation(
            f"cudnn_graph.{op.partition('.')[2]}",
            None,
            op,
            _accepts,
            _attention_cost if "attention" in op else _row_cost,
            workspace=lambda site: with_room(_LIBRARYS_OWN),
            probe=_probe,
            platform="cuda",
            features=lambda site: ("sm_80",) if site.dtypes != {"f32"} else (),
            differentiable="attention"
            not in op,  # gradients are made from what it does not leave, the logarithms of sums
        )


_register()
