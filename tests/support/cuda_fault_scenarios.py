"""What goes wrong on a device, and how it is said: faults that the stand-in driver of `fake_cuda` makes on request.

python tests/support/cuda_fault_scenarios.py   # in the environment of stand_in_driver.py
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest import mock

import numpy as np
from cuda_running import SCALED, chain, chain_value, compiled, counters, normal, on_device, raises

import fuse_opt
from fuse_opt.runtime.device import compiler as cuda_compiler
from fuse_opt.runtime.device import driver_library
from fuse_opt.runtime.device.driver_library import CudaUnavailable
from fuse_opt.runtime.device.installation import find_cuda_library
from fuse_opt.tools.commands.fuse_run_main import main as fuse_run

FFN = str(Path(__file__).resolve().parents[2] / "examples" / "ffn.mlir")


@contextmanager
def environment(**changed: str) -> Generator[None]:
    """The driver reads its environment at each call."""
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


PRODUCT = """func.func @main(%x: tensor<64x33xf32>, %y: tensor<33x64xf32>) -> tensor<64x64xf32> {
  %m = graph.matmul %x, %y : (tensor<64x33xf32>, tensor<33x64xf32>) -> tensor<64x64xf32>
  %r = graph.abs %m : (tensor<64x64xf32>) -> tensor<64x64xf32>
  func.return %r : tensor<64x64xf32>
}"""


def refused_captures() -> str:
    """Programs are launched kernel by kernel, and the driver is not asked again."""
    x, launches = normal(64, 33), 0
    for what in ("create", "instantiate"):
        with environment(FAKE_CUDA_REFUSE=what):
            program = compiled(chain(4), "unfused")
            for _ in range(4):
                np.testing.assert_allclose(program(x), chain_value(x, 4), 1e-5, 1e-6)
        stats = program.stats
        assert (stats.captures_refused, stats.graph_launches, stats.kernel_launches) == (1, 0, 16), stats
        launches += stats.kernel_launches
    for what in ("begin", "end"):
        with environment(FAKE_CUDA_REFUSE=what):
            program = compiled(PRODUCT)
            for _ in range(4):
                np.testing.assert_allclose(program(x, x.T.copy()), np.abs(x @ x.T), 1e-4, 1e-4)
        assert (program.stats.captures_refused, program.stats.graph_launches) == (1, 0), program.stats
    with environment(FAKE_CUDA_REFUSE="set"):
        changing_addresses()
    return f"{launches} launches"


def changing_addresses() -> None:
    """A driver that gives a graph no other arguments: what has a graph keeps it, all else is launched."""
    program = compiled(chain(4), "unfused")
    with on_device() as (_, gpuarray):
        one, other = (gpuarray.to_gpu(normal(64, 33, seed=seed)) for seed in range(2))
        outs = [gpuarray.empty((64, 33), np.float32) for _ in range(2)]
        for x, out in [(one, outs[0])] * 3 + [(other, outs[1])] * 3 + [(one, outs[0])]:
            program(x, out=[out])
            np.testing.assert_allclose(out.get(), chain_value(x.get(), 4), 1e-5, 1e-6)
    stats = program.stats
    assert (stats.captures_refused, stats.graph_launches, stats.kernel_launches) == (1, 3, 16), stats


def out_of_memory() -> str:
    """The arena, an argument or a result that does not fit is an error, and other programs go on."""
    with environment(FAKE_CUDA_MEMORY=str(2_000_000 + used_bytes())):
        raises(MemoryError, "the arena of 'main': expected .* bytes of device memory, got .* free of",
               lambda: compiled(chain(3, "1024x1024xf32"), "unfused"))  # fmt: skip
        program = compiled(chain(1, "1024x512xf32"))
        raises(MemoryError, "'(x|v0)': expected 2097152 bytes", lambda: program(normal(1024, 512)))
        small = compiled(chain(1, "8xf32"))
        np.testing.assert_allclose(small(normal(8)), np.tanh(normal(8)), 1e-5)
    return "2 errors"


def idle_memory() -> str:
    """Results that were dropped make room for others of another size."""
    small, large = compiled(chain(1, "8x1024xf32")), compiled(chain(1, "24x1024xf32"))
    with on_device() as (_, gpuarray):
        x, y = (gpuarray.to_gpu(normal(rows, 1024)) for rows in (8, 24))
        with environment(FAKE_CUDA_MEMORY=str(100_000 + used_bytes())):
            for _ in range(2):
                small(x)
            np.testing.assert_allclose(large(y).get(), np.tanh(y.get()), 1e-5)
    return "made room"


def forked_process() -> str:
    """A program of the parent's, and one that is new, are refused in a child by one line."""
    program, x = compiled(chain(1, "8xf32")), normal(8)
    with on_device() as (_, gpuarray):
        bound = program.bind(gpuarray.to_gpu(x))
    program(x)
    if (child := os.fork()) == 0:
        try:
            with on_device():
                pass
        except CudaUnavailable as error:
            for call in (lambda: program(x), bound):
                raises(RuntimeError, "was forked from one that had opened", call)
            os._exit("spawn" not in str(error))
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_allclose(program(x), np.tanh(x), 1e-5)
    return "refused"


def used_bytes() -> int:
    from fuse_opt.runtime.device.driver import open_device

    device = open_device()
    with device.active():
        free, total = device.driver.mem_get_info()
    return total - free


MESSAGES = [
    ({"FAKE_CUDA_NO_DEVICE": "1"}, "cannot run it here: there is no usable CUDA device .cuInit failed: no CUDA"),
    ({"FUSE_OPT_NVCC": "/no/nvcc"}, "'/no/nvcc' could not be run: No such file"),
    ({"FUSE_OPT_NVCC": "false"}, "'false' failed: "),
    ({"FUSE_OPT_CUBLAS": "/no/cublas"}, "FUSE_OPT_CUBLAS='/no/cublas': expected the library libcublas, or 'off'"),
    ({"FAKE_CUDA_MEMORY": "1000"}, "the arena of 'ffn': expected [0-9]+ bytes of device memory, got .* free of 1000"),
    ({"FUSE_OPT_CUBLAS": "off"}, None),
    ({"FUSE_OPT_CUDNN": "off", "FUSE_OPT_BACKEND": "cudnn"}, "backend 'cudnn' cannot be used here: FUSE_OPT_CUDNN=off"),
    ({"FUSE_OPT_CUBLASLT": "/no/lt"}, "FUSE_OPT_CUBLASLT='/no/lt': expected the library libcublasLt, or 'off'"),
]
if find_cuda_library("nvrtc") is None:
    MESSAGES.insert(
        1, ({"FUSE_OPT_CUDA_COMPILER": "nvrtc"}, "there is no nvcc .name it in FUSE_OPT_NVCC. and no NVRTC")
    )


def messages() -> str:
    """Each error is one line of the command. To be run first: a device that was found is kept."""
    for changed, wanted in MESSAGES:
        said = StringIO()
        with environment(**changed), redirect_stderr(said), redirect_stdout(StringIO()):
            status = fuse_run([FFN, "--target", "cuda", "--check"])
        text = said.getvalue()
        if wanted is None:
            assert status == 0 and not text, text
        else:
            expected = 2 if "FUSE_OPT_BACKEND" in changed else 1  # wrong usage
            assert status == expected and text.count("\n") == 1 and re.search(wanted, text), (changed, text)
    return f"{len(MESSAGES)} cases"


def old_driver() -> str:
    """One that lacks a function is named, with its version and what is asked for."""
    before = dict(driver_library._SIGNATURES)  # pyright: ignore[reportPrivateUsage]
    with mock.patch.object(driver_library, "_SIGNATURES", {**before, "cuOfTomorrow": ()}):
        wanted = r"the driver \(for CUDA [0-9]+\.[0-9]\) lacks cuOfTomorrow: update it to one for CUDA 12\.0"
        raises(CudaUnavailable, wanted, driver_library.DriverLibrary)
    return "1 message"


def refused_kernels() -> str:
    """A kernel that the compiler refuses comes apart, one of a single op runs on the host; both with one warning."""
    for rows, pattern, said, host_calls in (
        (
            9,
            "kernel_add_tanh",
            r"kernels do not compile: add\+tanh run unfused \(.*error: kernel_add_tanh is refused",
            0,
        ),
        (10, "kernel_(add_)?tanh", r"add\+tanh run unfused .*; tanh runs on the reference", 1),
    ):
        x, b = normal(rows, 33), normal(33)
        text = SCALED.replace("8x33", f"{rows}x33")  # no other program's: what was compiled is kept
        with environment(FAKE_NVCC_REFUSES=pattern), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            program = fuse_opt.compile(text, target="cuda")
            for _ in range(3):
                np.testing.assert_allclose(program(x, b), np.tanh(x + b), 1e-5, 1e-6)
        assert len(caught) == 1 and re.search(said, str(caught[0].message)), [str(w.message) for w in caught]
        assert program.stats.host_calls == 3 * host_calls, program.stats
    return "2 programs"


def older_compiler() -> str:
    """A compiler that does not know the device makes PTX for the newest one that it knows, for the driver to compile."""
    x, built = normal(8, 33), list[tuple[str, bytes]]()
    text = SCALED.replace("graph.tanh", "graph.sqrt")
    for known, arch in (("compute_80", "compute_80"), ("compute_80 compute_90", "sm_90"), ("compute_100", "sm_90")):
        cuda_compiler._nvcc_architectures.cache_clear()  # pyright: ignore[reportPrivateUsage]
        with environment(FAKE_NVCC_KNOWS=known):
            compiler = cuda_compiler.find_cuda_compiler()
            assert compiler is not None and cuda_compiler.supported_arch(compiler, "sm_90") == arch
            if arch.startswith("compute"):
                np.testing.assert_allclose(compiled(text)(x * x, np.abs(x[0])), np.sqrt(x * x + np.abs(x[0])), 1e-5)
                built.append((arch, compiler.build('extern "C" __global__ void k() {\n}\n', arch).data))
    cuda_compiler._nvcc_architectures.cache_clear()  # pyright: ignore[reportPrivateUsage]
    assert all(data.endswith(b"\0") for _, data in built)
    return f"{len(built)} as PTX"


def failing_kernel() -> str:
    """It is said where the host waits for it. To be run last: a context is unusable after that."""
    program = compiled(SCALED)
    with environment(FAKE_CUDA_FAULT="kernel_add_tanh"):
        raises(RuntimeError, "running 'main': cuStreamSynchronize failed: unspecified launch failure",
               lambda: program(normal(8, 33), normal(33)))  # fmt: skip
    raises(RuntimeError, "unspecified launch failure", lambda: program(normal(8, 33), normal(33)))
    return "2 errors"


FAULTS: tuple[Callable[[], str], ...] = (
    messages,
    out_of_memory,
    idle_memory,
    forked_process,
    refused_captures,
    old_driver,
    refused_kernels,
    older_compiler,
    failing_kernel,
)

if __name__ == "__main__":
    assert counters() is not None, "this is a real driver"
    for fault in FAULTS:
        print(f"{fault.__name__}: {fault()}", flush=True)
    assert counters().fake_cuda_broken_guards() == 0
