"""Which backends a machine lacks: what is behind them is looked for when a program is made, and by no pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fuse_opt.runtime.backends import indexing
from fuse_opt.runtime.backends.blas.offers import blas_problem
from fuse_opt.runtime.backends.onednn.offers import onednn_load_problem, onednn_problem

OWN = (indexing,)
"""What registers offers that need nothing of the machine but a C compiler."""

_PROBLEMS: Mapping[str, Callable[[], str | None]] = {"blas": blas_problem, "onednn": onednn_problem}
"""By backend: why its functions cannot be called here, as far as that is known without loading a library."""
_LOAD_PROBLEMS: Mapping[str, Callable[[], str | None]] = {"onednn": onednn_load_problem}


def unavailable_backends() -> dict[str, str]:
    """By name, the backends whose functions cannot be called here, and why."""
    found = {name: problem() for name, problem in _PROBLEMS.items()}
    return {name: reason for name, reason in found.items() if reason is not None}


def load_problem(name: str) -> str | None:
    """Why a backend that a person names cannot be used here; its library is loaded."""
    problem = _LOAD_PROBLEMS.get(name)
    return None if problem is None else problem()
