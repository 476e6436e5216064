"""hoist-frozen at the size of models: thousands of frozen arguments, each with a conversion of its own, or all in one sum."""

from __future__ import annotations

import time

import pytest
from ir_testing import CONTEXT, apply, function, parse
from xdsl.dialects.func import FuncOp

from fuse_opt.passes.frozen.hoist_frozen import HoistFrozenPass
from fuse_opt.passes.remarks import collect

T = "tensor<8xf32>"


def conversions(count: int) -> str:
    """Every argument is converted, and multiplied."""
    arguments = ", ".join(f"%w{n}: tensor<8xf16> {{graph.frozen}}" for n in range(count))
    lines = [
        f"""  %a{n} = graph.astype %w{n} {{dtype = f32}} : (tensor<8xf16>) -> {T}
  %x{n + 1} = graph.multiply %x{n}, %a{n} : ({T}, {T}) -> {T}"""
        for n in range(count)
    ]
    return f"func.func @main(%x0: {T}, {arguments}) -> {T} {{\n" + "\n".join(
        [*lines, f"  func.return %x{count} : {T}\n}}"]
    )


def total(count: int) -> str:
    """Every partial sum is made from one argument more."""
    arguments = ", ".join(f"%w{n}: {T} {{graph.frozen}}" for n in range(count))
    lines = [f"  %s0 = graph.add %w0, %w0 : ({T}, {T}) -> {T}"]
    lines += [f"  %s{n} = graph.add %s{n - 1}, %w{n} : ({T}, {T}) -> {T}" for n in range(1, count)]
    lines += [f"  %y = graph.add %x, %s{count - 1} : ({T}, {T}) -> {T}", f"  func.return %y : {T}", "}"]
    return f"func.func @main(%x: {T}, {arguments}) -> {T} {{\n" + "\n".join(lines)


def seconds(text: str) -> float:
    module = parse(text)
    start = time.process_time()
    HoistFrozenPass().apply(CONTEXT, module)
    return time.process_time() - start


@pytest.mark.parametrize("text", [conversions, total], ids=["conversions", "total"])
def test_time_grows_with_the_number_of_arguments(text: object) -> None:
    assert callable(text)
    few, many = (min(seconds(str(text(count))) for _ in range(2)) for count in (300, 2400))
    assert many < 24 * few  # 64 times where every argument costs what all of them do; 12 was measured


def test_what_is_given_comes_in_order() -> None:
    module = apply(parse(conversions(5)), [HoistFrozenPass()])
    main, prepare = (op for op in module.ops if isinstance(op, FuncOp))
    assert main is function(module)
    names = [argument.name_hint for argument in main.body.block.args]
    assert names == ["x0", "w0", "w1", "w2", "w3", "w4", "a0", "a1", "a2", "a3", "a4"]
    assert [argument.index for argument in main.body.block.args] == list(range(11))
    assert [str(kind) for kind in prepare.function_type.outputs] == [T] * 5


def test_bytes_of_sets_of_arguments() -> None:
    """A sum of sums is as large as all arguments together, each counted once."""
    with collect() as remarks:
        apply(parse(total(9)), [HoistFrozenPass()])
    (hoisted,) = [remark for remark in remarks if remark.code == "hoisted"]
    assert dict(hoisted.numbers) == {"bytes": 32, "from_bytes": 9 * 32}
