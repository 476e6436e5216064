"""Memory plans: what they say, and that the verifier, which shares no code with them, catches every way to spoil one."""

import random
from collections.abc import Callable

import numpy as np
import pytest
from planned_programs import (
    apply,
    arena_entry,
    function_of,
    kernels_of,
    parse,
    random_arguments,
    random_program,
    run_adversary,
)
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseIntOrFPElementsAttr,
    DictionaryAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    TensorType,
    UnitAttr,
    f32,
    i64,
)
from xdsl.dialects.func import FuncOp

from fuse_opt.dialects.analysis.storage import analyse_storage
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.properties import int_array, ints
from fuse_opt.dialects.verify.memory_plan import verify_plan, verify_plans
from fuse_opt.dialects.verify.plan_contents import PlanError
from fuse_opt.lowering.reference.interpreter import evaluate_function
from fuse_opt.passes.fusion.wrap_kernels import WrapKernelsPass
from fuse_opt.passes.memory.infer_inplace import InferInplacePass
from fuse_opt.passes.memory.plan_memory import PlanMemoryPass
from fuse_opt.passes.remarks import RefusedError, collect

PROGRAM = """
func.func @main(%x: tensor<64xf32>, %d: tensor<64xf32> {graph.donated}, %s: tensor<16xf32>) -> (tensor<64xf32>, tensor<8x8xf32>) {
  %a = graph.exp %x : (tensor<64xf32>) -> tensor<64xf32>
  %b = graph.sin %x : (tensor<64xf32>) -> tensor<64xf32>
  %t = graph.exp %s : (tensor<16xf32>) -> tensor<16xf32>
  %c = graph.add %a, %b : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %u = graph.sin %t : (tensor<16xf32>) -> tensor<16xf32>
  %m = graph.reshape %c {shape = array<i64: 8, 8>} : (tensor<64xf32>) -> tensor<8x8xf32>
  %n = graph.permute_dims %m {axes = array<i64: 1, 0>} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %o = graph.add %n, %m : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %p = graph.matmul %o, %m : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %v = graph.max %u {axes = array<i64: 0>, keepdims = true} : (tensor<16xf32>) -> tensor<1xf32>
  %e = graph.add %d, %v : (tensor<64xf32>, tensor<1xf32>) -> tensor<64xf32>
  %f = graph.exp %e : (tensor<64xf32>) -> tensor<64xf32>
  func.return %f, %p : tensor<64xf32>, tensor<8x8xf32>
}
"""
NAMES = ("a", "b", "t", "c", "u", "n", "o", "p", "v", "e", "f")
"""The kernels of PROGRAM, in order."""


def planned(text: str = PROGRAM, alignment: int = 64, strategy: str = "auto") -> ModuleOp:
    return apply(parse(text), WrapKernelsPass(), InferInplacePass(), PlanMemoryPass(alignment, strategy))


def kernels(module: ModuleOp) -> dict[str, KernelOp]:
    return dict(zip(NAMES, kernels_of(module), strict=True))


def slots(module: ModuleOp) -> dict[str, int]:
    return {name: ints(kernel.slots)[0] for name, kernel in kernels(module).items()}


def test_plan_of_the_program() -> None:
    module = planned()
    pairs = {name: k.inplace_pairs() for name, k in kernels(module).items() if k.inplace_pairs()}
    assert pairs == {"c": [(0, 1)], "u": [(0, 0)], "o": [(0, 0)], "e": [(0, 0)], "f": [(0, 0)]}
    found = slots(module)
    assert found["b"] == found["c"] and found["t"] == found["u"] and found["n"] == found["o"]
    assert [found[name] for name in "pef"] == [-1, -1, -1]
    function = function_of(module)
    assert arena_entry(function, "size") == arena_entry(function, "lower_bound") == 256 + 256 + 64
    verify_plan(function, complete=True, exact=True)


def test_text_of_a_plan() -> None:
    text = str(planned())
    assert (
        'fused.arena = {alignment = 64 : i64, lower_bound = 576 : i64, method = "peak-death-size", size = 576 : i64}'
        in text
    )
    assert "attributes {inplace = array<i64: 0, 0>, slots = array<i64: -1>}" in text


def test_a_plan_is_made_anew_and_the_same() -> None:
    module = planned()
    text = str(module)
    assert str(apply(module, PlanMemoryPass())) == text
    kernels(module)["c"].slots = None
    kernels(module)["a"].slots = int_array([512])
    verify_plans(module)
    assert str(apply(module, PlanMemoryPass())) == text


def test_nothing_in_the_arena() -> None:
    text = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n func.return %x : tensor<4xf32>\n}"
    module = parse(text)
    before = str(module)
    assert str(apply(module, PlanMemoryPass())) == before
    exp = "%r = graph.exp %x : (tensor<4xf32>) -> tensor<4xf32>\n"
    module = planned(text.replace(" func.return %x", exp + "func.return %r"))
    assert arena_entry(function_of(module), "size") == 0
    verify_plan(function_of(module), complete=True, exact=True)


def test_bare_ops_stay_outside_of_the_plan() -> None:
    module = apply(parse(PROGRAM), InferInplacePass(), PlanMemoryPass())
    assert "fused.arena" not in str(module)
    text = """
    func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %a = graph.exp %x : (tensor<4xf32>) -> tensor<4xf32>
      %b = fused.kernel(%0 = %a : tensor<4xf32>) -> (tensor<4xf32>) {
        %1 = graph.exp %0 : (tensor<4xf32>) -> tensor<4xf32>
        fused.yield %1 : tensor<4xf32>
      }
      %c = graph.exp %b : (tensor<4xf32>) -> tensor<4xf32>
      func.return %c : tensor<4xf32>
    }"""
    module = apply(parse(text), InferInplacePass(), PlanMemoryPass())
    (kernel,) = kernels_of(module)
    assert (kernel.inplace, ints(kernel.slots)) == (None, (0,))
    verify_plans(module)


def test_dead_and_empty_results_have_slots() -> None:
    text = """
    func.func @main(%x: tensor<4xf32>, %e: tensor<0x4xf32>) -> tensor<4xf32> {
      %a = graph.exp %x : (tensor<4xf32>) -> tensor<4xf32>
      %f = graph.exp %e : (tensor<0x4xf32>) -> tensor<0x4xf32>
      %g = graph.exp %f : (tensor<0x4xf32>) -> tensor<0x4xf32>
      %b = graph.exp %x : (tensor<4xf32>) -> tensor<4xf32>
      func.return %b : tensor<4xf32>
    }"""
    module = planned(text)
    assert [ints(kernel.slots)[0] for kernel in kernels_of(module)] == [0, 0, 0, -1]
    verify_plan(function_of(module), complete=True, exact=True)


def test_unknown_shapes_are_left_to_run_time() -> None:
    text = """
    func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
      %a = graph.exp %x : (tensor<?xf32>) -> tensor<?xf32>
      %b = graph.exp %a : (tensor<?xf32>) -> tensor<?xf32>
      func.return %b : tensor<?xf32>
    }"""
    module = planned(text)
    assert [(k.inplace, ints(k.slots)) for k in kernels_of(module)] == [(None, (-1,)), (None, (-1,))]
    verify_plans(module)


def test_pairs_that_are_not_legal_any_more_are_dropped() -> None:
    module = apply(parse(PROGRAM), WrapKernelsPass(), InferInplacePass())
    own = kernels(module)
    own["v"].operands = [own["t"].results[0]]  # %t is read after %u took it over
    with collect() as remarks:
        apply(module, PlanMemoryPass())
    assert own["u"].inplace is None
    assert (remarks[0].code, remarks[0].op_name) == ("still-read", "fused.kernel")
    verify_plan(function_of(module), complete=True, exact=True)


def test_must_inplace_is_not_dropped() -> None:
    module = apply(parse(PROGRAM.replace("sin %t", "sin %t {must_inplace}")), WrapKernelsPass(), InferInplacePass())
    own = kernels(module)
    own["v"].operands = [own["t"].results[0]]
    with pytest.raises(RefusedError, match="must_inplace cannot be kept: %t is read later") as caught:
        apply(module, PlanMemoryPass())
    assert caught.value.op.name == "graph.sin"


def test_pairs_are_dropped_where_the_arena_is_smaller_without() -> None:
    dropped = 0
    for seed in (2, 3, 20, 79):
        module = apply(parse(random_program(random.Random(seed), 24)), WrapKernelsPass(), InferInplacePass())
        with collect() as remarks:
            apply(module, PlanMemoryPass(alignment=8, strategy="time"))
        for remark in remarks:
            if remark.code == "inplace-dropped":
                dropped += 1
                numbers = dict(remark.numbers)
                assert numbers["arena"] == arena_entry(function_of(module), "size")
                assert float(numbers["arena"]) < float(numbers["arena_with"])
                verify_plan(function_of(module), complete=True, exact=True)
    assert dropped == 3


@pytest.mark.parametrize("alignment", [48, 0, -64, 4])
def test_alignment_must_be_a_power_of_two(alignment: int) -> None:
    with pytest.raises(ValueError, match="power of two from 8 bytes on, got"):
        planned(alignment=alignment)


def test_unknown_strategy_is_an_error_that_names_the_known() -> None:
    with pytest.raises(ValueError, match="expected one of auto, .*, got 'best'"):
        planned(strategy="best")


def test_alignment_is_kept() -> None:
    module = planned(alignment=256)
    assert all(slot == -1 or slot % 256 == 0 for slot in slots(module).values())
    verify_plan(function_of(module), complete=True, exact=True)


def test_plan_and_its_peak_are_remarks() -> None:
    with collect() as remarks:
        planned()
    own = [remark for remark in remarks if remark.pass_name == "plan-memory"]
    assert [remark.code for remark in own] == ["planned", "peak"]
    assert dict(own[0].numbers) == {
        "arena": 576, "lower_bound": 576, "gap": 0.0, "storages": 5, "method": "peak-death-size"
    }  # fmt: skip
    assert own[1].message == "at step 2 there live %a (256 bytes), %b (256 bytes), %t (64 bytes)"


# Ways to spoil the plan of PROGRAM. Each is caught, with a message that tells which.


def set_slot(name: str, slot: int) -> Callable[[ModuleOp], None]:
    def spoil(module: ModuleOp) -> None:
        kernels(module)[name].slots = int_array([slot])

    return spoil


def move_onto(name: str, other: str, shift: int = 0) -> Callable[[ModuleOp], None]:
    def spoil(module: ModuleOp) -> None:
        kernels(module)[name].slots = int_array([slots(module)[other] + shift])

    return spoil


def set_pairs(name: str, *pairs: int) -> Callable[[ModuleOp], None]:
    def spoil(module: ModuleOp) -> None:
        kernels(module)[name].inplace = int_array(pairs) if pairs else None

    return spoil


def set_arena(**entries: int | str | None) -> Callable[[ModuleOp], None]:
    def spoil(module: ModuleOp) -> None:
        function = function_of(module)
        arena = function.attributes["fused.arena"]
        assert isinstance(arena, DictionaryAttr)
        data = dict(arena.data)
        for name, value in entries.items():
            data.pop(name)
            if value is not None:
                data[name] = StringAttr(value) if isinstance(value, str) else IntegerAttr(value, i64)
        function.attributes["fused.arena"] = DictionaryAttr(data)

    return spoil


def no_arena(module: ModuleOp) -> None:
    del function_of(module).attributes["fused.arena"]


def not_donated(module: ModuleOp) -> None:
    function_of(module).arg_attrs = ArrayAttr([DictionaryAttr({})] * 3)


def keep_donated(module: ModuleOp) -> None:
    known = DictionaryAttr({"graph.donated": UnitAttr(), "keep_live": UnitAttr()})
    function_of(module).arg_attrs = ArrayAttr([DictionaryAttr({}), known, DictionaryAttr({})])


def keep(name: str) -> Callable[[ModuleOp], None]:
    def spoil(module: ModuleOp) -> None:
        kernels(module)[name].attributes["keep_live"] = UnitAttr()

    return spoil


def keep_inner(module: ModuleOp) -> None:
    kernels(module)["a"].ops()[0].attributes["keep_live"] = UnitAttr()


def read_later(module: ModuleOp) -> None:
    own = kernels(module)
    own["v"].operands = [own["t"].results[0]]


def read_later_than_reuse(module: ModuleOp) -> None:
    own = kernels(module)
    own["f"].operands = [own["a"].results[0]]
    own["f"].inplace = None


def reorder(module: ModuleOp) -> None:
    own = kernels(module)
    own["b"].detach()
    function_of(module).body.block.insert_op_after(own["b"], own["a"])
    own["t"].detach()
    function_of(module).body.block.insert_op_before(own["t"], own["v"])
    own["u"].detach()
    function_of(module).body.block.insert_op_after(own["u"], own["t"])


def return_from_arena(module: ModuleOp) -> None:
    own = kernels(module)
    last = function_of(module).body.block.last_op
    assert last is not None
    last.operands = [own["v"].results[0], last.operands[1]]


def returned_in_arena(module: ModuleOp) -> None:
    set_slot("p", 576)(module)
    set_arena(size=832)(module)


def run_as_library(module: ModuleOp) -> None:
    kernels(module)["c"].implementation = StringAttr("mylib.add")


def turn(module: ModuleOp) -> None:
    """%o = %n + %m becomes one that reads %n across."""
    own = kernels(module)
    inner = own["n"].ops()[0].clone()
    block = own["o"].block
    block.insert_op_before(inner, own["o"].ops()[0])
    first = own["o"].ops()[1]
    inner.operands = [block.args[0]]
    first.operands = [inner.results[0], first.operands[1]]


def overwrite_constant(module: ModuleOp) -> None:
    own = kernels(module)
    type_ = TensorType(f32, [64])
    stored = DenseIntOrFPElementsAttr.from_list(type_, [float(n) for n in range(64)])
    (constant,) = [
        op
        for op in parse(f"func.func @f() {{\n%0 = graph.constant {stored}\nfunc.return\n}}").walk()
        if op.name == "graph.constant"
    ]
    constant.detach()
    function_of(module).body.block.insert_op_before(constant, own["a"])
    own["e"].operands = [constant.results[0], own["e"].operands[1]]


def differ_in_size(module: ModuleOp) -> None:
    own = kernels(module)
    own["v"].inplace = int_array([0, 0])
    own["v"].slots = own["u"].slots


def unequal_slots(module: ModuleOp) -> None:
    kernels(module)["v"].slots = int_array([0, 64])


SPOILS: list[tuple[str, Callable[[ModuleOp], None], str]] = [
    ("two live values at one place", move_onto("b", "a"), "%a .* is read at step 3, but %b .* overwrote it at step 1"),
    ("a shift of one unit", move_onto("t", "a", 64), "%a .* is read at step 3, but %t .* overwrote it at step 2"),
    ("a result over an operand", move_onto("n", "c"), "writes %n .* at step 6 over %c .* of step 3, which is in use"),
    ("an offset that is not aligned", move_onto("a", "a", 4), "slot [0-9]+ of %a is no multiple of 64"),
    ("an offset past the end", set_slot("a", 576), "%a at 576..832 is not inside of the arena of 576 bytes"),
    ("an offset partly past the end", set_slot("a", 384), "%a at 384..640 is not inside"),
    ("an offset below zero", set_slot("a", -64), "slot -64 of %a: expected an offset, or -1"),
    ("an intermediate without memory", set_slot("a", -1), "%a of step 0 has slot -1 .* it has no memory"),
    ("a returned value in the arena", returned_in_arena, "%p .* is returned at step 12, but lies in the arena"),
    ("a value of the arena returned", return_from_arena, "%v .* of step 9 is returned at step 12, but lies in the arena"),
    ("too many slots", unequal_slots, "2 slots for 1 results"),
    ("no arena", no_arena, "no fused.arena; run plan-memory"),
    ("an arena without a size", set_arena(size=None), "expected alignment, lower_bound and size"),
    ("an arena of text", set_arena(size="576"), "expected alignment, lower_bound and size"),
    ("an arena without a method", set_arena(method=None), "and method"),
    ("an arena that is too small", set_arena(size=512, lower_bound=512), "is not inside of the arena of 512 bytes"),
    ("an arena below its bound", set_arena(lower_bound=640), "size 576 is below the lower bound 640"),
    ("an arena that is too large", set_arena(size=640), "size is 640, the slots take up 576"),
    ("a false bound", set_arena(lower_bound=512), "lower_bound is 512, the program has 576"),
    ("a false alignment", set_arena(alignment=48), "alignment 48 is no power of two"),
    ("a larger alignment", set_arena(alignment=512), "no multiple of 512"),
    ("a pair taken away", set_pairs("c"), "writes %c .* at step 3 over %b"),
    ("a pair on another operand", set_pairs("c", 0, 0), "takes over %a of step 0, which is at [0-9]+, but its slot is"),
    ("a pair on a view that is read later", set_pairs("o", 0, 1), "takes over %m of step 3, which is still read at step 8"),
    ("a pair on the caller's argument", set_pairs("a", 0, 0), "takes over %x of the caller, which must not be overwritten"),
    ("a pair of unequal sizes", differ_in_size, "they differ in size: 4 and 64"),
    ("a pair of a library call", run_as_library, "it is a library call"),
    ("a pair that reads across", turn, "reads it at other elements"),
    ("a result outside that takes over a slot", set_slot("c", -1), "takes over %b of step 1 at [0-9]+, but has no slot"),
    ("a slot that takes over an argument", set_slot("e", 0), "takes over %d of the caller, which is outside of the arena"),
    ("an argument that is not donated", not_donated, "must not be overwritten: it is not donated"),
    ("an argument that is kept", keep_donated, "%d of the caller must be kept to the end at step 12, but %f overwrote it"),
    ("a constant", overwrite_constant, "must not be overwritten"),
    ("a value that is kept", keep("t"), "%t .* must be kept to the end at step 12, but %u .* overwrote it at step 4"),
    ("an inner value that is kept", keep_inner, "%a .* must be kept to the end at step 12, but %o .* overwrote it"),
    ("a later reader", read_later, "takes over %t of step 2, which is still read at step 9"),
    ("a later reader of reused bytes", read_later_than_reuse, "%a .* of step 0 is read at step 11, but %o .* overwrote it"),
    ("another order", reorder, "%a .* is read|%c .* is read|%m .* is read|is below|lower_bound is|slots take up"),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "message"), [case[1:] for case in SPOILS], ids=[case[0] for case in SPOILS])
def test_a_spoiled_plan_is_caught(spoil: Callable[[ModuleOp], None], message: str) -> None:
    module = planned()
    spoil(module)
    with pytest.raises(PlanError, match=message) as caught:
        verify_plan(function_of(module), complete=True, exact=True)
    assert caught.value.op is not None
    assert "; run " in str(caught.value) or "expected" in str(caught.value)


def test_a_kernel_without_slots_cannot_run_but_may_be_rewritten() -> None:
    module = planned()
    kernels(module)["c"].slots = None
    verify_plans(module)
    with pytest.raises(PlanError, match="no slots; run plan-memory"):
        verify_plan(function_of(module), complete=True)
    module = apply(parse(PROGRAM), WrapKernelsPass())
    verify_plans(module)
    with pytest.raises(PlanError, match="no slots; run plan-memory"):
        verify_plan(function_of(module), complete=True)


def test_two_results_at_one_place() -> None:
    text = """
    func.func @main(%x: tensor<16xf32>, %d: tensor<16xf32> {graph.donated}) -> tensor<16xf32> {
      %a, %b = fused.kernel(%0 = %x : tensor<16xf32>, %1 = %d : tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>)
          attributes {slots = array<i64: 0, SLOT>PAIRS} {
        %2 = graph.exp %0 : (tensor<16xf32>) -> tensor<16xf32>
        %3 = graph.sin %1 : (tensor<16xf32>) -> tensor<16xf32>
        fused.yield %2, %3 : tensor<16xf32>, tensor<16xf32>
      }
      %r = fused.kernel(%0 = %a : tensor<16xf32>, %1 = %b : tensor<16xf32>) -> (tensor<16xf32>)
          attributes {slots = array<i64: -1>} {
        %2 = graph.add %0, %1 : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
        fused.yield %2 : tensor<16xf32>
      }
      func.return %r : tensor<16xf32>
    }"""

    def check(slot: int, pairs: str) -> None:
        module = parse(text.replace("SLOT", str(slot)).replace("PAIRS", pairs))
        arena = {"alignment": 64, "lower_bound": 64, "size": 128}
        entries = {name: IntegerAttr(value, i64) for name, value in arena.items()}
        function_of(module).attributes["fused.arena"] = DictionaryAttr({**entries, "method": StringAttr("hand")})
        verify_plans(module)

    check(64, "")
    check(-1, ", inplace = array<i64: 1, 1>")
    with pytest.raises(PlanError, match="writes %b .* over %a .* of step 0, which is in use at the same step"):
        check(0, "")


@pytest.mark.sampled(10)
@pytest.mark.parametrize("seed", range(60))
def test_verifier_agrees_with_a_naive_one(seed: int) -> None:
    """Slots changed at random: caught exactly when two storages overlap; what is not caught computes the same."""
    rng = random.Random(seed)
    module = planned(random_program(rng, 16), alignment=8)
    function = function_of(module)
    own = [kernel for kernel in kernels_of(module) if ints(kernel.slots)[0] != -1]
    if not own:
        return
    set_arena(size=arena_entry(function, "size") + 64)(module)
    storages = analyse_storage(function)
    victim = storages.of(rng.choice(own).results[0])
    moved = rng.randrange(0, arena_entry(function, "size") - victim.nbytes + 1, 8)
    for kernel in own:
        if storages.of(kernel.results[0]) is victim:
            kernel.slots = int_array([moved])
    assert accepts(function) == (not naive_overlap(function))
    if accepts(function):
        arguments = random_arguments(function, rng)
        for found, expected in zip(
            run_adversary(function, arguments, rng), evaluate_function(function, arguments), strict=True
        ):
            np.testing.assert_array_equal(found, expected)


def accepts(function: FuncOp) -> bool:
    try:
        verify_plan(function, complete=True)
    except PlanError:
        return False
    return True


def naive_overlap(function: FuncOp) -> bool:
    storages = analyse_storage(function)
    placed: dict[int, tuple[int, int, int, int]] = {}
    for op in function.body.block.ops:
        if isinstance(op, KernelOp) and (slot := ints(op.slots)[0]) != -1:
            storage = storages.of(op.results[0])
            placed[storage.number] = (slot, slot + storage.nbytes, storage.birth, storage.death)
    rows = list(placed.values())
    return any(
        a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3] for n, a in enumerate(rows) for b in rows[:n]
    )
