"""Which routine runs a library call of a program: a faster one of the runtime's own, or the one that came with it."""

from __future__ import annotations

import ctypes
import functools
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from fuse_opt.lowering.narrow_floats import by_values
from fuse_opt.lowering.program import ConfigValue, LibraryCall, Run
from fuse_opt.runtime.blas import Follower, load_tasks, try_matmul, try_matmul_then
from fuse_opt.runtime.convolution import try_conv
from fuse_opt.runtime.convolution_backward import try_conv_backward_weight, try_conv_transpose

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


_Then = Callable[[Follower, Sequence[NDArray[Any]], Sequence[NDArray[Any]], Mapping[str, ConfigValue]], bool]

FOLLOWED: Mapping[str, _Then] = {"numpy.matmul": try_matmul_then, "numpy.matmul_epilogue": try_matmul_then}
"""By implementation: what does the same with a launch behind it, part by part, or answers False."""


def resolve_then(
    step: LibraryCall, following: Sequence[Callable[[int, int], None] | None], table: int
) -> Attempt | None:
    """
    What runs a call and, part by part, the step `following` it, on the buffers of `table`; None where they are to be run
    one after the other: that is right, too.
    """
    launch = step.epilogue
    if launch is None or launch.tasks <= launch.grain or os.environ.get("FUSE_OPT_BLAS") == "numpy":
        return None
    if step.implementation not in FOLLOWED or load_tasks() is None or (segment := following[0]) is None:
        return None
    function = ctypes.cast(segment, ctypes.c_void_p).value or 0  # pyright: ignore[reportArgumentType]
    follower = Follower(function, table, launch.tasks, launch.grain)
    return functools.partial(FOLLOWED[step.implementation], follower)


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
