"""What a call through torch.compile costs beside the library's own call into existing memory, and what memory stays.

    python benchmarks/client_results.py [--threads 1] [--pairs 15] [--calls 1000]

Calls are measured in pairs, in turn, in processor time of all threads; the ratio of each pair is that of torch.compile,
whose results are dropped at once, to the same function called with `out`. Then so many calls more, and the resident memory
before and after.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fuse_opt
from fuse_opt.frontends.torch.fx.api import torch

ELEMENTS = 16 << 20


def gelu(x: Any, y: Any) -> Any:
    return torch.nn.functional.gelu(x + y) * 2


def multiply_add(x: Any, y: Any) -> Any:
    return x * 3 + y


def softmax(x: Any) -> Any:
    return torch.softmax(x, -1)


def two_results(x: Any, y: Any) -> Any:
    return x + y, x * y


FUNCTIONS: tuple[tuple[Callable[..., Any], tuple[tuple[int, ...], ...]], ...] = (
    (gelu, ((ELEMENTS,), (ELEMENTS,))),
    (multiply_add, ((ELEMENTS,), (ELEMENTS,))),
    (softmax, ((ELEMENTS // 1024, 1024),)),
    (two_results, ((ELEMENTS // 2,), (ELEMENTS // 2,))),
)


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def seconds(call: Callable[[], Any]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


def measure(
    function: Callable[..., Any], shapes: Sequence[Sequence[int]], pairs: int, calls: int, folder: Path
) -> None:
    """One function's ratios and growth."""
    name = function.__name__
    arguments = [torch.rand(shape) for shape in shapes]
    with torch.no_grad():
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="fuse_opt", options={"dump": str(folder / name)})
        compiled(*arguments)
        native = fuse_opt.compile(next((folder / name).glob("*_inference.mlir")), target="cpu")
        arrays = [argument.numpy() for argument in arguments]
        out = [np.empty(value.shape, value.dtype) for value in native.signature.results]
        native(*arrays, out=out)
        ratios = [
            seconds(lambda: compiled(*arguments)) / seconds(lambda: native(*arrays, out=out)) for _ in range(pairs)
        ]
        own = [seconds(lambda: native(*arrays)) / seconds(lambda: native(*arrays, out=out)) for _ in range(pairs)]
        before = resident()
        for _ in range(calls):
            compiled(*arguments)
        grown = (resident() - before) / 2**20
    for client, found in (("torch.compile", ratios), ("new NumPy arrays", own)):
        found.sort()
        print(f"{name:18} {client:17} {found[0]:5.2f} {statistics.median(found):5.2f} {found[-1]:5.2f}", end="")
        print(f"  {grown:+.1f} MiB after {calls} calls" if client == "torch.compile" else "", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--calls", type=int, default=1000)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    os.environ["FUSE_OPT_NUM_THREADS"] = str(given.threads)
    print(f"{ELEMENTS} elements of f32, {given.threads} threads; ratio to a call with out: least, median, most")
    with tempfile.TemporaryDirectory() as directory:
        for function, shapes in FUNCTIONS:
            measure(function, shapes, given.pairs, given.calls, Path(directory))


if __name__ == "__main__":
    main()
