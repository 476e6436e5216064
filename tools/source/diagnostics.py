"""Located one-line errors, `file:line:col: error: message`, from whatever a parser, verifier, pass or evaluator raised."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from xdsl.dialects.builtin import ArrayAttr, CallSiteLoc, FileLineColLoc, FusedLoc, NameLoc
from xdsl.ir import Attribute, Operation

_LONGEST = 400
"""Characters of a message that are shown; what a message quotes may be as long as the input."""
_NEARBY = 64
"""Ops that are searched for a location when an op has none, as those that passes create."""


class InputError(ValueError):
    """The input is refused. The text is one line, `file:line:col: error: message`; a line of 0 means it is not known."""

    def __init__(self, file: str, line: int, col: int, message: str) -> None:
        super().__init__(file, line, col, message)
        self.file = file
        self.line = line
        self.col = col
        self.message = one_line(message)

    def __str__(self) -> str:
        return f"{format_position(self.file, self.line, self.col)}: error: {self.message}"


def located(op: Operation | None, message: str, file: str = "<unknown>") -> InputError:
    """An error at the place in the source that `op` comes from, or in `file` as a whole when that is not known."""
    location = None if op is None else source_position(op)
    return InputError(*(location or (file, 0, 0)), message)


def located_error(error: Exception, file: str, op: Operation | None = None) -> InputError:
    """The one-line form of an error that carries the op it is about as `.op`, or is about `op`."""
    if isinstance(error, InputError):
        return error
    about = getattr(error, "op", None)
    found = located(about if isinstance(about, Operation) else op, str(error) or type(error).__name__, file)
    for note in getattr(error, "__notes__", ()):
        found.add_note(note)
    return found


def with_notes(error: InputError) -> str:
    """The error, and behind it what explains it, a line each."""
    return "\n".join((str(error), *map(_printable, getattr(error, "__notes__", ()))))


def format_position(file: str, line: int, col: int) -> str:
    """`file:line:col`, or `file:1:1` when only the file is known: editors want a line to jump to."""
    return f"{file}:{max(line, 1)}:{max(col, 1)}"


def one_line(message: str) -> str:
    """The message without line breaks and control characters, and with its middle left out when it is very long."""
    text = _printable(message)
    if len(text) <= _LONGEST:
        return text
    half = (_LONGEST - 5) // 2
    return f"{text[:half]} ... {text[-half:]}"


def _printable(message: str) -> str:
    head = message if len(message) <= 2 * _LONGEST else f"{message[:_LONGEST]} ... {message[-_LONGEST:]}"
    text = " ".join(head.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def source_position(op: Operation) -> tuple[str, int, int] | None:
    """File, line and column of an op; where it has none, of the nearest op before it or around it."""
    for candidate in _from_near_to_far(op):
        if (position := attribute_position(candidate.location)) is not None:
            return position
    return None


def attribute_position(location: Attribute) -> tuple[str, int, int] | None:
    """File, line and column that a location attribute names first."""
    pending = [location]
    while pending:
        match pending.pop():
            case FileLineColLoc(filename=file, line=line, column=column):
                return file.data, line.data, column.data
            case NameLoc(location=inner) | CallSiteLoc(callee=inner):
                pending.append(inner)
            case FusedLoc(locations=ArrayAttr() as several):
                pending.extend(reversed(several.data))
            case _:
                pass
    return None


def _from_near_to_far(op: Operation) -> Iterator[Operation]:
    current: Operation | None = op
    while current is not None:
        yield current
        nested = (inner for region in current.regions for block in region.blocks for inner in block.ops)
        yield from islice(nested, _NEARBY)
        yield from islice(_before(current), _NEARBY)
        current = current.parent_op()


def _before(op: Operation) -> Iterator[Operation]:
    while (previous := op.prev_op) is not None:
        yield previous
        op = previous
