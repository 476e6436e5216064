"""Programs that a pass, a target or an option refuses: one located line with what is wrong, and no traceback."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest
from xdsl.parser import Parser

from fuse_opt.tools.commands.fuse_opt_main import main
from fuse_opt.tools.compiler.registry import make_context
from fuse_opt.tools.source.parsing import parse_module

HUGE = "tensor<4611686018427387904x8xf32>"
"""More than 2**64 bytes."""
LARGE = "tensor<4611686018427387904xi8>"
"""2**62 bytes: three of them are more than offsets count."""

TOO_LARGE = f"""\
func.func @main(%x: tensor<f32>) -> tensor<f32> {{
  %b = graph.broadcast_to %x {{shape = array<i64: 4611686018427387904, 8>}} : (tensor<f32>) -> {HUGE}
  %t = graph.tanh %b : ({HUGE}) -> {HUGE}
  %s = graph.sum %t : ({HUGE}) -> tensor<f32>
  func.return %s : tensor<f32>
}}
"""
TOO_LARGE_TOGETHER = f"""\
func.func @main(%x: {LARGE}) -> tensor<i8> {{
  %a = graph.bitwise_not %x : ({LARGE}) -> {LARGE}
  %b = graph.square %a : ({LARGE}) -> {LARGE}
  %c = graph.add %a, %b : ({LARGE}, {LARGE}) -> {LARGE}
  %s = graph.max %c : ({LARGE}) -> tensor<i8>
  func.return %s : tensor<i8>
}}
"""

REFUSED: dict[str, tuple[str, str, str]] = {
    "a value of 2**64 bytes has no place in an arena": (
        TOO_LARGE,
        "--wrap-kernels --plan-memory",
        "2:3: error: 'fused.kernel': %b has the type .*; expected fewer than 2\\*\\*63 bytes",
    ),
    "a value of 2**64 bytes has no place in C": (
        TOO_LARGE,
        "--wrap-kernels --schedule-kernels -t c",
        "2:3: error: 'fused.kernel': %b has the type .*; expected fewer than 2\\*\\*63 bytes",
    ),
    "a constant that no memory holds": (
        "func.func @main() -> tensor<100000x100000xi8> {\n"
        "  %0 = graph.constant dense<1> : tensor<100000x100000xi8>\n"
        "  func.return %0 : tensor<100000x100000xi8>\n}\n",
        "--canonicalize",
        "2:57: error: a constant of 10000000000 elements is too large to be kept; graph.full makes one from nothing",
    ),
    "an arena of 2**63 bytes is not planned": (
        TOO_LARGE_TOGETHER,
        "--wrap-kernels --plan-memory",
        "1:1: error: 'plan-memory': the arena needs 13835058055282163712 bytes; expected fewer than 2\\*\\*63",
    ),
    "an arena of 2**63 bytes has no C": (
        TOO_LARGE_TOGETHER,
        "--wrap-kernels --schedule-kernels -t c",
        "1:1: error: 'func.func': the arena has 13835058055282163712 bytes; expected fewer than 2\\*\\*63",
    ),
}


LOWERED = """\
func.func @main(%x: memref<4xf32>, %out: memref<4xf32>) attributes {fused.results = [RESULT]} {
  %c = arith.constant 1 : index
  BODY
  func.return
}
func.func private @kernel(%a: memref<4xf32>, %b: memref<4xf32>, %n: index) attributes {fused.grain = 1 : i64}
"""
"""A lowered program, edited by hand."""

BUFFER = '{kind = "buffer", type = memref<4xf32>}'

FOUND_BY_MUTATION: dict[str, tuple[str, str, str]] = {
    "what is not verified is not dumped: a function without a type": (
        '"func.func"() ({\n  "func.return"() : () -> ()\n}) {sym_name = "main"} : () -> ()\n',
        "--canonicalize --print-ir-after-change",
        "2:3: error: 'func.return' is not valid: its verifier ends with KeyError: 'function_type'",
    ),
    "what is not verified is not dumped: a function whose name is none": (
        '"func.func"() <{sym_name = {}, function_type = () -> ()}> ({\n  "func.return"() : () -> ()\n}) : () -> ()\n',
        "--cse --print-ir-after-change",
        "1:1: error: 'func.func' .* should be a string",
    ),
    "a lowered program returns a constant that is not there": (
        LOWERED.replace("RESULT", '{kind = "constant", symbol = "constant_0", type = memref<4xf32>}').replace(
            "BODY", ""
        ),
        "-t c",
        "1:1: error: 'func.func' is not as programs on buffers have it .*; convert the program again",
    ),
    "a lowered program returns a result that is not there": (
        LOWERED.replace("RESULT", '{kind = "result", number = 7 : i64, type = memref<4xf32>}').replace("BODY", ""),
        "-t c",
        "1:1: error: 'func.func' is not as programs on buffers have it .*; convert the program again",
    ),
    "a lowered program has results of no kind": (
        LOWERED.replace("RESULT", "{}").replace("BODY", ""),
        "-t cuda",
        "1:1: error: 'func.func' is not as programs on buffers have it .*; convert the program again",
    ),
    "an offset of a lowered program is no number": (
        LOWERED.replace("RESULT", BUFFER)
        .replace("%out: memref<4xf32>)", "%m: memref<64xi8>, %out: memref<4xf32>)")
        .replace("arith.constant 1 : index", '"test.op"() : () -> index')
        .replace("BODY", "%v = memref.view %m[%c][] : memref<64xi8> to memref<4xf32>"),
        "-t c --allow-unregistered-dialect",
        "[23]:3: error: .*",
    ),
}
"""What mutate_texts.py has found, each as small as it shows."""


@pytest.mark.parametrize("name", [*REFUSED, *FOUND_BY_MUTATION])
def test_refused_with_one_located_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, flags, expected = {**REFUSED, **FOUND_BY_MUTATION}[name]
    (path := tmp_path / "program.mlir").write_text(text)
    assert main([str(path), *flags.split()]) == 1
    output, errors = capsys.readouterr()
    assert output == ""
    assert re.fullmatch(f"{re.escape(str(path))}:{expected}\n", errors), errors


@pytest.mark.parametrize("name", ['q"uote\\.mlir', "naïve–λ.mlir", "tab\tand\nline.mlir", b"latin\xe9.mlir"])
def test_locations_are_read_back_whatever_the_file_is_called(
    name: str | bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = os.path.join(tmp_path, os.fsdecode(name))
    Path(path).write_text("func.func @main() {\n  func.return\n}\n")
    assert main([path, "--print-debuginfo"]) == 0
    printed = capsys.readouterr().out
    assert printed.count('loc("') == 3
    (again := tmp_path / "again.mlir").write_text(printed)
    assert main([str(again), "--print-debuginfo"]) == 0
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize(
    "literal",
    [
        "dense<1> : tensor<3xi8>", "dense<-1> : tensor<2x2xi64>", "dense<true> : tensor<4xi1>", "dense<1.5e+01> : tensor<3xf32>",
        "dense<7> : tensor<f32>", "dense<255> : tensor<2xui8>", "dense<1> : tensor<0x4xi8>",
        "dense<-0.0> : tensor<2xf64>", "dense<1.0> : tensor<2xbf16>", "dense<3> : vector<4xindex>", "dense<1> : tensor<2xi7>",
    ],
)  # fmt: skip
def test_one_number_for_all_elements_is_what_it_is_to_xdsl(literal: str) -> None:
    """It is read in another way here: by bytes, not by lists."""
    ours = parse_module(f"builtin.module attributes {{a = {literal}}} {{}}", "test.mlir", make_context())
    assert ours.attributes["a"] == Parser(make_context(), literal).parse_attribute()


def test_a_large_splat_is_read_soon() -> None:
    """Ten million elements took seconds, and hundreds of megabytes."""
    started = time.process_time()
    parse_module("builtin.module attributes {a = dense<1> : tensor<10000000xi8>} {}", "test.mlir", make_context())
    assert time.process_time() - started < 1.0


def test_text_beyond_ascii_is_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path := tmp_path / "program.mlir").write_text('builtin.module attributes {a = "λ", b = "\\FF"} {\n}\n')
    assert main([str(path)]) == 0
    printed = capsys.readouterr().out
    assert printed == 'builtin.module attributes {a = "\\CE\\BB", b = "\\FF"} {\n}\n'
    path.write_text(printed)
    assert main([str(path)]) == 0
    assert capsys.readouterr().out == printed
