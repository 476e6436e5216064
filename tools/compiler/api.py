"""The library's face: programs compiled for a target, the reference value, pipelines over modules."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from fuse_opt.dialects.analysis.prepared import called_functions, freeze_arguments
from fuse_opt.dialects.analysis.storage import byte_size
from fuse_opt.dialects.analysis.stored_values import FALLBACK
from fuse_opt.dialects.graph.materialize import conversion_counts
from fuse_opt.dialects.implementation.queries import implementation_counts
from fuse_opt.lowering.reference.interpreter import entry_function
from fuse_opt.passes.devices.gpu_attach_device import attach_found, make_for
from fuse_opt.passes.recompute.budget import parse_budget, within_budget
from fuse_opt.runtime.backends.registry import load_problem, unavailable_backends
from fuse_opt.runtime.device.driver import device_problem, open_device
from fuse_opt.runtime.frozen import Bound, FrozenCalls
from fuse_opt.tools.compiler.backend_switch import backend_passes, with_dispatch_table
from fuse_opt.tools.compiler.builders import Backend, builder, has_c_compiler, require_c_compiler
from fuse_opt.tools.compiler.fallback import build_unfusing
from fuse_opt.tools.compiler.located import Source, located
from fuse_opt.tools.compiler.notebook import Page, notebook_html, page_of
from fuse_opt.tools.compiler.pipeline import FOR_CPUS, LAUNCH_BY_LAUNCH, UNFUSED_PIPELINE, make_passes, run_pipeline
from fuse_opt.tools.compiler.reference_backend import Reference
from fuse_opt.tools.compiler.registry import make_context, register
from fuse_opt.tools.compiler.signature import Signature, call_with_parts, quick_call
from fuse_opt.tools.compiler.sized import SizedPrograms
from fuse_opt.tools.compiler.specialization import (
    FrozenSpecializedCalls,
    SpecializedPrograms,
    bind,
    is_dynamic,
    specialize,
)
from fuse_opt.tools.source.diagnostics import InputError
from fuse_opt.tools.source.parsing import decode, parse_module

__all__ = ["CompiledProgram", "InputError", "compile", "evaluate", "load", "optimize", "register", "show"]

TARGETS = ("cpu", "cuda", "reference")


@dataclass(frozen=True)
class _Compiled:
    """What compiling gives."""

    signature: Signature
    module: ModuleOp
    backend: Backend


class CompiledProgram:
    """A program that is ready to run; it may be called from several threads at once."""

    def __init__(self, compiled: _Compiled, target: str, again: Callable[[frozenset[int]], _Compiled]) -> None:
        self._bound: dict[int, Bound] = {}
        self._take(compiled)
        self.target = target
        """What it runs on: "cpu", "cuda" or "reference"."""
        self._again = again
        self._unbound = self._find_unbound()
        self._frozen: FrozenCalls | FrozenSpecializedCalls | None = None

    def _take(self, compiled: _Compiled) -> None:
        self.signature = compiled.signature
        """Names, shapes and element types of the arguments, and of the results."""
        self.module = compiled.module
        """The program after all passes."""
        self._backend = compiled.backend
        self._direct: Any = getattr(compiled.backend, "direct", None)

    def __call__(self, *arrays: Any, out: Any = None, stream: Any = None) -> Any:
        """
        The result, or a tuple where there are several; written to `out` where that is given. Arguments are NumPy arrays,
        anything that gives its memory by DLPack, or numbers; donated ones are overwritten. Raises TypeError or ValueError.

        For "cuda" they may be arrays of a device, too; then the results are, and the work is ordered on `stream` (a handle,
        or one of PyCUDA's, torch's or cupy's) or on the first array's own, without waiting for it.
        """
        quick = self._quick if out is None and stream is None else None
        if quick is not None and (found := quick(arrays)) is not NotImplemented:
            return found
        if stream is not None and self.target != "cuda":
            raise ValueError(f"stream: expected None for target '{self.target}', which has no streams")
        if self._in_parts:
            direct = self._direct if self._frozen is None and stream is None else None
            call = partial(self._call, stream=stream)
            return call_with_parts(self.signature, self._unbound, call, arrays, out, direct)
        return self._call(*arrays, out=out, stream=stream)

    def _call(self, *arrays: Any, out: Any = None, stream: Any = None) -> Any:
        if (frozen := self._frozen) is not None:
            return frozen(arrays, out, stream)
        if stream is None:
            if self._direct is not None and (found := self._direct(arrays, out)) is not NotImplemented:
                return found
            return self._backend(*arrays, out=out)
        return cast("Any", self._backend)(*arrays, out=out, stream=stream)

    def freeze(self, arrays: Mapping[int | str, Any]) -> CompiledProgram:
        """
        Binds arguments, by number or name, from now on: calls take the others. What follows from bound arguments alone is
        computed once, and again when one of them changed. Compiles the source again where an argument is not
        `graph.frozen` there. Returns the program itself; not to be called while others call it.

        A NumPy array that has its memory to itself is read-only while it is bound; a view of another one is compared with a
        copy in each call, and so are tensors of PyTorch, which count how often they are written to. After elements changed
        by other means (an earlier view of an array that is bound itself, an address), call `refresh`. Raises ValueError and
        TypeError for what cannot be bound.
        """
        found = {self.signature.position(name): array for name, array in arrays.items()}
        marks = {number for number, value in enumerate(self.signature.arguments) if value.frozen}
        bound = {place: entry for number, array in found.items() for place, entry in self._bind(number, array)}
        if not marks.issuperset(found):
            self._take(self._again(frozenset(marks.union(found))))
        replaced = [self._bound[number] for number in bound if number in self._bound]
        self._bound |= bound
        self._unbound = self._find_unbound()
        self._call_frozen()
        for entry in replaced:
            entry.release()
        return self

    def unfreeze(self) -> CompiledProgram:
        """Lets go of all arrays that arguments are bound to: calls take every argument again. Returns the program itself."""
        bound, self._bound, self._frozen = self._bound, {}, None
        self._unbound = self._find_unbound()
        for entry in bound.values():
            entry.release()
        return self

    @property
    def unbound(self) -> tuple[int, ...]:
        """The numbers of the arguments that calls take."""
        return self._unbound

    def _find_unbound(self) -> tuple[int, ...]:
        """Also notes whether calls take or give values of storage kinds."""
        places = map(self.signature.places, range(len(self.signature.arguments)))
        found = tuple(number for number, place in enumerate(places) if place[0] not in self._bound)
        values = (*(self.signature.arguments[number] for number in found), *self.signature.results)
        self._in_parts = any(value.stored is not None for value in values)
        direct = self._direct if self._in_parts and not self._bound else None
        self._quick = None if direct is None else quick_call(self.signature, direct)
        return found

    def refresh(self) -> None:
        """Computes what follows from bound arguments anew, at the next call."""
        if self._frozen is not None:
            self._frozen.refresh()

    def _bind(self, number: int, array: Any) -> list[tuple[int, Bound]]:
        """The arrays of an argument, by their places among all; of a sparse one those of now."""
        value = self.signature.arguments[number]
        if value.donated:
            raise ValueError(f"{value.label} is donated: calls overwrite it; it cannot be frozen")
        places = self.signature.places(number)
        if value.stored is not None:
            return [(place, Bound(part.copy())) for place, part in zip(places, value.arrays(array), strict=True)]
        try:
            bound = Bound(array)
        except TypeError as error:
            raise TypeError(f"{value.label}: {error}") from None
        if self.target != "cuda":
            value.convert(bound.value())  # or every call would be refused
        return [(places[0], bound)]

    def _call_frozen(self) -> None:
        signature, bound, on_device = self.signature, dict(self._bound), self.target == "cuda"
        values = [value for value in signature.arguments for _ in range(value.count)]

        def converted(number: int, array: Any) -> Any:
            return array if on_device or values[number].stored is not None else values[number].convert(array)

        def calls(backend: Backend) -> FrozenCalls:
            return FrozenCalls(signature.name, backend, bound, len(values), converted)

        backend = self._backend
        if isinstance(backend, SpecializedPrograms):
            self._frozen = FrozenSpecializedCalls(signature, backend, bound, calls)
        else:
            self._frozen = frozen = calls(backend)
            self._quick = None if self._in_parts else frozen.quick

    @property
    def native(self) -> Any:
        """The runtime's own program, for front ends that call it with addresses instead of arrays."""
        return self._backend

    @property
    def stats(self) -> Any:
        """
        Counts of kernels, launches, bytes and so on, and `compile_s`: ProgramStats, for "cpu" and "cuda" with further fields.
        """
        return self._backend.stats

    @property
    def implementations(self) -> dict[str, int]:
        """By name, what runs opaque ops, and in how many kernels; of modules of unknown extents what is chosen without them."""
        return implementation_counts(self.module)

    @property
    def conversions(self) -> tuple[int, int]:
        """How many values a call of the program gives another layout, and their bytes; those of frozen ones are not in a call."""
        return conversion_counts(called_functions(self.module))

    @property
    def fallbacks(self) -> tuple[int, int]:
        """How many values a call makes dense as an op has no way to run on what is stored, and their bytes."""
        found = [
            op for function in called_functions(self.module) for op in function.walk() if FALLBACK in op.attributes
        ]
        return len(found), sum(byte_size(value) or 0 for op in found for value in op.results)

    @property
    def source(self) -> str:
        """The generated text; empty for the reference."""
        return self._backend.source

    def _repr_html_(self) -> str:
        """For notebooks: the graph with its kernels, the arena and a table, as `show` makes them of the module."""
        return notebook_html(self.module)


def load(source: Source, ctx: Context | None = None) -> ModuleOp:
    """
    A module from MLIR text, from a file, or as it is. A string without a line break that ends in `.mlir` names a file.
    Raises InputError for text that is no module, OSError for files, TypeError for anything else.
    """
    if isinstance(source, ModuleOp):
        return source
    if not isinstance(source, str | Path):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"source: expected MLIR text, a path or a ModuleOp, got {type(source).__name__}")
    ctx = make_context() if ctx is None else ctx
    if isinstance(source, Path) or ("\n" not in source and source.endswith(".mlir")):
        return parse_module(decode(Path(source).read_bytes(), str(source)), str(source), ctx)
    return parse_module(source, "<string>", ctx)


def optimize(source: Source, pipeline: str | Sequence[str] | None = None) -> ModuleOp:
    """
    The module after a pipeline (the default one when there is none), verified after every pass; a ModuleOp is changed in
    place. Raises InputError when the module or a pass is refused, UsageError for passes that do not exist.
    """
    passes = make_passes(pipeline)
    ctx = make_context()
    module = load(source, ctx)
    with located(source, module):
        run_pipeline(module, passes, ctx)
    return module


def show(source: Source | CompiledProgram) -> Page:
    """
    A page of HTML about a module, or about what a program became: the graph with its kernels, the arena over time, a table
    of kernels. A notebook shows it, `.save("page.html")` writes it. Raises what `load` raises.
    """
    return page_of(source.module if isinstance(source, CompiledProgram) else load(source))


def evaluate(source: Source, *inputs: Any, function: str | None = None) -> Any:
    """
    The reference value of a function (the only one, or `main`): an array, or a tuple of arrays where it returns several.

    The arguments are arrays of the types and shapes of the function's arguments (an unknown extent takes any), or numbers
    for scalars; they are not changed. Raises InputError for a source that is refused, TypeError or ValueError for
    arguments that do not fit.
    """
    module = optimize(source, ())
    with located(source, module):
        program = Reference(source, entry_function(module, function))
    if (signature := program.signature).has_stored:
        numbers = range(len(signature.arguments))
        return call_with_parts(signature, numbers, program, inputs, None)
    return program(*inputs)


def compile(
    source: Source,
    target: str = "cpu",
    pipeline: str | Sequence[str] | None = None,
    function: str | None = None,
    *,
    backend: str | None = None,
    poison: bool = False,
    whole: bool = False,
    budget: str | int | None = None,
) -> CompiledProgram:
    """
    A program for "cpu", "cuda" or "reference", from a function (the only one, or `main`); the source is not changed.

    `backend` says what may run opaque ops: names of backends, `-name` for one that may not, `none`, and files of Python
    that bring one, with commas between; `$FUSE_OPT_BACKEND` stands in for None. `$FUSE_OPT_DISPATCH_TABLE` names a file with
    the times of implementations that choices go by.

    With `poison` (for "cpu") all bytes of the arena that no later step reads are NaN between steps: slow, to find errors.

    With `whole` (for "cpu") the reference has no part in it: raises RuntimeError where there is no C compiler, or one that
    refuses a kernel.

    With a `budget`, bytes or a text such as "64MiB", values are computed again as far as its arena needs it; raises InputError
    where nothing that is tried keeps it.

    Extents that are unknown (`?`) are those of each call: for "cpu" one program for all of them is compiled at the first call,
    or where that cannot be, one for each set of shapes when it is first met.

    What a pipeline of one's own leaves over is completed by the passes without fusion: every op comes into a kernel,
    kernels get schedules and memory. Raises InputError, UsageError, and ValueError for an unknown target.
    """
    chosen = backend_passes(backend, _unavailable(target), load_problem if target == "cpu" else lambda name: None)
    passes = with_dispatch_table([*chosen, *_passes(target, pipeline, poison)])
    target = _usable(target, whole)
    most = parse_budget(budget) if isinstance(budget, str) else budget
    build = partial(_backend, target=target, source=source, poison=poison, whole=whole, budget=most)

    def compiled(frozen: frozenset[int]) -> _Compiled:
        return _compiled(source, function, frozen, passes, build, target, sized=not poison)

    return CompiledProgram(compiled(frozenset()), target, compiled)


def _compiled(
    source: Source,
    function: str | None,
    frozen: frozenset[int],
    passes: Sequence[ModulePass],
    build: Callable[[ModuleOp, str | None, Sequence[ModulePass]], Backend],
    target: str,
    sized: bool,
) -> _Compiled:
    """The program of a function of the source of which some arguments are frozen, beside those that it says are."""
    module = load(source)
    module = module.clone() if module is source else module
    with located(source, module):
        if target == "cuda" and device_problem() is None:
            device = open_device()
            attach_found(module, device.name, device.figures())
        make_for(module, target)
        entry = entry_function(module, function)
        freeze_arguments(entry, frozen)
        if target == "cpu" and is_dynamic(entry):
            known = [*make_passes("infer-shapes"), *passes]
            backend: Backend = SpecializedPrograms(
                entry,
                lambda shapes: build(specialize(module, function, shapes), function, known),
                *([SizedPrograms(module.clone(), function, passes, bind)] if sized else []),
            )
        else:
            backend = build(module, function, passes)
        return _Compiled(Signature.of(entry_function(module, function)), module, backend)


def _unavailable(target: str) -> Mapping[str, str]:
    """The backends that a target lacks here, and why. Text for CUDA is the same on all machines that cannot run it."""
    if target == "cuda" and device_problem() is not None:
        return {}
    return unavailable_backends(target)


def _passes(target: str, pipeline: str | Sequence[str] | None, poison: bool) -> list[ModulePass]:
    """What runs for a target: the pipeline, what completes one of the caller's, and what poisoned memory needs."""
    if target not in TARGETS:
        raise ValueError(f"unknown target '{target}'; expected one of {', '.join(TARGETS)}")
    if poison and target != "cpu":
        raise ValueError(f"poison=True fills the arena of target 'cpu' between steps; got target '{target}'")
    if target == "reference" and pipeline is None:
        return []
    passes = make_passes(pipeline)
    if pipeline is not None:
        passes += _completion(passes, target)
    else:
        passes = _for_target(passes, target)
    return passes + (make_passes(LAUNCH_BY_LAUNCH) if poison else [])


def _for_target(passes: Sequence[ModulePass], target: str) -> list[ModulePass]:
    return [each for each in passes if target == "cpu" or each.name not in FOR_CPUS]


def _unfused(target: str) -> list[ModulePass]:
    """The passes that bring what is left into kernels with schedules and memory."""
    return _for_target(make_passes(UNFUSED_PIPELINE), target)


def _completion(passes: Sequence[ModulePass], target: str) -> list[ModulePass]:
    """
    The passes that bring what others left over into kernels with schedules and memory, with the options that the caller
    gave to them last; none where they ran just now.
    """
    given = {each.name: each for each in passes}
    completion = [given.get(each.name, each) for each in _unfused(target)]
    return [] if passes[-len(completion) :] == completion else completion


def _usable(target: str, whole: bool) -> str:
    """The target, or the reference where nothing compiles for the CPU, with one warning; with `whole` that is an error."""
    if target != "cpu":
        return target
    if whole:
        require_c_compiler()
    return target if whole or has_c_compiler() else "reference"


def _backend(
    module: ModuleOp,
    function: str | None,
    passes: Sequence[ModulePass],
    *,
    target: str,
    source: Source,
    poison: bool,
    whole: bool,
    budget: int | None,
) -> Backend:
    """Runs the passes on the module, and gives what runs its function."""
    with located(source, module):
        if budget is not None:
            passes = within_budget(module, passes, budget, partial(run_pipeline, ctx=make_context()))
        run_pipeline(module, passes, make_context())
        if target == "reference":
            return Reference(source, entry_function(module, function))
        made = builder(target, poison)
        if whole:
            return made.build(module, function)
        again = [*with_dispatch_table(_unfused(target)), *(make_passes(LAUNCH_BY_LAUNCH) if poison else [])]
        return build_unfusing(made, lambda changed: run_pipeline(changed, again, make_context()), module, function)


@contextmanager
def steered(replay: str | Path | None = None) -> Generator[Callable[[], str]]:
    """
    Programs compiled in its body are fused by the decisions in the file `replay`, and no other, where one is given. Gives a
    function for the text of the decisions made. Raises InputError for a file that cannot be read or applied.
    """
    from fuse_opt.passes.fusion.engine import replay as decisions
    from fuse_opt.passes.fusion.engine import replay_text as texts

    try:
        with ExitStack() as stack:
            made = stack.enter_context(decisions.record_decisions())
            if replay is not None:
                text = decode(Path(replay).read_bytes(), str(replay))
                stack.enter_context(decisions.replay_decisions(texts.parse_decisions(text, str(replay))))
            yield lambda: texts.format_decisions(made)
    except texts.DecisionError as error:
        raise InputError(error.file, error.line, error.col, error.message) from error


def limit_threads(most: int) -> None:
    """Lets CPU programs of this process use at most so many threads, until another limit is given."""
    from fuse_opt.runtime.host import thread_pool

    thread_pool.limit_threads(most)


def use_openmp_threads(wanted: bool = True) -> bool:
    """
    Lets CPU programs of this process run on the threads of an OpenMP runtime that it has loaded, or on their own again; for
    programs between kernels of a library that has such threads. Returns whether they do: False where there is none.
    """
    from fuse_opt.runtime.host import thread_pool

    return thread_pool.use_openmp_threads(wanted)


def result_memory(nbytes: int) -> Any:
    """
    An array of bytes with any content, in memory of dropped results where there is some of that size; for callers that
    give results of programs memory themselves. It comes back when the array and all views of it are dropped.
    """
    from fuse_opt.runtime.buffers import result_pool

    return result_pool.empty(nbytes, "u1")


def trim_memory() -> None:
    """Gives memory of dropped results, which later results would have got, back to the system."""
    from fuse_opt.runtime.buffers import result_pool

    result_pool.trim()
