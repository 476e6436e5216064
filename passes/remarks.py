"""Remarks: what passes decided and what they refused, and the error of a refusal that must not be silent.

    with collect() as remarks:
        pass_.apply(ctx, module)
    for remark in remarks:
        print(remark)

Outside of `collect` a remark costs one look at a context variable; collections of different threads are apart.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from xdsl.dialects.builtin import FileLineColLoc
from xdsl.ir import Operation
from xdsl.utils.exceptions import PassFailedException

Number = int | float | str


@dataclass(frozen=True, slots=True)
class Remark:
    """One decision or refusal: by which pass, about which op and where, a reason code, a sentence, and named numbers."""

    pass_name: str
    op_name: str
    location: str
    code: str
    message: str
    numbers: tuple[tuple[str, Number], ...] = ()
    flip: str = ""
    """What would change it."""
    provisional: bool = False
    """Whether a later pass may decide otherwise; such remarks are retracted when one has the last word."""

    def __str__(self) -> str:
        numbers = "".join(f" {name}={value}" for name, value in self.numbers)
        flip = f" (otherwise with: {self.flip})" if self.flip else ""
        return (
            f"{self.location}: remark: [{self.pass_name}] {self.code}: '{self.op_name}' {self.message}{flip}{numbers}"
        )


class RefusedError(PassFailedException):
    """A pass cannot do what it was told to; `op` is the op that is at fault."""

    def __init__(self, message: str, op: Operation) -> None:
        super().__init__(message)
        self.op = op


_COLLECTED: ContextVar[list[Remark] | None] = ContextVar("fuse_opt_remarks", default=None)


def remark(
    pass_name: str,
    op: Operation,
    code: str,
    message: str,
    *,
    flip: str = "",
    provisional: bool = False,
    numbers: Mapping[str, Number] | None = None,
    **more: Number,
) -> None:
    """Notes a decision or a refusal about `op`; does nothing unless remarks are collected."""
    if (collected := _COLLECTED.get()) is not None:
        found = (*(numbers or {}).items(), *more.items())
        collected.append(Remark(pass_name, op.name, location(op), code, message, found, flip, provisional))


def pass_on(remarks: Sequence[Remark]) -> None:
    """Gives the remarks of a collection that is over to the one around it, if there is any."""
    if (collected := _COLLECTED.get()) is not None:
        collected += remarks


def retract_provisional() -> None:
    """Takes back the refusals of passes that another has the last word on."""
    if (collected := _COLLECTED.get()) is not None:
        collected[:] = [entry for entry in collected if not entry.provisional]


def is_collecting() -> bool:
    """Whether remarks go anywhere; for those whose text is costly to make."""
    return _COLLECTED.get() is not None


@contextmanager
def collect() -> Generator[list[Remark]]:
    """Gathers the remarks made in its body, in this thread or task; an inner collection takes precedence."""
    remarks: list[Remark] = []
    token = _COLLECTED.set(remarks)
    try:
        yield remarks
    finally:
        _COLLECTED.reset(token)


def location(op: Operation) -> str:
    """Where the op comes from, as `file:line:col`, or `-` when that is not known."""
    match op.location:
        case FileLineColLoc(filename=file, line=line, column=column):
            return f"{file.data}:{line.data}:{column.data}"
        case _:
            return "-"
