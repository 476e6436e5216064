"""Plans for all sizes at some of them: what a verifier of offsets takes, and what calls have."""

from __future__ import annotations

import pytest
from ir_testing import parse
from sized_texts import SOFTMAXES

from fuse_opt.dialects.analysis.chosen_sizes import at_sizes
from fuse_opt.dialects.analysis.place_orders import PlaceOrders
from fuse_opt.dialects.analysis.storage import ARENA, functions_of
from fuse_opt.dialects.interfaces.shapes import sizes_asked_for
from fuse_opt.dialects.verify.memory_plan import verify_plan
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE, make_passes, run_pipeline
from fuse_opt.tools.compiler.registry import make_context

BOUNDED = SOFTMAXES.replace(
    "-> tensor<?x?xf32> {", "-> tensor<?x?xf32> attributes {graph.symbols = {n = {most = 512}}} {"
)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (7, 100), (513, 3)])
def test_a_plan_at_some_sizes_is_one_of_offsets(m: int, n: int) -> None:
    module = parse(BOUNDED)
    run_pipeline(module, make_passes("infer-shapes{symbols=true}"), make_context())
    with sizes_asked_for():
        run_pipeline(module, make_passes(",".join(DEFAULT_PIPELINE)), make_context())
        (function,) = functions_of(module)
        orders = PlaceOrders.of(function)
        assert orders is not None
        at_sizes(module, {"m": m, "n": n})
    module.verify()
    verify_plan(function, complete=True)
    plan = function.attributes[ARENA]
    _, arena, bound = orders.at({"m": m, "n": n})
    assert f"lower_bound = {bound} : i64, size = {arena} : i64" in str(plan)
    assert "#graph.s" not in str(module)


def test_sizes_that_a_symbol_does_not_have_are_refused_by_name() -> None:
    for chosen, problem in (({"n": 513}, "'n': expected 1 to 512, got 513"), ({"k": 3}, "'k': expected a name of")):
        module = parse(BOUNDED)
        run_pipeline(module, make_passes("infer-shapes{symbols=true}"), make_context())
        with pytest.raises(ValueError, match=f"extent {problem}"):
            at_sizes(module, chosen)
