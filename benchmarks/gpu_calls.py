"""Host microseconds of calls on the GPU that is there: by kernels of the program, launched one by one or as a graph, and torch's.

    python benchmarks/gpu_calls.py              # arrays are torch's, on its stream
    python benchmarks/gpu_calls.py --stand-in   # PyCUDA's, on the stand-in driver of the tests, which runs nothing meanwhile

Each figure is the least median of five rounds of 200 calls that the device keeps up with. On the stand-in it is processor time
of the calling thread, the least and the median of 25 rounds of all ways in turns. Of a bound call `driver` is what the launch
alone takes, through ctypes, and `ctypes` what calling a function of as many arguments takes that does nothing: the stand-in's own
work is the difference, and what is left is ours.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import fuse_opt
from fuse_opt.runtime.cuda import steps

SUPPORT = Path(__file__).resolve().parent.parent / "tests" / "support"
COUNTS = (1, 2, 3, 5, 8, 16, 32)
"""Of arrays."""
ROUNDS, CALLS = 25, 200
torch: Any = None


def chain(length: int, arrays: int = 1) -> str:
    """So many kernels without fusion, over the sum of so many arrays."""
    t = "tensor<1024xf32>"
    lines, last = list[str](), "%x0"
    for k in range(1, arrays):
        lines.append(f"%s{k} = graph.add {last}, %x{k} : ({t}, {t}) -> {t}")
        last = f"%s{k}"
    for k in range(length - (arrays - 1)):
        lines.append(f"%v{k} = graph.{('tanh', 'abs')[k % 2]} {last} : ({t}) -> {t}")
        last = f"%v{k}"
    head = f"func.func @main({', '.join(f'%x{k}: {t}' for k in range(arrays))}) -> {t} {{"
    return "\n".join([head, *lines, f"func.return {last} : {t}", "}"])


def microseconds(call: Callable[[], Any], count: int = 200) -> float:
    for _ in range(20):
        call()
    rounds: list[float] = []
    for _ in range(5):
        torch.cuda.synchronize()
        times: list[float] = []
        for _ in range(count):
            started = time.perf_counter()
            call()
            times.append(time.perf_counter() - started)
        rounds.append(statistics.median(times))
    torch.cuda.synchronize()
    return round(1e6 * min(rounds), 2)


def ours(text: str, arrays: list[Any], pipeline: str | None, direct: int) -> dict[str, float]:
    before = steps.MOST_DIRECT
    steps.MOST_DIRECT = direct
    try:
        native: Any = fuse_opt.compile(text, target="cuda", pipeline=pipeline).native
        out = torch.empty_like(arrays[0])
        found = {
            "call": microseconds(lambda: native(*arrays)),
            "out": microseconds(lambda: native(*arrays, out=[out])),
            "bound": microseconds(native.bind(*arrays, out=[out])),
        }
    finally:
        steps.MOST_DIRECT = before
    return found


def rounds_of(calls: dict[str, Callable[[], Any]], wait: Callable[[], None]) -> dict[str, list[float]]:
    """By name, microseconds of processor time of a call, of each round; the ways take turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(20):
            call()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            wait()
            started = time.thread_time_ns()
            for _ in range(CALLS):
                call()
            times[name].append((time.thread_time_ns() - started) / CALLS / 1e3)
    return times


def by_arrays(count: int, kernels: int) -> str:
    """A line: a program of so many arguments; of one kernel, or of several without fusion."""
    array: Any = import_module("pycuda.gpuarray")
    pipeline = None if kernels == 1 else "unfused"
    native: Any = fuse_opt.compile(chain(max(kernels, count), count), target="cuda", pipeline=pipeline).native
    *arrays, out = [array.to_gpu(np.zeros(1024, np.float32)) for _ in range(count + 1)]
    bound = native.bind(*arrays, out=[out])
    calls: dict[str, Callable[[], Any]] = {
        "call": lambda: native(*arrays),
        "out=": lambda: native(*arrays, out=[out]),
        "bound": bound,
    }
    if kernels == 1:
        start: Any = native._steps.bound(native._bound(arrays, [out], None).table, native._stream.handle)
        # Of four arguments, too, and empty on the stand-in.
        nothing = import_module("ctypes").CDLL("libcuda.so.1")["cuFuncSetBlockShape"]
        calls["driver"], calls["ctypes"] = start, partial(nothing, *start.args)
    found = rounds_of(calls, import_module("pycuda.driver").Context.synchronize)
    cells = [f"{min(times):.1f} ({statistics.median(times):.1f})" for times in found.values()]
    cells += ["-"] * (5 - len(cells))
    return f"| {count} | {kernels} | {' | '.join(cells)} |"


def stand_in_table() -> None:
    from fuse_opt.runtime.device.driver import open_device

    print("| arrays | kernels | call | out= | bound | driver | ctypes |\n|---|---|---|---|---|---|---|")
    with open_device().active():
        for count in COUNTS:
            print(by_arrays(count, 1), flush=True)
        for kernels in (2, 6, 12):
            print(by_arrays(1, kernels), flush=True)


def main() -> None:
    global torch
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stand-in", action="store_true", help="on the stand-in driver")
    if parser.parse_args().stand_in:
        sys.path.insert(0, str(SUPPORT))
        import_module("stand_in_driver").restart()
        return stand_in_table()
    torch = import_module("torch")
    print("| program | way | call | out= | bound |\n|---|---|---|---|---|")
    x = torch.randn(1024, device="cuda")
    for kernels in (1, 2, 3, 4, 6, 12):
        for way, direct in (("launches", 99), ("graph", 0)):
            found = ours(chain(kernels), [x], "unfused", direct)
            print(f"| {kernels} kernels | {way} | {found['call']} | {found['out']} | {found['bound']} |", flush=True)
    five = [torch.randn(1024, device="cuda") for _ in range(5)]
    found = ours(chain(6, 5), five, None, 3)
    print(f"| 5 arrays, fused | launches | {found['call']} | {found['out']} | {found['bound']} |")

    def body(a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
        return (a + b + c + d + e).tanh()

    print(f"| 5 arrays | torch, eager: 5 kernels | {microseconds(lambda: body(*five))} | | |")
    made = torch.compile(body, dynamic=False)
    print(f"| 5 arrays | torch.compile | {microseconds(lambda: made(*five))} | | |")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made(*five)
    print(f"| 5 arrays | torch.cuda.CUDAGraph.replay | | | {microseconds(graph.replay)} |")
    out = torch.empty_like(x)
    print(f"| 1 array | torch.tanh(out=) | | {microseconds(lambda: torch.tanh(x, out=out))} | |")


if __name__ == "__main__":
    main()
