"""What the checks of programs on a CUDA device share: small programs, their values, and counts of calls."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuse_opt.lowering.emit.cuda import build_cuda_program
from fuse_opt.passes.devices.gpu_attach_device import make_for
from fuse_opt.runtime.cuda.program import CudaProgram, CudaStats
from fuse_opt.runtime.device.driver import Device, open_device
from fuse_opt.tools.compiler.api import load, optimize

Array = NDArray[Any]

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.mlir"))
_SHRUNK = {56: 14}


def shrunk(path: Path) -> str:
    """An example's text with every extent from 56 on made 4 to 16 times smaller, in types and attributes alike."""

    def smaller(match: re.Match[str]) -> str:
        n = int(match[0])
        return str(_SHRUNK.get(n, n // 16 if n % 64 == 0 else n))

    return re.sub(r"(?<=[<x ])\d+(?=[x,>])", smaller, path.read_text())


def compiled(text: str, pipeline: str | Sequence[str] | None = None) -> CudaProgram:
    """As `compile` does it for CUDA, without what kernels that are refused come to."""
    module = load(text)
    make_for(module, "cuda")
    return CudaProgram(build_cuda_program(optimize(module, pipeline)))


def chain(length: int, shape: str = "64x33xf32") -> str:
    """Ops one after another, which are kernels of one bulk without fusion; the last one reads all that it needs twice."""
    t = f"tensor<{shape}>"
    names = ["%x", *(f"%v{k}" for k in range(length))]
    ops = ["tanh", "abs", "negative", "sigmoid"]
    lines = [f"{b} = graph.{ops[k % 4]} {a} : ({t}) -> {t}" for k, (a, b) in enumerate(pairwise(names))]
    return "\n".join([f"func.func @main(%x: {t}) -> {t} {{", *lines, f"func.return {names[-1]} : {t}", "}"])


def chain_value(x: Array, length: int) -> Array:
    functions: list[Callable[[Array], Array]] = [np.tanh, np.abs, np.negative, lambda v: 1 / (1 + np.exp(-v))]
    for k in range(length):
        x = functions[k % 4](x)
    return x


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@cache
def counters() -> Any:
    """The stand-in's own counts of calls; None on a real driver."""
    library = ctypes.CDLL("libcuda.so.1")
    if not hasattr(library, "fake_cuda_count"):
        return None
    library.fake_cuda_count.restype = ctypes.c_long
    library.fake_cuda_broken_guards.restype = ctypes.c_long
    library.fake_cuda_waiting.restype = ctypes.c_long
    return library


def driver_calls(*names: str) -> list[int]:
    library = counters()
    return [library.fake_cuda_count(name.encode()) if library else 0 for name in names]


def changes(before: CudaStats, after: CudaStats) -> dict[str, int]:
    """What calls have added to the counts."""
    values = {name: value - getattr(before, name) for name, value in vars(after).items() if isinstance(value, int)}
    return {name: value for name, value in values.items() if value}


@contextmanager
def on_device() -> Generator[tuple[Device, Any]]:
    """The context, with PyCUDA's module of arrays."""
    device = open_device()
    with device.active():
        yield device, import_module("pycuda.gpuarray")


def listed(values: Any) -> list[Any]:
    """The results of a program, of which there may be one."""
    return [*values] if isinstance(values, tuple) else [values]  # pyright: ignore[reportUnknownVariableType]


def raises(kind: type[Exception], pattern: str, call: Callable[[], Any]) -> None:
    try:
        call()
    except kind as error:
        assert re.search(pattern, str(error)), f"expected {pattern!r}, got {error}"
        assert "\n" not in str(error), error
        return
    raise AssertionError(f"expected {kind.__name__}: {pattern}")


SCALED = """func.func @main(%x: tensor<8x33xf32>, %b: tensor<33xf32>) -> tensor<8x33xf32> {
  %s = graph.add %x, %b : (tensor<8x33xf32>, tensor<33xf32>) -> tensor<8x33xf32>
  %r = graph.tanh %s : (tensor<8x33xf32>) -> tensor<8x33xf32>
  func.return %r : tensor<8x33xf32>
}"""
