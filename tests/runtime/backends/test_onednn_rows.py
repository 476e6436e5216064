"""Softmax and layer normalization by oneDNN: arguments on the stand-in, values of the library where it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onednn_testing import Array, FakeOneDnn

import fuse_opt
from fuse_opt.runtime.backends.onednn.library import find_library
from fuse_opt.runtime.host.thread_pool import num_threads, set_num_threads
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

SELECTIONS = ("select-composites", "select-implementation")
FAST = ",".join(f"{name}{{numerics=fast}}" if name in SELECTIONS else name for name in DEFAULT_PIPELINE)


def tensor(array: Array) -> str:
    return f"tensor<{'x'.join(map(str, (*array.shape, 'f32')))}>"


def run(op: str, config: str, *arrays: Array, pipeline: str = FAST) -> fuse_opt.CompiledProgram:
    types = [tensor(array) for array in arrays]
    values = [f"%a{number}" for number in range(len(arrays))]
    wanted = f'use_implementation = "onednn.{op}{"_fast" if op == "softmax" else ""}"'
    return fuse_opt.compile(
        f"func.func @main({', '.join(f'{v}: {t}' for v, t in zip(values, types, strict=True))}) -> {types[0]} {{\n"
        f"  %0 = graph.{op} {', '.join(values)} {{{config}, {wanted}}} : ({', '.join(types)}) -> {types[0]}\n"
        f"  func.return %0 : {types[0]}\n}}",
        backend="onednn",
        pipeline=pipeline,
    )


def normal(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def standardized(x: Array, inner: int, epsilon: float) -> Array:
    axes = tuple(range(x.ndim - inner, x.ndim))
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axes, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axes, keepdims=True) + epsilon)


def check_statistics(rows: int, poison: bool = False) -> None:
    """Variances and means that a backward pass reads are left by the call of the normalization, once for both."""
    x, w = normal(rows, 3, 12), normal(3, 12)
    wide, few = tensor(x), f"tensor<{rows}xf32>"
    stats = f"%v, %m = graph.var_mean %x {{axes = array<i64: 2, 1>}} : ({wide}) -> ({few}, {few})"
    text = (
        f"func.func @main(%x: {wide}, %w: {tensor(w)}) -> ({wide}, {few}, {few}) {{\n  {stats}\n"
        f'  %y = graph.layer_norm %x, %w {{axis = 1, use_implementation = "onednn.layer_norm"}}'
        f" : ({wide}, {tensor(w)}) -> {wide}\n"
        f"  func.return %y, %v, %m : {wide}, {few}, {few}\n}}"
    )
    found = fuse_opt.compile(text, backend="onednn", poison=poison)
    assert found.stats.library_calls == 1 and "saved = array<i64: 1, 2>" in str(found.module)
    axes = (1, 2)
    for value, expected in zip(found(x, w), (standardized(x, 2, 1e-5) * w, x.var(axes), x.mean(axes)), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=2e-6)


def check_values(scale: float) -> None:
    x, w, b = normal(6, 5, 12) * scale, normal(12), normal(1, 12)[0]
    weights = np.exp(x - x.max(-1, keepdims=True).astype(np.float64))
    found = run("softmax", "axis = -1 : i64", x)
    np.testing.assert_allclose(found(x), weights / weights.sum(-1, keepdims=True), rtol=1e-5)
    assert found.implementations == {"onednn.softmax_fast": 1} and found.stats.library_calls == 1
    expected = standardized(x, 1, 1e-3)
    for parameters in ((), (w,), (w, b)):
        scaled = expected * (parameters[0] if parameters else 1) + (parameters[1] if len(parameters) > 1 else 0)
        found = run("layer_norm", "axis = -1 : i64, epsilon = 1.0e-3 : f64", x, *parameters)
        np.testing.assert_allclose(found(x, *parameters), scaled, rtol=1e-5, atol=2e-6)
    two = (normal(5, 12), normal(5, 12) * 2)
    found = run("layer_norm", "axis = -2 : i64", x, *two)
    np.testing.assert_allclose(found(x, *two), standardized(x, 2, 1e-5) * two[0] + two[1], rtol=1e-5, atol=4e-6)


def test_arguments_on_the_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeOneDnn(tmp_path, monkeypatch)
    fake.say(scratch=100)
    check_values(1)
    check_statistics(5)
    assert fake.count("executions")


@pytest.mark.skipif(isinstance(find_library(), str), reason="no oneDNN")
def test_values_of_the_library() -> None:
    check_values(3)
    check_statistics(9000)  # in parts
    check_statistics(4, poison=True)  # by the op's meaning, step by step
    x = normal(512, 1024)
    before = num_threads()
    found = run("layer_norm", "axis = -1 : i64", x)
    try:
        bits = [(set_num_threads(count), found(x).tobytes())[1] for count in (1, 2, 3)]
    finally:
        set_num_threads(before)
    assert bits[0] == bits[1] == bits[2], "it is cut by extents alone"


@pytest.mark.parametrize(
    ("op", "config", "pipeline", "reason"),
    [
        ("softmax", "axis = 0 : i64", FAST, '"onednn.softmax_fast" refuses it: shape'),
        ("softmax", "axis = -1 : i64", "default", '"onednn.softmax_fast" refuses it: numerics'),
    ],
)
def test_refusals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op: str, config: str, pipeline: str, reason: str
) -> None:
    FakeOneDnn(tmp_path, monkeypatch)
    with pytest.raises(fuse_opt.InputError, match=reason):
        run(op, config, normal(4, 8), pipeline=pipeline)
