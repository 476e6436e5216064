"""What options of passes have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields

from xdsl.passes import ModulePass

_TRIES = "tries"

Value = str | int | float | bool


def tunable(*tries: Value) -> Mapping[str, tuple[Value, ...]]:
    """
    Metadata of a field that is an option which `fuse-tune --joint` tries these values for, as what is best hangs on machines.

        strategy: str = field(default="auto", metadata=tunable("lpmf", "dfs"))
    """
    return {_TRIES: tries}


def tunable_options(pass_: ModulePass) -> Iterator[tuple[str, Value]]:
    """The options of a pass that say so with each of their values but the one it has, spelt as in pipelines."""
    for field in fields(pass_):
        for value in field.metadata.get(_TRIES, ()):
            if value != getattr(pass_, field.name):
                yield field.name.replace("_", "-"), value


def check_counts(pass_: ModulePass) -> None:
    """Raises `ValueError` where an option that is an integer is negative: options count ops, bytes, rounds and the like."""
    for field in fields(pass_):
        value = getattr(pass_, field.name)
        if isinstance(value, int) and value < 0:
            raise ValueError(f"option '{field.name.replace('_', '-')}': expected 0 or more, got {value}")
