"""A run asks for no memory that the plan does not know: counted by an allocator that is preloaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from lowered_programs import needs_compiler
from onednn_testing import FakeOneDnn

from fuse_opt.runtime.backends.onednn.library import find_library
from fuse_opt.runtime.host.c_compiler import find_c_compiler

ROOT = Path(__file__).resolve().parents[3]
LEAST = 2048
"""Bytes from which on an allocation counts; Python's own objects are smaller."""
CALLS = """
import ctypes, sys
import numpy as np
import fuse_opt

program = fuse_opt.compile(sys.argv[1], backend=sys.argv[3] or None)
assert not sys.argv[4] or sys.argv[4] in program.implementations, program.implementations
values = [np.zeros(v.shape, v.dtype) for v in program.signature.arguments]
outs = tuple(np.zeros(v.shape, v.dtype) for v in program.signature.results)
out = outs if len(outs) > 1 else outs[0]
counter = ctypes.CDLL(None)
counter.count_until.restype = counter.count_largest.restype = ctypes.c_size_t
kept = np.ones(1 << 20)
for number in range(4):
    counter.count_from(ctypes.c_size_t(int(sys.argv[2])))
    program(*values, out=out)
    found = counter.count_until()
largest = counter.count_largest()
counter.count_from(ctypes.c_size_t(int(sys.argv[2])))
kept = np.ones(1 << 20)
print(found, largest, counter.count_until())
"""


@pytest.fixture
def counter(tmp_path: Path) -> Path:
    library, compiler = tmp_path / "malloc_count.so", find_c_compiler()
    assert compiler is not None
    source = ROOT / "tests" / "support" / "malloc_count.c"
    built = subprocess.run(
        [compiler.path, "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], capture_output=True
    )
    if built.returncode:
        pytest.skip("no library for LD_PRELOAD is built here")
    return library


def check(counter: Path, source: Path, backend: str = "", runs: str = "") -> None:
    """A run allocates nothing, and the counter finds one allocation that is there."""
    command = [sys.executable, "-c", CALLS, source, str(LEAST), backend, runs]
    environment = {**os.environ, "LD_PRELOAD": str(counter)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    count, largest, wanted = map(int, done.stdout.split())
    assert not count, f"{source.name}: {count} allocations, the largest of {largest} bytes"
    assert wanted


@needs_compiler
@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD is of Linux's loader")
def test_a_run_allocates_nothing(counter: Path) -> None:
    """Of a transformer block: products, attention and norms; of convolutions."""
    check(counter, ROOT / "examples" / "transformer_block.mlir")
    check(counter, ROOT / "examples" / "resnet_block.mlir")


@needs_compiler
@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD is of Linux's loader")
def test_a_run_of_any_kind_of_contraction_allocates_nothing(counter: Path) -> None:
    check(counter, ROOT / "tests" / "support" / "contraction_kinds.mlir")


@needs_compiler
@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD is of Linux's loader")
@pytest.mark.parametrize("library", ["stand-in", "wheel"])
def test_a_run_by_onednn_allocates_nothing(
    counter: Path, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scratchpads are slots of the plan, primitives and memory objects are made before."""
    if library == "stand-in":
        FakeOneDnn(tmp_path, monkeypatch).say(scratch=100)
    elif isinstance(reason := find_library(), str):
        pytest.skip(f"no oneDNN: {reason}")
    elif "avx512f" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("products of oneDNN's allocate 16 KiB themselves in a call, where it has no code for AVX-512")
    check(counter, ROOT / "examples" / "ffn.mlir", "onednn,-fuse", "onednn.matmul")
