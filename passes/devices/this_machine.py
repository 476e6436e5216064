"""What measured figures are of: this machine with its compiler, and the code that made the programs; said by who runs passes."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """Two fingerprints; times of programs are compared where both are equal."""

    device: str
    """Of processor, caches, threads, compiler and flags."""
    code: str
    """Of what prints programs and compiles them."""


def unknown() -> Machine | None:
    """What holds where nobody said anything."""
    return None


THIS_MACHINE: ContextVar[Callable[[], Machine | None]] = ContextVar("fuse_opt_this_machine", default=unknown)
"""Gives the machine that programs are made for; None where nobody knows, and for other targets than its processor."""
