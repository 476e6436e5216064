"""Fusion rules in files of Python: loaded, and asked in such a way that their faults are errors at a line of the file."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from types import ModuleType
from typing import TypeVar, cast

from xdsl.dialects.builtin import FileLineColLoc, IntAttr, ModuleOp, StringAttr

from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.passes.fusion.engine.group_graph import Group, GroupGraph, Refusal, Rule
from fuse_opt.passes.remarks import RefusedError, location

_NAMES = ("rule", "RULE")
_NUMBERS = count()
_T = TypeVar("_T")
_FAULTS = (Exception, SystemExit)
"""What a user's file may raise; an interruption is none of it."""


def refused_at(file: str, line: int, column: int, message: str) -> RefusedError:
    """An error at a place in a file."""
    place = ModuleOp([])
    place.location = FileLineColLoc(StringAttr(file), IntAttr(line), IntAttr(column))
    return RefusedError(message, place)


@dataclass
class CheckedRule:
    """A user's rule. It is asked about pairs that may become a kernel only; what it raises or answers wrongly is an error."""

    rule: Rule
    name: str
    file: str

    def __post_init__(self) -> None:
        if callable(partners := getattr(self.rule, "partners", None)):
            self.partners = partial(self._partners, cast(Callable[..., Iterable[object]], partners))

    def consider(self, graph: GroupGraph, producer: Group, consumer: Group) -> Sequence[Group] | Refusal | None:
        if not (is_fusable(producer) and is_fusable(consumer)):
            return None
        answer = self._ask(lambda *asked: _plain(self.rule.consider(*asked)), graph, producer, consumer)
        if answer is None or (isinstance(answer, Refusal) and _is_well_formed(answer)):
            return answer
        if isinstance(answer, tuple):
            given = cast(tuple[object, ...], answer)
            if len(groups := _groups(graph, given)) == len(set(map(id, given))) > 1:
                return groups
        raise self._wrong("consider", cast(object, answer), "two or more groups of the graph, a Refusal or None")

    def _partners(self, ask: Callable[..., Iterable[object]], graph: GroupGraph, group: Group) -> Sequence[Group]:
        if not is_fusable(group):
            return ()
        given = self._ask(lambda *asked: list(ask(*asked)), graph, group)
        groups = _groups(graph, given)
        if len(groups) < len(set(map(id, given))):
            raise self._wrong("partners", given, "groups of the graph")
        return [other for other in groups if other is not group]

    def _ask(self, method: Callable[..., _T], graph: GroupGraph, *groups: Group) -> _T:
        try:
            return method(graph, *groups)
        except _FAULTS as error:
            names = " and ".join(f"'{group.first.name}'" for group in groups)
            what = f"rule '{self.name}' raised {_text(error)}, asked about {names} at {location(groups[-1].first)}"
            raise refused_at(self.file, *_place(error, self.file, self.rule), what) from error

    def _wrong(self, method: str, answer: object, expected: str) -> RefusedError:
        what = f"rule '{self.name}', answer of {method}: expected {expected}, got {_described(answer)}"
        return refused_at(self.file, *_place(None, self.file, self.rule), what)


def _groups(graph: GroupGraph, given: Sequence[object]) -> list[Group]:
    """Those that are groups of the graph now, and may be in a kernel, each once."""
    groups = dict.fromkeys(member for member in given if isinstance(member, Group))
    return [group for group in groups if graph.group_of.get(group.first) is group and is_fusable(group)]


def _plain(answer: object) -> object:
    """A list or tuple as a tuple, which runs no code of the user's any more."""
    return tuple(cast(Sequence[object], answer)) if isinstance(answer, list | tuple) else answer


def _described(answer: object) -> str:
    if isinstance(answer, list | tuple):
        return f"[{', '.join(type(member).__name__ for member in cast(Sequence[object], answer))}]"
    try:
        return f"{type(answer).__name__} {answer!r}"
    except _FAULTS:
        return type(answer).__name__


def is_fusable(group: Group) -> bool:
    """Whether the group may be in a kernel: tensor ops of which somebody reads a result."""
    return isinstance(group.first, GraphOp | KernelOp) and any(value.uses for value in group.outputs)


def _is_well_formed(refusal: Refusal) -> bool:
    numbers = cast(object, refusal.numbers)
    if not isinstance(numbers, dict):
        return False
    given = cast(dict[object, object], numbers)
    texts = (refusal.code, refusal.message, refusal.flip or "", *given)
    return all(isinstance(cast(object, text), str) for text in texts) and all(
        isinstance(number, int | float | str) for number in given.values()
    )


def load_rule(source: bytes, file: str) -> CheckedRule:
    """
    The rule that a file of Python names `rule`: an object, or a class of which one is made. The file is run. Raises
    RefusedError at the line that is at fault.
    """
    module = ModuleType(f"_fuse_opt_rule_{next(_NUMBERS)}")
    module.__file__ = file
    sys.modules[module.__name__] = module  # where dataclasses look for the module of a class
    try:
        exec(compile(source, file, "exec", dont_inherit=True), vars(module))
        rule = next((vars(module)[name] for name in _NAMES if name in vars(module)), None)
        if isinstance(rule, type):
            rule = cast(type[object], rule)()
        name, is_asked = _name(rule), callable(getattr(rule, "consider", None))
        checked = CheckedRule(cast(Rule, rule), name, file) if is_asked else None
    except SyntaxError as error:
        place = (error.lineno or 1, error.offset or 1) if error.filename == file else _place(error, file)
        raise refused_at(file, *place, f"{error.msg}: expected Python that defines a rule") from error
    except _FAULTS as error:
        raise refused_at(file, *_place(error, file), f"the file raised {_text(error)}") from error
    finally:
        del sys.modules[module.__name__]
    if rule is None:
        raise refused_at(file, 1, 1, "expected a rule named 'rule' at the end of the file, got no such name")
    if checked is None:
        what = f"rule '{name}': expected a method consider(graph, producer, consumer), got none"
        raise refused_at(file, 1, 1, what)
    return checked


def _name(rule: object) -> str:
    name = getattr(rule, "name", None)
    return name if isinstance(name, str) else type(rule).__name__


def _text(error: BaseException) -> str:
    try:
        said = str(error)
    except _FAULTS:
        said = ""
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _place(error: BaseException | None, file: str, rule: object = None) -> tuple[int, int]:
    """The line and column of the file at which the error came up; otherwise those of the rule's method."""
    frames = traceback.extract_tb(None if error is None else error.__traceback__)
    for frame in reversed(frames):
        if frame.filename == file and frame.lineno:
            return frame.lineno, (frame.colno or 0) + 1
    method = getattr(type(rule), "consider", None)
    return getattr(getattr(method, "__code__", None), "co_firstlineno", 1), 1
