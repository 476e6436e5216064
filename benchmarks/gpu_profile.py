"""What Nsight Compute counts of each kernel of the workloads of gpu_run.py: bytes of the device's memory, and issue slots.

    ncu --profile-from-start off ... python benchmarks/gpu_profile.py --out FILE [--only W4,W5] [--dry-run]

The process runs each workload twice, the second time where the profiler looks, behind an empty kernel with the workload's name;
`gpu_run.py --stages profile` starts it below `ncu`, and gpu_counters.py reads what that prints. No time that is measured so is a
workload's: clocks are held down, and caches emptied before each kernel.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from gpu_counters import MARK
from gpu_measure import Bench, chosen_of, made
from gpu_workloads import array_bytes

from fuse_opt.runtime.device.compiler import compile_cuda, find_cuda_compiler
from fuse_opt.runtime.disk_cache import DiskCache


def marks(bench: Bench, names: Sequence[str]) -> dict[str, Callable[[], object]]:
    """By name of a workload, what launches a kernel of that name."""
    text = "".join(f'extern "C" __global__ void {MARK}{name}(float *x) {{}}\n' for name in names)
    compiler, driver = find_cuda_compiler(), bench.device.driver
    assert compiler is not None, "there is no compiler for CUDA"
    module = driver.module_from_buffer(compile_cuda(compiler, text, bench.device.arch, DiskCache()).data)
    functions = {name: module.get_function(MARK + name) for name in names}
    memory = driver.mem_alloc(4)
    return {name: partial(mark, memory, grid=(1, 1, 1), block=(1, 1, 1)) for name, mark in functions.items()}


def run(bench: Bench, only: str, ends: float, out: Path) -> None:
    """Runs workloads, as many as there is time for, and writes after each how many bytes those that ran need."""
    chosen, needed = chosen_of(bench, only), dict[str, int]()
    mark = marks(bench, [workload.name for workload in chosen])
    for workload in chosen:
        if time.monotonic() > ends:
            break
        program, arrays = made(workload), bench.made(workload, 0)
        program(*arrays)
        bench.synchronize()
        with watched(bench):
            mark[workload.name]()
            program(*arrays)
            bench.synchronize()
        moved = sum(array_bytes(shape, workload.dtype(k)) for k, shape in enumerate(workload.shapes))
        needed[workload.name] = moved + sum(array_bytes(r.shape, r.dtype) for r in program.program.results)
        out.write_text(json.dumps(needed))


@contextmanager
def watched(bench: Bench) -> Iterator[None]:
    """What a profiler looks at; a stand-in for the driver knows none."""
    if bench.dry:
        yield
        return
    bench.device.driver.start_profiler()
    yield
    bench.device.driver.stop_profiler()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    ends = time.monotonic() + options.seconds
    bench = Bench(options.dry_run, ())
    with bench.device.active():
        run(bench, options.only, ends, options.out)


if __name__ == "__main__":
    main()
