"""Remarks: what passes decided and what they refused, and the error of a refusal that must not be silent.

    with collect() as remarks:
        pass_.apply(ctx, module)
    for remark in remarks:
        print(remark)

Outside of `collect` a remark costs one look at a context variable; collections of different threads are apart.
"""

from __future__ import annotations

from collections.abc import Generator
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

    def __str__(self) -> str:
        numbers = "".join(f" {name}={value}" for name, value in self.numbers)
        return f"{self.location}: remark: [{self.pass_name}] {self.code}: '{self.op_name}' {self.message}{numbers}"


class RefusedError(PassFailedException):
    """A pass cannot do what it was told to; `op` is the op that is at fault."""

    def __init__(self, message: str, op: Operation) -> None:
        super().__init__(message)
        self.op = op


_COLLECTED: ContextVar[list[Remark] | None] = ContextVar("fuse_opt_remarks", default=None)


def remark(pass_name: str, op: Operation, code: str, message: str, **numbers: Number) -> None:
    """Notes a decision or a refusal about `op`; does nothing unless remarks are collected."""
    if (collected := _COLLECTED.get()) is not None:
        collected.append(Remark(pass_name, op.name, location(op), code, message, tuple(numbers.items())))


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
