"""Which routine runs a library call of a program: a faster one of the runtime's own, or the one that came with it."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from fuse_opt.lowering.program import ConfigValue, Run
from fuse_opt.lowering.program.float_formats import by_values
from fuse_opt.runtime.backends.blas.convolution import try_conv
from fuse_opt.runtime.backends.blas.convolution_backward import try_conv_backward_weight, try_conv_transpose
from fuse_opt.runtime.backends.blas.matmul import load_tasks, try_matmul

Attempt = Callable[[Sequence[NDArray[Any]], Sequence[NDArray[Any]], Mapping[str, ConfigValue]], bool]

_ON_POOL: Mapping[str, Attempt] = {
    "numpy.matmul": try_matmul,
    "numpy.matmul_epilogue": try_matmul,
    "numpy.conv": try_conv,
    "numpy.conv_transpose": try_conv_transpose,
    "numpy.conv_backward_data": try_conv_transpose,
    "numpy.conv_backward_weight": try_conv_backward_weight,
}
"""By implementation: what does the same on the shared pool, or answers False."""


def resolve(implementation: str, default: Run) -> Run:
    """
    The routine for an implementation that a program names: one on the shared pool where there is one and NumPy's BLAS
    can be called from it, which leaves to `default` what it cannot do; else `default`.

    `$FUSE_OPT_BLAS` says `numpy` to have `default` always, or `pool` to have a warning where it is taken for want of a
    BLAS. Raises `ValueError` for anything else.
    """
    wanted = os.environ.get("FUSE_OPT_BLAS", "")
    if wanted not in ("", "numpy", "pool"):
        raise ValueError(f"FUSE_OPT_BLAS={wanted!r}: expected 'numpy' or 'pool'")
    attempt = _ON_POOL.get(implementation)
    if attempt is None or wanted == "numpy":
        return default
    if load_tasks() is None:
        if wanted == "pool":
            message = "FUSE_OPT_BLAS=pool: no BLAS was found that the pool can call; NumPy's own threads are used"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        return default
    return by_values(functools.partial(_run, attempt, default))


def _run(
    attempt: Attempt,
    default: Run,
    inputs: Sequence[NDArray[Any]],
    outputs: Sequence[NDArray[Any]],
    config: Mapping[str, ConfigValue],
) -> None:
    if not attempt(inputs, outputs, config):
        default(inputs, outputs, config)
