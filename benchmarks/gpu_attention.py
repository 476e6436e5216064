"""Attention by each shape of block that a device may have, on the GPU that is there, beside torch: errors and times.

    python benchmarks/gpu_attention.py [--only bf16,f16_odd] [--seconds 60] [--compile-only]

Shapes are those of lowering/gpu/attention/blocks.py; `default` is what the rules there choose.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from typing import Any
from unittest import mock

from gpu_measure import Bench
from gpu_ops import TOLERANCES, Case, Given, text_of

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
    "f16_causal_odd": ((3, 7, 771, 64), f16, True),
    "f16_256": ((2, 8, 1021, 256), f16, False),
}
TENSOR = ((2, 64), (1, 64))
GROUPS = ((2, 128, 1), (2, 64, 2), (2, 64, 1), (3, 64, 1), (1, 64, 3), (1, 64, 2), (1, 128, 3), (1, 128, 2))
REGISTER = ((8, 64), (4, 64), (2, 64), (8, 32), (4, 32), (2, 32))


SMALL = (
    ((1, 2, 197, 64), f16, False),
    ((2, 3, 517, 64), bf16, True),
    ((1, 2, 331, 128), bf16, True),
    ((1, 3, 77, 128), f16, False),
)


def case_of(name: str, shape: tuple[int, ...], dtype: Any, causal: bool) -> Case:
    return Case(name, partial(F.scaled_dot_product_attention, is_causal=causal), (Given(shape, dtype),) * 3)


def variants(dtype: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """A name, and what entries of `blocks` are to be."""
    yield "default", {}
    if dtype is f32:
        yield from (("x".join(map(str, shape)), {"REGISTER_BLOCKS": (shape,)}) for shape in REGISTER)
        return
    for shape in GROUPS:
        yield "groups " + " ".join(map(str, shape)), {"GROUP_BLOCKS": (shape,), "GROUP_REGISTERS": 0}
    for shape in TENSOR:
        yield "x".join(map(str, shape)), {"GROUP_BLOCKS": (), "TENSOR_BLOCKS": (shape,)}


def programs(case: Case, names: str = "") -> dict[str, Program]:
    """By name of the block, programs whose texts differ; of blocks whose names begin with `names`."""
    text, found = text_of(case), dict[str, Program]()
    for name, entries in variants(case.given[0].dtype):
        if not name.startswith(names):
            continue
        with mock.patch.multiple(blocks, **entries) if entries else nullcontext():
            try:
                native: Any = fuse_opt.compile(text, target="cuda").native
                program: Program = native.program
            except Exception as failure:
                print(f"  {case.name} {name}: {type(failure).__name__}: {str(failure)[:120]}")
                continue
        fits = ("fo_group_mma" in program.source) == name.startswith("groups") or name == "default"
        if fits and program.source not in {each.source for each in found.values()}:
            found[name] = program
    return found


def compile_all(bench: Bench, case: Case) -> None:
    compiler = find_cuda_compiler()
    assert compiler is not None
    arch = supported_arch(compiler, bench.device.arch)

    def compile_one(program: Program) -> None:
        compile_kernels(compiler, program.source, arch, DiskCache())

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(compile_one, programs(case).values()))


def check(case: Case, names: str = "") -> bool:
    """Whether each block gives what torch does, with arrays that begin anywhere, too."""
    arrays = [each.tensor("cuda") for each in case.given]
    moved = [torch.cat((x.flatten()[:1], x.flatten()))[1:].view(x.shape) for x in arrays]
    expected = case.body(*(x.float() for x in arrays))
    right = True
    for name, program in programs(case, names).items():
        native = CudaProgram(program)
        for given in (arrays, moved):
            error = float((native(*given).float() - expected).abs().max() / expected.abs().max())
            print(f"{case.name} {name}: error {error:.1e}", flush=True)
            right = right and error <= TOLERANCES[case.given[0].dtype]
    return right


def measure(bench: Bench, case: Case, flops: float) -> None:
    worst = TOLERANCES[case.given[0].dtype]
    arrays = [each.tensor("cuda") for each in case.given]
    expected = case.body(*arrays).float()
    for name, program in programs(case).items():
        native = CudaProgram(program)
        found = native(*arrays)
        assert found.shape == expected.shape and found.dtype == arrays[0].dtype
        error = float((found.float() - expected).abs().max() / expected.abs().max())
        ours, theirs = (bench.milliseconds([call], 10) for call in (native.bind(*arrays), partial(case.body, *arrays)))
        rate = f"{flops / ours / 1e9:.0f} TFLOP/s"
        if not error <= worst:
            print(f"  {case.name} {name} is WRONG", flush=True)
        print(f"| {case.name} | {name} | {ours:.4f} | {rate} | {theirs:.4f} | {error:.1e} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--compile-only", action="store_true", help="fill the compiler's cache; nothing is timed")
    parser.add_argument("--check", action="store_true", help="values alone, of small and odd shapes")
    parser.add_argument("--blocks", default="", help="with --check: blocks whose names begin so")
    options = parser.parse_args()
    ends = time.monotonic() + options.seconds
    bench = Bench(False, ["eager"])
    with bench.device.active():
        if options.check:
            right = [check(case_of(f"{shape}", shape, dtype, causal), options.blocks) for shape, dtype, causal in SMALL]
            raise SystemExit(0 if all(right) else 1)
        for name, (shape, dtype, causal) in SITES.items():
            if (options.only and name not in options.only.split(",")) or time.monotonic() > ends:
                continue
            case = case_of(name, shape, dtype, causal)
            if options.compile_only:
                compile_all(bench, case)
                continue
            b, h, n, d = shape
            measure(bench, case, 4 * b * h * n * n * d / (2 if causal else 1))


if __name__ == "__main__":
    main()
