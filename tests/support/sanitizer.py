"""Programs compiled with gcc's sanitizer, which says on stderr what C leaves undefined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fuse_opt.runtime.cpu import program as cpu
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.host.c_compiler import CCompiler, find_c_compiler

SANITIZE = ("-O0", "-fsanitize=undefined,float-cast-overflow", "-fno-sanitize=float-divide-by-zero")
"""Division of floats by zero is defined: NaN or an infinity. Integers wrap by -fwrapv, without a report."""

ARITHMETIC = (*SANITIZE, "-fno-sanitize=null,alignment,pointer-overflow")
"""Without the checks of addresses, on which gcc spends twice the time of all the rest."""


def sanitize(monkeypatch: pytest.MonkeyPatch, flags: Sequence[str] = SANITIZE) -> None:
    """From here to the end of the test programs are compiled with these flags in place of the optimisation."""
    found = find_c_compiler()
    assert found is not None
    kept = tuple(flag for flag in found.flags if not flag.startswith("-O"))
    compiler = replace(found, flags=(*kept, *flags), libraries=("-lm",))  # and what the sanitizer asks for

    def sanitizing(cache: DiskCache | None = None) -> CCompiler:
        return compiler

    monkeypatch.setattr(cpu, "find_c_compiler", sanitizing)
