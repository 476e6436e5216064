"""Products and convolutions of com.microsoft, with what onnxruntime's optimiser puts before and behind them."""

from __future__ import annotations

from fuse_opt.frontends.builder import Emitter, Value, rank
from fuse_opt.frontends.onnx.microsoft.activations import activated
from fuse_opt.frontends.onnx.operators.node import MICROSOFT, Node, Results, handler
from fuse_opt.frontends.onnx.operators.products import gemm
from fuse_opt.frontends.onnx.operators.windows import convolution


@handler("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation", table=MICROSOFT)
def fused_matmul(n: Node, g: Emitter) -> Results:
    a, b = (_batches_first(g, n.operand(k), n.flag(name)) for k, name in enumerate(("transBatchA", "transBatchB")))
    flips = {"transpose_lhs": n.flag("transA") and rank(a) > 1, "transpose_rhs": n.flag("transB") and rank(b) > 1}
    y, alpha = g.matmul(a, b, **flips), n.number("alpha", 1.0)
    y = y if alpha == 1 else g.multiply(y, g.like(alpha, y))
    names = [f"activation_{name}" for name in ("alpha", "beta", "gamma")]
    return activated(n, g, y, n.text("activation"), [n.number(name, 0.0) for name in names if name in n.attributes])


def _batches_first(g: Emitter, x: Value, is_behind: bool) -> Value:
    """Matrices whose rows are the outermost axis, as others."""
    return g.permute_dims(x, axes=[*range(1, rank(x) - 1), 0, rank(x) - 1]) if is_behind and rank(x) > 2 else x


@handler("FusedGemm", table=MICROSOFT)
def fused_gemm(n: Node, g: Emitter) -> Results:
    names = [f"activation_{name}" for name in ("alpha", "beta", "gamma")]
    numbers = [n.number(name, 0.0) for name in names if name in n.attributes]
    return activated(n, g, gemm(n, g), n.text("activation"), numbers)


@handler("FusedConv", table=MICROSOFT)
def fused_conv(n: Node, g: Emitter) -> Results:
    y = convolution(n, g, n.operand(0), n.operand(1), n.optional(2))
    for added in n.optional(3):
        y = g.add(y, added)
    return activated(
        n, g, y, n.text("activation"), [float(number) for number in n.attributes.get("activation_params", ())]
    )
