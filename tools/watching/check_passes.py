"""The reference after every pass: which pass is the first that changes what a program computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.analysis.prepared import called_functions
from fuse_opt.lowering.errors import EvaluationError
from fuse_opt.tools.source.diagnostics import located
from fuse_opt.tools.watching.bounds import allowed_in_function
from fuse_opt.tools.watching.planned_values import evaluate_planned
from fuse_opt.tools.watching.units import distances, is_float, ulps, units, wide

Array = npt.NDArray[Any]
Arguments = Callable[[ModuleOp, str], Sequence[Array]]
"""The arrays of all arguments of a function of a module, by its name."""

_UNITS = 1 << 10
"""Of the last place of the largest element: what passes may change where rounding cannot be followed."""


class Observer(Protocol):
    """What else is told of the steps of a pipeline."""

    def verified(self, module: ModuleOp, seconds: float) -> None: ...
    def applied(self, pass_: ModulePass, module: ModuleOp, seconds: float) -> None: ...


@dataclass
class _Watched:
    """A function as it was before the first pass."""

    arrays: Sequence[Array]
    expected: list[Array]
    source: FuncOp
    allowed: list[Array] | None = None
    """How far results may be from the expected ones; worked out when the first of them is not equal."""


@dataclass
class PassChecker:
    """
    An observer of a pipeline that evaluates all functions before the first pass and after each one. Raises InputError, which
    names the pass, where a result is beyond what rounding explains.
    """

    file: str
    arguments: Arguments
    others: Observer
    checked: int = 0
    """How often functions were evaluated and compared."""
    _functions: dict[str, _Watched] | None = None
    _last: ModulePass | None = None
    _number: int = 0
    _names: list[str] = field(default_factory=list[str])

    def applied(self, pass_: ModulePass, module: ModuleOp, seconds: float) -> None:
        self.others.applied(pass_, module, seconds)
        self._last, self._number = pass_, self._number + 1

    def verified(self, module: ModuleOp, seconds: float) -> None:
        self.others.verified(module, seconds)
        functions = {function.sym_name.data: function for function in called_functions(module)}
        if self._functions is None:
            self._functions = {name: self._first(module, function) for name, function in functions.items()}
            return
        for name, watched in self._functions.items():
            if name in functions and _is_on_tensors(functions[name], watched.source):
                self._compare(functions[name], watched)

    def _first(self, module: ModuleOp, function: FuncOp) -> _Watched:
        arrays = self.arguments(module, function.sym_name.data)
        copy = module.clone()
        source = next(f for f in called_functions(copy) if f.sym_name.data == function.sym_name.data)
        return _Watched(arrays, evaluate_planned(source, arrays), source)

    def _compare(self, function: FuncOp, watched: _Watched) -> None:
        assert self._last is not None
        said = f"after pass '{self._last.name}' (number {self._number} of the pipeline), '{function.sym_name.data}'"
        try:
            got = evaluate_planned(function, watched.arrays)
        except EvaluationError as error:
            raise located(function, f"{said} cannot be evaluated: {error}", self.file) from error
        self.checked += 1
        for number, (array, expected) in enumerate(zip(got, watched.expected, strict=True)):
            if array.shape != expected.shape or array.dtype != expected.dtype:
                what = f"expected {expected.dtype} {list(expected.shape)}, got {array.dtype} {list(array.shape)}"
                raise located(function, f"{said}, result {number}: {what}", self.file)
            gap = distances(array, expected)
            if not gap.any():
                continue
            allowed = self._allowed(watched)[number]
            if (gap > allowed).any():
                with np.errstate(all="ignore"):
                    at = np.unravel_index(int(np.where(gap > allowed, gap, -1.0).argmax()), gap.shape)
                far, most = (float(ulps(each, expected)[at]) for each in (gap, allowed))
                raise located(
                    function,
                    f"{said}, result {number} at {[int(n) for n in at]}: expected {expected[at]}, got {array[at]}, "
                    f"{far:.6g} ULP apart, allowed {most:.4g}; {int((gap > allowed).sum())} of {gap.size} elements are "
                    "beyond the bound; --print-ir-after-change shows what the pass did",
                    self.file,
                )

    def _allowed(self, watched: _Watched) -> list[Array]:
        if watched.allowed is None:
            try:
                watched.allowed = allowed_in_function(watched.source, watched.arrays, watched.expected)
            except (EvaluationError, VerifyException, ValueError, TypeError, KeyError):
                watched.allowed = [_usual(array) for array in watched.expected]
        return watched.allowed


def _is_on_tensors(function: FuncOp, source: FuncOp) -> bool:
    """Whether it is not lowered to buffers yet."""
    return len(function.function_type.outputs) > 0 or not len(source.function_type.outputs)


def _usual(expected: Array) -> Array:
    """What is allowed without a look at the ops."""
    if not is_float(expected.dtype):
        return np.zeros(expected.shape)
    numbers = wide(expected)
    largest = np.max(np.abs(numbers[np.isfinite(numbers)]), initial=1.0)
    return np.full(expected.shape, _UNITS * float(units(np.asarray(largest), expected.dtype)))
