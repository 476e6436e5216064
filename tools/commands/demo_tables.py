"""What the demo prints: decisions, times, stages and checks, as lines of tables."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass
from xdsl.traits import IsTerminator

from fuse_opt.dialects.fused import KernelOp
from fuse_opt.lowering.program import ProgramStats
from fuse_opt.tools.commands.measuring import Times
from fuse_opt.tools.compiler.api import load
from fuse_opt.tools.compiler.pipeline import make_passes, run_pipeline
from fuse_opt.tools.compiler.registry import make_context, pass_summary

WIDTH = 118
_MIB = 1 << 20
_NAME = 19
_CELL = 18
_RATIO = 9
"""Characters of a name, of a cell of times, and of one that compares them."""
_LEGEND = """\
primitives: ops once softmax, layer norm and the like are written out. kernels: generated loops, beside calls of a
library for matrix products. in place: results that take over the memory of an operand. MiB moved: what kernels and
calls read and write. arena: the one block of values between kernels; bound: no plan of them can need less."""


@dataclass(frozen=True)
class Row:
    """What was found out about one program."""

    name: str
    source: ModuleOp
    primitives: ModuleOp
    """The source with composite ops written out."""
    module: ModuleOp
    """After all passes."""
    unfused: ProgramStats
    fused: ProgramStats
    compile_seconds: float
    times: Mapping[str, Times]
    """By variant, the fused program last; none where there is no C compiler."""
    errors: Mapping[str, float]
    """The largest difference of each variant from the reference, relative to the values."""
    allowed: float

    @property
    def is_right(self) -> bool:
        return max(self.errors.values()) <= self.allowed


def decisions(rows: Sequence[Row]) -> Iterator[str]:
    """How many ops became how many kernels, and what they read, write and hold."""
    yield "What the passes decided ('unfused': one kernel for each op; 'fused': the default pipeline)"
    head = f"{'':{_NAME}} {'':>5} {'':>10} {'----- kernels -----':>20} {'library':>8} {'in':>6}"
    yield f"{head} {'--- MiB moved ---':>18} {'------ arena, MiB ------':>25}"
    head = f"{'program':{_NAME}} {'ops':>5} {'primitives':>10} {'unfused':>11}  {'fused':>7} {'calls':>8} {'place':>6}"
    yield f"{head} {'unfused':>9} {'fused':>8} {'unfused':>9} {'fused':>7} {'bound':>7}"
    for row in rows:
        before, after = row.unfused, row.fused
        counts = f"{count_ops(row.source)[0]:>5} {count_ops(row.primitives)[0]:>10}"
        kernels = f"{before.launches:>11}  {after.launches:>7} {after.library_calls:>8} {_inplace(row.module):>6}"
        moved = [(s.bytes_read + s.bytes_written) / _MIB for s in (before, after)]
        arena = [n / _MIB for n in (before.arena_bytes, after.arena_bytes, after.lower_bound_bytes or 0)]
        figures = f"{moved[0]:>9.1f} {moved[1]:>8.1f} {arena[0]:>9.2f} {arena[1]:>7.2f} {arena[2]:>7.2f}"
        yield f"{row.name:{_NAME}} {counts} {kernels} {figures}"
    yield from _LEGEND.splitlines()


def times(rows: Sequence[Row], repeat: int) -> Iterator[str]:
    """Milliseconds of each variant, and how much faster the fused program is."""
    if not all(row.times for row in rows):
        yield "Time: not measured; no C compiler works here, so the NumPy reference ran the programs"
        return
    variants = list(dict.fromkeys(name for row in rows for name in row.times))
    others = variants[:-1]
    title = f"Milliseconds a call: median (min-max) of up to {repeat} calls in turns"
    yield f"{title:<{_NAME + _CELL * len(variants)}}  'fused' is faster than"
    heads = "".join(f"{name:>{_CELL}}" for name in variants)
    yield f"{'program':{_NAME}}{heads}{''.join(f'{_first_word(name):>{_RATIO}}' for name in others)}"
    for row in rows:
        cells = "".join(f"{_time(row.times.get(name)):>{_CELL}}" for name in variants)
        fused = row.times[variants[-1]].median
        known = [row.times.get(name) for name in others]
        ratios = "".join(f"{'' if t is None else f'{t.median / fused:.1f}x':>{_RATIO}}" for t in known)
        yield f"{row.name:{_NAME}}{cells}{ratios}".rstrip()


def stages(path: Path) -> Iterator[str]:
    """The passes of the default pipeline that changed a program, with what they left behind."""
    watch = _Watch()
    module = load(path)
    watch.before = str(module)
    run_pipeline(module, make_passes(None), make_context(), observer=watch)
    yield f"How {path.stem} got there: the passes that changed it, with the ops and kernels after each"
    yield f"{'pass':{_NAME}} {'ops':>5} {'kernels':>8}   what it does"
    for name, ops, kernels in watch.changes:
        head = f"{name:{_NAME}} {ops:>5} {kernels:>8}   "
        yield from textwrap.wrap(pass_summary(name), WIDTH, initial_indent=head, subsequent_indent=" " * len(head))


def checks(rows: Sequence[Row]) -> Iterator[str]:
    """One line: whether every variant of every program gave what the reference gives."""
    seconds = sum(row.compile_seconds for row in rows)
    yield f"compiling C: {seconds:.2f} s, for the fused programs; what was compiled before comes from a cache"
    wrong = [
        f"{row.name} {name} {error:.1e}" for row in rows for name, error in row.errors.items() if error > row.allowed
    ]
    largest = max(error for row in rows for error in row.errors.values())
    if wrong:
        yield f"check: WRONG, by more than {rows[0].allowed:.0e} of the largest value: {', '.join(wrong)}"
    else:
        yield f"check: ok, every result is the reference's to {largest:.1e} of its largest value"


def count_ops(module: ModuleOp) -> tuple[int, int]:
    """Ops that read something, in and outside of kernels, and kernels."""
    functions = [op for op in module.ops if isinstance(op, FuncOp)]
    outer = [op for function in functions for block in function.body.blocks for op in block.ops]
    kernels = [op for op in outer if isinstance(op, KernelOp)]
    inner = [op for kernel in kernels for op in kernel.ops()]
    counted = [op for op in (*outer, *inner) if op.operands and not isinstance(op, KernelOp)]
    return sum(not op.has_trait(IsTerminator) for op in counted), len(kernels)


@dataclass
class _Watch:
    """Told of every pass; keeps those that changed the text."""

    before: str = ""
    changes: list[tuple[str, int, int]] = field(default_factory=list[tuple[str, int, int]])

    def verified(self, module: ModuleOp, seconds: float) -> None:
        pass

    def applied(self, pass_: ModulePass, module: ModuleOp, seconds: float) -> None:
        text = str(module)
        if text != self.before:
            self.changes.append((pass_.name, *count_ops(module)))
        self.before = text


def _inplace(module: ModuleOp) -> int:
    return sum(len(op.inplace_pairs()) for op in module.walk() if isinstance(op, KernelOp))


def _first_word(text: str) -> str:
    return text.partition(" ")[0]


def _time(known: Times | None) -> str:
    if known is None:
        return ""
    low, middle, high = (_three_digits(1e3 * t) for t in (known.minimum, known.median, known.maximum))
    return f"{middle} ({low}-{high})"


def _three_digits(number: float) -> str:
    return f"{number:.{2 if number < 9.995 else 1 if number < 99.95 else 0}f}"
