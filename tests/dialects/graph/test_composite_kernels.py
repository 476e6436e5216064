"""Composites as a whole: one kernel each where they are one pass over rows, and types of unknown extents."""

from __future__ import annotations

import numpy as np
import pytest
from ir_testing import graph_ops, kernels, optimized
from lowered_programs import needs_compiler

import fuse_opt
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

X, V, S, T = "tensor<64x128xf32>", "tensor<128xf32>", "tensor<64xf32>", "tensor<64xi64>"
G, C = "tensor<64x32x6x6xf32>", "tensor<32xf32>"
TABLE: dict[str, str] = {
    "softmax": f"graph.softmax %0 : ({X}) -> {X}",
    "softmax_f16": "graph.softmax %0 : (tensor<64x128xf16>) -> tensor<64x128xf16>",
    "log_softmax": f"graph.log_softmax %0 : ({X}) -> {X}",
    "softmax_backward": f"graph.softmax_backward %0, %1 : ({X}, {X}) -> {X}",
    "log_softmax_backward": f"graph.log_softmax_backward %0, %1 : ({X}, {X}) -> {X}",
    "layer_norm": f"graph.layer_norm %0, %1, %2 : ({X}, {V}, {V}) -> {X}",
    "layer_norm_plain": f"graph.layer_norm %0 : ({X}) -> {X}",
    "layer_norm_bf16": "graph.layer_norm %0, %1 : (tensor<64x128xbf16>, tensor<128xbf16>) -> tensor<64x128xbf16>",
    "rms_norm": f"graph.rms_norm %0, %1 : ({X}, {V}) -> {X}",
    "group_norm": f"graph.group_norm %0, %1, %2 {{num_groups = 4 : i64}} : ({G}, {C}, {C}) -> {G}",
    "instance_norm": f"graph.instance_norm %0, %1, %2 : ({G}, {C}, {C}) -> {G}",
    "l2_normalize": f"graph.l2_normalize %0 : ({X}) -> {X}",
    "lp_normalize": f"graph.lp_normalize %0 {{p = 1 : i64}} : ({X}) -> {X}",
    "local_response_norm": f"graph.local_response_norm %0 {{size = 5 : i64}} : ({G}) -> {G}",
    "cross_entropy": f'graph.cross_entropy %0, %1 {{reduction = "none"}} : ({X}, {T}) -> {S}',
    "cross_entropy_weighted": f"graph.cross_entropy %0, %1, %2 {{ignore_index = 3 : i64, label_smoothing = 1.0e-01, "
    f'reduction = "none"}} : ({X}, {T}, {V}) -> {S}',
    "cross_entropy_backward": f'graph.cross_entropy_backward %0, %1, %2 {{reduction = "none"}} : ({S}, {X}, {T}) -> {X}',
    "nll_loss": f'graph.nll_loss %0, %1 {{reduction = "none"}} : ({X}, {T}) -> {S}',
    "mse_loss": f'graph.mse_loss %0, %1 {{reduction = "none"}} : ({X}, {X}) -> {X}',
    "huber_loss": f"graph.huber_loss %0, %1 : ({S}, {S}) -> tensor<f32>",
    "kl_div": f'graph.kl_div %0, %1 {{reduction = "none"}} : ({X}, {X}) -> {X}',
    "dropout": f"graph.dropout %0, %1 : ({X}, tensor<64x128xi1>) -> {X}",
    "rotary_embedding": f"graph.rotary_embedding %0, %1, %1 : ({X}, tensor<64x64xf32>, tensor<64x64xf32>) -> {X}",
    "quantize_linear": f"graph.quantize_linear %0, %1, %2 : ({X}, {V}, tensor<128xi8>) -> tensor<64x128xi8>",
    "dequantize_linear": f"graph.dequantize_linear %0, %1 : (tensor<64x128xi8>, {V}) -> {X}",
    "vecdot": f"graph.vecdot %0, %1 : ({X}, {X}) -> {S}",
    "outer": "graph.outer %0, %1 : (tensor<64xf32>, tensor<128xf32>) -> tensor<64x128xf32>",
}
"""One op on arguments `%0`, `%1` ...; each is one kernel."""


def program(line: str) -> str:
    types = line[line.rindex(": (") + 3 : line.rindex(") ->")].split(", ")
    result = line[line.rindex("-> ") + 3 :]
    names = line.partition(" {")[0].partition(" :")[0].partition(" ")[2].split(", ")
    given = dict(zip(names, types, strict=True))
    arguments = ", ".join(f"{name}: {type_}" for name, type_ in given.items())
    types = result.strip("()")
    count = len(types.split(", "))
    names = ", ".join(f"%r#{number}" for number in range(count)) if count > 1 else "%r"
    value = f"%r:{count}" if count > 1 else "%r"
    return f"func.func @main({arguments}) -> {result} {{\n  {value} = {line}\n  func.return {names} : {types}\n}}"


@pytest.mark.parametrize("name", TABLE)
def test_one_kernel(name: str) -> None:
    module = optimized(program(TABLE[name]), DEFAULT_PIPELINE)
    found = kernels(module)
    assert [[op.name for op in kernel.ops()] for kernel in found[1:]] == []
    assert len(found) == 1


WIDE = "tensor<64x4x8x16xf32>"
FURTHER: dict[str, str] = {
    "rms_norm_backward": f"graph.rms_norm_backward %0, %1, %2 : ({X}, {X}, {V}) -> ({X}, {V})",
    "layer_norm_backward": f"graph.layer_norm_backward %0, %1, %2 : ({X}, {X}, {V}) -> ({X}, {V}, {V})",
    "batch_norm": f"graph.batch_norm %0, %1, %2, %3, %4 : ({X}, {V}, {V}, {V}, {V}) -> {X}",
    "batch_norm_training": f"graph.batch_norm_training %0, %1, %2 : ({X}, {V}, {V}) -> ({X}, {V}, {V})",
    "batch_norm_backward": f"graph.batch_norm_backward %0, %1, %2, %3, %4 : ({X}, {X}, {V}, {V}, {V}) -> ({X}, {V}, {V})",
    "group_norm_backward": f"graph.group_norm_backward %0, %1 {{num_groups = 2 : i64}} : ({WIDE}, {WIDE}) "
    f"-> ({WIDE}, tensor<4xf32>, tensor<4xf32>)",
    "mse_loss_backward": f'graph.mse_loss_backward %0, %1, %2 {{reduction = "none"}} : ({X}, {X}, {X}) -> {X}',
    "nll_loss_backward": f"graph.nll_loss_backward %0, %1, %2 : (tensor<f32>, {X}, {T}) -> {X}",
    "attention": f"graph.scaled_dot_product_attention %0, %1, %2, %3 : ({WIDE}, {WIDE}, {WIDE}, tensor<8x8xi1>) -> {WIDE}",
    "attention_logsumexp": f"graph.scaled_dot_product_attention_logsumexp %0, %1 : ({WIDE}, {WIDE}) -> tensor<64x4x8xf32>",
    "attention_backward": f"graph.scaled_dot_product_attention_backward %0, %1, %2, %3, %4, %5 : "
    f"({WIDE}, {WIDE}, {WIDE}, {WIDE}, {WIDE}, tensor<64x4x8xf32>) -> ({WIDE}, {WIDE}, {WIDE})",
    "rotary_embedding": f"graph.rotary_embedding %0, %1, %1 : ({WIDE}, tensor<8x8xf32>, tensor<8x8xf32>) -> {WIDE}",
    "dynamic_quantize_linear": f"graph.dynamic_quantize_linear %0 : ({X}) -> (tensor<64x128xui8>, tensor<f32>, tensor<ui8>)",
    "gemm": f"graph.gemm %0, %1, %2 : ({X}, tensor<128x32xf32>, tensor<32xf32>) -> tensor<64x32xf32>",
    "linear": f"graph.linear %0, %1, %2 : ({X}, tensor<32x128xf32>, tensor<32xf32>) -> tensor<64x32xf32>",
    "einsum": f'graph.einsum %0, %1 {{equation = "...ij,jk->...ik"}} : ({WIDE}, tensor<16x2xf32>) -> tensor<64x4x8x2xf32>',
}


@pytest.mark.parametrize("name", TABLE | FURTHER)
def test_unknown_batch(name: str) -> None:
    """The extent 64 may be unknown: the same types follow but for it, and passes leave the op as it is."""
    text = program((TABLE | FURTHER)[name]).replace("tensor<64x", "tensor<?x")
    module = optimized(text, "infer-shapes,canonicalize,cse,decompose")
    (op,) = graph_ops(module)
    assert [str(type_) for type_ in op.infer_types()] == [str(value.type) for value in op.results]


@needs_compiler
@pytest.mark.parametrize("columns", (3, 41, 300))
def test_softmax_is_exact_where_one_reciprocal_is(columns: int) -> None:
    """One number far above all others is 1, and equal numbers are the nearest to 1 / n."""
    x = np.zeros((columns + 2, columns), np.float32)
    x[np.arange(columns), np.arange(columns)] = 200
    x[-1] = -1e30
    t = f"tensor<{columns + 2}x{columns}xf32>"
    y = fuse_opt.compile(program(f"graph.softmax %0 : ({t}) -> {t}"), "cpu")(x)
    np.testing.assert_array_equal(y[:columns], np.eye(columns, dtype=np.float32))
    np.testing.assert_array_equal(y[columns:], np.float32(1) / np.float32(columns))
