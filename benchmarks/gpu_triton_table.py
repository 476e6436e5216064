"""Instructions of kernels in Triton as Inductor 2.13 writes them, by their machine code for sm_90, without a device.

    python benchmarks/gpu_triton_table.py [--cuobjdump PATH]

Prints, for workloads of gpu_table.py, instructions and special functions (MUFU) an element of the largest array, which its table
`TRITON` has. Pointwise kernels have 1,024 elements and four warps a block; norms hold a row in registers, where Inductor goes
over rows of more than 1,024 columns twice. Needs triton (3.9 was used; no torch, no GPU) and cuobjdump.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
import triton  # pyright: ignore
import triton.language as tl  # pyright: ignore
from gpu_sass import ways
from triton.backends.compiler import GPUTarget  # pyright: ignore
from triton.compiler import ASTSource  # pyright: ignore
from triton.language.extra import libdevice  # pyright: ignore


@triton.jit
def chain(x, out, count, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    t = tl.load(x + at).to(tl.float32)
    t = tl.sigmoid(libdevice.tanh(t * 1.5) + 0.25)
    t = tl.sigmoid(libdevice.tanh(t * 1.5) + 0.25)
    t = tl.sigmoid(libdevice.tanh(t * 1.5) + 0.25)
    tl.store(out + at, libdevice.exp(t * -0.5) + t)


@triton.jit
def maximum(a, b):
    return tl.where((a > b) | (a != a), a, b)


@triton.jit
def minimum(a, b):
    return tl.where((a < b) | (a != a), a, b)


@triton.jit
def broadcasts(x, row, column, keep, out, count, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    kept = tl.load(keep + at).to(tl.int1)
    value = tl.load(x + at)
    scale = tl.load(row + at % 2048, eviction_policy="evict_last")
    shift = tl.load(column + at // 2048, eviction_policy="evict_last")
    clipped = minimum(maximum(value * scale + shift, -1.0), 1.0)
    tl.store(out + at, tl.where(kept, clipped, value))


@triton.jit
def swiglu(gate, up, out, count, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    g = tl.load(gate + at)
    tl.store(out + at, g * tl.sigmoid(g) * tl.load(up + at))


@triton.jit
def lstm(gates, c, out, c_out, count, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    first = gates + at % 1024 + 4096 * (at // 1024)
    i, k, g, o = tl.load(first), tl.load(first + 1024), tl.load(first + 2048), tl.load(first + 3072)
    new = tl.sigmoid(k) * tl.load(c + at) + tl.sigmoid(i) * libdevice.tanh(g)
    tl.store(out + at, tl.sigmoid(o) * libdevice.tanh(new))
    tl.store(c_out + at, new)


@triton.jit
def batch_norm(x, residual, scale, bias, mean, variance, out, count, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    channel = (at // 12544) % 64
    m = tl.load(mean + channel, eviction_policy="evict_last")
    v = tl.load(variance + channel, eviction_policy="evict_last")
    s = tl.load(scale + channel, eviction_policy="evict_last")
    b = tl.load(bias + channel, eviction_policy="evict_last")
    value = (tl.load(x + at) - m) * (1.0 / libdevice.sqrt(v + 1e-05)) * s + b
    tl.store(out + at, maximum(value, 0.0) + tl.load(residual + at))


@triton.jit
def gelu_by_erfc(x, bias, out, count, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    y = tl.load(x + at) + tl.load(bias + at % 2048, eviction_policy="evict_last")
    tl.store(out + at, libdevice.erfc(y * -0.7071067811865476) * (y * 0.5))


@triton.jit
def pool(x, out, count, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    first, inside = x + 2 * (at % 56) + 224 * (at // 56), at < count
    a = tl.load(first, inside, eviction_policy="evict_last")
    b = tl.load(first + 1, inside, eviction_policy="evict_last")
    c = tl.load(first + 112, inside, eviction_policy="evict_last")
    d = tl.load(first + 113, inside, eviction_policy="evict_last")
    tl.store(out + at, (a + b + c + d) * 0.25, inside)


@triton.jit
def layer_norm(x, scale, bias, out, count, columns: tl.constexpr, block: tl.constexpr):
    at = tl.arange(0, block)
    inside, row = at < columns, columns * tl.program_id(0)
    value = tl.load(x + (at + row), inside, other=0.0).to(tl.float32)
    mean = tl.sum(tl.where(inside, value, 0), 0) / columns
    apart = value - mean
    variance = tl.sum(tl.where(inside, apart * apart, 0), 0) / columns
    s = tl.load(scale + at, inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
    b = tl.load(bias + at, inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
    tl.store(out + (at + row), apart * libdevice.rsqrt(variance + 1e-05) * s + b, inside)


BLOCK = 1024
F, H = "*fp32", "*bf16"
POINTWISE: dict[str, tuple[Any, Sequence[str], float]] = {
    "W1": (chain, (F, F), 1), "W1h": (chain, (H, H), 1), "W3": (broadcasts, (F, F, F, "*i1", F), 1),
    "W6s": (swiglu, (F,) * 3, 1), "W8": (lstm, (F,) * 4, 4), "W11": (batch_norm, (F,) * 7, 1),
    "W2c": (gelu_by_erfc, (F,) * 3, 1), "Pool": (pool, (F, F), 4),
}  # fmt: skip
"""By workload: the kernel, its pointers, and elements of the largest array for one of the result."""
NORMS = {"N768": (768, 1), "N771": (771, 1), "N1024": (1024, 1), "N1280": (1280, 8), "N1536": (1536, 8),
         "N2560": (2560, 8), "N5120": (5120, 16)}  # fmt: skip
"""Columns, and warps a row."""


def counted(kernel: Any, types: Sequence[str], sizes: Sequence[int], warps: int, cuobjdump: str) -> tuple[int, int]:
    """Instructions and special functions that all threads of a block pass."""
    names = kernel.arg_names
    first = len(names) - len(sizes)
    signature = dict(zip(names, (*types, "i32", *("constexpr" for _ in sizes)), strict=True))
    constants = {(first + k,): size for k, size in enumerate(sizes)}
    divisible = {(k,): [["tt.divisibility", 16]] for k in range(first)}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=divisible)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        listing = subprocess.run([cuobjdump, "-sass", file.name], capture_output=True, text=True, check=True).stdout
    (way,) = ways(listing).values()
    threads = 32 * warps
    return threads * len(way.taken), threads * sum(way.code[place].kind == "MUFU" for place in way.taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuobjdump", default=shutil.which("cuobjdump"))
    options = parser.parse_args()
    if options.cuobjdump is None:
        parser.error("no cuobjdump on PATH: pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm, or name it")
    os.environ["PATH"] = f"{Path(options.cuobjdump).parent}:{os.environ['PATH']}"  # where nvdisasm is, too
    print("| workload | instructions | MUFU |\n|---|---|---|")
    for name, (kernel, types, larger) in POINTWISE.items():
        found = counted(kernel, types, (BLOCK,), 4, options.cuobjdump)
        print(f"| {name} | " + " | ".join(f"{each / (BLOCK * larger):.2f}" for each in found) + " |", flush=True)
    for name, (columns, warps) in NORMS.items():
        sizes = (columns, triton.next_power_of_2(columns))
        found = counted(layer_norm, (H,) * 4, sizes, warps, options.cuobjdump)
        print(f"| {name} | " + " | ".join(f"{each / columns:.2f}" for each in found) + " |", flush=True)


if __name__ == "__main__":
    main()
