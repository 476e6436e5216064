"""Plans do not outlive the program that they were made for, whatever rewrites it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from draws import scaled
from ir_testing import CONTEXT, apply, function, kernels, parse, text_of
from laws import OPTIMIZATIONS, REWRITES
from program_generator import random_program
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.analysis.storage import ARENA, functions_of
from fuse_opt.passes.rewrite_pass import planned_for
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE, run_pipeline
from fuse_opt.tools.source.verification import verify

CHAIN = """
func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {
  %0 = graph.exp %x : (tensor<64xf32>) -> tensor<64xf32>
  %1 = graph.tanh %0 : (tensor<64xf32>) -> tensor<64xf32>
  %2 = graph.sin %1 : (tensor<64xf32>) -> tensor<64xf32>
  func.return %2 : tensor<64xf32>
}"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", sorted({*OPTIMIZATIONS} - {*REWRITES}))
def test_what_is_no_rewrite_keeps_all_that_plans_are_made_for(name: str) -> None:
    """A pass that changes ops, or who reads a value, is a RewritePass, which drops stale plans."""
    for seed in range(0, scaled(18), 3):
        for state in ("", "fuse-siblings,plan-memory", ",".join(DEFAULT_PIPELINE)):
            module = parse(text_of(random_program(seed)))
            module = apply(module, state) if state else module
            before = [planned_for(function) for function in functions_of(module)]
            pairs = {kernel: kernel.inplace for kernel in kernels(module)}
            apply(module, [name])
            for kernel in kernels(module):
                kernel.inplace = pairs[kernel]  # those may be decided anew
            assert [planned_for(function) for function in functions_of(module)] == before, f"(seed {seed}, '{state}')"


@dataclass(frozen=True)
class ReturnFirstPass(ModulePass):
    """Of another project: returns the first kernel's result, which lies in the arena."""

    name = "return-first"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        last = function(op).body.block.last_op
        assert last is not None
        last.operands = [kernels(op)[0].results[0]]


def test_a_pass_that_knows_nothing_of_plans_leaves_none_that_does_not_hold() -> None:
    module = apply(parse(CHAIN), "wrap-kernels,plan-memory,bulk-launches")
    assert ARENA in function(module).attributes
    broken = module.clone()
    ReturnFirstPass().apply(CONTEXT, broken)
    with pytest.raises(VerifyException, match="lies in the arena"):
        verify(broken)
    run_pipeline(module, [ReturnFirstPass()], CONTEXT)
    assert ARENA not in function(module).attributes
    assert all(kernel.slots is None and kernel.segment is None for kernel in kernels(module))


def test_what_changes_nothing_keeps_the_plan() -> None:
    module = apply(parse(CHAIN), "wrap-kernels,infer-inplace,plan-memory,bulk-launches")
    text = text_of(module)
    assert "slots" in text and "segment" in text and "inplace" in text
    assert text_of(apply(module, REWRITES_WITHOUT_WORK)) == text


REWRITES_WITHOUT_WORK = ["canonicalize", "cse", "dce", "fold-constants", "decompose", "wrap-kernels", "infer-shapes"]
