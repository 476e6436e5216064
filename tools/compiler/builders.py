"""How modules become programs of a target: a record each, with what its compiler may refuse; and programs on the reference."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute
from xdsl.utils.exceptions import DiagnosticException

from fuse_opt.dialects.types.encodings import OrderAttr, encoding_of
from fuse_opt.dialects.types.storage_kinds import part_types
from fuse_opt.lowering.reference.interpreter import evaluate_function
from fuse_opt.tools.compiler.signature import Array, Signature
from fuse_opt.tools.source.located import Source, located

if TYPE_CHECKING:
    from fuse_opt.lowering.program import Program


class Backend(Protocol):
    """What a runtime gives: it checks the arrays that it is called with, and overwrites donated ones."""

    @property
    def stats(self) -> Any: ...
    @property
    def source(self) -> str: ...
    def __call__(self, *arrays: Any, out: Any = None) -> Any: ...


Build = Callable[[ModuleOp, str | None], Backend]
"""From a lowered module, and the name of its function or None, to what runs it."""
Refusals = type[Exception] | tuple[type[Exception], ...]


@dataclass(frozen=True)
class Builder:
    """
    `build`, which raises one of `refusal` for a kernel that the target's compiler refuses, one of `final` where that is
    no kernel's fault, and one of `unavailable` where no device can run the program; `text` gives it to read then.
    """

    build: Build
    refusal: Refusals
    final: Refusals = ()
    unavailable: Refusals = ()
    text: Callable[[ModuleOp, str | None, str], Backend] | None = None


def builder(
    target: str, poison: bool = False, whole: bool = False, emulated: bool = False, device: int | None = None
) -> Builder:
    """
    The builder of "cpu", also of programs whose arenas are poisoned between steps, or of "cuda", with `whole` for callers
    that bind them to memory of their own, by emulation or on the device of a number.
    """
    if target == "cuda":
        return _emulated() if emulated else _bound(device) if whole else _cuda(device)
    return _poisoned() if poison else _cpu()


def measure_of_arenas(target: str, function: str | None) -> Callable[[ModuleOp], int]:
    """Says of programs how many bytes their arenas have, with what kernels work in: that is known when there are loops."""
    from fuse_opt.lowering.convert.arena_size import ArenaSizes
    from fuse_opt.lowering.convert.convert_fused_to_gpu import ConvertFusedToGpuPass
    from fuse_opt.lowering.emit.lower import lowered_record
    from fuse_opt.lowering.emit.program_builder import program_function

    if target == "cuda":
        return lambda module: lowered_record(module, function, ConvertFusedToGpuPass()).arena_bytes
    known = ArenaSizes()
    return lambda module: known.of(module, lambda lowered: program_function(lowered, function))


def measure_of_printed(platform: str) -> Callable[[ModuleOp], int]:
    """
    The same of modules behind any passes, with any functions, of which the largest counts. Where they do not lead to a program,
    as there are ops outside of kernels, what was planned for values.
    """
    from fuse_opt.lowering.convert.arena_size import ArenaSizes
    from fuse_opt.lowering.errors import EvaluationError
    from fuse_opt.passes.recompute.stages import planned_arena

    measure = measure_of_arenas("cuda", None) if platform == "cuda" else ArenaSizes().of

    def measured(module: ModuleOp) -> int:
        try:
            return measure(module)
        except (DiagnosticException, EvaluationError):
            return planned_arena(module)

    return measured


def _cpu() -> Builder:
    from fuse_opt.lowering.emit import build_program
    from fuse_opt.runtime.cpu.program import CpuProgram
    from fuse_opt.runtime.host.c_compiler import CompileError, CompilerUnusable

    return Builder(
        lambda module, function: whole_program(build_program(module, function), CpuProgram),
        CompileError,
        final=CompilerUnusable,
    )


def _poisoned() -> Builder:
    from fuse_opt.lowering.emit import build_program
    from fuse_opt.runtime.cpu.poison import PoisonedProgram
    from fuse_opt.runtime.host.c_compiler import CompileError, CompilerUnusable

    return Builder(
        lambda module, function: whole_program(build_program(module, function), PoisonedProgram),
        CompileError,
        final=CompilerUnusable,
    )


def whole_program(program: Program, load: Callable[[Program], Any]) -> Backend:
    """What runs a program on the CPU, and where one computes arguments of it that one, too."""
    from fuse_opt.runtime.prepared import PreparedProgram, persistent_memory

    if (preparation := program.prepare) is None:
        return load(program)
    second = preparation.program
    return PreparedProgram(load(program), load(second), preparation, persistent_memory(second))


def _cuda(device: int | None) -> Builder:
    from fuse_opt.lowering.emit import build_cuda_program
    from fuse_opt.runtime.cuda.program import CudaProgram, CudaUnavailable, KernelRefused
    from fuse_opt.runtime.prepared import PreparedProgram

    def build(module: ModuleOp, function: str | None) -> Backend:
        program = build_cuda_program(module, function)
        if (preparation := program.prepare) is None:
            return CudaProgram(program, device=device)
        first, second = (CudaProgram(each, device=device) for each in (program, preparation.program))
        return PreparedProgram(first, second, preparation)

    return Builder(
        build,
        KernelRefused,
        unavailable=CudaUnavailable,
        text=lambda module, function, reason: _CudaText(build_cuda_program(module, function), reason),
    )


def _bound(device: int | None) -> Builder:
    from fuse_opt.lowering.emit import build_cuda_program
    from fuse_opt.runtime.cuda.caller_program import CallerProgram
    from fuse_opt.runtime.device.compiler import KernelRefused

    def build(module: ModuleOp, function: str | None) -> Backend:
        return CallerProgram(build_cuda_program(module, function), number=device)

    return Builder(build, KernelRefused)


def _emulated() -> Builder:
    from fuse_opt.lowering.emit import build_cuda_program
    from fuse_opt.runtime.emulation.caller_program import EmulatedCallerProgram
    from fuse_opt.runtime.emulation.program import EmulationError

    return Builder(lambda module, function: EmulatedCallerProgram(build_cuda_program(module, function)), EmulationError)


def cuda_text(program: Program, reason: str) -> Backend:
    """A CUDA program to read, where no device can run it, for this reason."""
    return _CudaText(program, reason)


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


@cache
def has_c_compiler() -> bool:
    """Warns where there is none."""
    from fuse_opt.runtime.host.c_compiler import CompileError, compiler_problem, find_c_compiler
    from fuse_opt.runtime.host.thread_pool import pool_library

    if find_c_compiler() is None:
        problem = compiler_problem()
    else:
        try:
            pool_library()  # without which no program runs
            return True
        except CompileError as error:
            problem = str(error)
    reason = problem.partition("\n")[0]
    warnings.warn(
        f"no C compiler works here{reason and f', as {reason}'}: programs run on the reference, slowly (set FUSE_OPT_CC or CC)",
        RuntimeWarning,
        stacklevel=4,  # who called `compile`
    )
    return False


def require_c_compiler() -> None:
    """Raises RuntimeError where there is none that works; else what no program runs without is compiled from now on."""
    from fuse_opt.runtime.host.c_compiler import find_c_compiler
    from fuse_opt.runtime.host.thread_pool import begin_pool

    with warnings.catch_warnings():  # the error says it
        warnings.simplefilter("ignore", RuntimeWarning)
        found = find_c_compiler()
    if found is None:
        given = {name: os.environ[name] for name in ("FUSE_OPT_CC", "CC", "FUSE_OPT_CFLAGS") if os.environ.get(name)}
        named = ", ".join(f"{name}={value!r}" for name, value in given.items()) or "neither FUSE_OPT_CC nor CC is set"
        raise RuntimeError(f"no C compiler works here ({named}); install one, or name it in FUSE_OPT_CC")
    begin_pool()


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


class Reference:
    """A function on the reference evaluator."""

    source = ""

    def __init__(self, origin: Source, function: FuncOp) -> None:
        self._origin = origin
        self._function = function
        self.signature = Signature.of(function)
        """Its arguments and results."""
        self.stats = ReferenceStats(sum(1 for _ in self._function.body.block.ops) - 1)

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        """Of a function with values of storage kinds the arguments and results are their parts, which nobody checks here."""
        inputs = list(arrays) if self.signature.has_stored else self.signature.convert_inputs(arrays)
        targets = None if out is None else self.signature.check_outputs(out)
        with located(self._origin, self._function):
            results = evaluate_function(self._function, inputs)
        results = _apart(results, inputs)
        if targets is None:
            types = [part for type_ in self._function.function_type.outputs for part in part_types(type_)]
            results = [_laid_out(array, type_) for array, type_ in zip(results, types, strict=True)]
        else:
            results = [_copied(target, result) for target, result in zip(targets, results, strict=True)]
        return results[0] if len(results) == 1 else tuple(results)


def _apart(results: Sequence[Array], inputs: Sequence[Any]) -> list[Array]:
    """The results, each with memory of its own: views are copied, and what is an input or an earlier result."""
    seen, found = {id(array) for array in inputs}, list[Array]()
    for array in results:
        own = array.flags.owndata and array.flags.writeable and id(array) not in seen
        seen.add(id(array))
        found.append(array if own else array.copy())
    return found


def _copied(target: Array, result: Array) -> Array:
    np.copyto(target, result)
    return target


def _laid_out(array: Array, type_: Attribute) -> Array:
    """The array with the strides of its type."""
    found = encoding_of(type_)
    if not isinstance(found, OrderAttr):
        return array
    order = found.order
    return np.ascontiguousarray(array.transpose(order)).transpose([order.index(axis) for axis in range(len(order))])
