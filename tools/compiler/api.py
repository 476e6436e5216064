"""The library's face: programs compiled for a target, the reference value, pipelines over modules."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from fuse_opt.dialects.analysis.prepared import freeze_arguments
from fuse_opt.lowering.reference.interpreter import entry_function
from fuse_opt.passes.devices.gpu_attach_device import make_for
from fuse_opt.passes.recompute.budget import OverBudget as OverBudget
from fuse_opt.passes.recompute.budget import over_budget as over_budget
from fuse_opt.passes.recompute.budget import parse_budget, within_budget
from fuse_opt.passes.recompute.first_fit import first_that_fits as first_that_fits
from fuse_opt.passes.recompute.trials import Trials
from fuse_opt.runtime.growing import GrowingCaches
from fuse_opt.runtime.stored_arrays import PatternError as PatternError
from fuse_opt.tools.compiler.backend_switch import with_dispatch_table, with_host_device
from fuse_opt.tools.compiler.builders import (
    Backend,
    Reference,
    builder,
    has_c_compiler,
    measure_of_arenas,
    require_c_compiler,
)
from fuse_opt.tools.compiler.compiled_program import Compiled, CompiledProgram, GrowingProgram, growing_caches
from fuse_opt.tools.compiler.fallback import build_unfusing
from fuse_opt.tools.compiler.notebook import Page, page_of
from fuse_opt.tools.compiler.pipeline import LAUNCH_BY_LAUNCH, collection_paused, make_passes, run_pipeline
from fuse_opt.tools.compiler.registry import make_context, register
from fuse_opt.tools.compiler.signature import Signature, call_with_parts
from fuse_opt.tools.compiler.sized import CallerSizes, SizedPrograms
from fuse_opt.tools.compiler.sized import compile_sized as compile_function_sized
from fuse_opt.tools.compiler.specialization import (
    Shapes,
    SpecializedPrograms,
    bind,
    is_dynamic,
    recent_calls,
    specialize,
)
from fuse_opt.tools.compiler.targets import all_passes, attach, place_of, unfused
from fuse_opt.tools.source.diagnostics import InputError
from fuse_opt.tools.source.located import Source, located
from fuse_opt.tools.source.parsing import decode, parse_module
from fuse_opt.tools.steering.expectations import Expectation, checked, parse_expectations

if TYPE_CHECKING:
    from fuse_opt.lowering.emit.traced import TracedProgram

__all__ = ["CompiledProgram", "InputError", "compile", "evaluate", "load", "optimize", "register", "show"]


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
    with collection_paused():
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
    tried: Iterable[Trials] = (),
    expect: str | Sequence[Expectation] | None = None,
    tuned: str | Path | None = None,
    emulated: bool = False,
    growing: bool = False,
) -> CompiledProgram:
    """
    A program for "cpu", "cuda" or "reference", from a function (the only one, or `main`); the source is not changed. "cuda" is
    the device whose context is current (PyCUDA's, torch's), else the first one that the process opened; "cuda:1" is number 1.

    `backend` says what may run opaque ops: names of backends, `-name` for one that may not, `none`, and files of Python
    that bring one, with commas between; `$FUSE_OPT_BACKEND` stands in for None. `$FUSE_OPT_DISPATCH_TABLE` names a file with
    the times of implementations that choices go by.

    With `poison` (for "cpu") all bytes of the arena that no later step reads are NaN between steps: slow, to find errors.

    With `whole` (for "cpu") the reference has no part in it: raises RuntimeError where there is no C compiler, or one that
    refuses a kernel. For "cuda" the program is one for a caller that binds it to memory and a stream of its own
    (`native.bind`); it cannot be called. With `emulated`, too, its kernels are compiled for the CPU (g++): slow, to find errors.

    With a `budget`, bytes or a text such as "64MiB", values are computed again as far as its arena needs it; raises InputError
    where nothing that is tried keeps it. What `trials` has `tried` of the same program is not tried again.

    What the passes make of the function is compared with `expect`, such as "kernels<=7, arena<=14MiB, copies=0"; raises
    InputError where it is something else, with remarks that explain it as notes.

    Kernels that were measured on this machine, or on the GPU that the module is for, run as the file or folder `tuned` says;
    `$FUSE_OPT_TUNED` stands in for None. Raises InputError for one that cannot be used.

    Extents that are unknown (`?`) are those of each call: for "cpu" one program for all of them is compiled at the first call,
    a second one where a row of more than 64 KiB is met that code keeps in memory; where neither can be, one for each set of
    shapes when it is first met. For "cuda" the programs for the last eight sets of shapes are kept, with their graphs.

    With `growing` (for "cpu") donated arguments that are returned with more behind them, as caches by `graph.concat`, keep their
    memory: a call writes what is new into a buffer with room, which is doubled where there is none left, and gives a view of the
    part in use for the next call. Raises InputError where nothing grows, or where what grows is read by others, too.

    What a pipeline of one's own leaves over is completed by the passes without fusion: every op comes into a kernel,
    kernels get schedules and memory. Raises InputError, UsageError, and ValueError for an unknown target.
    """
    target, number = place_of(target)
    passes = all_passes(target, pipeline, backend, poison, tuned, number)
    target = _usable(target, whole)
    caches: GrowingCaches | None = None
    if growing:
        source, caches = _growing(source, function, target)
    most = parse_budget(budget) if isinstance(budget, str) else budget
    wanted = parse_expectations(expect) if isinstance(expect, str) else expect or ()
    build = partial(
        _backend,
        target=target,
        source=source,
        poison=poison,
        whole=whole,
        budget=most,
        tried=tried,
        expected=wanted,
        emulated=emulated,
        device=number,
    )

    def compiled(frozen: frozenset[int]) -> Compiled:
        sized = not poison and not (whole and target == "cuda")
        return _compiled(source, function, frozen, passes, build, target, number, sized)

    first = compiled(frozenset())
    return (
        CompiledProgram(first, target, compiled) if caches is None else GrowingProgram(first, target, compiled, caches)
    )


def _growing(source: Source, function: str | None, target: str) -> tuple[ModuleOp, GrowingCaches]:
    """The module with buffers with room in the place of caches, and what calls it."""
    if target != "cpu":
        raise ValueError(f"growing=True is for target 'cpu'; got target '{target}'")
    module = load(source).clone()
    with located(source, module):
        run_pipeline(module, make_passes("infer-shapes{symbols=true}"), make_context())
        caches = growing_caches(entry_function(module, function))
        module.verify()
    return module, caches


def compile_sized(
    module: ModuleOp,
    long_rows: bool,
    pipeline: str | Sequence[str] | None = None,
    *,
    backend: str | None = None,
    tuned: str | Path | None = None,
) -> CallerSizes:
    """
    What runs the function of a module for all values of the symbols that its types have, for a caller that binds it to memory of
    its own. The module is changed. Unless rows may be long (`long_rows`) it raises LongRows where they are.
    Raises SizeRefusal where something needs numbers, and as `compile` does.
    """
    require_c_compiler()
    make_for(module, "cpu")
    passes = all_passes("cpu", pipeline, backend, False, tuned)
    with located(module, module):
        return CallerSizes(*compile_function_sized(module, None, passes, long_rows))


def trials(
    source: Source,
    pipeline: str | Sequence[str] | None = None,
    function: str | None = None,
    *,
    backend: str | None = None,
    tuned: str | Path | None = None,
) -> Trials:
    """
    What becomes of a program for "cpu", of known extents, with ever more recomputation. Decisions of a trial, replayed, make it
    again. Raises what `compile` raises, and InputError for a pipeline without `rematerialize` or `plan-memory`.
    """
    passes = all_passes("cpu", pipeline, backend, False, tuned)
    module = load(source).clone()

    def run(changed: ModuleOp, chosen: Sequence[ModulePass]) -> None:
        with located(source, changed):
            run_pipeline(changed, chosen, make_context(), verify=False)

    with located(source, module):
        run_pipeline(module, (), make_context())
        make_for(module, "cpu")
        freeze_arguments(entry_function(module, function), frozenset())
        return Trials(module, passes, run, measure_of_arenas("cpu", function))


def _compiled(
    source: Source,
    function: str | None,
    frozen: frozenset[int],
    passes: Sequence[ModulePass],
    build: Callable[[ModuleOp, str | None, Sequence[ModulePass]], Backend],
    target: str,
    device: int | None,
    sized: bool,
) -> Compiled:
    """The program of a function of the source of which some arguments are frozen, beside those that it says are."""
    module = load(source)
    module = module.clone() if module is source else module
    with located(source, module):
        attach(module, target, device)
        entry = entry_function(module, function)
        freeze_arguments(entry, frozen)
        if target == "cpu" and is_dynamic(entry):
            known = [*make_passes("infer-shapes"), *passes]
            recent = recent_calls()
            whole = SizedPrograms(module.clone(), function, passes, bind, recent) if sized else None

            def traced(shapes: Shapes) -> TracedProgram:
                from fuse_opt.lowering.emit.traced import trace_program

                if whole is not None and (found := whole.traced(shapes)) is not None:
                    return found
                build(changed := specialize(module, function, shapes), function, known)
                return trace_program(changed, function)

            backend: Backend = SpecializedPrograms(
                entry,
                lambda shapes: build(specialize(module, function, shapes), function, known),
                traced,
                whole,
                recent,
            )
        elif target == "cuda" and sized and is_dynamic(entry):
            from fuse_opt.tools.compiler.device_sizes import on_device

            backend = on_device(module, entry, function, passes, build, device)
        else:
            backend = build(module, function, passes)
        return Compiled(Signature.of(entry_function(module, function)), module, backend)


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
    tried: Iterable[Trials],
    expected: Sequence[Expectation],
    emulated: bool,
    device: int | None,
) -> Backend:
    """Runs the passes on the module, and gives what runs its function."""
    with located(source, module):
        if budget is not None:
            run_pipeline(module, (), make_context())  # which verifies it, as trials do not
            run = partial(run_pipeline, ctx=make_context(), verify=False)
            passes = within_budget(module, passes, budget, run, measure_of_arenas(target, function), tried)
        with checked(module, expected, entry_function(module, function)) if passes or expected else nullcontext():
            run_pipeline(module, passes, make_context())
        if target == "reference":
            return Reference(source, entry_function(module, function))
        made = builder(target, poison, whole, emulated, device)
        with collection_paused():
            if whole:
                return made.build(module, function)
            again = [*with_dispatch_table(unfused(target)), *(make_passes(LAUNCH_BY_LAUNCH) if poison else [])]
            again = with_host_device(again) if target == "cpu" else again
            return build_unfusing(made, lambda changed: run_pipeline(changed, again, make_context()), module, function)


@contextmanager
def steered(replay: str | Path | None = None) -> Generator[Callable[[], str]]:
    """
    Programs compiled in its body are made by the decisions in the file `replay`, and no other, where one is given. Gives a
    function for the text of the decisions made. Raises InputError for a file that cannot be read or applied.
    """
    from fuse_opt.passes.decisions import steering as decisions
    from fuse_opt.passes.decisions import text as texts

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
