"""Attention and norms as cuDNN has them, and what it is known to take: it is loaded to ask for its version alone.

They are calls of whole ops, which `select-composites` compares with code of the program. Those that are operations of the graph
interface are the backend `cudnn_graph`; norms move what code of the program does, so they run where a promise names them.
"""

from __future__ import annotations

from fuse_opt.dialects.implementation.attention_costs import attention_cost
from fuse_opt.dialects.implementation.site import Cost, Site
from fuse_opt.lowering.reference.kernels.registry import native_implementation
from fuse_opt.runtime.backends.nvidia.cudnn_graph import plan_problem
from fuse_opt.runtime.backends.nvidia.cudnn_library import library_version
from fuse_opt.runtime.backends.nvidia.cudnn_operations import ATTENTION, NORM, OPERATIONS, OperationGraph, graph_of
from fuse_opt.runtime.backends.nvidia.device_calls import with_room

_VERSIONS = {ATTENTION: 91300, NORM: 90000}
"""By operation: the first version that has it as one."""
_MOST_ELEMENTS = 1 << 31
_BLOCK = 128
"""Queries, and keys, that are gone over at a time: others are computed for nothing."""
_LIBRARYS_OWN = 1 << 20
"""Bytes planned for what the library works in, which is known when a plan of its own has been made."""
BATCH_NORM = "graph.batch_norm"
"""The op that a function of the first interface runs."""


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
    tensors = (*site.operands, *site.results)
    graph = graph_of(site.name, [t.shape for t in tensors], [t.dtype for t in tensors], site.config)
    return plan_problem(graph) if isinstance(graph, OperationGraph) else graph


def _attention_cost(site: Site) -> Cost:
    """
    Of all blocks that queries and keys touch; memory is cleared in a launch of its own before. H200, November 2026: 4x8x197x64 of
    bf16 took 7.8 us, a kernel of the program 5.8.
    """
    return attention_cost(site, "cudnn_graph.scaled_dot_product_attention", _BLOCK, launches=2)


def _row_cost(site: Site) -> Cost:
    """A pass over memory, as code of the program is."""
    assert site.device is not None
    return Cost(nbytes=site.nbytes, call=site.device.launch)


def _workspace(site: Site) -> int:
    """What the library works in, and what its graph keeps in front of that."""
    tensors = (*site.operands, *site.results)
    graph = graph_of(site.name, [t.shape for t in tensors], [t.dtype for t in tensors], site.config)
    return with_room(_LIBRARYS_OWN + (graph.kept_bytes if isinstance(graph, OperationGraph) else 0))


def _register() -> None:
    native_implementation("cudnn.batch_norm", None, BATCH_NORM, _accepts_batch_norm, _row_cost, platform="cuda")
    for op in OPERATIONS:
        native_implementation(
            f"cudnn_graph.{op.partition('.')[2]}",
            None,
            op,
            _accepts,
            _attention_cost if "attention" in op else _row_cost,
            workspace=_workspace,
            probe=_probe,
            platform="cuda",
            features=lambda site: ("sm_80",) if site.dtypes != {"f32"} else (),
            differentiable="attention"
            not in op,  # gradients are made from what it does not leave, the logarithms of sums
        )


_register()
