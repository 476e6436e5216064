"""The figures of this machine for the cost model, measured by compiled programs: what `device_cpu.toml` states of one kind."""

from __future__ import annotations

import os
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fuse_opt.passes.devices.device import NARROW_HOST, Device, find_device
from fuse_opt.runtime.host.processors import is_avx2_alone, processor_features
from fuse_opt.tools.commands.measuring import example_inputs
from fuse_opt.tools.compiler.api import compile as compile_program
from fuse_opt.tools.compiler.compiled_program import CompiledProgram

SLOTS = 7
"""How often each program is timed; the lower quartile counts."""
SLOT_SECONDS = 15e-3
_WORK = 64
"""Multiplications and additions of the program whose time is that of arithmetic."""
_KERNELS = 32
_LAUNCHED = 1 << 16
"""Elements of kernels that are worth threads, and that second-level caches hold."""
_LEAST_LAUNCH = 20e-9
_STRIDE = 16
"""Elements of f32 from one that is read to the next: a line of a cache."""
_WINDOWS = (100, 150, 225, 300)
"""Instructions that a processor may look ahead."""
_CLEAR = 0.97
"""Of the time of what the record says: what another choice takes at most to be taken."""


def calibrated(named: Device, processors: int) -> Device:
    """
    The record with what this machine measures, for programs on so many threads. Figures that follow from no measurement
    (limits of what is computed again, of arguments) stay those of `named`; rates of libraries keep their ratio to products;
    instruction sets are those of `named` that the processor has.

    Takes about ten seconds. Raises RuntimeError where there is no C compiler.
    """
    inner, outer = cache_sizes()
    cache = inner * cores_of(processors) if inner else named.cache_bytes
    last = outer or named.last_level_cache_bytes
    copied = max(2 * last, 64 << 20)
    in_cache = _pass_seconds(_copy((cache // 8) // 4))
    products = tuple((name, _product_rate(name)) for name, _ in named.products)
    window = _fastest({number: _cut_chain(number) for number in _WINDOWS}, named.window)
    features = processor_features(named.features)
    alike = find_device(NARROW_HOST) if is_avx2_alone(features) else named
    return replace(
        named,
        first_cache_bytes=first_cache() or named.first_cache_bytes,
        vector_bytes=alike.vector_bytes,
        factors=alike.factors,
        window=window,
        bandwidth=_moved(copied // 4) / _pass_seconds(_copy(copied // 4)),
        cache_bytes=cache,
        last_level_cache_bytes=last,
        cache_bandwidth=_moved((cache // 8) // 4) / in_cache,
        rate=_arithmetic_rate((cache // 8) // 4),
        launch=_launch_seconds(),
        processors=processors,
        features=features,
        strided=_strided_cost(inner or named.cache_bytes),
        across=_across_cost(cache),
        products=products,
        rates=_scaled(named.rates, dict(named.products), dict(products)),
    )


def cache_sizes() -> tuple[int, int]:
    """Bytes of the largest cache of one core, and of the largest that cores share, as Linux says; 0 for one not known."""
    found: dict[bool, int] = {True: 0, False: 0}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        if kind != "Instruction" and (match := re.fullmatch(r"(\d+)([KM]?)", size)):
            nbytes = int(match[1]) << {"": 0, "K": 10, "M": 20}[match[2]]
            found[int(level) > 2] = max(found[int(level) > 2], nbytes)
    return found[False], found[True]


def first_cache(said: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """Bytes of the first level cache for data, as Linux says; 0 where it does not."""
    for index in sorted(said.glob("index*")):
        with suppress(OSError):
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
            if level == "1" and kind != "Instruction" and (match := re.fullmatch(r"(\d+)K", size)):
                return int(match[1]) << 10
    return 0


def cores_of(processors: int, said: Path = Path("/sys/devices/system/cpu")) -> int:
    """How many second-level caches so many processors have: fewer than one each where they are threads of one core."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(processors)
    caches: set[str] = set()
    for index in (index for number in allowed for index in (said / f"cpu{number}" / "cache").glob("index*")):
        with suppress(OSError):
            if (index / "level").read_text().strip() == "2":
                caches.add((index / "shared_cpu_list").read_text().strip())
    return min(processors, len(caches) or processors)


@dataclass(frozen=True)
class _Timed:
    """A program with arguments and memory for its results, and how often a slot calls it."""

    program: CompiledProgram
    arguments: Sequence[Any]
    results: Any

    @classmethod
    def of(cls, text: str, pipeline: str | None = None) -> _Timed:
        program = compile_program(text, pipeline=pipeline, whole=True)
        values = program.signature.arguments
        if all(value.dtype == np.float32 for value in values):
            arguments = [np.ones(value.shape, np.float32) for value in values]  # to draw numbers would take longer
        else:
            arguments = example_inputs(text)
        return cls(program, arguments, program(*arguments))

    def run(self) -> None:
        self.program(*self.arguments, out=self.results)


def _seconds(*timed: _Timed) -> list[float]:
    """Of a call of each, in turns, so that what else happens on the machine meets all alike."""
    repeats = [max(1, round(SLOT_SECONDS / max(_spent(one.run, 1), 1e-7))) for one in timed]
    slots = [[_spent(one.run, count) for one, count in zip(timed, repeats, strict=True)] for _ in range(SLOTS)]
    return [statistics.quantiles(found, n=4, method="inclusive")[0] for found in zip(*slots, strict=True)]


def _spent(call: Callable[[], None], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def _fastest(texts: Mapping[int, str], known: int) -> int:
    """By what each choice makes of a program: the one that is clearly the fastest, or the known one."""
    choices = list(texts)
    times = dict(zip(choices, _seconds(*(_Timed.of(texts[choice]) for choice in choices)), strict=True))
    best = min(choices, key=times.__getitem__)
    return best if known not in times or times[best] < _CLEAR * times[known] else known


def _pass_seconds(text: str) -> float:
    return _seconds(_Timed.of(text))[0]


def _moved(elements: int) -> int:
    """Bytes that a pass over f32 reads and writes."""
    return 8 * elements


def _chain(elements: int, ops: Sequence[str]) -> str:
    """A program of binary ops: the first on a tensor and a number, each other one on what the one before gives and the tensor."""
    type_ = f"tensor<{elements}xf32>"
    lines = [f"func.func @main(%x: {type_}, %y: tensor<f32>) -> {type_} {{"]
    for k, name in enumerate(ops):
        value, other, other_type = (f"%{k - 1}", "%x", type_) if k else ("%x", "%y", "tensor<f32>")
        lines.append(f"  %{k} = graph.{name} {value}, {other} : ({type_}, {other_type}) -> {type_}")
    return "\n".join((*lines, f"  func.return %{len(ops) - 1} : {type_}", "}"))


def _copy(elements: int) -> str:
    return _chain(elements, ("add",))


def _arithmetic_rate(elements: int) -> float:
    """Operations a second: what a chain of them takes beyond one of them."""
    long, short = _seconds(_Timed.of(_chain(elements, ("multiply", "add") * (_WORK // 2))), _Timed.of(_copy(elements)))
    return elements * (_WORK - 1) / max(long - short, 1e-9)


def _launch_seconds() -> float:
    """
    What a further kernel costs beside its elements, with the threads that it wakes: kernels of twice as many elements take
    twice as long but for that, once for each kernel.
    """
    texts = (_chain(elements, ("add",) * _KERNELS) for elements in (_LAUNCHED, 2 * _LAUNCHED))
    half, whole = _seconds(*(_Timed.of(text, "unfused") for text in texts))
    return max((2 * half - whole) / _KERNELS, _LEAST_LAUNCH)


def _cut_chain(window: int) -> str:
    """Functions one of another, in a first level cache, cut as for a processor that looks so far ahead."""
    type_ = "tensor<4096xf32>"
    names = ("exp", "tanh", "sin") * 3
    body = "\n".join(f"    %{k + 1} = graph.{name} %{k} : ({type_}) -> {type_}" for k, name in enumerate(names))
    return f"""
func.func @main(%x: {type_}) -> {type_} {{
  %r = fused.kernel(%0 = %x : {type_}) -> ({type_}) attributes {{schedule = {{kind = "pointwise", window = {window} : i64}}}} {{
{body}
    fused.yield %{len(names)} : {type_}
  }}
  func.return %r : {type_}
}}"""


def _strided_cost(cache: int) -> float:
    """An element of each line of a cache, next to elements side by side; from the cache of one core."""
    elements = cache // 8 // _STRIDE
    given, taken = f"tensor<{elements * _STRIDE}xf32>", f"tensor<{elements}xf32>"
    cut = f"starts = array<i64: 0>, stops = array<i64: {elements * _STRIDE}>, steps = array<i64: {_STRIDE}>"
    text = f"""
func.func @main(%x: {given}, %y: tensor<f32>) -> {taken} {{
  %0 = graph.slice %x {{{cut}}} : ({given}) -> {taken}
  %1 = graph.add %0, %y : ({taken}, tensor<f32>) -> {taken}
  func.return %1 : {taken}
}}"""
    alone, together = _seconds(_Timed.of(text), _Timed.of(_copy(elements)))
    return max(alone / together, 1.0)


def _across_cost(cache: int) -> float:
    """A transposition, next to a pass in order."""
    rows = 1 << (cache // 16).bit_length() // 2
    given = f"tensor<{rows}x{rows}xf32>"
    text = f"""
func.func @main(%x: {given}, %y: tensor<f32>) -> {given} {{
  %0 = graph.permute_dims %x {{axes = array<i64: 1, 0>}} : ({given}) -> {given}
  %1 = graph.add %0, %y : ({given}, tensor<f32>) -> {given}
  func.return %1 : {given}
}}"""
    across, along = _seconds(_Timed.of(text), _Timed.of(_copy(rows * rows)))
    return max(across / along, 1.0)


def _product_rate(dtype: str, extent: int = 512) -> float:
    """Operations a second of a square product of generated code."""
    is_float = dtype.startswith(("f", "bf"))
    given, other, result = (
        f"tensor<{extent}x{extent}x{name}>"
        for name in (dtype, dtype if is_float else "i8", dtype if is_float else "i32")
    )
    text = f"""
func.func @main(%x: {given}, %y: {other}) -> {result} {{
  %0 = graph.matmul %x, %y{"" if is_float else " {dtype = i32}"} : ({given}, {other}) -> {result}
  func.return %0 : {result}
}}"""
    return 2 * extent**3 / _pass_seconds(text)


def _scaled(
    rates: tuple[tuple[str, tuple[tuple[str, float], ...]], ...], assumed: dict[str, float], found: dict[str, float]
) -> tuple[tuple[str, tuple[tuple[str, float], ...]], ...]:
    return tuple(
        (name, tuple((d, rate * found[d] / assumed[d] if d in found else rate) for d, rate in table))
        for name, table in rates
    )
