"""The emitted CUDA C run on the CPU: a sample of `cuda_matrix.py`, and that its means show faults."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cuda_matrix import FEW, SAMPLES, Outcome, run_units, sanitized_faults, sanitizer_environment
from cuda_matrix_units import KINDS
from cuda_on_cpu import CXX, ORDERS, needs_cxx
from graph_op_table import rows

from fuse_opt.runtime.emulation.program import SANITIZE, Kernels
from fuse_opt.runtime.emulation.translation import SHIM, for_shim


@needs_cxx
def test_every_op(record_property: Any) -> None:
    outcome = sampled("ops")
    record_property("cuda layer", f"B (CUDA C on the CPU), ops: {len(rows())} ops, {outcome}")


@needs_cxx
def test_every_schedule_at_odd_sizes_and_on_views(record_property: Any) -> None:
    outcome = sampled(*(name for name in SAMPLES if name != "ops"))
    assert outcome.schedules.keys() >= set(KINDS)
    record_property("cuda layer", f"B (CUDA C on the CPU), schedules: {outcome}")


def sampled(*groups: str) -> Outcome:
    whole = Outcome()
    for group in groups:
        run_units(SAMPLES[group](), whole)
    assert not whole.faults, "\n".join(whole.faults)
    assert whole.kernels > 50 and whole.cases > 200
    return whole


def has_sanitizers() -> bool:
    if CXX is None:
        return False
    found = subprocess.run([CXX, "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    return Path(found).is_absolute()


needs_sanitizers = pytest.mark.skipif(not has_sanitizers(), reason="no sanitizers of gcc")


@needs_sanitizers
def test_few_of_the_matrix_under_the_sanitizers(record_property: Any) -> None:
    status, said, faults = sanitized_faults(["--few"])
    assert status == 0 and not faults, said + "\n".join(faults)
    counts = [int(n) for n in re.findall(r"^\w+: (\d+) kernels", said, re.MULTILINE)]
    assert len(counts) == len(FEW)
    record_property(
        "cuda layer", f"B (gcc's address and undefined-behaviour sanitizers): {sum(counts)} kernels, 0 faults"
    )


FAULTS = """
extern "C" __global__ void divergent(float *x) {
  if (threadIdx.x < 8)
    __syncthreads();
  else
    __syncthreads();
}
extern "C" __global__ void deserted(float *x) {
  if (threadIdx.x == 3) return;
  __syncthreads();
}
extern "C" __global__ void masked(float *x) {
  float v = x[0];
  if (threadIdx.x % 2) v = __shfl_xor_sync(0xffffffffu, v, 1, 32);
}
extern "C" __global__ void stranger(float *x) {
  if (threadIdx.x < 16) x[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, x[threadIdx.x], 16, 32);
}
extern "C" __global__ void unwritten(float *x) {
  __shared__ float slots[64];
  if (threadIdx.x < 32) slots[threadIdx.x] = 1.0f;
  __syncthreads();
  x[threadIdx.x] = slots[threadIdx.x];
}
extern "C" __global__ void hasty(float *x) {
  __shared__ float slots[64];
  slots[threadIdx.x] = x[threadIdx.x];
  x[threadIdx.x] = slots[63 - threadIdx.x];
}
extern "C" __global__ void racing(float *x) {
  if (threadIdx.x < 63) x[threadIdx.x] = x[threadIdx.x + 1];
}
"""
SAID = {
    "divergent": "waits elsewhere than its neighbours",
    "deserted": "threads wait for others that have gone",
    "masked": "threads wait for others that have gone",
    "stranger": "reads from a lane that does not take part",
}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    assert CXX is not None
    folder = tmp_path_factory.mktemp("faults")
    names = re.findall(r"void (\w+)\(", FAULTS)
    exports = "".join(f"SHIM_EXPORT({name}, {'false' if name == 'racing' else 'true'})\n" for name in names)
    (folder / "faults.cpp").write_text(f'#include "{SHIM}"\n{for_shim(FAULTS)}{exports}')
    flags = ("-std=gnu++14", "-O0", "-w", "-fPIC", "-shared")
    subprocess.run([CXX, *flags, str(folder / "faults.cpp"), "-o", str(folder / "faults.so")], check=True)
    return ctypes.CDLL(str(folder / "faults.so"))


def launched(library: ctypes.CDLL, name: str, order: int) -> tuple[str, list[float]]:
    """What is said of a launch of 64 threads, and the memory after it, which was 0, 1, 2 ..."""
    values = (ctypes.c_float * 64)(*range(64))
    run = library[f"run_{name}"]
    run.restype = ctypes.c_char_p
    sizes = ((ctypes.c_uint * 3)(n, 1, 1) for n in (1, 64))
    error = run((ctypes.c_void_p * 1)(ctypes.addressof(values)), *sizes, order)
    return (error or b"").decode(), list(values)


@needs_cxx
@pytest.mark.parametrize("name", SAID)
def test_faults_of_synchronisation_are_said(name: str, faulty: ctypes.CDLL) -> None:
    for order in ORDERS.values():
        assert SAID[name] in launched(faulty, name, order)[0]


@needs_cxx
def test_unwritten_shared_memory_is_nan(faulty: ctypes.CDLL) -> None:
    said, values = launched(faulty, "unwritten", 0)
    assert not said and values[:32] == [1.0] * 32 and all(v != v for v in values[32:])


@needs_cxx
@pytest.mark.parametrize("name", ["hasty", "racing"])
def test_races_differ_between_orders(name: str, faulty: ctypes.CDLL) -> None:
    results = [launched(faulty, name, order)[1] for order in ORDERS.values()]
    assert not results[0] == results[1] == results[2]


WRONG = """
extern "C" __global__ void beyond(float *x) { x[0] = x[64 + threadIdx.x]; }
extern "C" __global__ void misaligned(float *x) { x[0] = reinterpret_cast<float4 *>(x + 1)->y; }
extern "C" __global__ void overflowing(float *x) { int n = 2147483647; n += int(x[1]); x[0] = float(n); }
"""
RUN = """
import ctypes, sys
library, process = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(None)
one, size = (ctypes.c_uint * 3)(1, 1, 1), ctypes.c_size_t(256)
memory = (ctypes.c_float * 128)(*[1.0] * 128)
process.__asan_poison_memory_region(ctypes.c_void_p(ctypes.addressof(memory) + 256), size)
for name in sys.argv[2:]:
    library[f"run_{name}"]((ctypes.c_void_p * 1)(ctypes.addressof(memory)), one, one, 0)
"""


@needs_sanitizers
def test_the_sanitizers_see_what_kernels_do(tmp_path: Path) -> None:
    assert CXX is not None
    names = re.findall(r"void (\w+)\(", WRONG)
    exports = "".join(f"SHIM_EXPORT({name}, true)\n" for name in names)
    (tmp_path / "wrong.cpp").write_text(f'#include "{SHIM}"\n{WRONG}{exports}')
    flags = ("-std=gnu++14", "-O0", "-w", "-fPIC", "-shared", *SANITIZE)
    subprocess.run([CXX, *flags, str(tmp_path / "wrong.cpp"), "-o", str(tmp_path / "wrong.so")], check=True)
    command = [sys.executable, "-c", RUN, str(tmp_path / "wrong.so"), *names]
    said = subprocess.run(command, capture_output=True, text=True, env=sanitizer_environment()).stderr
    assert "use-after-poison" in said and "signed integer overflow" in said, said
    assert re.search("misaligned address .* requires 16 byte alignment", said), said


@needs_cxx
@pytest.mark.parametrize("kept", ["the shim", "something else", "nothing"])
def test_the_shim_is_read_where_nothing_that_suits_was_kept_of_it(
    kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (wrong := tmp_path / "wrong.gch").write_bytes(b"gpch" + bytes(4096))

    def found(cxx: str, flags: tuple[str, ...]) -> Path | None:
        return wrong if kept == "something else" else None

    if kept != "the shim":
        monkeypatch.setattr("fuse_opt.runtime.emulation.building._shim_as_read", found)
    for number in range(2):
        Kernels(f"__global__ void of_{number}(float *x) {{\n  x[0] = {number};\n}}\n")
    assert len(list(tmp_path.rglob("*.so"))) == 2
