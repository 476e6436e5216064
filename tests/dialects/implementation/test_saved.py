"""What an implementation leaves beside its op's results, for a backward pass: in the text, planned, verified, refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from ir_testing import kernels, parse
from xdsl.utils.exceptions import VerifyException

import fuse_opt
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.implementation.offers import forget_backend
from fuse_opt.dialects.implementation.site import Saved, saved_of
from fuse_opt.dialects.interfaces.properties import int_array
from fuse_opt.dialects.verify.memory_plan import verify_plans
from fuse_opt.passes.remarks import collect
from fuse_opt.tools.compiler import backend_switch

NORM = """
import numpy as np
from fuse_opt.backend import Backend, Cost
backend = Backend("{name}")

def saves(site, saved):
    if saved.op != "graph.var_mean" or saved.operands != (0,):
        return "op"
    return "correction" if dict(saved.config).get("correction", 0) else None

@backend.implementation("graph.layer_norm", cost=lambda site: Cost(call=1e-9){more})
def layer_norm(inputs, outputs, config):
    x, *scale = inputs
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    outputs[0][...] = (x - mean) / np.sqrt(variance + 1e-5) * (scale[0] if scale else 1)
    assert len(outputs) == (3 if config.get("fused.saved") else 1)
    for out, value in zip(outputs[1:], (variance, mean)):
        out[...] = value.reshape(out.shape)
"""
M, R = "tensor<8x32xf32>", "tensor<8x1xf32>"
TEXT = f"""
func.func @main(%x: {M}, %g: {M}) -> ({M}, {M}) {{
  %v, %m = graph.var_mean %x {{axes = array<i64: 1>, keepdims = true}} : ({M}) -> ({R}, {R})
  %y = graph.layer_norm %x : ({M}) -> {M}
  %c = graph.subtract %g, %m : ({M}, {R}) -> {M}
  %d = graph.multiply %c, %v : ({M}, {R}) -> {M}
  func.return %y, %d : {M}, {M}
}}
"""
"""The gradient's side reads what the forward side worked out."""


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    yield
    for name in ("leaves", "wrong"):
        forget_backend(name)
    backend_switch.forget_files()


def file_of(folder: Path, name: str = "leaves", more: str = ", saves=saves") -> str:
    path = folder / f"{name}.py"
    path.write_text(NORM.format(name=name, more=more), encoding="utf-8")
    return str(path)


def norm_of(program: fuse_opt.CompiledProgram) -> KernelOp:
    (found,) = [kernel for kernel in kernels(program.module) if kernel.implementation is not None]
    return found


def arrays(count: int = 2) -> list[np.ndarray]:
    return [np.random.default_rng(n).standard_normal((8, 32)).astype(np.float32) for n in range(count)]


def check_values(program: fuse_opt.CompiledProgram, text: str = TEXT) -> None:
    for found, expected in zip(program(*arrays()), fuse_opt.evaluate(text, *arrays()), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_it_is_in_the_text_and_the_plan(tmp_path: Path) -> None:
    path = file_of(tmp_path)
    with collect() as found:
        program = fuse_opt.compile(TEXT, backend=path, poison=True)
    check_values(program)
    (remark,) = [r for r in found if r.code == "saved"]
    assert "left by \"leaves.layer_norm\" beside the result of 'graph.layer_norm'" in remark.message
    kernel = norm_of(program)
    assert 'saved = array<i64: 1, 2>, schedule = {kind = "library"}, slots = array<i64: -1, 0, 64>' in str(kernel)
    assert program.stats.library_calls == 1 and program.stats.arena_bytes == 128, (
        "both statistics live until they are read"
    )
    verify_plans(program.module)
    again = fuse_opt.compile(str(program.module), backend=path)
    assert str(again.module) == str(program.module)
    check_values(again)


def test_nothing_is_left_where_nobody_says_so(tmp_path: Path) -> None:
    program = fuse_opt.compile(TEXT, backend=file_of(tmp_path, more=""))
    assert norm_of(program).saved is None and program.stats.arena_bytes == 0  # statistics are scalars of a row kernel
    check_values(program)


SCALED = f"""
  %s = graph.max %m {{axes = array<i64: 0, 1>}} : ({R}) -> tensor<f32>
  %w = graph.broadcast_to %s {{shape = array<i64: 32>}} : (tensor<f32>) -> tensor<32xf32>
  %y = graph.layer_norm %x, %w : ({M}, tensor<32xf32>) -> {M}"""
"""A normalization of which an operand is made of what might be left."""


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("keepdims = true}", "correction = 1.0 : f64, keepdims = true}", "correction"),
        (f"\n  %y = graph.layer_norm %x : ({M}) -> {M}", SCALED, "cycle"),
        ("keepdims = true}", "keepdims = true, no_fuse}", None),
    ],
)
def test_refusals(tmp_path: Path, old: str, new: str, reason: str | None) -> None:
    text = TEXT.replace(old, new)
    with collect() as found:
        program = fuse_opt.compile(text, backend=file_of(tmp_path))
    assert norm_of(program).saved is None
    refused = [dict(r.numbers)["refused"] for r in found if r.code == "not-saved"]
    assert refused == ([] if reason is None else [reason])
    check_values(program, text)


def test_a_text_that_says_too_much(tmp_path: Path) -> None:
    printed = str(fuse_opt.compile(TEXT, backend=file_of(tmp_path)).module)
    other = printed.replace("keepdims = true", "correction = 1.0 : f64, keepdims = true")
    with pytest.raises(
        fuse_opt.InputError, match=r"'saved': .* does not leave results \[1, 2\]: correction; run unfuse"
    ):
        fuse_opt.compile(other)
    unplanned = re.sub(r" attributes \{fused.arena = \{[^}]*\}\}|, slots = array<i64: [-0-9, ]*>", "", other)
    program = fuse_opt.compile(unplanned)  # where nothing is planned yet, the choice is made anew
    assert "saved" not in str(program.module) and not program.implementations
    check_values(program, TEXT.replace("keepdims = true", "correction = 1.0 : f64, keepdims = true"))
    for wrong in ((2,), (0, 1, 2), (1, 3), (2, 1)):
        kernel = next(k for k in kernels(parse(printed)) if k.saved is not None)
        kernel.saved = int_array(wrong)
        with pytest.raises(VerifyException, match="property 'saved': expected the numbers of the last results"):
            kernel.verify()


def test_without_its_backend_it_is_code_again(tmp_path: Path) -> None:
    path = file_of(tmp_path)
    printed = str(fuse_opt.compile(TEXT, backend=path).module).replace('"leaves", ', "")
    program = fuse_opt.compile(printed)
    assert "saved" not in str(program.module) and not program.implementations
    check_values(program)


@pytest.mark.parametrize("said", ["lambda site, saved: 1 / 0", "lambda site, saved: 3"])
def test_no_answer(tmp_path: Path, said: str) -> None:
    with pytest.raises(fuse_opt.InputError, match="'wrong.layer_norm'.* saves"):
        fuse_opt.compile(TEXT, backend=file_of(tmp_path, "wrong", f", saves={said}"))


def test_text_of_what_is_left() -> None:
    saved = Saved("graph.var_mean", (("axes", (1, -1)), ("keepdims", True)), (0,), 2)
    assert saved_of(saved.text()) == saved
