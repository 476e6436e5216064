"""What benchmarks of single functions share: calls in turns, values beside the peer's, a table with the worst first."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "FUSE_OPT_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before libraries are loaded, which look once

import numpy as np  # noqa: E402

SHOWN = 1.1
"""Ratios to the peer from which on a function is printed."""
BOUNDS = {"bfloat16": 8e-3, "float16": 2e-3, "float32": 1e-4, "float64": 1e-9}
"""Differences that two orders of summation leave, as parts of 1 + |value|."""

Array = np.ndarray[Any, Any]
Call = Callable[[], Any]


@dataclass(frozen=True)
class Measured:
    """Microseconds of a call by name, `ours` and those of peers, the first of which it is compared with; what values differ."""

    text: str
    times: Mapping[str, float]
    difference: str = ""

    def ratio(self) -> float:
        return self.times["ours"] / next(iter(self.times.values()))

    def less(self, fixed: Mapping[str, float]) -> Measured:
        """Without what a call of each costs by itself."""
        times = {name: max(time - fixed.get(name, 0.0), 0.1) for name, time in self.times.items()}
        return Measured(self.text, times, self.difference)


def difference(ours: Sequence[Any], peers: Sequence[Any]) -> str:
    """What is not as the peer has it: empty where all is."""
    pairs = ((np.asarray(mine), np.asarray(theirs)) for mine, theirs in zip(ours, peers, strict=True))
    return next((found for mine, theirs in pairs if (found := _array_difference(mine, theirs))), "")


def _array_difference(ours: Any, peer: Any) -> str:
    if (ours.dtype, ours.shape) != (peer.dtype, peer.shape):
        return f"{ours.dtype} {ours.shape}, the peer {peer.dtype} {peer.shape}"
    if peer.dtype.name not in BOUNDS:
        differs: Array = ours != peer
        share = float(differs.mean()) if peer.size else 0.0
        return f"{share:.2g} of the values are others" if share else ""
    bound = BOUNDS[peer.dtype.name]
    mine: Array = ours.astype(np.float64)
    theirs: Array = peer.astype(np.float64)
    same = (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))
    with np.errstate(all="ignore"):
        relative: Array = np.where(same, 0.0, np.abs(mine - theirs) / (1 + np.abs(theirs)))
    return "" if bool((relative <= bound).all()) else f"other values: by {relative.max():.2g}"


def in_turns(
    calls: Mapping[str, Call], seconds: float, behind: Call | None = None, rounds: int = 7
) -> dict[str, float]:
    """
    Medians of the microseconds of each call. Each is behind one of its own, or of `behind`: its result, dropped before the next
    call, lies where the last one lay, in caches or not, for each alike.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    while (turns := len(next(iter(times.values())))) < rounds or (time.perf_counter() < end and turns < 400):
        for name, call in calls.items():
            (behind or call)()
            start = time.perf_counter()
            result = call()
            times[name].append(time.perf_counter() - start)
            del result
    return {name: statistics.median(found) * 1e6 for name, found in times.items()}


def arguments_of(doc: str | None, given: Sequence[str] | None, *flags: str) -> argparse.Namespace:
    """`flags` are those of one benchmark."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, nargs="+", default=[250_000, 4_000_000])
    parser.add_argument("--only", nargs="+", default=[], help="functions whose text has one of these")
    parser.add_argument(
        "--numbers", type=int, nargs=2, default=None, metavar=("FIRST", "END"), help="functions of the table by number"
    )
    parser.add_argument("--seconds", type=float, default=0.3, help="of a function's calls, seven rounds at least")
    parser.add_argument("--all", action="store_true", help=f"print ratios below {SHOWN}, too")
    for flag in flags:
        parser.add_argument(flag, action="store_true")
    return parser.parse_args(given)


def chosen(texts: Sequence[str], options: argparse.Namespace) -> list[str]:
    numbered = texts[slice(*options.numbers)] if options.numbers else texts
    return [text for text in numbered if not options.only or any(part in text for part in options.only)]


class Draws:
    """Arrays for functions, drawn one after another: odd extents, of about so many elements where all of them are taken."""

    def __init__(self, elements: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        rows, side = int(elements**0.5) | 1, max(int((elements / 63) ** 0.5) | 1, 3)
        self.extents = rows, side, int((elements / 248) ** 0.5) | 1, max(elements // (7 * 9 * 11 * 33), 3) | 1
        """Of squares, of matrices of 63, of images, and of the last but one of five axes."""

    def normal(self, *extents: int) -> Any:
        return self.rng.standard_normal(extents).astype(np.float32)

    def drawn(self, low: int, high: int, dtype: Any, *extents: int) -> Any:
        return self.rng.integers(low, high, extents).astype(dtype)


def environment() -> str:
    """What is set of threads and of what libraries choose by themselves."""
    kept = ("OMP_", "MKL_", "OPENBLAS_", "FUSE_OPT_")
    return " ".join(("environment:", *(f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith(kept))))


def show(elements: int, texts: Sequence[str], measure: Callable[[str], Measured], all_: bool) -> None:
    found = list[Measured]()
    for text in texts:
        try:
            found.append(measure(text))
        except Exception as error:  # a function that one of them refuses does not end the table
            print(f"  {text}: {type(error).__name__}: {str(error).splitlines()[0][:90]}", file=sys.stderr)
    names = list(found[0].times) if found else []
    print(f"{elements} elements, {len(found)} functions; us of {', '.join(names)}; ours / {''.join(names[:1])}")
    for each in sorted(found, key=Measured.ratio, reverse=True):
        if all_ or each.ratio() > SHOWN or each.difference:
            shown = "  ".join(f"{time:8.0f}" for time in each.times.values())
            print(f"  {shown}  {each.ratio():5.2f}  {each.text}  {each.difference}")
