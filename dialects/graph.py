"""The `graph` dialect: tensor ops, gathered from the modules that define them; no list of ops is kept anywhere."""

from __future__ import annotations

from types import ModuleType

from xdsl.ir import Dialect

from . import (
    graph_activations,
    graph_arithmetic,
    graph_attention,
    graph_bits,
    graph_channel_norms,
    graph_class_losses,
    graph_comparison,
    graph_constant,
    graph_convolution,
    graph_creation,
    graph_einsum,
    graph_float_parts,
    graph_indexing,
    graph_layers,
    graph_library,
    graph_losses,
    graph_magnitudes,
    graph_math,
    graph_movement,
    graph_normalization,
    graph_placement,
    graph_pooling,
    graph_pooling_backward,
    graph_probability_losses,
    graph_products,
    graph_quantization,
    graph_random,
    graph_rectifiers,
    graph_reductions,
    graph_scattering,
    graph_slices,
    graph_sorting,
    graph_special,
    graph_statistics,
    graph_views,
    graph_windows,
)
from .graph_op import GraphOp

FAMILIES: tuple[ModuleType, ...] = (
    graph_constant,
    graph_creation,
    graph_random,
    graph_arithmetic,
    graph_math,
    graph_special,
    graph_float_parts,
    graph_activations,
    graph_rectifiers,
    graph_comparison,
    graph_bits,
    graph_views,
    graph_slices,
    graph_movement,
    graph_placement,
    graph_reductions,
    graph_statistics,
    graph_windows,
    graph_pooling,
    graph_pooling_backward,
    graph_normalization,
    graph_magnitudes,
    graph_channel_norms,
    graph_losses,
    graph_probability_losses,
    graph_class_losses,
    graph_attention,
    graph_layers,
    graph_quantization,
    graph_library,
    graph_products,
    graph_einsum,
    graph_convolution,
    graph_indexing,
    graph_scattering,
    graph_sorting,
)
"""The modules that define records, in the order of the documentation."""


def records(module: ModuleType) -> list[type[GraphOp]]:
    """The ops that a module defines, in its order."""
    found = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, GraphOp)]
    return [op for op in found if op.__module__ == module.__name__ and hasattr(op, "name")]


GRAPH = Dialect("graph", [op for module in FAMILIES for op in records(module)])
