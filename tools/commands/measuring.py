"""Runs programs on example inputs, compares them with the reference, and times them side by side."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from fuse_opt.dialects.interfaces.symbols import argument_extents, size_arguments
from fuse_opt.dialects.types.extents import evaluate as evaluate_extent
from fuse_opt.dialects.types.extents import symbols as symbols_of
from fuse_opt.dialects.types.symbol import Symbol
from fuse_opt.lowering.program.float_formats import FORMATS, NARROW, computed, converted, is_narrow
from fuse_opt.lowering.reference.interpreter import entry_function
from fuse_opt.tools.compiler.api import evaluate, load
from fuse_opt.tools.compiler.compiled_program import CompiledProgram
from fuse_opt.tools.compiler.signature import Array, Signature, Value

TOLERANCE = {"f": 1e-4, "i": 0.0, "u": 0.0, "b": 0.0}
"""By kind of element: the largest difference from the reference, relative to the largest value, that is no error."""
_ROUNDED = {np.dtype(np.float16): 2e-3, **{NARROW[f.name]: 2.0 ** (1 - f.mantissa) for f in FORMATS}}
"""The same for floats that are rounded to few digits: two units in the last place."""
_LARGEST_INTEGER = 8
_UNKNOWN_EXTENT = 4


@dataclass(frozen=True)
class Times:
    """Of the calls of one program, in seconds."""

    minimum: float
    median: float
    maximum: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Times:
        return cls(min(seconds), statistics.median(seconds), max(seconds))


def example_inputs(
    source: str | Path | ModuleOp,
    seed: int = 0,
    function: str | None = None,
    extents: Mapping[str, int] | None = None,
) -> list[Any]:
    """
    An array for each argument, the same for the same seed: standard normal floats, small non-negative integers, random
    booleans; uniform draws for an argument with `graph.range = [lo, hi]`; of one that is stored with its entries alone a
    tuple with as many as there may be. Unknown extents, and size arguments, are those given by name (see `symbolic_shapes`),
    else 4. Raises ValueError for a name that no argument has.
    """
    entry = entry_function(load(source), function)
    signature, sizes, given = Signature.of(entry), argument_extents(entry), extents or {}
    symbols = symbols_of(extent for row in sizes for extent in row)
    known = [symbol.name for symbol in symbols]
    for name in given:
        if name not in known:
            raise ValueError(f"no argument has an unknown extent '{name}'; there are: {', '.join(known) or 'none'}")
    numbers = {symbol.name: given.get(symbol.name, _usual_extent(symbol)) for symbol in symbols}

    def shape(number: int, value: Value) -> list[int]:
        if -1 not in value.shape:  # which one that is in parts, or lies packed, has of its own
            return list(value.shape)
        return [evaluate_extent(size, numbers) for size in sizes[signature.places(number)[0]]]

    of_values = {number: numbers[name] for number, name in size_arguments(entry).items()}
    return [
        np.array(of_values[place])
        if (place := signature.places(number)[0]) in of_values
        else _draw(value, shape(number, value), np.random.default_rng([seed, number]))
        for number, value in enumerate(signature.arguments)
    ]


def _usual_extent(symbol: Symbol) -> int:
    """The least number from 4 on that an extent may be, or the most."""
    least, most = symbol.range
    return min(max(-(-_UNKNOWN_EXTENT // symbol.multiple), least), most) * symbol.multiple


def check_against_reference(
    source: str | Path | ModuleOp, program: CompiledProgram, inputs: Sequence[Any], function: str | None = None
) -> float:
    """The largest difference of a result from the reference of `source`, as `difference` measures it."""
    expected = evaluate(source, *inputs, function=function)
    return largest_difference(program(*fresh_arguments(program, inputs)), expected)


def largest_difference(got: Any, expected: Any) -> float:
    """The largest difference of a result, where there is one or a tuple of them."""
    pairs = zip(_arrays(got), _arrays(expected), strict=True)
    return max((difference(a, b) for a, b in pairs), default=0.0)


def difference(got: Array, expected: Array) -> float:
    """Largest absolute difference, relative to the largest expected value if that is above 1; NaN matches only NaN."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return math.inf
    if got.size == 0:
        return 0.0
    got, expected = computed(got), computed(expected)
    if expected.dtype.kind not in "f":
        return 0.0 if np.array_equal(got, expected) else math.inf
    a, b = got.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(b)
    if not finite.all():
        if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
            return math.inf
        if not finite.any():
            return 0.0
        a, b = a[finite], b[finite]
    gap = float(np.abs(a - b).max())
    return math.inf if math.isnan(gap) else gap / max(1.0, float(np.abs(b).max()))


def tolerance(program: CompiledProgram) -> float:
    """What `check_against_reference` may give for a program that is right; half precision allows more."""
    kinds = [value.dtype for value in program.signature.results]
    return max((_ROUNDED.get(d, TOLERANCE.get(d.kind, 0.0)) for d in kinds), default=0.0)


def interleave(
    programs: Mapping[str, CompiledProgram],
    inputs: Sequence[Any],
    repeat: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Times]:
    """Times programs on equal inputs in turns, so that what else happens on the machine meets all of them alike."""
    copies = {name: fresh_arguments(program, inputs) for name, program in programs.items()}
    calls = {
        name: Call(partial(p, *copies[name]), partial(restore_arguments, p, copies[name], inputs))
        for name, p in programs.items()
    }
    return take_turns(calls, repeat, clock=clock)


@dataclass(frozen=True)
class Call:
    """What is timed, and what is done before each time without being timed."""

    run: Callable[[], object]
    prepare: Callable[[], object] = lambda: None


def take_turns(
    calls: Mapping[str, Call],
    repeat: int,
    warmup: int = 2,
    limit: float = math.inf,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Times]:
    """Times calls in turns, as `interleave` does; after `limit` seconds as soon as there are three times of each."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    begin = time.perf_counter()
    for turn in range(warmup + max(repeat, 1)):
        if turn - warmup >= 3 and time.perf_counter() - begin > limit:
            break
        for name, call in calls.items():
            call.prepare()
            start = clock()
            call.run()
            spent = clock() - start
            if turn >= warmup:
                seconds[name].append(spent)
    return {name: Times.of(spent) for name, spent in seconds.items()}


def _draw(value: Value, shape: Sequence[int], random: np.random.Generator) -> Any:
    if (stored := value.stored) is not None:
        whole = replace(value, stored=None)
        if stored.kind == "row_sparse":
            rows = np.sort(random.permutation(shape[0])[: stored.capacity]).astype(np.int32)
            return rows, _draw(whole, (rows.size, *shape[1:]), random)
        places = np.sort(random.choice(shape[0] * shape[1], stored.capacity, replace=False, shuffle=False))
        indptr = np.searchsorted(places, shape[1] * np.arange(shape[0] + 1)).astype(np.int32)
        return indptr, (places % max(shape[1], 1)).astype(np.int32), _draw(whole, (places.size,), random)
    kind = "f" if is_narrow(value.dtype) else value.dtype.kind
    if kind == "b":
        return np.asarray(random.integers(0, 2, shape)).astype(value.dtype)
    if value.range is not None:
        low, high = value.range
        if kind == "f":
            return converted(np.asarray(random.uniform(low, high, shape)), value.dtype)
        return np.asarray(random.integers(math.ceil(low), math.floor(high), shape, endpoint=True)).astype(value.dtype)
    if kind == "f":
        return converted(np.asarray(random.standard_normal(shape)), value.dtype)
    return np.asarray(random.integers(0, _LARGEST_INTEGER, shape)).astype(value.dtype)


def fresh_arguments(program: CompiledProgram, inputs: Sequence[Any]) -> list[Any]:
    """Of the inputs those that a call takes, with copies of those that it may overwrite."""
    pairs = ((program.signature.arguments[number], inputs[number]) for number in program.unbound)
    return [deepcopy(array) if value.donated else array for value, array in pairs]


def restore_arguments(program: CompiledProgram, copies: Sequence[Any], inputs: Sequence[Any]) -> None:
    """Gives the copies that a call may have overwritten their values again."""
    for copy, number in zip(copies, program.unbound, strict=True):
        if program.signature.arguments[number].donated:
            for part, given in zip(_tuple(copy), _tuple(inputs[number]), strict=True):
                np.copyto(part, given)


def _arrays(results: Any) -> list[Array]:
    """The arrays of one result, or of a tuple of them; of a sparse one its parts."""
    if not isinstance(results, tuple):
        return [results]
    return [array for result in cast("tuple[Any, ...]", results) for array in _arrays(result)]


def _tuple(results: Any) -> tuple[Array, ...]:
    return results if isinstance(results, tuple) else (results,)  # pyright: ignore[reportUnknownVariableType]


Point = Mapping[str, int]


@dataclass(frozen=True)
class Sweep:
    """A program, and how it is run at each point."""

    source: str | Path | ModuleOp
    program: CompiledProgram
    seed: int
    function: str | None
    is_checked: bool
    repeat: int

    def run(self, points: Sequence[Point]) -> dict[str, Any]:
        """The numbers over all points, with the point of those that are the worst. Raises what a call raises."""
        errors: list[tuple[float, float, Point]] = []
        arenas: list[tuple[float, int, Point]] = []
        seconds: list[tuple[float, Point]] = []
        for point in points:
            inputs = example_inputs(self.source, self.seed, self.function, point)
            self.program(*fresh_arguments(self.program, inputs))
            stats = self.program.stats
            bound = getattr(stats, "lower_bound_bytes", None) or 0
            if bound:
                arenas.append((stats.arena_bytes / bound, stats.arena_bytes, point))
            if self.is_checked:
                error = check_against_reference(self.source, self.program, inputs, self.function)
                errors.append((error, tolerance(self.program), point))
            if self.repeat:
                seconds.append((interleave({"": self.program}, inputs, self.repeat)[""].median, point))
        return self._summary(points, errors, arenas, seconds)

    def _summary(
        self,
        points: Sequence[Point],
        errors: Sequence[tuple[float, float, Point]],
        arenas: Sequence[tuple[float, int, Point]],
        seconds: Sequence[tuple[float, Point]],
    ) -> dict[str, Any]:
        found: dict[str, Any] = {"sizes": len(points), "programs": getattr(self.program.native, "made", 1)}
        if arenas:
            ratio, _, at = max(arenas, key=lambda one: one[0])
            mean = sum(one[0] for one in arenas) / len(arenas)
            largest = max(one[1] for one in arenas)
            found["arena"] = {"bytes": largest, "over_bound": {"mean": mean, "worst": ratio, "at": dict(at)}}
        if errors:
            error, _, at = max(errors, key=lambda one: one[0])
            failed = [dict(point) for error, allowed, point in errors if not error <= allowed]
            shown = error if error < float("inf") else None
            found["check"] = {"passed": not failed, "error": shown, "at": dict(at), "failed": failed}
        if seconds:
            medians = sorted(seconds, key=lambda one: one[0])
            chosen = {"min": medians[0], "median": medians[len(medians) // 2], "max": medians[-1]}
            found["medians"] = {name: {"seconds": time, "at": dict(at)} for name, (time, at) in chosen.items()}
        return found
