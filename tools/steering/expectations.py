"""Expectations: what passes are to make of a function, such as `kernels<=7, arena<=14MiB`, checked behind the last of them.

They are given to a command or to `compile`, for all functions, or written on one as `fused.expect = "kernels<=7"`. One that does
not hold is an error at the function with what it is in place of that; remarks that explain it are its notes.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp

from fuse_opt.dialects.analysis.storage import functions_of
from fuse_opt.passes.recompute.budget import UNITS
from fuse_opt.passes.remarks import RefusedError, Remark, collect, pass_on
from fuse_opt.tools.steering.figures import FIGURES, Counted

EXPECT = "fused.expect"
"""The attribute of a function that says what is expected of it."""

_RELATIONS = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_ONE = re.compile(r"\s*([A-Za-z_]+)\s*(<=|>=|==|!=|=|<|>)\s*(\d{1,15}(?:\.\d{1,9})?)\s*([A-Za-z]*)\s*", re.ASCII)
_NOTES = 6
"""Remarks that explain one figure."""


@dataclass(frozen=True)
class Expectation:
    """A figure and its bound."""

    text: str
    figure: str
    relation: str
    bound: float

    def holds(self, value: int) -> bool:
        """Whether a value is what is expected."""
        return _RELATIONS[self.relation](value, self.bound)


def parse_expectations(text: str) -> list[Expectation]:
    """Those of a text, with commas between. Raises ValueError."""
    return [_parsed(part) for part in text.split(",")]


def _parsed(text: str) -> Expectation:
    match = _ONE.fullmatch(text)
    if match is None:
        raise ValueError(f"expected a figure, a relation and a number, as in 'kernels<=7', got '{text.strip()[:40]}'")
    name, relation, number, unit = match.groups()
    if name not in FIGURES:
        raise ValueError(f"unknown figure '{name}'; expected one of {', '.join(FIGURES)}")
    is_bytes = FIGURES[name].unit == "bytes"
    if unit and not (is_bytes and unit in UNITS):
        units = f"one of the units {', '.join(UNITS)}" if is_bytes else "no unit"
        raise ValueError(f"'{name}' has {units}, got '{unit}'")
    return Expectation(text.strip(), name, relation, float(number) * UNITS.get(unit, 1))


@contextmanager
def checked(module: ModuleOp, expected: Sequence[Expectation] = (), only: FuncOp | None = None) -> Generator[None]:
    """
    Checks what is expected behind the body, which runs passes on the module: `expected` of all functions, or of `only` one, and
    what functions say themselves. Raises RefusedError.
    """
    wanted = {function: [*expected, *_written(function)] for function in functions_of(module)}
    if not any(wanted.values()):
        yield
        return
    remarks: list[Remark] = []
    try:
        with collect() as remarks:
            yield
    finally:
        pass_on(remarks)
    for function in functions_of(module):
        if only is None or function is only:
            _check(function, [*expected, *_written(function)], remarks)
        else:
            _check(function, _written(function), remarks)


def _written(function: FuncOp) -> list[Expectation]:
    """What a function says. Raises RefusedError."""
    found = function.attributes.get(EXPECT)
    if found is None:
        return []
    try:
        if not isinstance(found, StringAttr):
            raise ValueError(f'expected a text such as "kernels<=7", got {found}')
        return parse_expectations(found.data)
    except ValueError as error:
        raise RefusedError(f"'{EXPECT}': {error}", function) from None


def _check(function: FuncOp, expected: Sequence[Expectation], remarks: Sequence[Remark]) -> None:
    problems: list[str] = []
    notes: dict[str, None] = {}
    for one in expected:
        figure = FIGURES[one.figure]
        found = figure.count(function)
        if found is None:
            problems.append(f"expected {one.text}, got no plan for memory: run plan-memory")
        elif not one.holds(found.value):
            problems.append(f"expected {one.text}, got {found.value}{_places(found)}")
            explaining = [str(remark) for remark in remarks if figure.explains(remark)]
            notes |= dict.fromkeys(explaining[:_NOTES] or [f"  no pass said anything about {one.figure}: {figure.doc}"])
            if len(explaining) > _NOTES:
                notes[f"  and {len(explaining) - _NOTES} more remarks about {one.figure}"] = None
    if problems:
        error = RefusedError(f"'{function.sym_name.data}': {'; '.join(problems)}", function)
        for note in notes:
            error.add_note(note)
        raise error


def _places(found: Counted) -> str:
    if not found.places:
        return ""
    more = f" and {len(found.places) - 3} more" if len(found.places) > 3 else ""
    return f" ({', '.join(found.places[:3])}{more})"
