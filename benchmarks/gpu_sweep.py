"""Schedules of a program's kernels on the GPU that is there, beside the one that is chosen: what the rules leave on the table.

    python benchmarks/gpu_sweep.py [--only W2,S771,sum_rows] [--seconds 100] [--out FILE]

Names are those of gpu_workloads.py and gpu_ops.py. Each kernel gets every legal entry `gpu` of its kind; the programs are
compiled side by side. The best three are timed again beside the default, in turns: `gain` is the default's time over the best's.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

from gpu_measure import Bench, program_calls
from gpu_ops import cases_of_ops, text_of
from gpu_workloads import array_bytes, workloads
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.ir import Attribute

import fuse_opt
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.fused.gpu_schedule import ENTRY
from fuse_opt.lowering.emit.cuda import build_cuda_program
from fuse_opt.lowering.program import Program
from fuse_opt.runtime.cuda.program import CudaProgram
from fuse_opt.runtime.device.compiler import compile_kernels, find_cuda_compiler, supported_arch
from fuse_opt.runtime.disk_cache import DiskCache

Entry = dict[str, int | str]
_THREADS = (128, 256, 512)
_FINAL = 3


def entries(kind: str) -> Iterator[Entry]:
    """What is tried for kernels of a kind."""
    yield {"cache": "once"}
    if kind == "pointwise":
        for threads, vector, unroll in product(_THREADS, (2, 4, 8), (1, 2, 4)):
            yield {"threads": threads, "vector": vector, "unroll": unroll}
    elif kind == "tile":
        for tile, threads in product((32, 64), (128, 256, 512)):
            yield {"tile": tile, "threads": threads}
    elif kind in ("row", "column", "split"):
        for vector in (1, 4, 8):
            yield from ({"variant": "warp", "threads": threads, "vector": vector} for threads in (64, 128, 256))
            for variant, threads in product(("block", "shared", "stream"), (64, 128, 256, 512, 1024)):
                yield {"variant": variant, "threads": threads, "vector": vector}
        if kind != "row":
            for splits, threads in product((4, 16, 64, 264, 528), (128, 256, 512)):
                yield {"splits": splits, "threads": threads}


def kernels(module: ModuleOp, kind: str | None = None) -> list[KernelOp]:
    found = [op for op in module.walk() if isinstance(op, KernelOp) and op.schedule is not None]
    return [op for op in found if kind is None or kind_of(op) == kind]


def kind_of(kernel: KernelOp) -> str:
    assert kernel.schedule is not None
    kind = kernel.schedule.data["kind"]
    assert isinstance(kind, StringAttr)
    return kind.data


def with_entry(module: ModuleOp, kind: str, entry: Entry) -> ModuleOp:
    copy = module.clone()
    values: dict[str, Attribute] = {
        name: StringAttr(value) if isinstance(value, str) else IntegerAttr(value, i64) for name, value in entry.items()
    }
    for kernel in kernels(copy, kind):
        assert kernel.schedule is not None
        kernel.schedule = DictionaryAttr({**kernel.schedule.data, ENTRY: DictionaryAttr(values)})
    copy.verify()
    return copy


def candidates(module: ModuleOp) -> dict[str, Program]:
    """By what was said, programs whose text differs; the default one first."""
    made = {"default": build_cuda_program(module)}
    texts = {made["default"].source}
    for kind in dict.fromkeys(map(kind_of, kernels(module))):
        for entry in entries(kind):
            try:
                program = build_cuda_program(with_entry(module, kind, entry))
            except Exception:  # what is not legal for these kernels
                continue
            if program.source not in texts:
                texts.add(program.source)
                made[f"{kind} " + " ".join(f"{k}={v}" for k, v in entry.items())] = program
    return made


def compiled(programs: dict[str, Program], arch: str) -> None:
    """Into the cache of the disk, side by side."""
    compiler = find_cuda_compiler()
    assert compiler is not None
    arch = supported_arch(compiler, arch)

    def compile_one(program: Program) -> None:
        compile_kernels(compiler, program.source, arch, DiskCache())

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, programs.values()))


def tensors(bench: Bench, name: str, sets: bool = True) -> tuple[str, list[list[Any]]]:
    """The text of a case, and sets of arrays that together do not fit the cache."""
    torch = bench.torch
    if (workload := next((w for w in workloads() if w.name == name), None)) is not None:
        moved = sum(array_bytes(shape, workload.dtype(k)) for k, shape in enumerate(workload.shapes))
        return workload.text(), bench.sets(workload, max(2, 2 * bench.cache // moved + 1)) if sets else []
    case = next(case for case in cases_of_ops() if case.name == name)
    if not sets:
        return text_of(case), []
    generator = torch.Generator("cuda").manual_seed(0)
    arrays = [each.tensor("cuda", generator) for each in case.given]
    return text_of(case), [arrays, *([x.clone() for x in arrays] for _ in range(2))]


def sweep(bench: Bench, name: str) -> dict[str, Any]:
    text, sets = tensors(bench, name)
    programs = candidates(fuse_opt.compile(text, target="cuda").module)
    compiled(programs, bench.device.arch)
    times: dict[str, float] = {}
    ready: dict[str, Any] = {}
    for said, program in programs.items():
        try:
            ready[said] = program_calls(CudaProgram(program), sets)
            times[said] = bench.milliseconds(ready[said], 5)
        except Exception as error:
            print(f"  {name} {said}: {type(error).__name__}: {str(error)[:120]}")
    best = sorted((each for each in times if each != "default"), key=lambda each: times[each])[:_FINAL]
    rounds: dict[str, list[float]] = {said: [] for said in ("default", *best)}
    for _ in range(5):
        for said, found in rounds.items():
            found.append(bench.milliseconds(ready[said], 5))
    final = {said: sorted(found)[2] for said, found in rounds.items()}
    least = min(final, key=lambda each: final[each])
    return {"name": name, "tried": len(times), "default_ms": final["default"], "best": least,
            "gain": round(final["default"] / final[least], 3), "times": times, "final": final}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", default="W1,W2,W2h,W3,W4,N771,S771,S50k,S128k,W10,sum_rows,sum_axis0,mean_middle,permute_heads"
    )
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compile-only", action="store_true", help="fill the compiler's cache; nothing is timed")
    options = parser.parse_args()
    ends = time.monotonic() + options.seconds
    bench = Bench(False, [])
    rows: list[dict[str, Any]] = []
    with bench.device.active():
        for name in options.only.split(","):
            if time.monotonic() > ends:
                break
            if options.compile_only:
                text, _ = tensors(bench, name, sets=False)
                compiled(candidates(fuse_opt.compile(text, target="cuda").module), bench.device.arch)
                continue
            rows.append(row := sweep(bench, name))
            print(f"| {name} | {row['tried']} | {row['default_ms']:.4f} | {row['gain']} | {row['best']} |", flush=True)
            if options.out:
                options.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
