"""What runs a compiled program: the CPU, a CUDA device, or the reference, all called in the same way."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from fuse_opt.lowering.errors import EvaluationError
from fuse_opt.lowering.reference.interpreter import evaluate_function
from fuse_opt.tools.compiler.pipeline import UNFUSED_PIPELINE, make_passes, run_pipeline
from fuse_opt.tools.compiler.registry import make_context
from fuse_opt.tools.compiler.signature import Array, Signature
from fuse_opt.tools.source.diagnostics import InputError, located_error

LAUNCH_BY_LAUNCH = "bulk-launches{max-launches=1}"
"""The pass that gives each launch a segment of its own."""


class Backend(Protocol):
    """What a runtime gives: it checks the arrays that it is called with, and overwrites donated ones."""

    @property
    def stats(self) -> Any: ...
    @property
    def source(self) -> str: ...
    def __call__(self, *arrays: Any, out: Any = None) -> Any: ...


def make_backend(
    module: ModuleOp, function: str | None, target: str, poison: bool = False, whole: bool = False
) -> Backend:
    """
    The program on "cpu" or "cuda"; the ops of kernels that the compiler refuses come apart in the module. With `whole` that
    is a RuntimeError.
    """
    emit, fallback = import_module("fuse_opt.lowering.emit"), import_module("fuse_opt.tools.compiler.fallback")
    if target == "cuda":
        runtime = import_module("fuse_opt.runtime.cuda.program")
        make, emitted, refusal = runtime.CudaProgram, emit.build_cuda_program, runtime.KernelRefused
        unavailable: type[Exception] | tuple[()] = runtime.CudaUnavailable
        final: type[Exception] | tuple[()] = ()
    else:
        runtime = import_module("fuse_opt.runtime.cpu.poison" if poison else "fuse_opt.runtime.cpu.program")
        make, emitted = runtime.PoisonedProgram if poison else runtime.CpuProgram, emit.build_program
        c_compiler = import_module("fuse_opt.runtime.host.c_compiler")
        refusal, unavailable, final = c_compiler.CompileError, (), c_compiler.CompilerUnusable

    def build(module: ModuleOp, function: str | None = None) -> Backend:
        return make(emitted(module, function))

    if whole:
        return build(module, function)
    complete = partial(_complete_unfused, LAUNCH_BY_LAUNCH if poison else "")
    try:
        return fallback.build_unfusing(module, function, build, refusal, complete, final)
    except unavailable as error:
        return _CudaText(emitted(module, function), str(error))


def _complete_unfused(last: str, module: ModuleOp) -> None:
    """Brings ops of kernels that came apart into kernels of their own; `last` names one more pass."""
    run_pipeline(module, make_passes((*UNFUSED_PIPELINE, *([last] if last else []))), make_context())


@dataclass(frozen=True)
class ReferenceStats:
    """What the reference does: every op on its own, all intermediate values in memory of their own."""

    launches: int
    kernels: int = 0
    library_calls: int = 0
    arena_bytes: int = 0
    lower_bound_bytes: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    compile_s: float = 0.0
    segments: int = 0


class _CudaText:
    """A CUDA program to read and to compile, where no device can run it."""

    def __init__(self, program: Any, reason: str) -> None:
        self.source: str = program.source
        self.stats = program.stats
        self._reason = reason

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        raise RuntimeError(
            f"target 'cuda' cannot run it here: {self._reason}; read or compile `program.source`, "
            'or run with target="cpu"'
        )


class Reference:
    """A function on the reference evaluator."""

    source = ""

    def __init__(self, origin: str | Path | ModuleOp, function: FuncOp) -> None:
        self._origin = origin
        self._function = function
        self._signature = Signature.of(function)
        self.stats = ReferenceStats(sum(1 for _ in self._function.body.block.ops) - 1)

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        inputs = self._signature.convert_inputs(arrays)
        targets = None if out is None else self._signature.check_outputs(out)
        try:
            results = evaluate_function(self._function, inputs)
        except EvaluationError as error:
            raise refused(error, self._origin, self._function) from error
        if targets is None:
            results = [a.copy() if any(np.may_share_memory(a, b) for b in inputs) else a for a in results]
        else:
            results = [_copied(target, result) for target, result in zip(targets, results, strict=True)]
        return results[0] if len(results) == 1 else tuple(results)


def _copied(target: Array, result: Array) -> Array:
    np.copyto(target, result)
    return target


def refused(error: Exception, source: str | Path | ModuleOp, op: Operation) -> InputError:
    """The located form of an error about a program that came from `source`."""
    name = str(source) if isinstance(source, Path) else "<module>" if isinstance(source, ModuleOp) else "<string>"
    return located_error(error, name, op)


@cache
def has_c_compiler() -> bool:
    """Warns where there is none."""
    from fuse_opt.runtime.host.c_compiler import compiler_problem, find_c_compiler

    if find_c_compiler() is not None:
        return True
    reason = compiler_problem().partition("\n")[0]
    warnings.warn(
        f"no C compiler works here{reason and f', as {reason}'}: programs run on the reference, slowly (set FUSE_OPT_CC or CC)",
        RuntimeWarning,
        stacklevel=3,
    )
    return False


def require_c_compiler() -> None:
    """Raises RuntimeError where there is none that works."""
    from fuse_opt.runtime.host.c_compiler import find_c_compiler

    with warnings.catch_warnings():  # the error says it
        warnings.simplefilter("ignore", RuntimeWarning)
        found = find_c_compiler()
    if found is None:
        given = {name: os.environ[name] for name in ("FUSE_OPT_CC", "CC") if name in os.environ}
        named = ", ".join(f"{name}={value!r}" for name, value in given.items()) or "neither FUSE_OPT_CC nor CC is set"
        raise RuntimeError(f"no C compiler works here ({named}); install one, or name it in FUSE_OPT_CC")
