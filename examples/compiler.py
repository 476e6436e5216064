"""A small compiler for audio filters that embeds fuse_opt: a dialect and a pass of its own; fusion, planning and C are ours.

python examples/compiler.py            # compiles the program below, runs it and prints the kernels
"""

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import FloatAttr, ModuleOp
from xdsl.ir import Dialect
from xdsl.irdl import irdl_op_definition, prop_def
from xdsl.parser import Parser
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern, op_type_rewrite_pattern

import fuse_opt
from fuse_opt.dialects.graph.bases.elementwise import Unary
from fuse_opt.dialects.scalar import Scalar, tanh


@irdl_op_definition
class GainOp(Unary):
    """x * factor."""

    name = "audio.gain"
    factor = prop_def(FloatAttr)

    def scalar(self, x: Scalar) -> Scalar:
        return x * self.factor.value.data


@irdl_op_definition
class SaturateOp(Unary):
    """tanh(x): louder than 1 is not possible."""

    name = "audio.saturate"

    def scalar(self, x: Scalar) -> Scalar:
        return tanh(x)


class MergeGains(RewritePattern):
    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: GainOp, rewriter: PatternRewriter) -> None:
        if isinstance(inner := op.x.owner, GainOp):
            factor = FloatAttr(op.factor.value.data * inner.factor.value.data, op.factor.type)
            rewriter.replace(op, GainOp.build_op(inner.x, factor=factor))
            if not inner.result.uses:
                rewriter.erase(inner)


class MergeGainsPass(ModulePass):
    """audio.gain of audio.gain becomes one."""

    name = "audio-merge-gains"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        PatternRewriteWalker(MergeGains()).rewrite_module(op)


AUDIO = Dialect("audio", [GainOp, SaturateOp])
PROGRAM = """
func.func @main(%voice: tensor<2x4096xf32>, %music: tensor<2x4096xf32>) -> tensor<2x4096xf32> {
  %0 = audio.gain %music {factor = 0.5 : f64} : (tensor<2x4096xf32>) -> tensor<2x4096xf32>
  %1 = audio.gain %0 {factor = 0.8 : f64} : (tensor<2x4096xf32>) -> tensor<2x4096xf32>
  %2 = graph.add %voice, %1 : (tensor<2x4096xf32>, tensor<2x4096xf32>) -> tensor<2x4096xf32>
  %3 = audio.saturate %2 : (tensor<2x4096xf32>) -> tensor<2x4096xf32>
  func.return %3 : tensor<2x4096xf32>
}
"""


def read(text: str) -> ModuleOp:
    """The front end: text in both dialects, after the pass."""
    ctx = Context()
    fuse_opt.register(ctx)
    ctx.load_dialect(AUDIO)
    module = Parser(ctx, text).parse_module()
    MergeGainsPass().apply(ctx, module)
    return module


if __name__ == "__main__":
    program = fuse_opt.compile(read(PROGRAM))
    voice, music = np.random.default_rng(0).standard_normal((2, 2, 4096)).astype(np.float32)
    print(program.source)
    print("largest sample:", float(np.abs(program(voice, music)).max()), "kernels:", program.stats.kernels)
