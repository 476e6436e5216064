"""Errors of lowering and of the reference."""

from __future__ import annotations

from xdsl.ir import Operation
from xdsl.utils.exceptions import PassFailedException


class LoweringError(PassFailedException):
    """The program lacks what lowering requires; `op` says where."""

    def __init__(self, message: str, op: Operation) -> None:
        super().__init__(message)
        self.op = op


class EvaluationError(Exception):
    """The module or the arguments cannot be evaluated; the message says what was expected."""

    def __init__(self, message: str, op: Operation | None = None) -> None:
        super().__init__(message)
        self.op = op
