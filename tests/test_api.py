"""The library's face: compile, evaluate, optimize, load, register."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

import fuse_opt
from fuse_opt.runtime.cuda_driver import CudaUnavailable
from fuse_opt.tools import api
from fuse_opt.tools.diagnostics import InputError
from fuse_opt.tools.fuse_run_main import main as fuse_run
from fuse_opt.tools.pipeline import UsageError

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


def test_without_a_c_compiler_there_is_one_warning(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fuse_opt.runtime.c_compiler.find_c_compiler", lambda: None)
    api._has_c_compiler.cache_clear()  # pyright: ignore[reportPrivateUsage]
    try:
        with pytest.warns(RuntimeWarning, match="no C compiler") as caught:
            assert fuse_opt.compile(PROGRAM).target == "reference"
        assert len(caught) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_allclose(fuse_opt.compile(PROGRAM)(X, Y), EXPECTED, rtol=1e-5)
    finally:
        api._has_c_compiler.cache_clear()  # pyright: ignore[reportPrivateUsage]


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


def test_cuda_gives_text_and_says_that_it_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise CudaUnavailable("no device")

    monkeypatch.setattr("fuse_opt.runtime.cuda.open_device", refuse)
    program = fuse_opt.compile(PROGRAM, target="cuda")
    assert "__global__" in program.source and program.stats.kernels == 1
    with pytest.raises(RuntimeError, match="cannot run it"):
        program(X, Y)
