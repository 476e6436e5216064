"""The library's face: compile, evaluate, optimize, load, register."""

import copy
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

import fuse_opt
from fuse_opt.runtime.device.driver_library import CudaUnavailable
from fuse_opt.tools.commands.fuse_run_main import main as fuse_run
from fuse_opt.tools.compiler import api, builders
from fuse_opt.tools.compiler.pipeline import UsageError
from fuse_opt.tools.source.diagnostics import InputError

PROGRAM = """\
func.func @main(%x: tensor<4x8xf32>, %y: tensor<8xf32>) -> tensor<4x8xf32> {
  %0 = graph.add %x, %y : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %1 = graph.exp %0 : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %1 : tensor<4x8xf32>
}
"""
TWO_RESULTS = PROGRAM.replace(") -> tensor<4x8xf32> {", ") -> (tensor<4x8xf32>, tensor<4x8xf32>) {").replace(
    "func.return %1 : tensor<4x8xf32>", "func.return %1, %x : tensor<4x8xf32>, tensor<4x8xf32>"
)
X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
Y = np.arange(8, dtype=np.float32) / 8
EXPECTED = np.exp(X + Y)


@pytest.fixture(params=["cpu", "reference"])
def target(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("pipeline", [None, "unfused", "", "fuse-elementwise", ["cse", "fuse-elementwise{max-ops=2}"]])
def test_compile_and_call(target: str, pipeline: Any):
    program = fuse_opt.compile(PROGRAM, target, pipeline)
    np.testing.assert_allclose(program(X, Y), EXPECTED, rtol=1e-5)
    assert program.stats.launches > 0


def test_out_and_several_results(target: str):
    program = fuse_opt.compile(TWO_RESULTS, target)
    results: Any = program(X, Y)
    assert len(results) == 2
    np.testing.assert_array_equal(results[1], X)
    assert not np.may_share_memory(results[1], X)
    out = [np.empty_like(X), np.empty_like(X)]
    program(X, Y, out=out)
    np.testing.assert_allclose(out[0], EXPECTED, rtol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((X,), TypeError),
        ((X, Y, Y), TypeError),
        ((X.astype(np.float64), Y), TypeError),
        ((X[:2], Y), ValueError),
        ((X.reshape(-1), Y), ValueError),
        ((object(), Y), TypeError),
    ],
)
def test_unfit_arguments(target: str, arguments: Any, error: type[Exception]):
    with pytest.raises(error) as caught:
        fuse_opt.compile(PROGRAM, target)(*arguments)
    assert "\n" not in str(caught.value)


class Odd:
    """Gives no array, and an error of its own."""

    def __array__(self, *options: Any, **more: Any) -> Any:
        raise RuntimeError("no array\nhere")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Odd(), "expected float32 [4, 8], got Odd, which gives no array: no array"),
        ([[1], [2, 3]], "expected float32 [4, 8], got list, which gives no array: setting an array element"),
        (None, "expected float32 [4, 8], got "),
        (X.astype(">f4"), "expected float32 [4, 8], got "),
        (X.astype(object), "expected float32 [4, 8], got "),
    ],
)
def test_what_is_no_array_is_named(target: str, given: Any, message: str):
    with pytest.raises(TypeError) as caught:
        fuse_opt.compile(PROGRAM, target)(given, Y)
    assert str(caught.value).startswith("argument 0 (") and message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_numbers_are_taken_for_arrays(target: str):
    program = fuse_opt.compile(PROGRAM, target)
    np.testing.assert_allclose(program(X.tolist(), tuple(Y.tolist())), EXPECTED, rtol=1e-5)
    whole = fuse_opt.compile(
        "func.func @f(%x: tensor<2xui8>) -> tensor<2xui8> {\n  func.return %x : tensor<2xui8>\n}\n", target
    )
    assert whole([7, 255]).tolist() == [7, 255]
    for wrong in ([7, 256], [7, 1.5]):
        with pytest.raises(TypeError, match=r"argument 0 .*: expected uint8 \[2\], got "):
            whole(wrong)


def test_one_result_needs_no_sequence(target: str):
    program, out = fuse_opt.compile(PROGRAM, target), np.empty_like(X)
    assert program(X, Y, out=out) is out
    np.testing.assert_allclose(out, EXPECTED, rtol=1e-5)
    both = fuse_opt.compile(TWO_RESULTS, target)
    refused: list[tuple[Any, str]] = [
        (7, "out: expected a sequence of 2 arrays, got int"),
        ([out], "out: expected 2 arrays, got 1"),
        ([out, out], r"out\[0\] and out\[1\] share memory"),
        ([out, X.tolist()], r"out\[1\]: expected float32 \[4, 8\], got list"),
        ([out, np.broadcast_to(Y, X.shape)], r"out\[1\] cannot be written to"),
    ]
    for given, message in refused:
        with pytest.raises((TypeError, ValueError), match=message):
            both(X, Y, out=given)


SHARED = """\
func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<2x2xf32>, tensor<4xf32>, tensor<4xf32>) {
  %e = graph.exp %x : (tensor<4xf32>) -> tensor<4xf32>
  %v = graph.reshape %e {shape = array<i64: 2, 2>} : (tensor<4xf32>) -> tensor<2x2xf32>
  %c = graph.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  func.return %y, %x, %e, %v, %c, %c : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<2x2xf32>, tensor<4xf32>, tensor<4xf32>
}
"""  # noqa: E501


def test_programs_are_not_pickled(target: str):
    program = fuse_opt.compile(PROGRAM, target)
    for save in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="a compiled program cannot be pickled or copied; compile its source again"):
            save(program)
    np.testing.assert_allclose(program(X, Y), EXPECTED, rtol=1e-5)


def test_what_is_bound_has_names(target: str):
    arrays: Any = [X]
    with pytest.raises(TypeError, match="expected a mapping of numbers or names of arguments to arrays, got list"):
        fuse_opt.compile(PROGRAM, target).freeze(arrays)


def test_each_result_has_memory_of_its_own(target: str):
    program, x, y = fuse_opt.compile(SHARED, target), np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    wanted = [array.copy() for array in program(x, y)]
    for _ in range(2):
        results = program(x, y)
        for result, expected in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(result, expected)
            result += 100.0
    np.testing.assert_array_equal(x, np.arange(4))


def test_arguments_that_are_returned_are_read_before_out_is_written(target: str):
    program, x, y = fuse_opt.compile(SHARED, target), np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    expected = y.copy(), x.copy()
    program(x, y, out=[x, y, *(np.empty_like(array) for array in program(x, y)[2:])])
    np.testing.assert_array_equal([x, y], expected)


def test_arrays_in_any_order_and_by_dlpack(target: str):
    class Foreign:
        """Gives its memory by DLPack and by nothing else."""

        def __dlpack__(self, **options: Any) -> Any:
            return X.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return X.__dlpack_device__()

    program = fuse_opt.compile(PROGRAM, target)
    np.testing.assert_allclose(program(Foreign(), Y), EXPECTED, rtol=1e-5)
    np.testing.assert_allclose(program(np.asfortranarray(X), Y), EXPECTED, rtol=1e-5)


def test_evaluate():
    np.testing.assert_allclose(fuse_opt.evaluate(PROGRAM, X, Y), EXPECTED, rtol=1e-6)


def test_load_of_text_path_and_module(tmp_path: Path):
    path = tmp_path / "program.mlir"
    path.write_text(PROGRAM)
    module = api.load(PROGRAM)
    assert api.load(module) is module
    assert str(api.load(path)) == str(api.load(str(path))) == str(module)
    with pytest.raises(FileNotFoundError):
        api.load("missing.mlir")


def test_optimize_works_in_place_on_modules_only():
    module = api.load(PROGRAM)
    assert fuse_opt.optimize(module, "fuse-elementwise") is module
    assert "fused.kernel" in str(module)
    assert isinstance(fuse_opt.optimize(PROGRAM, "cse,dce"), ModuleOp)


@pytest.mark.parametrize(
    ("source", "pipeline", "message"),
    [
        (PROGRAM.encode(), None, "source: expected MLIR text, a path or a ModuleOp, got bytes"),
        (None, None, "source: expected MLIR text, a path or a ModuleOp, got NoneType"),
        (PROGRAM, 3, "pipeline: expected a text or texts, got int"),
        (PROGRAM, ["cse", None], "pipeline: expected a text or texts, got NoneType"),
    ],
)
def test_what_is_neither_text_nor_module_is_named(source: Any, pipeline: Any, message: str):
    with pytest.raises(TypeError, match=message):
        fuse_opt.compile(source, "reference", pipeline)


def test_byte_order_marks_are_passed_over(tmp_path: Path):
    path = tmp_path / "program.mlir"
    path.write_text(PROGRAM, encoding="utf-8-sig")
    assert str(api.load(path)) == str(api.load(PROGRAM))


def test_compile_leaves_the_module_alone(target: str):
    module = api.load(PROGRAM)
    before = str(module)
    fuse_opt.compile(module, target)
    assert str(module) == before


def test_errors_are_located_and_of_one_line():
    with pytest.raises(InputError, match=r"^<string>:2:3: error: 'graph.add'"):
        fuse_opt.compile(PROGRAM.replace("tensor<8xf32>", "tensor<7xf32>"))
    with pytest.raises(UsageError, match="unknown pass"):
        fuse_opt.optimize(PROGRAM, "no-such-pass")
    with pytest.raises(ValueError, match="unknown target 'tpu'"):
        fuse_opt.compile(PROGRAM, "tpu")
    with pytest.raises(InputError, match="expected a function 'nothing'"):
        fuse_opt.compile(PROGRAM, function="nothing")
    blocks = "func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> { cf.br ^b ^b: func.return %x : tensor<?xf32> }"
    with pytest.raises(InputError, match="<string>:1:1: error: 'f': expected a function of one block, got 2"):
        fuse_opt.compile(blocks)
    with pytest.raises(InputError, match="expected a function of one block, got 2"):
        fuse_opt.evaluate(blocks, np.ones(3, np.float32))


def test_more_axes_than_arrays_have_are_refused_with_a_place() -> None:
    """Arguments by whoever takes arrays, values between them by the reference, which has arrays of them."""
    wide = f"tensor<4x{'1x' * 69}f32>"
    text = f"""func.func @main(%x: {wide}) -> {wide} {{
  func.return %x : {wide}
}}"""
    refused = r"axes: NumPy's arrays have at most \d+"
    with pytest.raises(
        InputError, match=r"^<string>:1:1: error: argument 0 \(%x\): NumPy's arrays have at most .* got 70"
    ):
        fuse_opt.compile(text, "reference")
    between = f"""func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
  %0 = graph.reshape %x {{shape = array<i64: 4{", 1" * 69}>}} : (tensor<4xf32>) -> {wide}
  %1 = graph.sum %0 {{axes = array<i64: {", ".join(map(str, range(1, 70)))}>}} : ({wide}) -> tensor<4xf32>
  func.return %1 : tensor<4xf32>
}}"""
    with pytest.raises(InputError, match=f"^<string>:2:3: error: 'graph.reshape' goes along 70 {refused}"):
        fuse_opt.evaluate(between, np.ones(4, np.float32))


def test_without_a_c_compiler_there_is_one_warning(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fuse_opt.runtime.host.c_compiler.find_c_compiler", lambda: None)
    builders.has_c_compiler.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match="no C compiler") as caught:
            assert fuse_opt.compile(PROGRAM).target == "reference"
        assert len(caught) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_allclose(fuse_opt.compile(PROGRAM)(X, Y), EXPECTED, rtol=1e-5)
    finally:
        builders.has_c_compiler.cache_clear()


def test_register_in_a_context_that_knows_some():
    from xdsl.dialects import get_all_dialects
    from xdsl.dialects.builtin import Builtin

    ctx = Context()
    ctx.load_dialect(Builtin)
    ctx.register_dialect("gpu", get_all_dialects()["gpu"])
    fuse_opt.register(ctx)
    fuse_opt.register(ctx)
    assert {"builtin", "func", "graph", "fused", "gpu"} <= set(ctx.registered_dialect_names)
    assert ctx.get_optional_op("gpu.bulk") is None
    fresh = Context()
    fuse_opt.register(fresh)
    assert fresh.get_optional_op("gpu.bulk") is not None


@pytest.mark.parametrize("arguments", [[], ["--unfused"], ["-p", ""], ["--target", "reference"]])
def test_fuse_run_checks(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    import json

    path = tmp_path / "program.mlir"
    path.write_text(PROGRAM)
    assert fuse_run([str(path), "--check", "--repeat", "2", "--stats", "json", *arguments]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["check"]["passed"] is True
    assert summary["seconds"]["calls"] == 2


def test_fuse_run_reads_saved_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path, inputs = tmp_path / "program.mlir", tmp_path / "inputs.npz"
    path.write_text(PROGRAM)
    np.savez(inputs, x=X, arg1=Y)
    assert fuse_run([str(path), "--inputs", str(inputs), "--check"]) == 0
    np.savez(inputs, x=X)
    assert fuse_run([str(path), "--inputs", str(inputs)]) == 1
    assert "no array for argument 1 (%y)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--target", "tpu"],
        ["--inputs", "random:x"],
        ["--inputs", "x.csv"],
        ["-p", "nothing"],
        ["--repeat", "-1"],
        ["--zzz"],
    ],
)
def test_fuse_run_wrong_usage(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "program.mlir"
    path.write_text(PROGRAM)
    assert fuse_run([str(path), *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_fuse_run_refuses_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "program.mlir"
    path.write_text(PROGRAM.replace("graph.exp", "graph.expp"))
    assert fuse_run([str(path)]) == 1
    assert capsys.readouterr().err.startswith(
        f"{path}:3:8: error: unknown operation 'graph.expp'; did you mean 'graph.exp"
    )
    assert fuse_run([str(tmp_path / "missing.mlir")]) == 1
    path.write_text("")
    capsys.readouterr()
    assert fuse_run([str(path)]) == 1
    assert capsys.readouterr().err.startswith(f"{path}:1:1: error: expected one function")


def test_fuse_run_warns_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(PROGRAM)
    command = [sys.executable, "-m", "fuse_opt.tools.commands.fuse_run_main", str(path)]
    environment = {**os.environ, "FUSE_OPT_CC": "no-such-compiler"}
    strict = {**environment, "PYTHONWARNINGS": "error::RuntimeWarning"}
    done = subprocess.run(command, capture_output=True, text=True, env=strict, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1) and done.stderr.startswith(
        "fuse-run: error: FUSE_OPT_CC="
    )
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert [line.split("'")[0] for line in done.stderr.splitlines()] == [
        "fuse-run: warning: FUSE_OPT_CC=",
        "fuse-run: warning: no C compiler works here: programs run on the reference, slowly (set FUSE_OPT_CC or CC)",
    ]


def test_cuda_gives_text_and_says_that_it_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(number: int | None) -> None:
        raise CudaUnavailable("no device")

    monkeypatch.setattr("fuse_opt.runtime.cuda.program.open_device", refuse)
    program = fuse_opt.compile(PROGRAM, target="cuda")
    assert "__global__" in program.source and program.stats.kernels == 1
    with pytest.raises(RuntimeError, match="cannot run it"):
        program(X, Y)
