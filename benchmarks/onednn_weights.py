"""oneDNN's convolutions and products with weights as they lie, and in the panels that it would have: calls of the library alone.

    python benchmarks/onednn_weights.py [--turns 15] [--only 3x3] [--flush]

Shapes are those of ResNet-50, one image, channels innermost, f32 and one thread. Of windows of one element, one at each position,
there are columns for the same as a product. Prints microseconds of processor time of a call, the lower quartile of turns in
rotation, and the medians of ratios to the first column; with --flush caches hold something else before each call. What the
library has only by unfolded windows or loops is left out; `*` are panels that the filters do not fill, which no type of ours has.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from fuse_opt.runtime.backends.onednn.library import Library, OneDnnError, load_library
from fuse_opt.runtime.backends.onednn.primitives import Bound, Dense, Problem, Windows, primitive_of
from fuse_opt.runtime.backends.onednn.trial import arguments_of
from fuse_opt.runtime.buffers import AlignedArena

SHAPES = [
    # channels, filters, size, window, stride
    (64, 64, 56, 3, 1), (128, 128, 28, 3, 1), (256, 256, 14, 3, 1), (512, 512, 7, 3, 1),
    (128, 128, 56, 3, 2), (256, 256, 28, 3, 2), (512, 512, 14, 3, 2),
    (64, 64, 56, 1, 1), (64, 256, 56, 1, 1), (256, 64, 56, 1, 1), (256, 128, 56, 1, 1), (128, 512, 28, 1, 1),
    (512, 128, 28, 1, 1), (512, 256, 28, 1, 1), (256, 1024, 14, 1, 1), (1024, 256, 14, 1, 1), (1024, 512, 14, 1, 1),
    (512, 2048, 7, 1, 1),
    (2048, 512, 7, 1, 1), (256, 512, 56, 1, 2), (512, 1024, 28, 1, 2), (1024, 2048, 14, 1, 2),
]  # fmt: skip
COLUMNS = ("plain", "panels", "product", "product, panels")
Run = Callable[[], None]


def problems(channels: int, filters: int, size: int, window: int, stride: int) -> list[Problem | None]:
    """One a column; None where there is no such problem."""
    result, pad = -(-size // stride), window // 2

    def image(count: int, extent: int) -> Dense:
        return Dense((1, count, extent, extent), "f32", (count * extent * extent, 1, extent * count, count))

    taps = channels * filters
    plain = Dense((filters, channels, window, window), "f32", (1, filters, window * taps, taps))
    windows = Windows((stride,) * 2, (0, 0), (pad,) * 2, (pad,) * 2)
    found = Problem(image(channels, size), plain, image(filters, result), windows)
    rows, matrix = size * size, Dense.in_order((channels, filters), "f32")
    product = Problem(Dense.in_order((rows, channels), "f32"), matrix, Dense.in_order((rows, filters), "f32"))
    each: list[Problem | None] = [
        found,
        _free(found),
        *((product, _free(product)) if window == stride == 1 else (None, None)),
    ]
    return each


def _free(problem: Problem) -> Problem:
    assert problem.weights is not None
    return replace(problem, weights=replace(problem.weights, strides=()))


def runner(library: Library, problem: Problem) -> tuple[Run, bool] | None:
    """A call, and whether filters fill the panels that it reads; None where the library has no good code for it."""
    try:
        primitive = primitive_of(library, problem)
    except OneDnnError:
        return None
    if primitive.refusal is not None or problem.weights is None:
        return None
    blocks = library.blocks(primitive.weights_desc, len(problem.weights.shape))
    bound = Bound(primitive)
    counts = (prod(problem.src.shape), prod(blocks.padded), prod(problem.dst.shape))
    arrays = [np.random.default_rng(0).standard_normal(n).astype(np.float32) for n in counts]
    scratch = AlignedArena(max(primitive.scratchpad_bytes, 64), 64)
    addresses = [array.ctypes.data for array in arrays]
    for memory, address in zip(bound.memory, [*addresses, scratch.address], strict=False):
        library.call("dnnl_memory_set_data_handle", memory, address)
    arguments = arguments_of(bound)

    def run() -> None:
        library.call("dnnl_primitive_execute", primitive.handle, bound.stream, len(arguments), arguments)

    run.kept = (bound, arrays, scratch)  # type: ignore[attr-defined]
    return run, blocks.padded == problem.weights.shape


def seconds(run: Run, flush: Any) -> float:
    if flush is not None:
        flush += 1
        start = time.process_time_ns()
        run()
        return (time.process_time_ns() - start) * 1e-9
    run()
    calls, start = 0, time.process_time_ns()
    while (spent := time.process_time_ns() - start) < 2e6:
        run()
        calls += 1
    return spent * 1e-9 / calls


def compare(library: Library, shape: tuple[int, int, int, int, int], turns: int, flush: Any) -> str:
    channels, filters, size, window, stride = shape
    found = [None if each is None else runner(library, each) for each in problems(*shape)]
    times: list[list[float]] = [[] for _ in found]
    with library.one_thread():
        for _ in range(turns):
            for number, each in enumerate(found):
                if each is not None:
                    times[number].append(seconds(each[0], flush))
    cells: list[str] = []
    for each, own in zip(found, times, strict=True):
        if each is None or not own:
            cells.append(f"{'-':>16s}")
            continue
        ratio = statistics.median(a / b for a, b in zip(own, times[0] or own, strict=True))
        cells.append(f"{statistics.quantiles(own, n=4)[0] * 1e6:9.1f} {ratio:5.2f}{' ' if each[1] else '*'}")
    name = f"{channels} to {filters} of {size}x{size}, {window}x{window}" + (f" by {stride}" if stride > 1 else "")
    return f"{name:34s}" + " ".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--only", default="", help="shapes whose window is this, as 3x3")
    parser.add_argument("--flush", action="store_true", help="other data in the caches before each call")
    arguments = parser.parse_args()
    library, flush = load_library(), np.zeros(16 << 20, np.float32) if arguments.flush else None
    print(f"{'microseconds, ratio to the first':34s}" + " ".join(f"{name:>16s}" for name in COLUMNS))
    for shape in SHAPES:
        if arguments.only in ("", f"{shape[3]}x{shape[3]}"):
            print(compare(library, shape, arguments.turns, flush), flush=True)


if __name__ == "__main__":
    main()
