"""The library's face: programs compiled for a target, the reference value, pipelines over modules."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import DiagnosticException

from fuse_opt.lowering.reference import EvaluationError, entry_function, evaluate_function
from fuse_opt.tools.diagnostics import InputError, located_error
from fuse_opt.tools.parsing import decode, parse_module
from fuse_opt.tools.pipeline import UNFUSED_PIPELINE, make_passes, run_pipeline
from fuse_opt.tools.registry import get_dialects, register
from fuse_opt.tools.signature import Array, Signature
from fuse_opt.tools.specialization import Shapes, SpecializedPrograms, is_dynamic, specialize

__all__ = ["CompiledProgram", "compile", "evaluate", "load", "optimize", "register"]

TARGETS = ("cpu", "cuda", "reference")
_LAUNCH_BY_LAUNCH = "bulk-launches{max-launches=1}"


class Backend(Protocol):
    """What a runtime gives: it checks the arrays that it is called with, and overwrites donated ones."""

    @property
    def stats(self) -> Any: ...
    @property
    def source(self) -> str: ...
    def __call__(self, *arrays: Any, out: Sequence[Any] | None = None) -> Any: ...


class CompiledProgram:
    """A program that is ready to run; it may be called from several threads at once."""

    def __init__(self, signature: Signature, module: ModuleOp, target: str, backend: Backend) -> None:
        self.signature = signature
        self.module = module
        """The program after all passes."""
        self.target = target
        """What it runs on: "cpu", "cuda" or "reference"."""
        self._backend = backend
        self._direct: Any = getattr(backend, "direct", None)

    def __call__(self, *arrays: Any, out: Sequence[Any] | None = None, stream: Any = None) -> Any:
        """
        The result, or a tuple where there are several; written to `out` where that is given. Arguments are NumPy arrays,
        or anything that gives its memory by DLPack; donated ones are overwritten. Raises TypeError or ValueError.

        For "cuda" they may be arrays of a device, too; then the results are, and the work is ordered on `stream` (a handle,
        or one of PyCUDA's, torch's or cupy's) or on the first array's own, without waiting for it.
        """
        if stream is None:
            if self._direct is not None and (found := self._direct(arrays, out)) is not NotImplemented:
                return found
            return self._backend(*arrays, out=out)
        if self.target != "cuda":
            raise ValueError(f"stream: expected None for target '{self.target}', which has no streams")
        return cast("Any", self._backend)(*arrays, out=out, stream=stream)

    @property
    def native(self) -> Any:
        """The runtime's own program, for front ends that call it with addresses instead of arrays."""
        return self._backend

    @property
    def stats(self) -> Any:
        """
        Kernels, launches, library_calls, segments, arena_bytes, lower_bound_bytes, bytes_read, bytes_written, compile_s; for
        "cpu" also how many objects were `compiled` and `cached`.
        """
        return self._backend.stats

    @property
    def source(self) -> str:
        """The generated text; empty for the reference."""
        return self._backend.source


def load(source: str | Path | ModuleOp, ctx: Context | None = None) -> ModuleOp:
    """
    A module from MLIR text, from a file, or as it is. A string without a line break that ends in `.mlir` names a file.
    Raises InputError for text that is no module, OSError for files.
    """
    if isinstance(source, ModuleOp):
        return source
    ctx = _context() if ctx is None else ctx
    if isinstance(source, Path) or ("\n" not in source and source.endswith(".mlir")):
        return parse_module(decode(Path(source).read_bytes(), str(source)), str(source), ctx)
    return parse_module(source, "<string>", ctx)


def optimize(source: str | Path | ModuleOp, pipeline: str | Sequence[str] | None = None) -> ModuleOp:
    """
    The module after a pipeline (the default one when there is none), verified after every pass; a ModuleOp is changed in
    place. Raises InputError when the module or a pass is refused, UsageError for passes that do not exist.
    """
    passes = make_passes(pipeline)
    ctx = _context()
    module = load(source, ctx)
    try:
        run_pipeline(module, passes, ctx)
    except DiagnosticException as error:
        raise _refused(error, source, module) from error
    return module


def evaluate(source: str | Path | ModuleOp, *inputs: Any, function: str | None = None) -> Any:
    """The reference value of a function (the only one, or `main`); the arguments are not changed."""
    module = optimize(source, ())
    return _program(source, module, function, "reference")(*inputs)


def compile(
    source: str | Path | ModuleOp,
    target: str = "cpu",
    pipeline: str | Sequence[str] | None = None,
    function: str | None = None,
    *,
    poison: bool = False,
) -> CompiledProgram:
    """
    A program for "cpu", "cuda" or "reference", from a function (the only one, or `main`); the source is not changed.

    With `poison` (for "cpu") all bytes of the arena that no later step reads are NaN between steps: slow, to find errors.

    Extents that are unknown (`?`) are those of each call: for "cpu" a program is compiled when a set of shapes is first met.

    What a pipeline of one's own leaves over is completed by the passes without fusion: every op comes into a kernel,
    kernels get schedules and memory. Raises InputError, UsageError, and ValueError for an unknown target.
    """
    if target not in TARGETS:
        raise ValueError(f"unknown target '{target}'; expected one of {', '.join(TARGETS)}")
    if poison and target != "cpu":
        raise ValueError(f"poison=True fills the arena of target 'cpu' between steps; got target '{target}'")
    passes = make_passes(pipeline)
    if pipeline is not None:
        passes += _completion(passes)
    if poison:
        passes += make_passes(_LAUNCH_BY_LAUNCH)
    lowered = target != "reference" or pipeline is not None
    if target == "cpu" and not _has_c_compiler():
        target = "reference"
    module = load(source)
    module = module.clone() if module is source else module
    if target == "cpu" and (specialized := _specialized(source, module, passes, function, poison)) is not None:
        return specialized
    try:
        run_pipeline(module, passes if lowered else [], _context())
    except DiagnosticException as error:
        raise _refused(error, source, module) from error
    return _program(source, module, function, target, poison)


@contextmanager
def steered(replay: str | Path | None = None) -> Generator[Callable[[], str]]:
    """
    Programs compiled in its body are fused by the decisions in the file `replay`, and no other, where one is given. Gives a
    function for the text of the decisions made. Raises InputError for a file that cannot be read or applied.
    """
    texts = import_module("fuse_opt.passes.decision_text")
    decisions = import_module("fuse_opt.passes.decisions")
    try:
        with ExitStack() as stack:
            made = stack.enter_context(decisions.record_decisions())
            if replay is not None:
                text = decode(Path(replay).read_bytes(), str(replay))
                stack.enter_context(decisions.replay_decisions(texts.parse_decisions(text, str(replay))))
            yield lambda: texts.format_decisions(made)
    except texts.DecisionError as error:
        raise InputError(error.file, error.line, error.col, error.message) from error


def use_openmp_threads(wanted: bool = True) -> bool:
    """
    Lets CPU programs of this process run on the threads of an OpenMP runtime that it has loaded, or on their own again; for
    programs between kernels of a library that has such threads. Returns whether they do: False where there is none.
    """
    return import_module("fuse_opt.runtime.thread_pool").use_openmp_threads(wanted)


def _completion(passes: Sequence[ModulePass]) -> list[ModulePass]:
    """
    The passes that bring what others left over into kernels with schedules and memory, with the options that the caller
    gave to them last; none where they ran just now.
    """
    given = {each.name: each for each in passes}
    completion = [given.get(each.name, each) for each in make_passes(UNFUSED_PIPELINE)]
    return [] if passes[-len(completion) :] == completion else completion


def _program(
    source: str | Path | ModuleOp, module: ModuleOp, function: str | None, target: str, poison: bool = False
) -> CompiledProgram:
    try:
        entry = entry_function(module, function)
        backend = _Reference(source, entry) if target == "reference" else _backend(module, function, target, poison)
        return CompiledProgram(Signature.of(entry), module, target, backend)
    except (DiagnosticException, EvaluationError) as error:
        raise _refused(error, source, module) from error


def _specialized(
    source: str | Path | ModuleOp, module: ModuleOp, passes: Sequence[ModulePass], function: str | None, poison: bool
) -> CompiledProgram | None:
    """A program that is compiled for the shapes of each call; None when all shapes are known."""
    try:
        entry = entry_function(module, function)
        if not is_dynamic(entry):
            return None
    except (DiagnosticException, EvaluationError) as error:
        raise _refused(error, source, module) from error

    def make(shapes: Shapes) -> Backend:
        copy = specialize(module, function, shapes)
        try:
            run_pipeline(copy, [*make_passes(("infer-shapes",)), *passes], _context())
            return _backend(copy, function, "cpu", poison)
        except DiagnosticException as error:
            raise _refused(error, source, copy) from error

    return CompiledProgram(Signature.of(entry), module, "cpu", SpecializedPrograms(entry, make))


def _backend(module: ModuleOp, function: str | None, target: str, poison: bool) -> Backend:
    """The program on its runtime; the ops of kernels that its compiler refuses come apart in the module."""
    if target == "cuda":
        return _cuda_backend(module, function)
    emit = import_module("fuse_opt.lowering.emit")
    runtime = import_module("fuse_opt.runtime.poison" if poison else "fuse_opt.runtime.cpu")
    make = runtime.PoisonedProgram if poison else runtime.CpuProgram
    refusal = import_module("fuse_opt.runtime.c_compiler").CompileError

    def build(module: ModuleOp, function: str | None = None) -> Backend:
        return make(emit.build_program(module, function))

    complete = partial(_complete_unfused, _LAUNCH_BY_LAUNCH if poison else "")
    return import_module("fuse_opt.tools.fallback").build_unfusing(module, function, build, refusal, complete)


def _complete_unfused(last: str, module: ModuleOp) -> None:
    """Brings ops of kernels that came apart into kernels of their own; `last` names one more pass."""
    run_pipeline(module, make_passes((*UNFUSED_PIPELINE, *([last] if last else []))), _context())


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


def _cuda_backend(module: ModuleOp, function: str | None) -> Backend:
    emit, runtime = import_module("fuse_opt.lowering.emit"), import_module("fuse_opt.runtime.cuda")

    def build(module: ModuleOp, function: str | None = None) -> Backend:
        return runtime.CudaProgram(emit.build_cuda_program(module, function))

    try:
        fallback, complete = import_module("fuse_opt.tools.fallback"), partial(_complete_unfused, "")
        return fallback.build_unfusing(module, function, build, runtime.KernelRefused, complete)
    except runtime.CudaUnavailable as error:
        return _CudaText(emit.build_cuda_program(module, function), str(error))


class _CudaText:
    """A CUDA program to read and to compile, where no device can run it."""

    def __init__(self, program: Any, reason: str) -> None:
        self.source: str = program.source
        self.stats = program.stats
        self._reason = reason

    def __call__(self, *arrays: Any, out: Sequence[Any] | None = None) -> Any:
        raise RuntimeError(
            f"target 'cuda' cannot run it here: {self._reason}; read or compile `program.source`, "
            'or run with target="cpu"'
        )


class _Reference:
    source = ""

    def __init__(self, origin: str | Path | ModuleOp, function: FuncOp) -> None:
        self._origin = origin
        self._function = function
        self._signature = Signature.of(function)
        self.stats = ReferenceStats(sum(1 for _ in self._function.body.block.ops) - 1)

    def __call__(self, *arrays: Any, out: Sequence[Any] | None = None) -> Any:
        inputs = self._signature.convert_inputs(arrays)
        targets = None if out is None else self._signature.check_outputs(out)
        try:
            results = evaluate_function(self._function, inputs)
        except EvaluationError as error:
            raise _refused(error, self._origin, self._function) from error
        if targets is None:
            results = [a.copy() if any(np.may_share_memory(a, b) for b in inputs) else a for a in results]
        else:
            results = [_copied(target, result) for target, result in zip(targets, results, strict=True)]
        return results[0] if len(results) == 1 else tuple(results)


def _copied(target: Array, result: Array) -> Array:
    np.copyto(target, result)
    return target


def _refused(error: Exception, source: str | Path | ModuleOp, op: Operation) -> Exception:
    name = str(source) if isinstance(source, Path) else "<module>" if isinstance(source, ModuleOp) else "<string>"
    return located_error(error, name, op)


def _context() -> Context:
    ctx = Context()
    for name, factory in get_dialects().items():
        ctx.register_dialect(name, factory)
    return ctx


@cache
def _has_c_compiler() -> bool:
    from fuse_opt.runtime.c_compiler import find_c_compiler

    if find_c_compiler() is not None:
        return True
    warnings.warn(
        "no C compiler works here: programs run on the reference, slowly (set CC)", RuntimeWarning, stacklevel=3
    )
    return False
