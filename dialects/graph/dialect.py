"""The `graph` dialect: tensor ops, gathered from the modules that define them; no list of ops is kept anywhere."""

from __future__ import annotations

from types import ModuleType

from xdsl.ir import Dialect

from fuse_opt.dialects.graph.contractions import convolution as graph_convolution
from fuse_opt.dialects.graph.contractions import einsum as graph_einsum
from fuse_opt.dialects.graph.contractions import gemm_linear as graph_products
from fuse_opt.dialects.graph.contractions import integer_convolution as graph_integer_convolution
from fuse_opt.dialects.graph.contractions import matmul as graph_library
from fuse_opt.dialects.graph.creation import constant as graph_constant
from fuse_opt.dialects.graph.creation import filled as graph_creation
from fuse_opt.dialects.graph.creation import random as graph_random
from fuse_opt.dialects.graph.elementwise import arithmetic as graph_arithmetic
from fuse_opt.dialects.graph.elementwise import bits as graph_bits
from fuse_opt.dialects.graph.elementwise import comparison as graph_comparison
from fuse_opt.dialects.graph.elementwise import float_parts as graph_float_parts
from fuse_opt.dialects.graph.elementwise import inverse_erf as graph_inverse_erf
from fuse_opt.dialects.graph.elementwise import math as graph_math
from fuse_opt.dialects.graph.elementwise import piecewise_activations as graph_rectifiers
from fuse_opt.dialects.graph.elementwise import smooth_activations as graph_activations
from fuse_opt.dialects.graph.elementwise import special_functions as graph_special
from fuse_opt.dialects.graph.losses import classification as graph_class_losses
from fuse_opt.dialects.graph.losses import probability as graph_probability_losses
from fuse_opt.dialects.graph.losses import regression as graph_losses
from fuse_opt.dialects.graph.movement import capacity as graph_capacity
from fuse_opt.dialects.graph.movement import dynamic_slices as graph_dynamic_slices
from fuse_opt.dialects.graph.movement import gather as graph_indexing
from fuse_opt.dialects.graph.movement import join_split as graph_movement
from fuse_opt.dialects.graph.movement import layouts as graph_layouts
from fuse_opt.dialects.graph.movement import pad_roll_tile as graph_placement
from fuse_opt.dialects.graph.movement import read_at as graph_positions
from fuse_opt.dialects.graph.movement import scatter as graph_scattering
from fuse_opt.dialects.graph.movement import slice_update as graph_slices
from fuse_opt.dialects.graph.movement import views as graph_views
from fuse_opt.dialects.graph.movement import winograd as graph_winograd
from fuse_opt.dialects.graph.nn import attention as graph_attention
from fuse_opt.dialects.graph.nn import batch_group_norm as graph_channel_norms
from fuse_opt.dialects.graph.nn import optimizers as graph_optimizers
from fuse_opt.dialects.graph.nn import quantization as graph_quantization
from fuse_opt.dialects.graph.nn import rms_lp_norm as graph_magnitudes
from fuse_opt.dialects.graph.nn import rotary_dropout as graph_layers
from fuse_opt.dialects.graph.nn import softmax_layer_norm as graph_normalization
from fuse_opt.dialects.graph.reductions import reductions as graph_reductions
from fuse_opt.dialects.graph.reductions import sort_scan as graph_sorting
from fuse_opt.dialects.graph.reductions import statistics as graph_statistics
from fuse_opt.dialects.graph.sparse import csr as graph_csr
from fuse_opt.dialects.graph.sparse import rows as graph_rows
from fuse_opt.dialects.graph.sparse import storage as graph_storage
from fuse_opt.dialects.graph.windows import pooling as graph_pooling
from fuse_opt.dialects.graph.windows import pooling_backward as graph_pooling_backward
from fuse_opt.dialects.graph.windows import windows as graph_windows
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.types.encodings import ENCODINGS
from fuse_opt.dialects.types.storage_kinds import STORAGE_KINDS
from fuse_opt.dialects.types.symbolic_shape import ShapeAttr, SizeAttr

FAMILIES: tuple[ModuleType, ...] = (
    graph_constant,
    graph_creation,
    graph_random,
    graph_arithmetic,
    graph_math,
    graph_special,
    graph_inverse_erf,
    graph_float_parts,
    graph_activations,
    graph_rectifiers,
    graph_comparison,
    graph_bits,
    graph_views,
    graph_layouts,
    graph_slices,
    graph_capacity,
    graph_dynamic_slices,
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
    graph_optimizers,
    graph_quantization,
    graph_library,
    graph_products,
    graph_einsum,
    graph_convolution,
    graph_integer_convolution,
    graph_winograd,
    graph_indexing,
    graph_positions,
    graph_scattering,
    graph_sorting,
    graph_storage,
    graph_csr,
    graph_rows,
)
"""The modules that define ops, in the order of the documentation."""


def records(module: ModuleType) -> list[type[GraphOp]]:
    """The ops that a module defines, in its order."""
    found = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, GraphOp)]
    return [op for op in found if op.__module__ == module.__name__ and hasattr(op, "name")]


GRAPH = Dialect(
    "graph", [op for module in FAMILIES for op in records(module)], [*ENCODINGS, *STORAGE_KINDS, ShapeAttr, SizeAttr]
)
"""The dialect, for `Context.load_dialect`; `fuse_opt.register` does it with the others."""
