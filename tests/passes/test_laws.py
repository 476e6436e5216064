"""The laws of passes, over the registry: verified, same values, idempotent, deterministic, printable; each pass alone.

A failure names the seed and the passes; `random_program(seed)` makes the program again. `FUSE_OPT_FUZZ_CASES=20` runs
twenty times as many. Sequences of passes are in test_random_programs.py.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from draws import draws
from ir_testing import (
    apply,
    assert_same_bits,
    evaluate,
    parse,
    random_arguments,
    text_of,
)
from laws import (
    CONVERSIONS,
    FUSIONS,
    OPTIMIZATIONS,
    Subject,
    compiled_fault,
    grouping_fault,
    parses_to_itself,
    pass_fault,
)
from program_generator import dense_program, random_program, with_unknown_extents
from xdsl.utils.exceptions import PassFailedException

from fuse_opt.passes.remarks import RefusedError, location
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE, UsageError
from fuse_opt.tools.compiler.registry import available_passes

PROGRAMS = draws(10)
PER_PASS = draws(3)

STATES = ("", "fuse-elementwise,fuse-row", "decompose,fuse-row,wrap-kernels")
"""What a program has been through before the pass under test sees it; the empty one is raw IR."""

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.mlir"))


@cache
def program(seed: int) -> Subject:
    return Subject.of(text_of(random_program(seed)), seed)


@cache
def prepared(seed: int) -> Subject:
    """The program's text in one of STATES, with its own values."""
    subject, state = program(seed), STATES[seed % len(STATES)]
    text = text_of(apply(parse(subject.text), state)) if state else subject.text
    return Subject(text, subject.arguments, subject.values)


@pytest.mark.parametrize("name", OPTIMIZATIONS)
def test_options_that_count_are_not_negative(name: str) -> None:
    class_ = available_passes()[name]()
    hints = get_type_hints(class_)
    for option in (field.name for field in fields(class_) if int in (hints[field.name], *get_args(hints[field.name]))):
        with pytest.raises((UsageError, RefusedError), match=f"{option.replace('_', '-')}.*, got -1"):
            apply(parse("builtin.module {}"), [f"{name}{{{option.replace('_', '-')}=-1}}"])


@pytest.mark.parametrize("name", OPTIMIZATIONS)
def test_pass_keeps_the_laws(name: str) -> None:
    for seed in PER_PASS:
        assert not pass_fault(prepared(seed), [name], generic=True), (
            f"(seed {seed}, {name} after '{STATES[seed % len(STATES)]}')"
        )


@pytest.mark.parametrize("name", CONVERSIONS)
@pytest.mark.parametrize("state", ["", "decompose,fuse-row,wrap-kernels"])
def test_conversion_succeeds_or_says_where_it_cannot(name: str, state: str) -> None:
    for seed in PER_PASS[::3]:
        text = program(seed).text
        text = text_of(apply(parse(text), state)) if state else text
        assert convert(text, name) == convert(text, name), f"not deterministic (seed {seed}, {name} after '{state}')"


def convert(text: str, name: str) -> str:
    """The converted text, which parses to itself, or the located refusal."""
    module = parse(text)
    try:
        apply(module, name)
    except PassFailedException as error:
        op = getattr(error, "op", None)
        assert op is not None and location(op) != "-", f"the refusal names no place: {error}"
        return f"{location(op)}: {error}"
    once = text_of(module)
    assert parses_to_itself(once)
    return once


@pytest.mark.parametrize("name", FUSIONS)
def test_fusion_does_not_depend_on_the_order_of_ops(name: str) -> None:
    """The same ops in another topological order come into the same kernels, where a limit makes the pass choose, too."""
    for seed in PROGRAMS[:10]:
        text = text_of(dense_program(seed) if seed % 2 else random_program(seed))
        for passes in ([name], [f"{name}{{max-ops=3}}"])[: 1 + seed % 2]:
            assert not grouping_fault(text, passes, [seed]), f"(seed {seed}, {passes[0]})"


def shrunk(path: Path) -> str:
    """An example's text with every extent from 56 on made 4 to 16 times smaller, in types and attributes alike."""
    smaller = {56: 14}
    text = path.read_text()
    return re.sub(
        r"(?<=[<x ])\d+(?=[x,>])",
        lambda match: str(smaller.get(n := int(match[0]), n // 16 if n % 64 == 0 else n)),
        text,
    )


@pytest.mark.sampled(5)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_prefix_of_the_default_pipeline_is_a_program(path: Path) -> None:
    module = parse(shrunk(path))
    arguments = random_arguments(module, 1)
    for value in arguments:
        value[...] = abs(value)  # variances and second moments are positive
    values = evaluate(module, arguments)
    text = text_of(module)
    for number, name in enumerate(DEFAULT_PIPELINE):
        before, text = text, text_of(apply(module, name))
        if text != before:
            module = parse(text)
            assert text_of(module) == text, f"after {number} {name}"
            assert_same_bits(evaluate(module, arguments), values, f"after {number} {name}")


@pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="no C compiler")
def test_compiled_programs_agree_with_the_reference() -> None:
    for seed in [seed for seed in PROGRAMS if seed % 2][:12]:
        assert not (fault := compiled_fault(program(seed))), f"(seed {seed}) {fault}"


@cache
def unknown_extents(seed: int) -> str | None:
    """The program with unknown extents, where some of its own can be."""
    module = random_program(seed)
    return text_of(module) if with_unknown_extents(module, seed) else None


@pytest.mark.sampled(24)
@pytest.mark.parametrize("name", OPTIMIZATIONS)
def test_unknown_extents_break_no_pass(name: str) -> None:
    tried = 0
    for seed in PER_PASS:
        if (text := unknown_extents(seed)) is None:
            continue
        tried += 1
        once = text_of(apply(parse(text), name))
        assert parses_to_itself(once), f"the text does not parse to itself (seed {seed}, {name})"
        assert text_of(apply(parse(once), name)) == once, f"not idempotent (seed {seed}, {name})"
    assert tried > len(PER_PASS) // 4


FOUND_BY_FUZZING = {
    "a plan is stale when in-place pairs change after it": (
        "wrap-kernels,plan-memory,infer-inplace",
        """
        func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {
          %0 = graph.exp %x : (tensor<64xf32>) -> tensor<64xf32>
          %1 = graph.tanh %0 : (tensor<64xf32>) -> tensor<64xf32>
          func.return %1 : tensor<64xf32>
        }""",
    ),
    "a planned value becomes the one that is returned": (
        "fuse-siblings,plan-memory,canonicalize",
        """
        func.func @main(%a0: tensor<ui8>) -> (tensor<ui8>, tensor<ui8>) {
          %v0 = graph.fmax %a0, %a0 : (tensor<ui8>, tensor<ui8>) -> tensor<ui8>
          %v1 = graph.all %v0 {keepdims = false} : (tensor<ui8>) -> tensor<ui8>
          %v2 = graph.prod %v0 {keepdims = true} : (tensor<ui8>) -> tensor<ui8>
          %v4 = graph.bitwise_left_shift %a0, %v1 : (tensor<ui8>, tensor<ui8>) -> tensor<ui8>
          %v8 = graph.broadcast_to %v2 {shape = array<i64>} : (tensor<ui8>) -> tensor<ui8>
          %v9 = graph.square %v4 : (tensor<ui8>) -> tensor<ui8>
          %v10 = graph.any %v8 {keepdims = true} : (tensor<ui8>) -> tensor<ui8>
          %v13 = graph.pow %v2, %v9 : (tensor<ui8>, tensor<ui8>) -> tensor<ui8>
          %v17 = graph.pow %v13, %v13 : (tensor<ui8>, tensor<ui8>) -> tensor<ui8>
          %v18 = graph.fmod %v17, %v17 : (tensor<ui8>, tensor<ui8>) -> tensor<ui8>
          func.return %v10, %v18 : tensor<ui8>, tensor<ui8>
        }""",
    ),
    "a number of a loss is too large for its element type": (
        "decompose",
        """
        func.func @main(%g: tensor<f32>, %x: tensor<1x5xf32>) -> tensor<1x5xf32> {
          %0 = graph.smooth_l1_loss_backward %g, %x, %x {beta = 1.0e300 : f64, reduction = "mean"}
            : (tensor<f32>, tensor<1x5xf32>, tensor<1x5xf32>) -> tensor<1x5xf32>
          func.return %0 : tensor<1x5xf32>
        }""",
    ),
    "a mean of nothing has a NaN for a constant": (
        "decompose",
        """
        func.func @main(%x: tensor<0xf32>) -> tensor<f32> {
          %0 = graph.mean %x : (tensor<0xf32>) -> tensor<f32>
          func.return %0 : tensor<f32>
        }""",
    ),
    "a constant of no elements": (
        "canonicalize,fuse-elementwise",
        """
        func.func @main(%x: tensor<f32>) -> tensor<0xf32> {
          %0 = graph.constant dense<> : tensor<0xf32>
          %1 = graph.add %0, %x : (tensor<0xf32>, tensor<f32>) -> tensor<0xf32>
          func.return %1 : tensor<0xf32>
        }""",
    ),
    "softmax along an empty axis": (
        "decompose,fuse-row",
        """
        func.func @main(%x: tensor<3x0xf32>) -> tensor<3x0xf32> {
          %0 = graph.softmax %x : (tensor<3x0xf32>) -> tensor<3x0xf32>
          func.return %0 : tensor<3x0xf32>
        }""",
    ),
    "floats that decimals do not give back": (
        "cse",
        """
        func.func @main() -> (tensor<f32>, tensor<2xf64>, tensor<2xf16>) {
          %0 = graph.constant dense<123456792.0> : tensor<f32>
          %1 = graph.constant dense<[9007199254740993.0, 0xFFF0000000000000]> : tensor<2xf64>
          %2 = graph.constant dense<0x7E00> : tensor<2xf16>
          func.return %0, %1, %2 : tensor<f32>, tensor<2xf64>, tensor<2xf16>
        }""",
    ),
    "a kernel of aliases only is fused no further by a second run": (
        "fuse-injective",
        """
        func.func @main(%z: tensor<f32>, %y: tensor<2x3xf32>, %x: tensor<192xf32>) {
          %0 = graph.slice %x {starts = array<i64: 0>, stops = array<i64: 3>} : (tensor<192xf32>) -> tensor<3xf32>
          %1 = graph.reshape %0 {shape = array<i64: 1, 3, 1>} : (tensor<3xf32>) -> tensor<1x3x1xf32>
          %2 = graph.squeeze %1 : (tensor<1x3x1xf32>) -> tensor<3xf32>
          %3 = graph.reshape %0 {shape = array<i64: 3, 1>} : (tensor<3xf32>) -> tensor<3x1xf32>
          %4 = graph.binary_cross_entropy_backward %z, %3, %3 {reduction = "sum"}
            : (tensor<f32>, tensor<3x1xf32>, tensor<3x1xf32>) -> tensor<3x1xf32>
          %5 = graph.multiply %y, %2 : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
          func.return
        }""",
    ),
    "results of a kernel that are read at other places each are counted as its ops are": (
        "fuse-siblings,decompose,fuse-injective",
        """
        func.func @main(%x: tensor<2x1x1x1xf32>) -> (tensor<2x1x1x1xf32>, tensor<2x1x1x1x1xf32>, tensor<2xf32>) {
          %0 = graph.global_avg_pool %x : (tensor<2x1x1x1xf32>) -> tensor<2x1x1x1xf32>
          %1 = graph.relu %0 : (tensor<2x1x1x1xf32>) -> tensor<2x1x1x1xf32>
          %2 = graph.hypot %0, %x : (tensor<2x1x1x1xf32>, tensor<2x1x1x1xf32>) -> tensor<2x1x1x1xf32>
          %3 = graph.reshape %1 {shape = array<i64: 2, 1, 1, 1, 1>} : (tensor<2x1x1x1xf32>) -> tensor<2x1x1x1x1xf32>
          %4 = graph.reshape %0 {shape = array<i64: 2>} : (tensor<2x1x1x1xf32>) -> tensor<2xf32>
          func.return %2, %3, %4 : tensor<2x1x1x1xf32>, tensor<2x1x1x1x1xf32>, tensor<2xf32>
        }""",
    ),
    "a product of a broadcast value has the bits of the product of a stored one": (
        "fold-constants",
        """
        func.func @main(%x: tensor<4x2xf64>) -> tensor<2x1x2xf64> {
          %0 = graph.constant dense<0.5> : tensor<2x1x4xf64>
          %1 = graph.hard_sigmoid %0 : (tensor<2x1x4xf64>) -> tensor<2x1x4xf64>
          %2 = graph.matmul %1, %x : (tensor<2x1x4xf64>, tensor<4x2xf64>) -> tensor<2x1x2xf64>
          func.return %2 : tensor<2x1x2xf64>
        }""",
    ),
    "a constant in place of a value that lies in another order": (
        "canonicalize",
        """
        func.func @main(%x: tensor<4x2xi32, #graph.order<1, 0>>) -> tensor<4x2xi32, #graph.order<1, 0>> {
          %0 = graph.subtract %x, %x : (tensor<4x2xi32, #graph.order<1, 0>>, tensor<4x2xi32, #graph.order<1, 0>>)
            -> tensor<4x2xi32, #graph.order<1, 0>>
          func.return %0 : tensor<4x2xi32, #graph.order<1, 0>>
        }""",
    ),
    "a convolution without channels": (
        "wrap-kernels",
        """
        func.func @main(%x: tensor<2x0x5xf32>, %w: tensor<4x0x3xf32>) -> tensor<2x4x3xf32> {
          %0 = graph.conv %x, %w : (tensor<2x0x5xf32>, tensor<4x0x3xf32>) -> tensor<2x4x3xf32>
          func.return %0 : tensor<2x4x3xf32>
        }""",
    ),
}


@pytest.mark.parametrize("name", FOUND_BY_FUZZING)
def test_found_by_fuzzing(name: str) -> None:
    passes, source = FOUND_BY_FUZZING[name]
    module = parse(source)
    text = text_of(module)
    assert text_of(parse(text)) == text and text_of(parse(text_of(module, generic=True))) == text
    arguments = random_arguments(module, 1)
    values = evaluate(module, arguments)
    result = apply(parse(text), passes)
    assert_same_bits(evaluate(result, arguments), values)
    once = text_of(result)
    assert text_of(parse(once)) == once
    assert text_of(apply(result, passes.split(",")[-1:])) == once, "not idempotent"


def test_floats_in_hexadecimal_are_bits() -> None:
    module = parse(
        "func.func @main() -> tensor<2xf32> {\n  %0 = graph.constant dense<[0x7F800000, 0x3F800000]> : tensor<2xf32>\n"
        "  func.return %0 : tensor<2xf32>\n}"
    )
    assert evaluate(module, [])[0].tolist() == [float("inf"), 1.0]
