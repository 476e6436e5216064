"""Attention by each shape of block that a device may have, on the GPU that is there, beside torch: errors and times.

    python benchmarks/gpu_attention.py [--only bf16,f16_odd] [--seconds 60] [--compile-only]

Shapes are those of lowering/gpu/attention/blocks.py; `default` is what the rules there choose.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from typing import Any
from unittest import mock

from gpu_measure import Bench
from gpu_ops import Case, Given, text_of

import fuse_opt
from fuse_opt.lowering.gpu.attention import blocks
from fuse_opt.lowering.program import Program
from fuse_opt.runtime.cuda.program import CudaProgram
from fuse_opt.runtime.device.compiler import compile_kernels, find_cuda_compiler, supported_arch
from fuse_opt.runtime.disk_cache import DiskCache

torch: Any = import_module("torch")
F = torch.nn.functional
f16, f32, bf16 = torch.float16, torch.float32, torch.bfloat16
SITES = {
    "f32": ((4, 8, 256, 64), f32, False),
    "f32_long": ((4, 8, 2048, 64), f32, True),
    "bf16": ((8, 16, 1024, 64), bf16, False),
    "bf16_causal": ((4, 16, 2048, 128), bf16, True),
    "f16_odd": ((8, 16, 517, 64), f16, False),
    "bf16_128": ((4, 16, 1999, 128), bf16, False),
}
TENSOR = ((2, 128), (2, 64), (2, 32), (1, 128), (1, 64), (1, 32))
REGISTER = ((8, 64), (4, 64), (2, 64), (8, 32), (4, 32), (2, 32))


def variants(dtype: Any) -> Iterator[tuple[str, str, Any]]:
    """A name, an entry of `blocks` and what it is to be."""
    entry, shapes = ("REGISTER_BLOCKS", REGISTER) if dtype is f32 else ("TENSOR_BLOCKS", TENSOR)
    yield "default", entry, getattr(blocks, entry)
    for shape in shapes:
        yield "x".join(map(str, shape)), entry, (shape,)


def programs(case: Case) -> dict[str, Program]:
    """By name of the block, programs whose texts differ."""
    text, found = text_of(case), dict[str, Program]()
    for name, entry, value in variants(case.given[0].dtype):
        with mock.patch.object(blocks, entry, value):
            try:
                program = fuse_opt.compile(text, target="cuda").native.program
            except Exception as failure:
                print(f"  {case.name} {name}: {type(failure).__name__}: {str(failure)[:120]}")
                continue
        if program.source not in {each.source for each in found.values()}:
            found[name] = program
    return found


def compile_all(bench: Bench, case: Case) -> None:
    compiler = find_cuda_compiler()
    assert compiler is not None
    arch = supported_arch(compiler, bench.device.arch)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda p: compile_kernels(compiler, p.source, arch, DiskCache()), programs(case).values()))


def measure(bench: Bench, case: Case, flops: float) -> None:
    arrays = [each.tensor("cuda") for each in case.given]
    expected = case.body(*arrays).float()
    for name, program in programs(case).items():
        native = CudaProgram(program)
        found = native(*arrays)
        error = float((found.float() - expected).abs().max() / expected.abs().max())
        ours, theirs = (bench.milliseconds([call], 10) for call in (native.bind(*arrays), partial(case.body, *arrays)))
        rate = f"{flops / ours / 1e9:.0f} TFLOP/s"
        print(f"| {case.name} | {name} | {ours:.4f} | {rate} | {theirs:.4f} | {error:.1e} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--compile-only", action="store_true", help="fill the compiler's cache; nothing is timed")
    options = parser.parse_args()
    ends = time.monotonic() + options.seconds
    bench = Bench(False, ["eager"])
    with bench.device.active():
        for name, (shape, dtype, causal) in SITES.items():
            if (options.only and name not in options.only.split(",")) or time.monotonic() > ends:
                continue
            case = Case(name, partial(F.scaled_dot_product_attention, is_causal=causal), (Given(shape, dtype),) * 3)
            if options.compile_only:
                compile_all(bench, case)
                continue
            b, h, n, d = shape
            measure(bench, case, 4 * b * h * n * n * d / (2 if causal else 1))


if __name__ == "__main__":
    main()
