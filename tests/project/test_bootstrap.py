"""The bootstrap script: what is built in the background, and what it says of what is not there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fuse_opt.tools import bootstrap


def build_script(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> bootstrap.PyCuda:
    script = folder / "tests" / "support" / "fake_cuda" / "build.py"
    script.parent.mkdir(parents=True)
    script.write_text(text)
    monkeypatch.setattr(bootstrap, "ROOT", folder)
    monkeypatch.setattr(bootstrap, "PYTHON", Path(sys.executable))
    return bootstrap.PyCuda()


def test_a_build_that_fails_is_no_failure_but_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pycuda = build_script(tmp_path, "print('pip says much'); print('no network'); raise SystemExit(1)", monkeypatch)
    assert pycuda.missing() == "its build was not started"
    pycuda.start()
    assert pycuda.missing() == pycuda.missing() == "no network"
    outcome, _ = bootstrap.check_host_path(pycuda)
    assert outcome.passed is None and outcome.detail == "there is none: no network"
    gaps = bootstrap.list_untested(pycuda)
    assert "CUDA programs on a stand-in for the driver: no PyCUDA: no network" in gaps


def test_a_build_has_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pycuda = build_script(tmp_path, "import time; time.sleep(60)", monkeypatch)
    monkeypatch.setattr(bootstrap.PyCuda, "LIMIT", 0.2)
    pycuda.start()
    assert pycuda.missing() == "its build took more than 0.2 seconds"
    pycuda.stop()


def test_a_build_is_told_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"import sys; assert sys.argv[1:] == ['pycuda', {str(bootstrap.PyCuda.FOLDER)!r}], sys.argv"
    pycuda = build_script(tmp_path, text, monkeypatch)
    pycuda.start()
    assert pycuda.missing() is None


def test_what_pytest_says_of_layers_is_said_again() -> None:
    output = "..\ncuda layer A (nvcc sm_90): 28 kernels\nother\ncuda layer B: 5 cases\n3 passed\n"
    assert bootstrap.cuda_layers(output) == ("cuda layer A (nvcc sm_90): 28 kernels", "cuda layer B: 5 cases")
