"""What fuzzers of programs on NumPy's arrays share: how arrays are judged, also after a second call, and the command."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Call = Callable[[Sequence[Array]], Sequence[Array]]
_SHOWN = 300


def value_fault(name: str, found: Array, wanted: Array, tolerance: float, rough: bool = False) -> str | None:
    """
    How an array differs; relative to its largest element, as sums of terms of any sign are not exact by element. `rough`
    integers may differ by one.
    """
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"{name}: {found.dtype}{list(found.shape)}, expected {wanted.dtype}{list(wanted.shape)}"
    if wanted.dtype.kind in "biu":
        far = np.abs(found.astype(np.int64) - wanted.astype(np.int64)) if rough else found != wanted
        return None if not (far > rough).any() else f"{name}: {_short(found)}, expected {_short(wanted)}"
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    finite = np.abs(b[np.isfinite(b)])
    scale = max(1.0, float(finite.max())) if finite.size else 1.0
    if np.allclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
        return None
    return f"{name}: by {np.nanmax(np.abs(a - b)):.3g}, {_short(found)}, expected {_short(wanted)}"


def _short(array: Array) -> str:
    return str(array.tolist())[:_SHOWN]


def memory_fault(
    call: Call, given: Mapping[str, Array], arrays: Sequence[Array], results: Mapping[str, Array]
) -> str | None:
    """
    What is wrong with what a call left: `arrays`, copies of the arguments `given` that it had, are as they were; another call
    gives the same in other memory.
    """
    for (name, before), after in zip(given.items(), arrays, strict=True):
        if before.tobytes() != after.tobytes():
            return f"{name}: changed by the call"
    kept = [found.copy() for found in results.values()]
    second = call(arrays)
    for (name, found), other, before in zip(results.items(), second, kept, strict=True):
        if other.tobytes() != before.tobytes() or found.tobytes() != before.tobytes():
            return f"{name}: another value after a second call"
        if any(np.shares_memory(found, array) for array in (*second, *arrays) if array.size and found.size):
            return f"{name}: shares memory with another result or an argument"
    return None


class Summary(Protocol):
    """What was run, and what was found."""

    refused: Counter[str]
    reports: list[str]

    def line(self) -> str: ...


def run(description: str, check: Callable[[range, str, int], Summary], given: Sequence[str] | None = None) -> int:
    """The command of a fuzzer: seeds, target and most of what a program has are told to `check`. The exit status."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--length", type=int, default=6, help="nodes or statements of a program, at most")
    parser.add_argument("--target", choices=("cpu", "reference"), default="cpu")
    parser.add_argument("--refusals", action="store_true", help="print what is refused, and how often")
    options = parser.parse_args(given)
    started = time.perf_counter()
    summary = check(range(options.seed, options.seed + options.cases), options.target, options.length)
    if options.refusals:
        for text, count in summary.refused.most_common():
            print(f"  {count} x {text}")
    print(f"{summary.line()}, {time.perf_counter() - started:.1f} s")
    return 1 if summary.reports else 0
