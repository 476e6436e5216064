"""Host microseconds of calls on the GPU that is there: by kernels of the program, launched one by one or as a graph, and torch's.

    python benchmarks/gpu_calls.py

Each figure is the least median of five rounds of 200 calls that the device keeps up with; arrays are torch's, on its stream.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import fuse_opt
from fuse_opt.runtime.cuda import steps

torch: Any = import_module("torch")


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


def main() -> None:
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
