"""Kernels of one program for all sizes beside programs made for each: time of calls, of calls in turn, and of compiling.

    python benchmarks/sized_kernels.py [--only depthwise,softmax] [--sizes 6] [--seed 24] [--parts kernels,compile,calls]

`kernels`: by kernel, at sizes drawn by a seed, the time of the one program over that of one made for the size: processor time of
calls in turns, one thread. `compile`: processor time of making the one program over that of making one for typical sizes, the
compiler's among it, in pairs, with nothing in any cache. `calls`: microseconds of a call on a few numbers, of sizes as before, of
four sizes in turn, and of sizes that were not met before, beside a program of numbers.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Any

os.environ.setdefault("FUSE_OPT_NUM_THREADS", "1")

import numpy as np
from rotation import measure

import fuse_opt
from fuse_opt.tools.compiler.registry import make_context
from fuse_opt.tools.compiler.specialization import SpecializedPrograms, specialize
from fuse_opt.tools.source.parsing import parse_module

Array = np.ndarray[Any, Any]
ROWS, IMAGES = (16, 700), (5, 112)
"""Ranges that extents are drawn from, evenly by their logarithms."""


@dataclass(frozen=True)
class Kernel:
    """A program of one op on an argument with axes of sizes, and others that are numbers or of the same ones."""

    x: tuple[str | int, ...]
    op: str
    others: tuple[tuple[str | int, ...], ...] = ()
    result: tuple[str | int, ...] = ()

    @property
    def text(self) -> str:
        given = [self.x, *self.others]
        types = [_type(one) for one in given]
        heads = [
            f"%{k}: {kind} {{graph.dims = [{', '.join(_name(n) for n in one)}]}}" if "?" in kind else f"%{k}: {kind}"
            for k, (one, kind) in enumerate(zip(given, types, strict=True))
        ]
        name, _, attributes = self.op.partition(" ")
        operands = ", ".join(f"%{k}" for k in range(len(given)))
        result = _type(self.result or self.x)
        return f"""func.func @main({", ".join(heads)}) -> {result} {{
  %r = graph.{name} {operands} {attributes} : ({", ".join(types)}) -> {result}
  func.return %r : {result}
}}"""

    def shapes(self, values: dict[str, int]) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(values[n] if isinstance(n, str) else n for n in one) for one in (self.x, *self.others))


def _type(extents: Sequence[str | int]) -> str:
    return f"tensor<{''.join(f'{n if isinstance(n, int) else chr(63)}x' for n in extents)}f32>"


def _name(extent: str | int) -> str:
    return f'"{extent}"' if isinstance(extent, str) else '""'


def _window(
    op: str, channels: int, weight: tuple[int, ...], options: str, filters: int = 0, dims: tuple[str, str] = ("h", "w")
) -> Kernel:
    x = ("b", channels, *dims)
    return Kernel(x, f"{op} {{{options}}}", (weight,) if weight else (), ("b", filters or channels, "u", "v"))


_PADS = "pads = array<i64: 1, 1, 1, 1>"
_TWOS = "strides = array<i64: 2, 2>"
KERNELS: dict[str, Kernel] = {
    "conv3x3": _window("conv", 16, (32, 16, 3, 3), _PADS, 32),
    "conv3x3s2": _window("conv", 16, (32, 16, 3, 3), f"{_PADS}, {_TWOS}", 32),
    "conv7x7s2": _window("conv", 3, (32, 3, 7, 7), f"pads = array<i64: 3, 3, 3, 3>, {_TWOS}", 32),
    "conv1x1": _window("conv", 32, (64, 32, 1, 1), "groups = 1 : i64", 64),
    "dilated": _window("conv", 16, (16, 16, 3, 3), "pads = array<i64: 2, 2, 2, 2>, dilations = array<i64: 2, 2>"),
    "grouped": _window("conv", 32, (32, 8, 3, 3), f"{_PADS}, groups = 4 : i64"),
    "depthwise": _window("conv", 32, (32, 1, 3, 3), f"{_PADS}, groups = 32 : i64"),
    "depthwise5": _window("conv", 32, (32, 1, 5, 5), "pads = array<i64: 2, 2, 2, 2>, groups = 32 : i64"),
    "depthwise_s2": _window("conv", 32, (32, 1, 3, 3), f"{_PADS}, {_TWOS}, groups = 32 : i64"),
    "transposed": _window("conv_transpose", 16, (16, 16, 2, 2), _TWOS),
    "transposed3": _window(
        "conv_transpose", 16, (16, 16, 3, 3), f"{_TWOS}, {_PADS}, output_padding = array<i64: 1, 1>"
    ),
    "max_pool": _window("max_pool", 16, (), f"kernel_shape = array<i64: 3, 3>, {_PADS}, {_TWOS}"),
    "avg_pool": _window("avg_pool", 16, (), f"kernel_shape = array<i64: 2, 2>, {_TWOS}"),
    "global_pool": Kernel(("b", 16, "h", "w"), "global_avg_pool", (), ("b", 16, 1, 1)),
    "softmax": Kernel(("m", "n"), "softmax"),
    "layer_norm": Kernel(("m", "n"), "layer_norm", (("n",),)),
    "gelu": Kernel(("m", "n"), "gelu"),
    "add": Kernel(("m", "n"), "add", (("n",),)),
    "sum": Kernel(("m", "n"), "sum {axes = array<i64: 1>}", (), ("m",)),
    "transpose": Kernel(("m", "n"), "permute_dims {axes = array<i64: 1, 0>}", (), ("n", "m")),
    "short_rows": Kernel(("m", "n", 5), "softmax {axis = 2 : i64}"),
    "columns": Kernel(("m", "n"), "sum {axes = array<i64: 0>}", (), ("n",)),
    "matmul": Kernel(("m", 96), "matmul", ((96, "n"),), ("m", "n")),
}


def drawn(rng: np.random.Generator) -> dict[str, int]:
    """Sizes, evenly by their logarithms."""

    def one(low: int, high: int) -> int:
        return int(float(np.exp(rng.uniform(float(np.log(low)), float(np.log(high + 1))))))

    return {"b": one(1, 4), **{n: one(*IMAGES) for n in "hw"}, **{n: one(*ROWS) for n in "mn"}}


def arrays(shapes: Sequence[Sequence[int]], rng: np.random.Generator) -> tuple[Array, ...]:
    return tuple(rng.standard_normal(one).astype(np.float32) for one in shapes)


def made_for(text: str, shapes: tuple[tuple[int, ...], ...]) -> fuse_opt.CompiledProgram:
    """The program of numbers."""
    return fuse_opt.compile(specialize(parse_module(text, "kernel", make_context()), None, shapes))


def is_one_program(program: fuse_opt.CompiledProgram) -> bool:
    native = program.native
    return isinstance(native, SpecializedPrograms) and not native.made


def kernels(names: Sequence[str], sizes: int, seed: int) -> None:
    """Prints ratios by kernel."""
    logs: list[float] = []
    print(f"{'kernel':13} {'mean':>6} {'least':>6} {'worst':>6}  time of the one program over the specialised, by size")
    for name in names:
        kernel, rng, found = KERNELS[name], np.random.default_rng(seed), list[tuple[float, str]]()
        program = fuse_opt.compile(kernel.text)
        for _ in range(sizes):
            shapes = kernel.shapes(drawn(rng))
            given = arrays(shapes, rng)
            other = made_for(kernel.text, shapes)
            np.testing.assert_allclose(program(*given), other(*given), 1e-3, 1e-4)
            times = measure([partial(program, *given), partial(other, *given)], 0.02)
            ratio = float(np.median(times[:, 0] / times[:, 1]))
            found.append((ratio, f"{'x'.join(map(str, shapes[0]))} {1e6 * np.median(times[:, 1]):.0f}us {ratio:.2f}"))
        assert is_one_program(program), name
        logs += [np.log(ratio) for ratio, _ in found]
        ratios = [ratio for ratio, _ in found]
        mean = np.exp(np.mean(np.log(ratios)))
        print(
            f"{name:13} {mean:6.2f} {min(ratios):6.2f} {max(ratios):6.2f}  {', '.join(t for _, t in found)}", flush=True
        )
    print(f"geometric mean of {len(logs)}: {np.exp(np.mean(logs)):.3f}, worst {np.exp(max(logs)):.2f}")


def made(name: str, is_sized: bool) -> float:
    """
    Processor time of this process and of compilers for one program and its first call, with an empty cache: once in a process, as
    it keeps what was made. What all programs of either kind need, as modules and the pool of threads, is there before.
    """
    kernel = KERNELS[name]
    shapes = kernel.shapes({"b": 2, "h": 32, "w": 32, "m": 256, "n": 256})
    given = arrays(shapes, np.random.default_rng(1))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FUSE_OPT_CACHE_DIR"] = folder
        simple, ones = Kernel(("m", "n"), "negative").text, np.ones((2, 3), np.float32)
        for warm in (fuse_opt.compile(simple), made_for(simple, (ones.shape,))):
            warm(ones)
        before = _processor_seconds()
        program = fuse_opt.compile(kernel.text) if is_sized else made_for(kernel.text, shapes)
        program(*given)
        return _processor_seconds() - before


def _processor_seconds() -> float:
    """Of this process and of those it waited for; `os.times` counts hundredths, of which a small program takes seven."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _in_turn(name: str, number: int) -> list[float]:
    """Seconds of the one program and of one of numbers, begun with another one each time."""
    found: dict[bool, float] = {}
    for is_sized in (True, False) if number % 2 else (False, True):
        command = [sys.executable, __file__, "--make", f"{name},{is_sized}"]
        found[is_sized] = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return [found[True], found[False]]


def compiling(names: Sequence[str], pairs: int) -> None:
    """Prints ratios of pairs."""
    logs: list[float] = []
    print(f"{'kernel':13} {'median':>6} {'least':>6} {'worst':>6} {'ours s':>7} {'static':>7}")
    for name in names:
        times = np.array([_in_turn(name, number) for number in range(pairs)])
        ratios = times[:, 0] / times[:, 1]
        logs.append(float(np.log(np.median(ratios))))
        one, other = np.median(times, 0)
        print(
            f"{name:13} {np.median(ratios):6.2f} {min(ratios):6.2f} {max(ratios):6.2f} {one:7.2f} {other:7.2f}",
            flush=True,
        )
    print(f"geometric mean of {len(logs)}: {np.exp(np.mean(logs)):.3f}, worst {np.exp(max(logs)):.2f}")


def calls() -> None:
    """Prints microseconds of calls; those of taking the next array by itself are taken off."""
    kernel, rng = Kernel(("m", "n"), "relu"), np.random.default_rng(5)
    program, static = fuse_opt.compile(kernel.text), made_for(kernel.text, ((3, 5),))
    first, *others = (arrays([(3, n)], rng)[0] for n in (5, 6, 7, 9))
    turn, unmet = cycle([first, *others]), cycle([arrays([(1 + k % 40, 1 + k // 40)], rng)[0] for k in range(1600)])
    for _ in range(64):
        program(next(turn))
        program(next(unmet))
    ways: dict[str, Callable[[], object]] = {
        "static": lambda: static(first),
        "as before": lambda: program(others[0]),
        "four in turn": lambda: program(next(turn)),
        "static, four taken in turn": lambda: (next(turn), static(first)),
        "not met before": lambda: program(next(unmet)),
        "static, all taken in turn": lambda: (next(unmet), static(first)),
    }
    times = 1e6 * measure(list(ways.values()), 0.05, 21)
    beside = dict(zip(ways, (0, 0, 3, 0, 5, 0), strict=True))
    for number, (name, other) in enumerate(beside.items()):
        over = np.median(times[:, number] - times[:, other])
        print(
            f"{name:27} least {times[:, number].min():.2f} median {np.median(times[:, number]):.2f} us, over static {over:+.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(KERNELS))
    parser.add_argument("--sizes", type=int, default=6)
    parser.add_argument("--seed", type=int, default=24)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--parts", default="kernels,compile,calls")
    parser.add_argument("--make", default="", help="prints the seconds of making that program, as `compile` asks for")
    asked = parser.parse_args()
    if asked.make:
        name, _, is_sized = asked.make.partition(",")
        print(made(name, is_sized == "True"))
        return
    names, parts = asked.only.split(","), asked.parts.split(",")
    if "kernels" in parts:
        kernels(names, asked.sizes, asked.seed)
    if "compile" in parts:
        compiling(names, asked.pairs)
    if "calls" in parts:
        calls()


if __name__ == "__main__":
    main()
