"""The plan verifier: a hand-made plan is accepted, each way to spoil it is caught, by rules of its own, planners' plans pass."""

from __future__ import annotations

import ast
import random
from pathlib import Path

import pytest
from planned_programs import ROW_OPS, apply, arena_entry, function_of, parse, random_program

from fuse_opt.dialects.verify import kernel_parts as plan_parts
from fuse_opt.dialects.verify import kernel_reads as plan_reads
from fuse_opt.dialects.verify import memory_plan as plan_verifier
from fuse_opt.dialects.verify import sample_points as plan_points
from fuse_opt.dialects.verify.memory_plan import verify_plan
from fuse_opt.dialects.verify.plan_contents import PlanError
from fuse_opt.tools.compiler.pipeline import make_passes

PLAN = """
func.func @main(%x: tensor<65xi8>, %d: tensor<65xi8> {graph.donated}, %y: tensor<8x8xi8>)
    -> (tensor<65xi8>, tensor<8x8xi8>, tensor<8xi8>)
    attributes {fused.arena = {alignment = 64 : i64, lower_bound = 320 : i64, method = "hand", size = 448 : i64}} {
  %k = graph.constant dense<3> : tensor<65xi8>
  %a = fused.kernel(%0 = %x : tensor<65xi8>) -> (tensor<65xi8>) attributes {slots = array<i64: 0>} {
    %1 = graph.abs %0 : (tensor<65xi8>) -> tensor<65xi8>
    fused.yield %1 : tensor<65xi8>
  }
  %b = fused.kernel(%0 = %x : tensor<65xi8>) -> (tensor<65xi8>) attributes {slots = array<i64: 128>} {
    %1 = graph.negative %0 : (tensor<65xi8>) -> tensor<65xi8>
    fused.yield %1 : tensor<65xi8>
  }
  %c = fused.kernel(%0 = %a : tensor<65xi8>, %1 = %b : tensor<65xi8>) -> (tensor<65xi8>)
      attributes {inplace = array<i64: 0, 0>, slots = array<i64: 0>} {
    %2 = graph.add %0, %1 : (tensor<65xi8>, tensor<65xi8>) -> tensor<65xi8>
    fused.yield %2 : tensor<65xi8>
  }
  %e = fused.kernel(%0 = %d : tensor<65xi8>, %1 = %k : tensor<65xi8>) -> (tensor<65xi8>)
      attributes {inplace = array<i64: 0, 0>, slots = array<i64: -1>} {
    %2 = graph.add %0, %1 : (tensor<65xi8>, tensor<65xi8>) -> tensor<65xi8>
    fused.yield %2 : tensor<65xi8>
  }
  %p = fused.kernel(%0 = %y : tensor<8x8xi8>) -> (tensor<8x8xi8>) attributes {slots = array<i64: 128>} {
    %1 = graph.negative %0 : (tensor<8x8xi8>) -> tensor<8x8xi8>
    fused.yield %1 : tensor<8x8xi8>
  }
  %v = graph.reshape %p {shape = array<i64: 4, 16>} : (tensor<8x8xi8>) -> tensor<4x16xi8>
  %w = graph.reshape %v {shape = array<i64: 64>} : (tensor<4x16xi8>) -> tensor<64xi8>
  %q = fused.kernel(%0 = %p : tensor<8x8xi8>) -> (tensor<8x8xi8>) attributes {slots = array<i64: 192>} {
    %1 = graph.permute_dims %0 {axes = array<i64: 1, 0>} : (tensor<8x8xi8>) -> tensor<8x8xi8>
    fused.yield %1 : tensor<8x8xi8>
  }
  %m, %n = fused.kernel(%0 = %q : tensor<8x8xi8>) -> (tensor<8x8xi8>, tensor<8x8xi8>)
      attributes {inplace = array<i64: 0, 0>, slots = array<i64: 192, 256>} {
    %1 = graph.abs %0 : (tensor<8x8xi8>) -> tensor<8x8xi8>
    %2 = graph.negative %0 : (tensor<8x8xi8>) -> tensor<8x8xi8>
    fused.yield %1, %2 : tensor<8x8xi8>, tensor<8x8xi8>
  }
  %g = fused.kernel(%0 = %m : tensor<8x8xi8>, %1 = %n : tensor<8x8xi8>) -> (tensor<8x8xi8>) attributes {slots = array<i64: -1>} {
    %2 = graph.matmul %0, %1 : (tensor<8x8xi8>, tensor<8x8xi8>) -> tensor<8x8xi8>
    fused.yield %2 : tensor<8x8xi8>
  }
  %s = fused.kernel(%0 = %w : tensor<64xi8>) -> (tensor<64xi8>)
      attributes {inplace = array<i64: 0, 0>, slots = array<i64: 128>} {
    %1 = graph.abs %0 : (tensor<64xi8>) -> tensor<64xi8>
    fused.yield %1 : tensor<64xi8>
  }
  %t = graph.reshape %s {shape = array<i64: 8, 8>} : (tensor<64xi8>) -> tensor<8x8xi8>
  %r = fused.kernel(%0 = %t : tensor<8x8xi8>) -> (tensor<8xi8>) attributes {slots = array<i64: 320>} {
    %1 = graph.max %0 {axes = array<i64: 1>} : (tensor<8x8xi8>) -> tensor<8xi8>
    fused.yield %1 : tensor<8xi8>
  }
  %o = fused.kernel(%0 = %r : tensor<8xi8>) -> (tensor<8xi8>) attributes {slots = array<i64: 384>} {
    %1 = graph.negative %0 : (tensor<8xi8>) -> tensor<8xi8>
    fused.yield %1 : tensor<8xi8>
  }
  %u = fused.kernel(%0 = %o : tensor<8xi8>, %1 = %r : tensor<8xi8>) -> (tensor<8xi8>) attributes {slots = array<i64: -1>} {
    %2 = graph.add %0, %1 : (tensor<8xi8>, tensor<8xi8>) -> tensor<8xi8>
    fused.yield %2 : tensor<8xi8>
  }
  %z = fused.kernel(%0 = %c : tensor<65xi8>, %1 = %e : tensor<65xi8>) -> (tensor<65xi8>) attributes {slots = array<i64: -1>} {
    %2 = graph.add %0, %1 : (tensor<65xi8>, tensor<65xi8>) -> tensor<65xi8>
    fused.yield %2 : tensor<65xi8>
  }
  func.return %z, %g, %u : tensor<65xi8>, tensor<8x8xi8>, tensor<8xi8>
}
"""


def spoiled(name: str, *edits: tuple[str, str]) -> str:
    """PLAN with changes in the kernel's text up to the next op; of the whole text where the name is empty."""
    start = PLAN.index(f"\n  %{name}") if name else 0
    end = PLAN.find("\n  %", start + 4) if name not in ("", "z") else len(PLAN)
    part = PLAN[start:end]
    for old, new in edits:
        assert old in part, f"{old!r} is not in {name!r}"
        part = part.replace(old, new)
    return PLAN[:start] + part + PLAN[end:]


SPOILED: dict[str, tuple[str, str]] = {
    "overlap by one byte": (
        spoiled("b", ("64: 128", "64: 64")),
        r"%a \(bytes 0\.\.65\) of step 1 is read at step 3, but %b \(bytes 64\.\.129\) overwrote it at step 2",
    ),
    "beyond the arena": (
        spoiled("o", ("64: 384", "64: 448")),
        r"%o at 448\.\.456 is not inside of the arena of 448 bytes at step 14",
    ),
    "an arena that is too small": (
        spoiled("", ("size = 448", "size = 384")),
        r"%o at 384\.\.392 is not inside of the arena of 384 bytes at step 14",
    ),
    "an arena below its bound": (spoiled("", ("size = 448", "size = 256")), r"size 256 is below the lower bound 320"),
    "an arena that is too large": (spoiled("", ("size = 448", "size = 512")), r"size is 512, the slots take up 448"),
    "a bound that is too low": (
        spoiled("", ("bound = 320", "bound = 256")),
        r"lower_bound is 256, the program has 320",
    ),
    "a bound that is too high": (
        spoiled("", ("bound = 320", "bound = 384")),
        r"lower_bound is 384, the program has 320",
    ),
    "a slot that is not aligned": (
        spoiled("b", ("64: 128", "64: 136")),
        r"slot 136 of %b is no multiple of 64, at step 2",
    ),
    "a negative slot": (spoiled("b", ("64: 128", "64: -64")), r"slot -64 of %b: expected an offset, or -1, at step 2"),
    "no slot": (
        spoiled("b", (" attributes {slots = array<i64: 128>}", "")),
        r"'fused.kernel' has no slots; run plan-memory",
    ),
    "too few slots": (spoiled("", ("192, 256", "192")), r"expected 2 offsets|1 slots for 2 results"),
    "no memory": (spoiled("b", ("64: 128", "64: -1")), r"%b of step 2 has slot -1 but is not returned .* no memory"),
    "the storage of a view is used too early": (
        spoiled("q", ("64: 192", "64: 128")),
        r"writes %q \(bytes 128.* at step 8 over %p \(bytes 128.* of step 5",
    ),
    "a view of a view is read after its storage was used": (
        spoiled("m", ("inplace = array<i64: 0, 0>, ", ""), ("192, 256", "128, 256")),
        r"%p .* of step 5 is read at step 11, but %m .* overwrote it at step 9",
    ),
    "two results in one slot": (
        spoiled("m", ("192, 256", "192, 192")),
        r"writes %n .* at step 9 over %(q|m) .* of step (8|9), which is in use",
    ),
    "a result over an operand": (
        spoiled("o", ("64: 384", "64: 320")),
        r"writes %o .* at step 14 over %r .* of step 13, which is in use at the same",
    ),
    "in place of what is read later": (
        spoiled("o", ("{slots = array<i64: 384>", "{inplace = array<i64: 0, 0>, slots = array<i64: 320>")),
        r"%o of step 14 takes over %r of step 13, which is still read at step 15",
    ),
    "in place of what a view is read of later": (
        spoiled("q", ("{slots = array<i64: 192>", "{inplace = array<i64: 0, 0>, slots = array<i64: 128>")),
        r"%q of step 8 takes over %p of step 5, which is still read at step 11",
    ),
    "in place of an argument of the caller's": (
        spoiled("a", ("{slots = array<i64: 0>", "{inplace = array<i64: 0, 0>, slots = array<i64: -1>")),
        r"%a of step 1 takes over %x of the caller, which must not be overwritten",
    ),
    "in place of what is not donated any more": (
        spoiled("", (" {graph.donated}", "")),
        r"%e of step 4 takes over %d of the caller, which must not be overwritten",
    ),
    "in place of a constant": (
        spoiled("e", ("inplace = array<i64: 0, 0>", "inplace = array<i64: 0, 1>")),
        r"%e of step 4 takes over %k of step 0, which must not be overwritten",
    ),
    "in place of a transposed read": (
        spoiled("m", ("graph.negative %0 :", "graph.permute_dims %0 {axes = array<i64: 1, 0>} :")),
        r"%m of step 9 takes over %q of step 8, but reads it at other elements than the one it writes",
    ),
    "in place of a library call's operand": (
        spoiled("g", ("{slots = array<i64: -1>", "{inplace = array<i64: 0, 0>, slots = array<i64: 192>")),
        r"%g of step 10 takes over %m of step 9, but it is a library call that does not offer it",
    ),
    "in place of another size": (
        spoiled("r", ("{slots = array<i64: 320>", "{inplace = array<i64: 0, 0>, slots = array<i64: 128>")),
        r"%r of step 13 takes over %t of step 11, but they differ in size: 8 and 64",
    ),
    "in place at another offset": (
        spoiled("s", ("slots = array<i64: 128>", "slots = array<i64: 192>")),
        r"%s of step 11 takes over %p of step 5, which is at 128, but its slot is 192",
    ),
    "a donated argument that is read after it was overwritten": (
        spoiled("z", ("%1 = %e :", "%1 = %d :")),
        r"%e of step 4 takes over %d of the caller, which is still read at step 16",
    ),
    "a donated argument that is to be kept": (
        spoiled("", ("{graph.donated}", "{graph.donated, keep_live}")),
        r"%d of the caller must be kept to the end at step 17, but %e overwrote it at step 4",
    ),
    "a value that is to be kept": (
        spoiled("b", ("{slots", "{keep_live, slots")),
        r"%b .* of step 2 must be kept .* but %s .* overwrote it at step 11",
    ),
    "a view that is to be kept": (
        PLAN.replace("array<i64: 4, 16>}", "array<i64: 4, 16>, keep_live}"),
        r"%p .* of step 5 must be kept to the end at step 17, but %s .* overwrote it at step 11",
    ),
    "a later reader": (
        PLAN.replace("%r = fused.kernel(%0 = %t :", "%r = fused.kernel(%0 = %q :"),
        r"%m of step 9 takes over %q of step 8, which is still read at step 13",
    ),
    "a returned value in the arena": (
        spoiled("g", ("64: -1", "64: 0")).replace("%c : tensor<65xi8>, %1 = %e", "%e : tensor<65xi8>, %1 = %e"),
        r"%g \(bytes 0\.\.64\) of step 10 is returned at step 17, but lies in the arena",
    ),
}
"""By what is wrong: a plan and the message that it is refused with, which names the values and their steps."""


def test_the_plan_is_accepted() -> None:
    module = parse(PLAN)
    module.verify()
    verify_plan(function_of(module), complete=True, exact=True)


@pytest.mark.parametrize("name", SPOILED)
def test_spoiled_plans_are_refused(name: str) -> None:
    text, message = SPOILED[name]
    with pytest.raises(PlanError, match=message) as caught:
        verify_plan(function_of(parse(text)), complete=True, exact=True)
    assert caught.value.op is not None


FOLDER = Path(plan_verifier.__file__).parent
PLANNERS = {"kernel_access", "kernel_parts", "pull", "storage"}
"""What the planning passes ask about kernels and lifetimes."""


@pytest.mark.parametrize("module", [plan_verifier, plan_reads, plan_parts, plan_points])
def test_the_verifier_shares_nothing_with_planners(module: object) -> None:
    name = str(getattr(module, "__name__", "")).rpartition(".")[2]
    tree = ast.parse((FOLDER / f"{name}.py").read_text())
    imported = {
        node.module: {n.name for n in node.names} for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
    }
    assert not PLANNERS & imported.keys()
    assert imported.get("implementation", {"find_offer"}) == {"find_offer"}  # what an implementation states of itself
    calls = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not calls & {"is_alias", "is_view", "fusion_kind"}


@pytest.mark.sampled(15)
@pytest.mark.parametrize("seed", range(100))
def test_plans_of_the_planner_pass(seed: int) -> None:
    rng = random.Random(seed)
    module = parse(random_program(rng, rng.choice((8, 16, 32)), ROW_OPS if seed % 3 else ("binary", "unary", "matmul")))
    fusions = ("fuse-elementwise", "fuse-row", "fuse-injective")
    order = rng.choice(((), ("schedule-kernels",), ("schedule-kernels", "order-for-memory")))
    names = [*rng.sample(fusions, rng.randrange(4)), "wrap-kernels", *order, "infer-inplace"]
    apply(module, *make_passes([*names, f"plan-memory{{alignment={rng.choice((8, 64))}}}"]))
    function = function_of(module)
    verify_plan(function, complete=True, exact=True)
    assert arena_entry(function, "size") >= arena_entry(function, "lower_bound")
