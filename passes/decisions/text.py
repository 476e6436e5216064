"""The text of decisions: one line for each, read and written.

    fuse-elementwise#1 @main: graph.max#0 %m + graph.subtract#1 %s  # a comment
    rematerialize @main: graph.exp#0 + graph.add#0 for graph.multiply#3
    order-for-memory @main: graph.sum#0 before graph.exp#1
    select-implementation @main: graph.matmul#0 %h = numpy.matmul

The first fuses, the second computes ops again for those behind `for`, the third moves a kernel, and the fourth chooses what is
behind `=` for an op, or for the kernel that holds it; what may stand there is up to the pass.

`#1` after the pass is its second run in the pipeline (the first has no number). `#1` after an op counts the ops of that
name in the function from 0, in the order in which the first fusion pass finds them; constants that every kernel copies
do not count. `%s` is the result's name in the input, as xDSL keeps it: `%s_1` is `%s`. A name that only one such op has
is enough, and holds against another number; where several have it, or there is none, the number decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from xdsl.ir import SSAValue


class DecisionError(ValueError):
    """A decision that cannot be read or applied; the text is one line, `file:line:col: error: message`."""

    def __init__(self, file: str, line: int, col: int, message: str) -> None:
        super().__init__(f"{file}:{line}:{col}: error: {message}")
        self.file = file
        self.line = line
        self.col = col
        self.message = message


@dataclass(frozen=True)
class OpRef:
    """An op of a function: by name, number among the ops of that name, and the name of its result."""

    op: str
    number: int | None = None
    name: str | None = None
    col: int = field(default=1, compare=False)

    def __str__(self) -> str:
        number = "" if self.number is None else f"#{self.number}"
        return f"{self.op}{number}" + ("" if self.name is None else f" %{self.name}")


@dataclass(frozen=True)
class Decision:
    """
    The kernels of these ops became one, in run number `run` (from 0) of a pass, in a function; or with `readers` the ops are
    computed again for these, or moved before them; or with `choice` that is chosen for them.
    """

    pass_name: str
    run: int
    function: str
    ops: tuple[OpRef, ...]
    readers: tuple[OpRef, ...] = ()
    choice: str = ""
    word: str = "for"
    """What stands before `readers`: "for" or "before"."""
    choice_col: int = field(default=1, compare=False)
    file: str = field(default="<decisions>", compare=False)
    line: int = field(default=0, compare=False)
    near: tuple[str, ...] = field(default=(), compare=False)
    """By each of the ops, then of the readers, a checksum of it and of what is near it, where anybody asked for that."""

    @property
    def subject(self) -> str:
        """What it is about: its text without what is chosen."""
        return str(replace(self, choice=""))

    def __str__(self) -> str:
        run = f"#{self.run}" if self.run else ""
        readers = f" {self.word} {' + '.join(map(str, self.readers))}" if self.readers else ""
        choice = f" = {self.choice}" if self.choice else ""
        return f"{self.pass_name}{run} {self.function}: {' + '.join(map(str, self.ops))}{readers}{choice}"

    def error(self, message: str, ref: OpRef | None = None) -> DecisionError:
        """An error about the decision, at one of its ops where that is given."""
        return DecisionError(self.file, self.line, 1 if ref is None else ref.col, message)

    def choice_error(self, message: str) -> DecisionError:
        """An error about what is chosen."""
        return DecisionError(self.file, self.line, self.choice_col, message)


def format_decisions(decisions: Iterable[Decision]) -> str:
    """One line for each."""
    return "".join(f"{decision}\n" for decision in decisions)


_BLANK = re.compile(r"\s*(?:#.*)?$")
_END = re.compile(r"\s*(?:\s#.*)?$")
_PASS = re.compile(r"\s*([\w.-]+)(?:#([0-9]{1,9})(?![0-9]))?")
_SYMBOL = r'@(?:[\w$.-]+|"(?:[^"\\]|\\.)*")'
_FUNCTION = re.compile(rf"\s*({_SYMBOL}(?:::{_SYMBOL})*)")
_COLON = re.compile(r"\s*:")
_OP = re.compile(r"\s*([A-Za-z_][\w$.-]*)(?:#([0-9]{1,9})(?![0-9]))?(?:\s*%([A-Za-z_$.-][\w$.-]*))?")
_FOR = re.compile(r"\s+(for|before)(?=\s|$)")
_CHOICE = re.compile(r"\s*=\s*(\S(?:.*?\S)?)(?=\s*(?:\s#.*)?$)")
_PLUS = re.compile(r"\s*\+")
_SHOWN = 40
"""Characters of a line that a message quotes."""


def parse_decisions(text: str, file: str = "<decisions>", first_line: int = 1) -> list[Decision]:
    """The decisions of a text; blank lines and what follows a `#` that no letter precedes are skipped. Raises DecisionError."""
    lines = enumerate(text.split("\n"), first_line)
    return [_Line(line, file, number).decision() for number, line in lines if not _BLANK.match(line)]


@dataclass
class _Line:
    text: str
    file: str
    number: int
    at: int = 0

    def decision(self) -> Decision:
        pass_name, run = self._take(_PASS, "the name of a pass")
        (function,) = self._take(_FUNCTION, "a function, as in '@main'")
        self._take(_COLON, "':'")
        ops, readers = [self._op()], list[OpRef]()
        while not self._ends(len(ops) > 1):
            self._take_plus(ops)
        word: str | None = "for"
        if _FOR.match(self.text, self.at):
            (word,) = self._take(_FOR, "'for' or 'before'")
            readers.append(self._op())
            while not self._ends(True):
                self._take_plus(readers)
        choice, col = "", 1
        if match := _CHOICE.match(self.text, self.at):
            choice, col = match[1], match.start(1) + 1
        places = (tuple(ops), tuple(readers), choice, str(word), col, self.file, self.number)
        return Decision(str(pass_name), int(run or 0), str(function), *places)

    def _ends(self, may_end: bool) -> bool:
        """Whether no further op follows."""
        if _FOR.match(self.text, self.at) or _CHOICE.match(self.text, self.at):
            return True
        return may_end and _END.match(self.text, self.at) is not None

    def _take_plus(self, ops: list[OpRef]) -> None:
        self._take(_PLUS, "'+' and another op, as in 'graph.exp#0 %e + graph.add#1'")
        ops.append(self._op())

    def _op(self) -> OpRef:
        start = self.at + len(self.text[self.at :]) - len(self.text[self.at :].lstrip())
        op, number, name = self._take(_OP, "an op, as in 'graph.add#1' or 'graph.add#1 %sum'")
        return OpRef(str(op), None if number is None else int(number), SSAValue.extract_valid_name(name), start + 1)

    def _take(self, pattern: re.Pattern[str], expected: str) -> tuple[str | None, ...]:
        match = pattern.match(self.text, self.at)
        if match is None:
            rest = self.text[self.at :].strip()
            got = f"'{rest[:_SHOWN]}'" if rest else "the end of the line"
            raise DecisionError(self.file, self.number, self.at + 1, f"expected {expected}, got {got}")
        self.at = match.end()
        return match.groups()
