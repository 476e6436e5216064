"""Errors about programs, with the place in the source that they are about."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.utils.exceptions import DiagnosticException

from fuse_opt.lowering.errors import EvaluationError
from fuse_opt.tools.source.diagnostics import InputError, located_error

Source = str | Path | ModuleOp
"""MLIR text, a file of it, or a module."""


@contextmanager
def located(source: Source, op: Operation) -> Generator[None]:
    """What passes, lowering or the reference refuse in the body is raised as an InputError about the program at `op`."""
    try:
        yield
    except (DiagnosticException, EvaluationError) as error:
        raise refused(error, source, op) from error


def refused(error: Exception, source: Source, op: Operation) -> InputError:
    """The located form of an error about a program that came from `source`."""
    name = str(source) if isinstance(source, Path) else "<module>" if isinstance(source, ModuleOp) else "<string>"
    return located_error(error, name, op)
