"""The modules that enter handlers into the tables of operators: importing this one enters all."""

from __future__ import annotations

from fuse_opt.frontends.onnx.microsoft import activations as microsoft_activations
from fuse_opt.frontends.onnx.microsoft import attention as microsoft_attention
from fuse_opt.frontends.onnx.microsoft import norms as microsoft_norms
from fuse_opt.frontends.onnx.microsoft import products as microsoft_products
from fuse_opt.frontends.onnx.microsoft import quantized as microsoft_quantized
from fuse_opt.frontends.onnx.operators import attention as onnx_attention
from fuse_opt.frontends.onnx.operators import indexing as onnx_indexing
from fuse_opt.frontends.onnx.operators import movement as onnx_movement
from fuse_opt.frontends.onnx.operators import pointwise as onnx_pointwise
from fuse_opt.frontends.onnx.operators import products as onnx_products
from fuse_opt.frontends.onnx.operators import random as onnx_random
from fuse_opt.frontends.onnx.operators import recurrence as onnx_recurrence
from fuse_opt.frontends.onnx.operators import reductions as onnx_reductions
from fuse_opt.frontends.onnx.operators import resize as onnx_resize
from fuse_opt.frontends.onnx.operators import windows as onnx_windows
from fuse_opt.frontends.onnx.operators.node import Handler

FAMILIES = (
    onnx_pointwise,
    onnx_movement,
    onnx_indexing,
    onnx_reductions,
    onnx_windows,
    onnx_products,
    onnx_attention,
    onnx_recurrence,
    onnx_resize,
    onnx_random,
    microsoft_activations,
    microsoft_attention,
    microsoft_norms,
    microsoft_products,
    microsoft_quantized,
)


def of_sizes(operator: str) -> Handler | None:
    """How a node of known operands becomes ops where sizes are among them."""
    return onnx_movement.OF_SIZES.get(operator)
