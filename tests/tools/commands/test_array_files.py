"""`fuse-run` on sparse arguments and results in files, and programs that forbid fallbacks."""

from __future__ import annotations

import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fuse_opt
from fuse_opt.tools.commands.fuse_run_main import main as fuse_run

CSR, ROWS = "tensor<3x4xf32, #graph.csr<capacity = 5>>", "tensor<4x2xf32, #graph.row_sparse<capacity = 2>>"
PROGRAM = f"""func.func @main(%a: {CSR}, %s: {ROWS}, %x: tensor<4x2xf32>) -> ({CSR}, {ROWS}, tensor<3x2xf32>) {{
  %0 = graph.relu %a : ({CSR}) -> {CSR}
  %1 = graph.abs %s : ({ROWS}) -> {ROWS}
  %2 = graph.matmul %0, %x : ({CSR}, tensor<4x2xf32>) -> tensor<3x2xf32>
  func.return %0, %1, %2 : {CSR}, {ROWS}, tensor<3x2xf32>
}}"""
FALLBACK = f"""func.func @main(%a: {CSR}) -> tensor<3x4xf32> {{
  %0 = graph.exp %a : ({CSR}) -> tensor<3x4xf32>
  func.return %0 : tensor<3x4xf32>
}}"""
DENSE = np.array([[1, 0, 0, -2], [0, 0, 0, 0], [0, 3, 0, 0]], np.float32)
INDPTR, INDICES, VALUES = np.array([0, 2, 2, 3]), np.array([0, 3, 1]), np.array([1, -2, 3], np.float32)


def written(file: Path, text: str) -> str:
    file.write_text(text)
    return str(file)


def save(file: Path, **changed: Any) -> str:
    """As SciPy does, but for what is changed."""
    arrays: dict[str, Any] = {"indices": INDICES, "indptr": INDPTR, "format": b"csr", "shape": (3, 4), "data": VALUES}
    np.savez_compressed(file, **{name: array for name, array in {**arrays, **changed}.items() if array is not None})
    return str(file)


def test_matrices_in_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, matrix = written(tmp_path / "p.mlir", PROGRAM), save(tmp_path / "a.npz")
    if find_spec("scipy") is not None:
        sparse: Any = import_module("scipy.sparse")
        sparse.save_npz(matrix, sparse.csr_matrix(DENSE))
    arguments = [path, "--inputs", "random:3", "--inputs", f"a={matrix}", "--check", "--stats", "json"]
    assert fuse_run([*arguments, "--results", str(tmp_path / "r.npz")]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["check"]["passed"] and "fallbacks" not in summary
    kinds = [(result.get("storage"), result.get("entries"), result["shape"]) for result in summary["results"]]
    assert kinds == [("csr", 3, [3, 4]), ("row_sparse", 2, [4, 2]), (None, None, [3, 2])]
    files = [result["file"] for result in summary["results"]]
    if find_spec("scipy") is not None:
        sparse = import_module("scipy.sparse")
        np.testing.assert_array_equal(sparse.load_npz(files[0]).toarray(), np.maximum(DENSE, 0))
    again = [f"{name}={file}" for name, file in zip(("a", "%s", "2"), files, strict=True)]
    np.savez(tmp_path / "x.npz", x=np.ones((4, 2), np.float32))
    assert (
        fuse_run(
            [path, *(word for given in again[:2] for word in ("--inputs", given)), "--inputs", str(tmp_path / "x.npz")]
        )
        == 0
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"format": b"csc"}, "with the format csr, got indices, indptr, format, shape, data, with the format csc"),
        ({"indptr": None}, "expected arrays format, shape, indptr, indices, data"),
        ({"shape": (4, 3)}, "got shape [4, 3]"),
        ({"indices": np.array([3, 0, 1])}, "sort_indices"),
        ({"indices": np.array([0, 4, 1])}, "out of range"),
        ({"data": VALUES.astype(float)}, "got elements of float64"),
    ],
)
def test_files_that_do_not_fit(changed: Any, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "p.mlir", FALLBACK)
    assert fuse_run([path, "--inputs", f"a={save(tmp_path / 'a.npz', **changed)}"]) == 1
    assert message in (found := capsys.readouterr().err) and found.count("\n") == 1


def test_a_file_of_arrays_alone_is_not_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "p.mlir", FALLBACK)
    assert fuse_run([path, "--inputs", save(tmp_path / "a.npz")]) == 1
    assert "give it a file: --inputs a=FILE.npz" in capsys.readouterr().err
    assert fuse_run([path, "--inputs", f"b={tmp_path / 'a.npz'}"]) == 1
    assert "has no argument 'b'; there are: 0 ('a')" in capsys.readouterr().err


def test_fallbacks_are_counted_and_forbidden(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "p.mlir", FALLBACK)
    assert fuse_run([path, "--target", "reference", "--stats", "json", "-p", "assign-storage"]) == 0
    assert json.loads(capsys.readouterr().out)["fallbacks"] == {"count": 1, "bytes": 48}
    assert fuse_run([path, "-p", "assign-storage{forbid-fallback},default"]) == 1
    assert f"{path}:2:3: error: 'graph.exp' has no way to run on operand 0 stored as csr" in capsys.readouterr().err
    with pytest.raises(fuse_opt.InputError, match="fallbacks are forbidden"):
        fuse_opt.compile(FALLBACK, pipeline="assign-storage{forbid-fallback},default")
    assert fuse_opt.compile(PROGRAM, pipeline="assign-storage{forbid-fallback},default").fallbacks == (0, 0)
