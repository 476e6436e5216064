"""Attributes that programs repeat are read once for each spelling, and are what xDSL reads."""

from __future__ import annotations

import pytest
from ir_testing import CONTEXT
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from fuse_opt.tools.source import literals
from fuse_opt.tools.source.diagnostics import InputError
from fuse_opt.tools.source.parsing import parse_module

SPELLINGS = (
    "array<i64>",
    "array<i64: 1, -2,3>",
    "array<i1: 1>",
    "dense<1.5> : tensor<f32>",
    "dense<-1.5e-3> : tensor<2x3xbf16>",
    "dense<0x7F800000> : tensor<f32>",
    "dense<7> : tensor<4xi8>",
    "dense<7> : tensor<4xindex>",
)
BAD = (
    "array<i8: 300>",
    "array<i64: 1,>",
    "dense<1.5> : tensor<i32>",
    "dense<1.5> : tensor<?xf32>",
    "dense<1.5> : tensor<4xf32",
)


def module_of(spelling: str) -> str:
    return f'"test.op"() {{a = {spelling}, b = 1 : i32}} : () -> ()'


def attributes(module: ModuleOp) -> dict[str, object]:
    (op,) = module.ops
    return {name: value for name, value in op.attributes.items() if name in "ab"}


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(literals, "_ATTRIBUTES", {})


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_second_time_gives_what_xdsl_reads(spelling: str) -> None:
    context = CONTEXT.clone()
    context.allow_unregistered = True
    text = module_of(spelling)
    first, second = (attributes(parse_module(text, "a.mlir", context)) for _ in range(2))
    assert first == second and len(second) == 2
    assert first["a"] is second["a"]
    if "0x" not in spelling:  # which xDSL takes for the number that the digits spell
        assert second == attributes(Parser(context, text).parse_module())


@pytest.mark.parametrize("spelling", BAD)
def test_a_wrong_one_is_refused_each_time(spelling: str) -> None:
    context = CONTEXT.clone()
    context.allow_unregistered = True
    messages = list[str]()
    for _ in range(2):
        with pytest.raises(InputError) as error:
            parse_module(module_of(spelling), "a.mlir", context)
        messages.append(str(error.value))
    assert messages[0] == messages[1]


def test_what_is_known_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(literals, "_MOST_ATTRIBUTES", 4)
    context = CONTEXT.clone()
    context.allow_unregistered = True
    for number in range(11):
        parse_module(module_of(f"array<i64: {number}>"), "a.mlir", context)
    assert len(literals._ATTRIBUTES) <= 4  # pyright: ignore[reportPrivateUsage]
