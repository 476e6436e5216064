"""What options of passes have in common."""

from __future__ import annotations

from dataclasses import fields

from xdsl.passes import ModulePass


def check_counts(pass_: ModulePass) -> None:
    """Raises `ValueError` where an option that is an integer is negative: options count ops, bytes, rounds and the like."""
    for field in fields(pass_):
        value = getattr(pass_, field.name)
        if isinstance(value, int) and value < 0:
            raise ValueError(f"option '{field.name.replace('_', '-')}': expected 0 or more, got {value}")
