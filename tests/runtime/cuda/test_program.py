"""The CUDA runtime: PyCUDA on a stand-in for the driver, compilers, the plan of products; all of it without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_foreign import Exported
from cuda_scenarios import PRODUCTS, SCENARIOS
from nvrtc_library import NvrtcLibrary
from stand_in_driver import needs_stand_in, run_python, run_script

import fuse_opt
from fuse_opt.runtime.backends.nvidia.products import Product, plan_product
from fuse_opt.runtime.device import compiler as cuda_compiler
from fuse_opt.runtime.device import driver as cuda_driver
from fuse_opt.runtime.device import driver_library
from fuse_opt.runtime.device.arrays import device_array, stream_handle
from fuse_opt.runtime.device.compiler import (
    Cubin,
    CudaCompileError,
    KernelRefused,
    Nvrtc,
    compile_cuda,
    compile_kernels,
    find_cuda_compiler,
    kernel_resources,
    supported_arch,
)
from fuse_opt.runtime.disk_cache import DiskCache

ROOT = Path(__file__).resolve().parents[3]
FFN = str(ROOT / "examples" / "ffn.mlir")


@needs_stand_in
def test_scenarios_on_the_stand_in_driver(record_property: Any) -> None:
    said = run_script("cuda_scenarios.py")
    assert said.keys() == SCENARIOS.keys()
    assert said["twelve_kernels"] == "12 launches, then 1 graph launch a call, 0 synchronisations"
    record_property("cuda layer", f"C (PyCUDA on a stand-in driver): {len(said)} scenarios, {said['examples']}")


@needs_stand_in
def test_faults_of_the_stand_in_driver(record_property: Any) -> None:
    said = run_script("cuda_fault_scenarios.py")
    assert list(said) == [
        "messages",
        "out_of_memory",
        "idle_memory",
        "forked_process",
        "refused_captures",
        "old_driver",
        "refused_kernels",
        "older_compiler",
        "failing_kernel",
    ]
    record_property(
        "cuda layer", f"C (PyCUDA on a stand-in driver), faults: {len(said)} scenarios, {said['messages']} of messages"
    )


@needs_stand_in
def test_the_run_on_a_gpu_machine_runs_dry(tmp_path: Path) -> None:
    script = str(ROOT / "benchmarks" / "gpu_run.py")
    command = [sys.executable, script, "--stand-in", "--stages", "bench", "--only", "W4h,W13", "--out", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    bench = json.loads((tmp_path / "gpu-run.json").read_text())["bench"]
    assert [row["name"] for row in bench["workloads"]] == ["W4h", "W13"] and not bench["left_out"]
    assert all(row["error_ok"] and row["ms"] > 0 for row in bench["workloads"])
    assert bench["launch_us"].keys() == {"call", "prepared", "packed", "config", "graph"}
    assert "softmax of rows" in (tmp_path / "gpu-run.md").read_text()


@needs_stand_in
def test_without_a_driver_there_is_text_and_a_reason() -> None:
    if has_driver():
        pytest.skip("there is a driver")
    result = run_python(["-m", "fuse_opt.tools.commands.fuse_run_main", FFN, "--target", "cuda"], LD_LIBRARY_PATH="")
    assert result.returncode == 1 and result.stderr.count("\n") == 1, result.stderr
    assert "cannot run it here: there is no usable CUDA driver (libcuda.so.1" in result.stderr


def has_driver() -> bool:
    try:
        driver_library.DriverLibrary()
    except (OSError, AttributeError):
        return False
    return True


def test_without_pycuda_there_is_text_and_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycuda", None)
    cuda_driver._loaded.cache_clear()  # pyright: ignore[reportPrivateUsage]
    program = fuse_opt.compile(FFN, target="cuda")
    assert "__global__" in program.source
    with pytest.raises(RuntimeError, match="cannot run it here: PyCUDA is not installed"):
        program()
    with pytest.raises(ValueError, match="stream: expected None for target 'reference'"):
        fuse_opt.compile(FFN, target="reference")(stream=1)


def plain_product(product: Product, lhs: Any, rhs: Any) -> Any:
    """The products by the plan's numbers alone, over flat memory."""
    out = np.zeros((product.count, product.rows, product.columns))
    for number in range(product.count):
        matrices: list[Any] = []
        extents = (product.rows, product.inner), (product.inner, product.columns)
        for k, array in enumerate((lhs, rhs)):
            rows, columns = extents[k][::-1] if product.transposed[k] else extents[k]
            start = number * product.strides[k]
            matrix = array.reshape(-1)[start : start + rows * columns].reshape(rows, columns)
            matrices.append(matrix.T if product.transposed[k] else matrix)
        out[number] = matrices[0] @ matrices[1]
    return out


def test_plans_of_products() -> None:
    planned = 0
    for a, b, transpose_a, transpose_b, _ in PRODUCTS:
        x, y = np.random.default_rng(1).random(a), np.random.default_rng(2).random(b)
        expected = np.matmul(x.swapaxes(-1, -2) if transpose_a else x, y.swapaxes(-1, -2) if transpose_b else y)
        product = plan_product(a, b, np.shape(expected), (bool(transpose_a), bool(transpose_b)))
        if product is not None:
            planned += 1
            np.testing.assert_allclose(plain_product(product, x, y).reshape(np.shape(expected)), expected)
    assert planned == len(PRODUCTS) - 2


PTXAS = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'kernel_a' for 'sm_90'
ptxas info    : Function properties for kernel_a
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 8 bytes cumulative stack size, 128 bytes smem
ptxas info    : Compile time = 1.000 ms
ptxas info    : Compiling entry function 'kernel_b' for 'sm_90'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
"""


def test_resources_are_read_from_what_ptxas_says() -> None:
    found = kernel_resources(PTXAS)
    assert list(found) == ["kernel_a", "kernel_b"]
    a, b = found.values()
    assert (a.registers, a.stack, a.spill_stores, a.spill_loads, a.shared) == (40, 8, 4, 12, 128)
    assert (b.registers, b.spill_stores, b.shared) == (8, 0, 0)


class Counting:
    """A compiler that counts how often it is asked."""

    version = "1"
    architectures = (90,)

    def __init__(self) -> None:
        self.built: list[str] = []

    def build(self, source: str, arch: str) -> Cubin:
        self.built.append(arch)
        if "error" in source:
            raise CudaCompileError("'nvcc' failed: error")
        return Cubin(source.encode() + arch.encode(), "log")


def test_cubins_are_kept_by_source_architecture_and_compiler(tmp_path: Path) -> None:
    cache, compiler = DiskCache(tmp_path / "cache"), Counting()
    first = compile_cuda(compiler, "text", "sm_90", cache)
    assert (first.data, first.log.strip()) == (b"textsm_90", "log")
    assert compile_cuda(compiler, "text", "sm_90", cache) == first and compiler.built == ["sm_90"]
    assert compile_cuda(compiler, "text", "sm_80", cache).data == b"textsm_80"
    compiler.version = "2"
    compile_cuda(compiler, "text", "sm_80", cache)
    assert compiler.built == ["sm_90", "sm_80", "sm_80"]
    for _ in range(2):
        with pytest.raises(CudaCompileError, match="failed: error"):
            compile_cuda(compiler, "error", "sm_90", cache)
    assert len(compiler.built) == 5, "a failure is not kept"
    for arch in ("sm_90", "sm_80", "compute_90"):
        compile_cuda(compiler, "wgmma", arch, cache)
    assert compiler.built[5:] == ["sm_90a", "sm_80", "compute_90"]


def test_the_environment_chooses_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSE_OPT_CUDA_COMPILER", "gcc")
    with pytest.raises(ValueError, match="expected 'nvcc' or 'nvrtc'"):
        find_cuda_compiler()
    monkeypatch.setenv("FUSE_OPT_CUDA_COMPILER", "nvcc")
    monkeypatch.setenv("FUSE_OPT_NVCC", "false")
    with pytest.raises(CudaCompileError, match="'false' failed"):
        find_cuda_compiler()
    monkeypatch.setenv("FUSE_OPT_NVCC", "'nvcc")
    with pytest.raises(CudaCompileError, match="FUSE_OPT_NVCC=.*expected a command"):
        find_cuda_compiler()
    monkeypatch.delenv("FUSE_OPT_NVCC")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(cuda_compiler, "toolkits", lambda: iter(()))
    assert find_cuda_compiler() is None


class Memory:
    """What `Exported` asks of PyCUDA's arrays."""

    gpudata, ndim, shape, dtype = 0x7000, 2, (3, 4), np.dtype(np.float16)


def test_memory_by_dlpack() -> None:
    array: Any = Exported(Memory(), 2)
    found = device_array(array, 5)
    assert found is not None
    assert (found.address, found.shape, found.dtype, found.contiguous) == (0x7000, (3, 4), "f16", True)
    assert (array.asked, found.nbytes, found.device) == ([5], 24, 0)
    bfloats: Any = device_array(Exported(Memory(), 4), 5)
    assert bfloats.dtype == "bf16"
    complex_numbers: Any = device_array(Exported(Memory(), 5), 5)
    assert complex_numbers.dtype == "DLPack type 5.16"
    assert device_array(np.zeros(3), 5) is None and device_array([1, 2], 5) is None


def test_stream_handles() -> None:
    class Stream:
        def __init__(self, **fields: Any) -> None:
            vars(self).update(fields)

        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 9

    assert [stream_handle(s) for s in (0, Stream(handle=3), Stream(cuda_stream=4), Stream(ptr=5), Stream())] == [
        0,
        3,
        4,
        5,
        9,
    ]
    with pytest.raises(TypeError, match="stream: expected a handle.*got str"):
        stream_handle("default")


def test_nvrtc_stands_behind_the_same_interface(tmp_path: Path) -> None:
    library: Any = NvrtcLibrary(PTXAS)
    compiler, cache = Nvrtc(library), DiskCache(tmp_path / "cache")
    assert compiler.version.startswith("NVRTC 13.0")
    cubin = compile_kernels(compiler, "text", "sm_80", cache)
    assert b"--gpu-architecture=sm_80" in cubin.data and list(kernel_resources(cubin.log)) == ["kernel_a", "kernel_b"]
    with pytest.raises(KernelRefused, match="'NVRTC' failed: kernels.cu.1.: error: no"):
        compile_kernels(compiler, "error", "sm_80", cache)
    assert not library.programs, "each is destroyed, refused ones too"
    assert [supported_arch(compiler, f"sm_{n}") for n in (75, 80, 89, 90, 120)] == [
        "sm_75", "sm_80", "compute_80", "sm_90", "compute_90"
    ]  # fmt: skip
    assert compiler.build("text", "compute_90").data.endswith(b"\0")


def test_a_compiler_that_refuses_everything_is_no_refusal_of_a_kernel(tmp_path: Path) -> None:
    class Broken(Counting):
        def build(self, source: str, arch: str) -> Cubin:
            raise CudaCompileError("'nvcc' failed: no host compiler")

    with pytest.raises(CudaCompileError, match="no host compiler") as caught:
        compile_kernels(Broken(), "text", "sm_90", DiskCache(tmp_path / "cache"))
    assert not isinstance(caught.value, KernelRefused)
