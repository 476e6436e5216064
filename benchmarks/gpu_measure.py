"""The benchmark of gpu_run.py: every workload beside the copy rate and torch, by medians of CUDA events.

Buffers are rotated, so that inputs are not found in the cache: together they are more than twice its size.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
from gpu_workloads import Torch, Workload, array_bytes, workloads
from numpy.typing import NDArray

from fuse_opt.lowering.program import BufferRef, GridLaunch
from fuse_opt.lowering.program.float_formats import NARROW, narrow
from fuse_opt.runtime.cuda.program import CudaProgram
from fuse_opt.runtime.device.driver import open_device
from fuse_opt.runtime.device.driver_library import NON_BLOCKING
from fuse_opt.tools.commands.measuring import difference
from fuse_opt.tools.compiler.api import compile, evaluate
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

_SMALL = 1 << 24
"""Bytes below which a workload is bound by launches: many calls are timed together."""
_LARGE_TOGETHER = 5
"""Calls of larger workloads between two events: what is between them is not counted as theirs."""
_HOLD, _CLOCK = 0.2, 1.7e6
"""Milliseconds in front of each call that the device sleeps; ticks of its clock in one, about."""
_DRY_SCALE = 4096
_TOLERANCE = {"f32": 2e-4, "bf16": 3e-2}


class Bench:
    """A device with the means to measure on it: torch where it is there, else PyCUDA's arrays and events."""

    def __init__(self, dry: bool, peers: Sequence[str]) -> None:
        self.dry, self.peers = dry, peers
        self.torch: Any = None
        # It knows no device here, as with the stand-in's driver, or was built without CUDA (which is an AssertionError).
        with suppress(ImportError, RuntimeError, AssertionError):
            torch = import_module("torch")
            torch.cuda.init()
            self.torch = torch
        self.device = open_device()
        self.gpuarray: Any = import_module("pycuda.gpuarray")
        attribute = self.device.driver.device_attribute.L2_CACHE_SIZE
        self.cache = self.device.driver.Device(self.device.number).get_attribute(attribute)

    def array(self, values: Any, dtype: str) -> Any:
        """One of PyCUDA's, on the device."""
        return self.gpuarray.to_gpu(values if dtype != "bf16" else narrow(values, "bf16"))

    def made(self, workload: Workload, seed: int) -> list[Any]:
        """The workload's arrays, of torch on the device where it is there."""
        if self.torch is None:
            return [self.array(value, workload.dtype(k)) for k, value in enumerate(workload.inputs(seed))]
        return workload.tensors(self.torch, seed)

    def sets(self, workload: Workload, count: int) -> list[list[Any]]:
        """So many sets of the workload's arrays: few of different values, then copies of those."""
        made = [self.made(workload, seed) for seed in range(min(count, 3))]
        for number in range(len(made), count):
            made.append([array.copy() if self.torch is None else array.clone() for array in made[number % 3]])
        return made

    def on_host(self, array: Any) -> Any:
        if isinstance(array, np.ndarray):
            return cast(NDArray[Any], array)
        return array.get()

    def event(self) -> Any:
        return self.device.driver.Event() if self.torch is None else self.torch.cuda.Event(enable_timing=True)

    def synchronize(self) -> None:
        self.device.driver.Context.synchronize()

    def hold(self, milliseconds: float) -> None:
        """Keeps the device busy for about so long, so that the host is ahead of it when a measurement begins."""
        if self.torch is not None and not self.dry:
            self.torch.cuda._sleep(int(milliseconds * _CLOCK))

    def milliseconds(self, calls: list[Callable[[], Any]], together: int = 1) -> float:
        """The median of a call, each of the given ones in turns, `together` of them between two events."""
        turns = 2 if self.dry else 30
        for call in calls * (2 if self.dry else 3):
            call()
        self.synchronize()
        pairs: list[tuple[Any, Any]] = []
        for turn in range(turns):
            begin, end = self.event(), self.event()
            self.hold(_HOLD * together)
            begin.record()
            for k in range(together):
                calls[(turn * together + k) % len(calls)]()
            end.record()
            pairs.append((begin, end))
        self.synchronize()
        times = [b.time_till(e) if self.torch is None else b.elapsed_time(e) for b, e in pairs]
        return statistics.median(times) / together

    def copy_milliseconds(self, moved: int, together: int) -> float:
        """Of copies on the device that read and write as many bytes together, from places that take turns as arrays do."""
        size, driver = max(moved // 2, 1), self.device.driver
        count = 1 if moved < _SMALL else max(2, math.ceil(2 * self.cache / moved) + 1)
        pairs = [(driver.mem_alloc(size), driver.mem_alloc(size)) for _ in range(count)]
        return self.milliseconds(
            [partial(driver.memcpy_dtod_async, target, source, size, None) for target, source in pairs], together
        )

    def copy_rate(self) -> float:
        """Bytes read and written a second, in GB/s, by a copy on the device."""
        size = 1 << 20 if self.dry else 1 << 29
        source, target = self.device.driver.mem_alloc(size), self.device.driver.mem_alloc(size)
        driver = self.device.driver
        return 2 * size / self.milliseconds([lambda: driver.memcpy_dtod_async(target, source, size, None)]) / 1e6


def program_calls(program: CudaProgram, sets: Sequence[list[Any]]) -> list[Callable[[], Any]]:
    """A call for each set of arrays, bound to it and to results of its own."""
    return [program.bind(*arrays) for arrays in sets]


def made(workload: Workload, pipeline: list[str] | None = None) -> CudaProgram:
    """What a caller gets: made for the device that is there."""
    native = compile(workload.text(), target="cuda", pipeline=pipeline).native
    assert isinstance(native, CudaProgram)
    return native


def fast_program(workload: Workload, strict: CudaProgram) -> CudaProgram | None:
    """The workload with `math=fast`; None where its text is that of the strict one but for what comments say."""
    passes = [text.replace("schedule-kernels", "schedule-kernels{math=fast}") for text in DEFAULT_PIPELINE]
    program = made(workload, passes)
    return None if program.source == strict.source else program


PEERS = ("eager", "compile", "graphs", "autotune", "triton")
"""The names of torch's ways; the fastest of them is the peer that a workload is compared with."""
_MODES = {"compile": None, "graphs": "reduce-overhead", "autotune": "max-autotune"}


def forget_compiled(torch: Any) -> None:
    """
    Torch compiles one function so many times, then runs it as it is without a word: each workload begins anew, and where
    that limit is met all the same it is an error.
    """
    dynamo = torch._dynamo
    dynamo.reset()
    dynamo.utils.counters.clear()
    dynamo.config.fail_on_recompile_limit_hit = True


def compiled_graphs(torch: Any) -> int:
    """The graphs that torch has compiled since `forget_compiled`."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def peers(bench: Bench, workload: Workload) -> dict[str, Callable[[Any], Any]]:
    """Torch's ways of running the workload, of those that are asked for."""
    if bench.torch is None:
        return {}
    functions = Torch(bench.torch)

    def eager(arrays: Any) -> Any:
        return workload.body(functions, *arrays)

    ways = {"eager": eager}
    ways |= {name: bench.torch.compile(eager, dynamic=False, mode=mode) for name, mode in _MODES.items()}
    with suppress(ImportError):
        if (kernel := import_module("gpu_triton").BY_WORKLOAD.get(workload.name)) is not None:
            ways["triton"] = lambda arrays: kernel(*arrays)
    return {name: call for name, call in ways.items() if name in bench.peers}


def largest_error(bench: Bench, workload: Workload, program: CudaProgram) -> float:
    """Of the program's results: against torch in f64 on the device where it is there, else against the reference."""
    if bench.torch is not None:
        arrays = bench.made(workload, 0)
        wide = [x.double() if x.is_floating_point() else x for x in arrays]
        expected = _listed(workload.body(Torch(bench.torch), *wide))
        del wide
        return max(gap(bench.torch, a, b) for a, b in zip(_listed(program(*arrays)), expected, strict=True))
    inputs = workload.inputs(0)
    given = [narrow(v, "bf16") if workload.dtype(k) == "bf16" else v for k, v in enumerate(inputs)]
    wanted = _listed(evaluate(workload.text(), *given))
    found = _listed(program(*(bench.array(value, workload.dtype(k)) for k, value in enumerate(inputs))))
    return max(difference(_as_narrow(bench.on_host(a), b), b) for a, b in zip(found, wanted, strict=True))


def gap(torch: Any, found: Any, expected: Any) -> float:
    """As `difference`, of tensors on a device, in parts that leave memory for others; NaN is infinitely far."""
    if found.shape != expected.shape:
        return math.inf
    worst = torch.zeros((), dtype=torch.float64, device=found.device)
    size = torch.ones_like(worst)
    for a, b in zip(found.flatten().split(1 << 24), expected.flatten().split(1 << 24), strict=True):
        distance = (a.double() - b.double()).abs()
        worst = torch.maximum(worst, torch.nan_to_num(distance, math.inf, math.inf).max())
        size = torch.maximum(size, b.abs().max().double())
    return float(worst / size)


def _listed(values: Any) -> list[Any]:
    return [*values] if isinstance(values, tuple) else [values]  # pyright: ignore[reportUnknownVariableType]


def peer_error(bench: Bench, call: Callable[[Any], Any], workload: Workload, arrays: Any) -> float:
    """Of a kernel written by hand, against torch."""
    return gap(bench.torch, call(arrays), workload.body(Torch(bench.torch), *arrays))


def _as_narrow(array: Any, like: Any) -> Any:
    return array.view(like.dtype) if like.dtype in NARROW.values() else array


def measure(bench: Bench, workload: Workload, copy_rate: float, seconds: float) -> dict[str, Any]:
    """A row of the table; torch is left out where no time is left for it."""
    ends = time.monotonic() + seconds
    moved = sum(array_bytes(shape, workload.dtype(k)) for k, shape in enumerate(workload.shapes))
    program = made(workload)
    stats = program.stats
    moved += sum(array_bytes(r.shape, r.dtype) for r in program.program.results)
    small = moved < _SMALL
    error = largest_error(bench, workload, program)
    count = 1 if small else max(2, math.ceil(2 * bench.cache / moved) + 1)
    sets = bench.sets(workload, count)
    together = 1 if bench.dry else 100 if small else _LARGE_TOGETHER
    ours = bench.milliseconds(program_calls(program, sets), together)
    rate = moved / ours / 1e6
    row: dict[str, Any] = {
        "name": workload.name, "about": workload.about, "bytes": moved, "ms": round(ours, 4), "gb_s": round(rate),
        "copy_ms": round(copy := bench.copy_milliseconds(moved, together), 4),
        "of_copy": None if small else round(copy / ours, 3), "of_rate": None if small else round(rate / copy_rate, 3),
        "target": workload.target, "launches": stats.launches,
        "error": f"{error:.1e}", "error_ok": error <= _TOLERANCE.get(workload.dtype(0), 2e-4),
        "registers": max((r.registers for r in program.resources.values()), default=0),
        "spills": sum(r.spill_stores + r.spill_loads for r in program.resources.values()),
    }  # fmt: skip
    if (fast := fast_program(workload, program)) is not None:
        calls = program_calls(fast, sets)
        row["fast_ms"] = round(bench.milliseconds(calls, together), 4)
        row["fast_error"] = f"{largest_error(bench, workload, fast):.1e}"
    if small:
        plain = bench.milliseconds([lambda arrays=arrays: program(*arrays) for arrays in sets], together)
        row["unbound_ms"] = round(plain, 4)
    measure_peers(bench, workload, sets, together, ends, row)
    return row


def measure_peers(
    bench: Bench, workload: Workload, sets: Sequence[list[Any]], together: int, ends: float, row: dict[str, Any]
) -> None:
    """Adds the times of torch's ways to a row, which of them is the fastest, and how many times slower it is than ours."""
    for name, call in peers(bench, workload).items():
        if time.monotonic() > ends:
            row["left_out"] = True
            break
        try:
            forget_compiled(bench.torch)
            if name == "triton":
                row["triton_error"] = f"{peer_error(bench, call, workload, sets[0]):.1e}"
            took = bench.milliseconds([partial(call, arrays) for arrays in sets], together)
            if name in _MODES:
                row[f"{name}_graphs"] = count = compiled_graphs(bench.torch)
                if not count:
                    raise RuntimeError("torch compiled nothing: it ran as it is")
            row[f"{name}_ms"] = round(took, 4)
        except Exception as failure:  # a peer that fails is a peer less
            row[f"{name}_failed"] = str(failure).partition("\n")[0][:200]
    add_best(row)


def add_best(row: dict[str, Any]) -> None:
    """The fastest peer that was measured, and its time over ours: of calls that are bound as ours are."""
    times = {name: row[f"{name}_ms"] for name in PEERS if f"{name}_ms" in row}
    if times:
        best = min(times, key=lambda name: times[name])
        row["best"], row["speedup"] = best, round(times[best] / row["ms"], 2)


EMPTY = 'extern "C" __global__ void empty(float *x) {\n  if (threadIdx.x > 1024) {\n    x[0] = 0;\n  }\n}\n'


def launch_costs(bench: Bench) -> dict[str, float]:
    """Host microseconds of a launch of an empty kernel, in each of the ways there are."""
    from fuse_opt.runtime.device.compiler import compile_cuda, find_cuda_compiler
    from fuse_opt.runtime.device.graphs import CapturedGraphs, RunCounts
    from fuse_opt.runtime.device.kernels import Kernels
    from fuse_opt.runtime.disk_cache import DiskCache

    compiler, driver = find_cuda_compiler(), bench.device.driver
    assert compiler is not None
    image = compile_cuda(compiler, EMPTY, bench.device.arch, DiskCache()).data
    module, kernels = driver.module_from_buffer(image), Kernels(bench.device, image)
    function, stream = module.get_function("empty"), driver.Stream()
    memory = driver.mem_alloc(4)
    packed = ctypes.string_at(ctypes.addressof(ctypes.c_uint64(int(memory))), 8)
    function.prepare("P")
    grid, block = (1, 1, 1), (32, 1, 1)
    launch = GridLaunch("empty", (BufferRef(0, 0, (1,), "f32"),), 1, 1, grid, block)
    start = kernels.start(launch, ctypes.create_string_buffer(packed, 8), 0)
    start.config.stream = stream.handle
    graphs = CapturedGraphs(bench.device, RunCounts(), driver.Stream(NON_BLOCKING))

    def enqueue(stream: Any) -> None:
        function._launch_kernel(grid, block, packed, 0, stream)

    graphs.find(b"", enqueue)
    graph = graphs.find(b"", enqueue)
    ways: dict[str, Callable[[], Any]] = {
        "call": lambda: function(memory, grid=grid, block=block, stream=stream),
        "prepared": lambda: function.prepared_async_call(grid, block, stream, memory),
        "packed": lambda: enqueue(stream),
        "config": start.call,
    }
    if graph is not None:
        ways["graph"] = lambda: graphs.launch(graph, stream.handle)
    costs: dict[str, float] = {}
    for name, call in ways.items():
        rounds: list[float] = []
        for _ in range(5):
            bench.synchronize()
            started = time.perf_counter()
            for _ in range(200):
                call()
            rounds.append((time.perf_counter() - started) / 200)
        costs[name] = round(1e6 * min(rounds), 2)
    bench.synchronize()
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=int, default=480)
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--peers", default=",".join(PEERS), help="those that are measured")
    parser.add_argument(
        "--compile-only", action="store_true", help="fill the caches of all compilers; nothing is timed"
    )
    options = parser.parse_args()
    ends = time.monotonic() + options.seconds
    bench = Bench(options.dry_run, options.peers.split(","))
    with bench.device.active():
        (compile_all if options.compile_only else run)(bench, options.only, ends, options.out)


def chosen_of(bench: Bench, only: str) -> list[Workload]:
    names = only.split(",")
    chosen = [w for w in workloads(_DRY_SCALE if bench.dry else 1) if not only or w.name in names]
    if bench.dry and not only:
        chosen = [w for w in chosen if w.name != "W14"]  # it has one size
    return chosen


def compile_all(bench: Bench, only: str, ends: float, out: Path) -> None:
    """Compiles what `run` measures, by us and by torch, so that a later process finds it in the caches of the disk."""
    for workload in chosen_of(bench, only):
        if time.monotonic() > ends:
            break
        fast_program(workload, made(workload))
        for name, call in peers(bench, workload).items():
            if name in ("compile", "graphs"):
                forget_compiled(bench.torch)
                call(bench.made(workload, 0))
    out.write_text("{}")


def run(bench: Bench, only: str, ends: float, out: Path) -> None:
    """Writes what there is after each workload."""
    copy_rate = bench.copy_rate()
    found: dict[str, Any] = {
        "device": bench.device.name,
        "arch": bench.device.arch,
        "driver": bench.device.driver.get_driver_version(),
        "torch": getattr(bench.torch, "__version__", None),
        "copy_gb_s": round(copy_rate),
        "launch_us": launch_costs(bench),
        "workloads": [],
        "left_out": [],
    }
    chosen = chosen_of(bench, only)
    for number, workload in enumerate(chosen):
        left = ends - time.monotonic()
        if left < 10:
            found["left_out"] = [w.name for w in chosen[number:]]
            break
        found["workloads"].append(measure(bench, workload, copy_rate, left / (len(chosen) - number)))
        ratios: list[float] = [row["speedup"] for row in found["workloads"] if "speedup" in row]
        found["geomean_over_best"] = round(math.prod(ratios) ** (1 / len(ratios)), 3) if ratios else None
        out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
