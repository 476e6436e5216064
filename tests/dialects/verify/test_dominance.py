"""Dominance of definitions over uses, which xDSL itself does not verify."""

import time

import pytest
from xdsl.dialects.builtin import ModuleOp

from fuse_opt.dialects.verify.dominance import DominanceError, verify_dominance, walk
from fuse_opt.tools.compiler.registry import make_context
from fuse_opt.tools.source.parsing import parse_module

T = "tensor<4xf32>"


def parsed(text: str) -> ModuleOp:
    return parse_module(text, "test.mlir", make_context())


def fault(text: str) -> str:
    with pytest.raises(DominanceError) as caught:
        verify_dominance(parsed(text))
    return f"{caught.value.op.name}: {caught.value}"


def function(body: str) -> str:
    return f"func.func @f(%c: i1, %x: {T}) -> {T} {{\n{body}\n}}"


ABS = f"graph.abs %{{}} : ({T}) -> {T}"


def test_definitions_in_order():
    verify_dominance(parsed(function(f"%0 = {ABS.format('x')}\n%1 = {ABS.format('0')}\nfunc.return %1 : {T}")))


def test_use_before_definition():
    text = function(f"%1 = {ABS.format('0')}\n%0 = {ABS.format('x')}\nfunc.return %1 : {T}")
    assert fault(text) == "graph.abs: 'graph.abs' operand 0: the value is used before its definition"


def test_use_of_itself():
    assert "before its definition" in fault(function(f"%0 = {ABS.format('0')}\nfunc.return %0 : {T}"))


def test_value_of_another_function():
    text = f"func.func @a() {{\n%1 = {ABS.format('x')}\nfunc.return\n}}\n" + function(f"func.return %x : {T}")
    assert "defined in another region" in fault(text)


def test_value_from_outside_an_isolated_region():
    kernel = f"%k = fused.kernel() -> ({T}) {{\n%0 = {ABS.format('x')}\nfused.yield %0 : {T}\n}}"
    assert "outside of the enclosing 'fused.kernel'" in fault(function(f"{kernel}\nfunc.return %k : {T}"))


def test_value_of_a_nested_region():
    loop = f'"scf.if"(%c) ({{\n%0 = {ABS.format("x")}\nscf.yield\n}}, {{\n}}) : (i1) -> ()'
    text = function(f"{loop}\nfunc.return %x : {T}")
    verify_dominance(parsed(text))
    module = parsed(text)
    inner = next(op for op in walk(module) if op.name == "graph.abs")
    last = next(op for op in walk(module) if op.name == "func.return")
    last.operands = [inner.results[0]]
    with pytest.raises(DominanceError, match="defined in another region"):
        verify_dominance(module)


def test_result_of_the_op_around():
    text = function(
        f'%0 = "scf.if"(%c) ({{\nscf.yield %0 : {T}\n}}, {{\nscf.yield %x : {T}\n}}) : (i1) -> {T}\nfunc.return %0 : {T}'
    )
    assert "result of the op whose region uses it" in fault(text)


BRANCHES = f"""
cf.cond_br %c, ^a, ^b
^a:
  %0 = {ABS.format("x")}
  cf.br ^join
^b:
  cf.br ^join
^join:
  %1 = {ABS.format("{}")}
  func.return %1 : {T}
"""


def test_blocks():
    verify_dominance(parsed(function(BRANCHES.format("x"))))
    assert "does not dominate" in fault(function(BRANCHES.format("0")))


def test_loop_of_blocks():
    body = f"""
  %0 = {ABS.format("x")}
  cf.br ^head
^head:
  cf.cond_br %c, ^body, ^exit
^body:
  %1 = {ABS.format("0")}
  cf.br ^head
^exit:
  func.return %{{}} : {T}
"""
    verify_dominance(parsed(function(body.format("0"))))
    assert "does not dominate" in fault(function(body.format("1")))


def test_unreachable_blocks_are_left_alone():
    dead = f"^dead:\n%0 = {ABS.format('x')}\ncf.br ^more\n^other:\nfunc.return %0 : {T}\n^more:\nfunc.return %0 : {T}"
    verify_dominance(parsed(function(f"func.return %x : {T}\n{dead}")))


def seconds(count: int) -> float:
    lines = [f"%v{n + 1} = {ABS.format(f'v{n}')}" for n in range(count)]
    module = parsed(f"func.func @f(%v0: {T}) -> {T} {{\n" + "\n".join(lines) + f"\nfunc.return %v{count} : {T}\n}}")
    start = time.process_time()
    verify_dominance(module)
    return time.process_time() - start


def test_time_grows_with_the_number_of_ops():
    seconds(100)
    assert seconds(8000) < 40 * max(seconds(1000), 1e-3)
