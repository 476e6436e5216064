"""Programs of one convolution with what follows it, their arguments, and how they are checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from guard_pages import Allocate, guarded
from ir_testing import evaluate, kernels, parse
from narrow_floats import decode, encode

import fuse_opt
from fuse_opt.dialects.analysis.contractions.convolutions import CONV
from fuse_opt.lowering.program.float_formats import computed, converted

Array = np.ndarray[Any, Any]
NUMPY: dict[str, Any] = {"f32": np.float32, "f64": np.float64, "f16": np.float16}
STEP = {"f16": 2.0**-10, "bf16": 2.0**-7}
"""By narrow float type: its spacing at 1."""
BIAS_RESIDUAL_RELU = """  %a = graph.add %p, %b : (T, B) -> T
  %s = graph.add %a, %r : (T, T) -> T
  %y = graph.relu %s : (T) -> T
"""


def integers(values: Sequence[int]) -> str:
    return f"array<i64: {', '.join(map(str, values))}>"


@dataclass(frozen=True)
class Conv:
    """A program of one convolution; `x` is N C spatial, `window` a filter's spatial extents."""

    x: tuple[int, ...]
    filters: int
    window: tuple[int, ...]
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    groups: int = 1
    epilogue: str = BIAS_RESIDUAL_RELU
    element: str = "f32"
    op: str = "graph.conv"
    more: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def lists(self) -> dict[str, tuple[int, ...]]:
        ones = (1,) * len(self.window)
        return {
            "strides": self.strides or ones,
            "pads": self.pads or (0,) * 2 * len(self.window),
            "dilations": self.dilations or ones,
        }

    @property
    def result(self) -> tuple[int, ...]:
        axes, lists = len(self.window), self.lists
        return (self.x[0], self.filters, *(
            (n + begin + end - d * (k - 1) - 1) // s + 1
            for n, k, s, d, begin, end in zip(
                self.x[2:], self.window, lists["strides"], lists["dilations"],
                lists["pads"][:axes], lists["pads"][axes:], strict=True,
            )
        ))  # fmt: skip

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        weight = (self.filters, self.x[1] // self.groups, *self.window)
        return [self.x, weight, (self.filters, *(1,) * len(self.window)), self.result]

    @property
    def text(self) -> str:
        x, w, b, y = (f"tensor<{'x'.join(map(str, shape))}x{self.element}>" for shape in self.shapes)
        attributes = {name: integers(values) for name, values in self.lists.items()}
        attributes |= {"groups": f"{self.groups} : i64", **self.more}
        written = ", ".join(f"{name} = {value}" for name, value in attributes.items())
        body = self.epilogue.replace("T", y).replace("B", b)
        return f"""
func.func @main(%x: {x}, %w: {w}, %b: {b}, %r: {y}) -> {y} {{
  %p = {self.op} %x, %w {{{written}}} : ({x}, {w}) -> {y}
{body}  func.return {"%y" if body else "%p"} : {y}
}}"""

    @property
    def frozen_text(self) -> str:
        """The same of a weight that does not change from call to call."""
        return self.text.replace(", %b:", " {graph.frozen}, %b:", 1)

    def arguments(self, seed: int = 0) -> list[Array]:
        rng = np.random.default_rng(seed)
        found = (np.asarray(rng.standard_normal(shape)) for shape in self.shapes)
        return [encode(x, self.element) if self.element == "bf16" else x.astype(NUMPY[self.element]) for x in found]

    def check(self) -> None:
        """Runs it as code of its own, within rounding of the reference's, and with nothing written beside the result."""
        wanted = evaluate(parse(self.text), self.arguments())[0]
        program = fuse_opt.compile(self.text)
        assert [kernel.schedule_kind() for kernel in kernels(program.module)] == [CONV], self
        assert program.stats.library_calls == 0
        apart = converted(np.full(wanted.size + 128, 7.5, "f4"), wanted.dtype)
        out = apart[64:-64].reshape(wanted.shape)
        program(*self.arguments(), out=out)
        assert (computed(apart[:64]) == 7.5).all() and (computed(apart[-64:]) == 7.5).all()
        close(out, wanted, self.element)


def close(actual: Array, wanted: Array, element: str) -> None:
    scale = 1e-5 if element == "f32" else 3 * STEP[element] if element in STEP else 1e-13
    actual, wanted = (np.asarray(decode(each)) for each in (actual, wanted))
    np.testing.assert_allclose(actual, wanted, rtol=scale, atol=scale * max(float(np.abs(wanted).max()), 1.0))


def sized_text(case: Conv) -> str:
    """
    The program of a frozen weight, and no residual, for all batches and extents of images; those that are written are of no
    matter.
    """
    x, y = (f"tensor<{'x'.join(map(str, shape))}x{case.element}>" for shape in (case.x, case.result))
    any_x, any_y = (f"tensor<?x{n}{'x?' * len(case.window)}x{case.element}>" for n in (case.x[1], case.filters))
    dims = ", ".join(f'"{name}"' for name in ("b", "", *"hwd"[: len(case.window)]))
    text = case.frozen_text.replace(f", %r: {y}", "").replace(y, any_y)
    return text.replace(f"%x: {x}", f"%x: {any_x} {{graph.dims = [{dims}]}}").replace(x, any_x)


def in_orders(case: Conv, x_last: bool, frozen: bool = False, y_last: bool = True) -> str:
    """The program of results, and of operands, whose channels are innermost if they are last."""
    order = f", #graph.order<{', '.join(map(str, (0, *range(2, len(case.x)), 1)))}>"
    lasts = (x_last, False, False, y_last)
    x, w, b, y = (
        f"tensor<{'x'.join(map(str, shape))}x{case.element}{order * last}>"
        for shape, last in zip(case.shapes, lasts, strict=True)
    )
    written = ", ".join(f"{name} = {integers(values)}" for name, values in case.lists.items())
    body = case.epilogue.replace("T", y).replace("B", b)
    return f"""
func.func @main(%x: {x}, %w: {w}{" {graph.frozen}" * frozen}, %b: {b}, %r: {y}) -> {y} {{
  %p = graph.conv %x, %w {{{written}, groups = {case.groups} : i64}} : ({x}, {w}) -> {y}
{body}  func.return %y : {y}
}}"""


def turned(array: Array, at_end: bool = False, allocate: Allocate | None = None) -> Array:
    """The same elements with channels innermost in memory."""
    axes = (0, *range(2, array.ndim), 1)
    memory = np.ascontiguousarray(array.transpose(axes))
    if allocate is not None:
        memory = allocate(memory, at_end=at_end)
    return memory.transpose(np.argsort(axes))


def check_guarded(
    program: fuse_opt.CompiledProgram, case: Conv, x_last: bool, at_end: bool, y_last: bool = True
) -> None:
    """Runs the program of `in_orders` on arrays beside pages that nobody may touch, within rounding of the reference's."""
    x, *others, residual = case.arguments()
    wanted = evaluate(parse(in_orders(case, x_last, y_last=y_last)), [x, *others, residual])[0]
    with guarded() as allocate:

        def placed(array: Array, last: bool) -> Array:
            return turned(array, at_end, allocate) if last else allocate(array, at_end=at_end)

        given = [placed(x, x_last), *(placed(array, False) for array in others), placed(residual, y_last)]
        out = placed(np.zeros_like(residual), y_last)
        program(*given, out=out)
        found = np.array(out)
        del given, out
    close(found, wanted, case.element)
