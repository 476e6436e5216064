"""What measured figures are of: this machine with its compiler, and the code that made the programs; said by who runs passes."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import sha256

from xdsl.dialects.builtin import ModuleOp

from fuse_opt.dialects.gpu.kernels import DEVICE

_DIGITS = 16


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
"""Gives the machine whose processor programs are made for; None where nobody knows."""


def machine_for(module: ModuleOp) -> Machine | None:
    """What a module's programs run on: this machine's processor, or the GPU that the module names, by all that it says of it."""
    here, named = THIS_MACHINE.get()(), module.attributes.get(DEVICE)
    if here is None or named is None:
        return here
    return Machine(f"g:{sha256(str(named).encode()).hexdigest()[:_DIGITS]}", here.code)
