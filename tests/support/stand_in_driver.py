"""Runs Python in a process in which the stand-ins of `fake_cuda` are the CUDA driver, nvcc and libraries of NVIDIA's."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from fake_cuda import build
from fake_cuda.build import HERE, build_driver, driver_name

from fuse_opt.runtime.disk_cache import DiskCache

PYCUDA_FOLDER = Path(__file__).resolve().parents[2] / ".venv" / "pycuda"
"""Where `fake_cuda/build.py pycuda` may have put PyCUDA, apart from what is installed."""


def pycuda_path() -> str | None:
    """What PYTHONPATH needs for PyCUDA; None where there is none."""
    if importlib.util.find_spec("pycuda") is not None:
        return ""
    return str(PYCUDA_FOLDER) if (PYCUDA_FOLDER / "pycuda").is_dir() else None


def why_not() -> str | None:
    """What is missing for the stand-in driver."""
    if pycuda_path() is None:
        return f"no PyCUDA (python tests/support/fake_cuda/build.py pycuda {PYCUDA_FOLDER})"
    return build.why_not()


def needs_stand_in(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test that runs on the stand-ins; it is skipped where there is no PyCUDA, or nothing to build them with."""
    skipped = pytest.mark.skipif(why_not() is not None, reason=why_not() or "")
    return pytest.mark.stand_in_driver(skipped(test))


@cache
def libraries() -> Path:
    """The folder of the stand-ins, built once for each version of their sources."""
    if (built := PYCUDA_FOLDER / driver_name()).is_dir():  # with PyCUDA
        return built
    folder = DiskCache().directory / driver_name()
    if not folder.is_dir():
        draft = Path(tempfile.mkdtemp(dir=folder.parent))
        build_driver(draft)
        try:
            draft.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(draft)
    return folder


def environment(**changed: str) -> dict[str, str]:
    folder = libraries()
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "PYTHONPATH": os.pathsep.join(filter(None, [pycuda_path(), os.environ.get("PYTHONPATH")])),
        "FUSE_OPT_NVCC": f"{sys.executable} {HERE / 'nvcc.py'}",
        "FUSE_OPT_CUBLAS": str(folder / "libcublas.so"),
        "FUSE_OPT_CUBLASLT": str(folder / "libcublasLt.so"),
        "FUSE_OPT_CUDNN": str(folder / "libcudnn.so"),
        "FUSE_OPT_CUSPARSE": str(folder / "libcusparse.so"),
        "FUSE_OPT_CUDA_COMPILER": "",
        **changed,
    }


def restart() -> None:
    """Runs the script that is running anew, on the stand-ins; there it goes on."""
    if "FUSE_OPT_STAND_IN" not in os.environ:
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, *sys.argv], environment(FUSE_OPT_STAND_IN="1"))


def run_python(arguments: list[str], **changed: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment(**changed))


def run_script(name: str, **changed: str) -> dict[str, str]:
    """By scenario of a file here: what it says. Fails where one fails."""
    result = run_python([str(Path(__file__).with_name(name))], **changed)
    assert result.returncode == 0, result.stdout + result.stderr
    return dict(re.findall(r"^(\w+): (.*)$", result.stdout, re.MULTILINE))
