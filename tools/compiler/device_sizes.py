"""Programs with unknown extents on a device: one text for all sizes, or one for each set of shapes, called with its arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass

from fuse_opt.dialects.interfaces.shapes import sizes_asked_for
from fuse_opt.dialects.interfaces.symbols import Stated
from fuse_opt.dialects.types.size import SizeRefusal
from fuse_opt.lowering.emit.sized_program import LongRows as LongRows
from fuse_opt.lowering.emit.sized_program import SizedProgram
from fuse_opt.lowering.emit.traced import TracedProgram, trace_program
from fuse_opt.lowering.program import LibraryCall, Program, Segment
from fuse_opt.tools.compiler.builders import Backend, cuda_text
from fuse_opt.tools.compiler.pipeline import make_passes
from fuse_opt.tools.compiler.sized import (
    SizedKind,
    SizedPrograms,
    compile_sized,
    plan_for_sizes,
    stated_function,
    symbols_of,
)
from fuse_opt.tools.compiler.specialization import Shapes, SpecializedPrograms, bind, specialize
from fuse_opt.tools.compiler.targets import all_passes, attach, cuda_problem, place_of
from fuse_opt.tools.source.located import located

KEPT = 8
"""Programs for some extents that are kept, with their graphs: the one that was not used for the longest time goes first."""


class DevicePrograms(SpecializedPrograms):
    """Programs for one set of argument shapes each, called with arrays of the host or the device."""

    KEPT = KEPT

    def _direct_by_shapes(self, arrays: Sequence[Any], out: Any) -> Any:
        """The program for these shapes looks at all else itself."""
        known = None if self.of_values else self.known(arrays)
        return NotImplemented if known is None else known(*arrays, out=out)

    def __call__(self, *arrays: Any, out: Any = None, stream: Any = None) -> Any:
        if stream is not None and not self.of_values and (known := self.known(arrays)) is not None:
            return known(*arrays, out=out, stream=stream)
        inputs = self.inputs(arrays)
        return self.program(self.shapes(inputs))(*inputs, out=out, stream=stream)

    def inputs(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """The arrays as they are; what their shapes leave open the program looks at."""
        values = self.signature.arguments
        if len(arrays) != len(values):
            raise TypeError(f"'{self.signature.name}' takes {len(values)} arguments, got {len(arrays)}")
        for value, array in zip(values, arrays, strict=True):
            value.check_shape(np.shape(array))
        return arrays

    def shapes(self, inputs: Sequence[Any]) -> Shapes:
        sizes = self.of_values
        return tuple([(int(a),) if n in sizes else tuple(np.shape(a)) for n, a in enumerate(inputs)])


def on_device(
    module: ModuleOp,
    entry: FuncOp,
    function: str | None,
    passes: Sequence[ModulePass],
    build: Callable[[ModuleOp, str | None, Sequence[ModulePass]], Backend],
    device: int | None,
) -> Backend:
    """
    What runs a function of unknown extents on the device of a number, whose programs for known ones `build` makes; its text where
    no device can, for all sizes.
    """
    if (problem := cuda_problem(device)) is not None:
        return text_for_sizes(module, function, passes, problem) or build(module, function, passes)
    known = [*make_passes("infer-shapes"), *passes]
    whole = SizedPrograms(module.clone(), function, passes, bind, kind=_kind(device))

    def traced(shapes: Shapes) -> TracedProgram:
        changed = specialize(module, function, shapes)
        build(changed, function, known)
        return trace_program(changed, function, "cuda")

    return DevicePrograms(
        entry, lambda shapes: build(specialize(module, function, shapes), function, known), traced, whole
    )


def text_for_sizes(module: ModuleOp, function: str | None, passes: Sequence[ModulePass], reason: str) -> Backend | None:
    """The text of such a program, to be read where no device can run it; None where there is none for all sizes."""
    changed = module.clone()
    try:
        stated = stated_function(changed, function)
        with sizes_asked_for():
            plan_for_sizes(changed, function, passes)
            return cuda_text(_built(changed, function, Stated.of(stated)).program, reason)
    except SizeRefusal:
        return None


@dataclass(frozen=True)
class BoundStructure:
    """What the programs of a text have in common: the record, with sizes in the place of numbers, and which steps are whose."""

    program: Program
    stats: Any
    """Of one for numbers that stand for all."""
    compiled_calls: tuple[frozenset[int], bool]
    is_captured: bool

    @property
    def steps(self) -> Sequence[Segment | LibraryCall]:
        return self.program.steps


@dataclass(frozen=True)
class LoadedText:
    """A text for all sizes, and how its programs for numbers are loaded: their kernels are the same."""

    sized: SizedProgram
    load: Callable[[Program], Any]

    def at(self, values: Mapping[str, int]) -> Any:
        """Raises what the record's evaluation raises, and what loading does."""
        from fuse_opt.runtime.cuda.sized_program import without_empty_launches

        return self.load(without_empty_launches(self.sized.at(values)))


class BoundPrograms:
    """The programs of one text for all sizes, for a caller that binds them to memory of its own."""

    def __init__(self, function: FuncOp, native: LoadedText) -> None:
        """`function` is what it was compiled of, with its symbols."""
        self.symbols = symbols_of(function)
        self._native = native
        usual = {one.name: one.usual for one in self.symbols}
        self.names = tuple(self.named(usual))
        """Of symbols, and of what follows from them, as places in the arena do."""
        example = self.at(usual)
        self.structure = BoundStructure(
            native.sized.program, example.stats, example.compiled_calls, example.is_captured
        )

    @property
    def source(self) -> str:
        """The CUDA text."""
        return self.structure.program.source

    def at(self, values: Mapping[str, int]) -> Any:
        """The one where symbols have these values. Raises LongRows where its text is not for them, and OverflowError."""
        return self._native.at(values)

    def named(self, values: Mapping[str, int]) -> Mapping[str, int]:
        """The values of all `names` where symbols have these; further ones, of symbols that it has not, stay."""
        return self._native.sized.named(values)


def compile_sized_on_device(
    module: ModuleOp,
    long_rows: bool,
    is_callers: Callable[[LibraryCall], bool],
    pipeline: str | Sequence[str] | None = None,
    *,
    target: str = "cuda",
    backend: str | None = None,
    tuned: str | Path | None = None,
    emulated: bool = False,
) -> BoundPrograms:
    """
    What runs the function of a module, which is changed, on a device for all values of the symbols that its types have, or with
    `emulated` on the CPU that stands in for one. Who binds its programs makes the calls that are the caller's (`is_callers`).
    Unless rows may be long (`long_rows`), a text may refuse them. Raises SizeRefusal where something needs numbers, and as
    `compile` does.
    """
    target, number = place_of(target)
    attach(module, target, number)
    passes = all_passes(target, pipeline, backend, False, tuned, number)
    load = _load_emulated if emulated else partial(_load_bound, device=number)
    kind = SizedKind(partial(_built, is_callers=is_callers), load, lambda native: native.at)
    with located(module, module):
        return BoundPrograms(*compile_sized(module, None, passes, long_rows, kind))


def _load_emulated(sized: SizedProgram) -> Any:
    from fuse_opt.runtime.emulation.caller_program import EmulatedCallerProgram
    from fuse_opt.runtime.emulation.program import Kernels

    kernels = Kernels(sized.program.source) if sized.program.source else None
    return LoadedText(sized, lambda program: EmulatedCallerProgram(program, kernels))


def _load_bound(sized: SizedProgram, device: int | None) -> Any:
    from fuse_opt.runtime.cuda.caller_program import CallerKernels, CallerProgram
    from fuse_opt.runtime.device.compiler import KernelRefused

    try:
        kernels = CallerKernels(sized.program, number=device)
    except KernelRefused as error:
        raise SizeRefusal(f"a kernel does not compile: {error}") from error
    return LoadedText(sized, lambda program: CallerProgram(program, compiled=kernels))


def _built(
    module: ModuleOp,
    function: str | None,
    stated: Stated,
    is_callers: Callable[[LibraryCall], bool] | None = None,
) -> SizedProgram:
    from fuse_opt.lowering.emit import build_sized_cuda_program

    return build_sized_cuda_program(module, function, is_callers)


def _kind(device: int | None) -> SizedKind:
    from fuse_opt.runtime.cuda.program import CompiledKernels, CudaProgram, KernelRefused
    from fuse_opt.runtime.prepared import PreparedProgram

    def load(sized: SizedProgram) -> LoadedText:
        try:
            kernels = CompiledKernels(sized.program, device=device)
        except KernelRefused as error:  # programs for numbers run without the kernel that is refused
            raise SizeRefusal(f"a kernel does not compile: {error}") from error
        return LoadedText(sized, lambda program: CudaProgram(program, compiled=kernels))

    def at(native: LoadedText) -> Callable[[Mapping[str, int]], Any]:
        if (preparation := native.sized.program.prepare) is None:
            return native.at
        second = CudaProgram(preparation.program, device=device)
        return lambda values: PreparedProgram(native.at(values), second, preparation)

    return SizedKind(_built, load, at)
