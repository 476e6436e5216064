"""Storages: which values share memory, whose it is, and when it is in use."""

import random

import pytest
from planned_programs import apply, context, function_of, kernels_of, parse, random_program
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.dialects.cf import Cf
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue
from xdsl.parser import Parser

from fuse_opt.dialects.analysis.storage import Storage, StorageMap, analyse_storage, functions_of, value_name
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.properties import int_array
from fuse_opt.passes.fusion.wrap_kernels import WrapKernelsPass

CHAIN = """
func.func @main(%x: tensor<8xf32>, %y: tensor<8xf32> {graph.donated}) -> tensor<2x4xf32> {
  %a = graph.exp %x : (tensor<8xf32>) -> tensor<8xf32>
  %v = graph.reshape %a {shape = array<i64: 2, 4>} : (tensor<8xf32>) -> tensor<2x4xf32>
  %b = graph.add %a, %y : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %w = graph.reshape %b {shape = array<i64: 2, 4>} : (tensor<8xf32>) -> tensor<2x4xf32>
  %c = graph.add %v, %w : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  func.return %c : tensor<2x4xf32>
}
"""


def named(function: FuncOp) -> dict[str, SSAValue]:
    block = function.body.block
    values = [*block.args, *(result for op in block.ops for result in op.results)]
    return {value_name(value).removeprefix("%"): value for value in values}


def parse_with_branches(text: str) -> ModuleOp:
    ctx = context()
    ctx.load_dialect(Cf)
    return Parser(ctx, text).parse_module()


def analysed(text: str) -> tuple[StorageMap, dict[str, Storage]]:
    function = function_of(apply(parse(text), WrapKernelsPass()))
    found = analyse_storage(function)
    return found, {name: found.of(value) for name, value in named(function).items()}


def test_views_share_the_storage_of_their_operand() -> None:
    _, of = analysed(CHAIN)
    assert of["a"] is of["v"] and of["b"] is of["w"]
    assert [value_name(value) for value in of["a"].values] == ["%a", "%v"]


def test_lifetimes_are_half_open_and_count_the_readers_of_views() -> None:
    found, of = analysed(CHAIN)
    assert found.steps == 6
    assert (of["x"].birth, of["x"].death) == (-1, 6)
    assert (of["y"].birth, of["y"].death) == (-1, 3)
    assert (of["a"].birth, of["a"].death) == (0, 5)
    assert (of["b"].birth, of["b"].death) == (2, 5)
    assert (of["c"].birth, of["c"].death) == (4, 6)


def test_kinds_and_numbers() -> None:
    found, of = analysed(CHAIN)
    assert [of[name].kind for name in "xyabc"] == ["argument", "argument", "intermediate", "intermediate", "result"]
    assert (of["x"].argument, of["x"].donated, of["y"].argument, of["y"].donated) == (0, False, 1, True)
    assert of["c"].results == (0,) and of["a"].nbytes == 32
    assert [storage.number for storage in found.storages] == list(range(len(found.storages)))


def test_value_returned_twice_is_one_storage_and_an_argument_stays_the_callers() -> None:
    _, of = analysed("""
    func.func @main(%x: tensor<8xf32>) -> (tensor<2x4xf32>, tensor<8xf32>, tensor<8xf32>) {
      %a = graph.exp %x : (tensor<8xf32>) -> tensor<8xf32>
      %v = graph.reshape %a {shape = array<i64: 2, 4>} : (tensor<8xf32>) -> tensor<2x4xf32>
      func.return %v, %x, %a : tensor<2x4xf32>, tensor<8xf32>, tensor<8xf32>
    }""")
    assert of["a"].kind == "result" and of["a"].results == (0, 2)
    assert of["x"].kind == "argument" and of["x"].results == (1,)


def test_constants_and_bare_ops_are_outside_of_the_plan() -> None:
    function = function_of(
        parse("""
    func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %c = graph.constant dense<[1.0, 2.0]> : tensor<2xf32>
      %d = graph.reshape %c {shape = array<i64: 2, 1>} : (tensor<2xf32>) -> tensor<2x1xf32>
      %a = graph.add %x, %c : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
      %b = graph.exp %a : (tensor<2xf32>) -> tensor<2xf32>
      func.return %b : tensor<2xf32>
    }""")
    )
    found, of = analyse_storage(function), named(function)
    assert [found.of(of[name]).kind for name in "cdab"] == ["constant", "constant", "unplanned", "result"]


def test_in_place_pairs_join_storages() -> None:
    module = apply(parse(CHAIN), WrapKernelsPass())
    function, (_, b, c) = function_of(module), kernels_of(module)
    b.inplace, c.inplace = int_array([0, 1]), int_array([0, 1])
    found, of = analyse_storage(function), named(function)
    assert found.of(of["b"]) is found.of(of["c"]) is found.of(of["y"])
    assert found.of(of["c"]).kind == "argument" and found.of(of["c"]).results == (0,)
    assert analyse_storage(function, {}).of(of["c"]).kind == "result"
    c.inplace = int_array([0, 0])
    assert analyse_storage(function).of(of["a"]).kind == "result"


def test_keep_live_keeps_to_the_end() -> None:
    module = apply(parse(CHAIN), WrapKernelsPass())
    kernels_of(module)[0].attributes["keep_live"] = UnitAttr()
    found = analyse_storage(function_of(module))
    assert found.of(kernels_of(module)[0].results[0]).death == found.steps


def test_an_op_of_another_dialect_may_keep_what_it_uses() -> None:
    module = apply(
        parse("""
    func.func private @log(%x: tensor<8xf32>) -> ()
    func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
      %a = graph.exp %x : (tensor<8xf32>) -> tensor<8xf32>
      func.call @log(%a) : (tensor<8xf32>) -> ()
      %b = graph.exp %a : (tensor<8xf32>) -> tensor<8xf32>
      func.return %b : tensor<8xf32>
    }"""),
        WrapKernelsPass(),
    )
    found = analyse_storage(function_of(module))
    assert found.of(kernels_of(module)[0].results[0]).death == found.steps


def test_declarations_and_functions_of_several_blocks_are_left_alone() -> None:
    module = parse_with_branches("""
    func.func private @declared(tensor<8xf32>) -> tensor<8xf32>
    func.func @branches(%x: tensor<8xf32>) -> tensor<8xf32> {
      "cf.br"(%x)[^next] : (tensor<8xf32>) -> ()
    ^next(%y: tensor<8xf32>):
      func.return %y : tensor<8xf32>
    }
    func.func @main() -> () {
      func.return
    }""")
    assert [function.sym_name.data for function in functions_of(module)] == ["main"]


@pytest.mark.parametrize("seed", range(20))
def test_lifetimes_agree_with_a_naive_scan(seed: int) -> None:
    rng = random.Random(seed)
    function = function_of(apply(parse(random_program(rng, 20)), WrapKernelsPass()))
    found, ops = analyse_storage(function), list(function.body.block.ops)
    assert len({id(found.of(value)) for s in found.storages for value in s.values}) == len(found.storages)
    for storage in found.storages:
        if storage.kind != "intermediate":
            continue
        uses = [step for step, op in enumerate(ops) if any(found.of(v) is storage for v in op.operands)]
        births = [step for step, op in enumerate(ops) if any(found.of(v) is storage for v in op.results)]
        assert (storage.birth, storage.death) == (births[0], max(births[:1] + uses) + 1)
        assert isinstance(ops[births[0]], KernelOp)
