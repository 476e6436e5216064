"""Commands whose surroundings fail: closed streams, full disks, files that are not what their names say. Never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fuse_opt.tools.commands.fuse_opt_main import main as fuse_opt
from fuse_opt.tools.commands.fuse_run_main import main as fuse_run

Capture = pytest.CaptureFixture[str]

PROGRAM = """\
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = graph.exp %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %0 : tensor<4x8xf32>
}
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.mlir"
    path.write_text(PROGRAM)
    return str(path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this machine")
@pytest.mark.parametrize(
    ("redirections", "status", "error"),
    [
        (">&-", 0, ""),
        (">&- 2>&-", 0, ""),
        ("> /dev/full", 1, "fuse-opt: error: [Errno 28] No space left on device\n"),
    ],
)
def test_streams_that_take_nothing(redirections: str, status: int, error: str, program: str) -> None:
    command = f"{sys.executable} -m fuse_opt.tools.commands.fuse_opt_main {program} {redirections}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (status, error)


def test_the_list_of_passes_on_a_full_disk() -> None:
    """It is written when the command ends."""
    command = f"{sys.executable} -m fuse_opt.tools.commands.fuse_opt_main --list-passes > /dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("fuse-opt: error: ") and done.stderr.count("\n") == 1


def corrupt(path: Path, how: str) -> None:
    np.savez(path, x=np.zeros((4, 8), np.float32))
    data = path.read_bytes()
    match how:
        case "cut":
            path.write_bytes(data[: len(data) // 2])
        case "changed":
            path.write_bytes(data[:100] + b"changed" + data[107:])
        case "empty":
            path.write_bytes(b"")
        case "one array":
            np.save(path.with_suffix(".npy"), np.zeros(3))
            path.with_suffix(".npy").rename(path)
        case _:
            np.savez(path, x=np.array([{}], object))


@pytest.mark.parametrize("how", ["cut", "changed", "empty", "one array", "objects"])
def test_arrays_that_are_not_there(how: str, program: str, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "inputs.npz"
    corrupt(path, how)
    assert fuse_run([program, "--target", "reference", "--inputs", str(path)]) == 1
    output, errors = capsys.readouterr()
    assert output == "" and errors.count("\n") == 1
    assert errors.startswith(f"fuse-run: error: '{path}': expected arrays as numpy.savez writes them; ")


def test_loops_of_the_cpu_are_no_cuda(program: str, tmp_path: Path, capsys: Capture) -> None:
    loops = tmp_path / "loops.mlir"
    assert fuse_opt([program, "-p", "default,convert-fused-to-loops", "-o", str(loops)]) == 0
    assert fuse_opt([str(loops), "-t", "cuda"]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith(f"{loops}:") and "is loops of the CPU, which are no kernel of a GPU; " in errors


@pytest.mark.parametrize("target", ["c", "cuda"])
def test_more_bytes_than_addresses_count(target: str, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "large.mlir"
    path.write_text(PROGRAM.replace("4x8xf32", "1099511627776x1099511627776xf32"))
    assert fuse_opt([str(path), "-p", "wrap-kernels", "-t", target]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith(f"{path}:1:") and "; expected fewer than 2**63 bytes\n" in errors
