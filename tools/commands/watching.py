"""What the commands do to look into a program: its kernels and its passes one by one."""

from __future__ import annotations

import argparse
import json
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from fuse_opt.lowering.reference.interpreter import entry_function
from fuse_opt.passes.decisions import format_decisions
from fuse_opt.passes.recompute.rematerialize import RematerializePass
from fuse_opt.passes.recompute.stages import Trial
from fuse_opt.passes.recompute.trials import undominated
from fuse_opt.runtime.host.thread_pool import num_threads
from fuse_opt.tools.commands.array_files import read_arguments
from fuse_opt.tools.commands.measuring import Times, example_inputs, interleave
from fuse_opt.tools.compiler.api import compile as compile_program
from fuse_opt.tools.compiler.api import steered, trials
from fuse_opt.tools.compiler.compiled_program import CompiledProgram
from fuse_opt.tools.compiler.pipeline import Observer, make_passes, run_pipeline
from fuse_opt.tools.compiler.registry import make_context
from fuse_opt.tools.compiler.signature import Signature
from fuse_opt.tools.compiler.specialization import is_dynamic, specialize
from fuse_opt.tools.source.diagnostics import InputError
from fuse_opt.tools.targets.html.target_html import Section, write_page
from fuse_opt.tools.watching.check_each import TARGETS, check_each
from fuse_opt.tools.watching.check_passes import PassChecker
from fuse_opt.tools.watching.check_table import CheckTable
from fuse_opt.tools.watching.pareto import Plan, pareto_page, pareto_section, table
from fuse_opt.tools.watching.report import profile_section

_POINTS = 12
"""Plans that are looked for."""
FOLDER = "check"
"""Where kernels that are wrong are written, below the current directory."""


def against(text: str) -> list[str]:
    """The targets of `--against`, for argparse."""
    names = text.split(",")
    if wrong := [name for name in names if name not in TARGETS]:
        raise argparse.ArgumentTypeError(f"expected {', '.join(TARGETS)} or both with a comma, got '{wrong[0]}'")
    return list(dict.fromkeys(names))


def fixed(source: ModuleOp, function: str | None, inputs: Sequence[Any]) -> ModuleOp:
    """The program for the shapes of these arguments."""
    if not is_dynamic(entry_function(source, function)):
        return source
    return specialize(source, function, tuple(tuple(array.shape) for array in inputs))


def _compiler(given: argparse.Namespace, pipeline: str | None) -> Callable[..., CompiledProgram]:
    """Compiles with the options that are given."""
    options = {name: getattr(given, name) for name in ("function", "backend", "budget", "tuned")}
    return partial(compile_program, pipeline=pipeline, **options)


def check_kernels(given: argparse.Namespace, source: ModuleOp, inputs: Sequence[Any], pipeline: str | None) -> bool:
    """Compares each kernel with the reference and prints the table; whether all are within their bounds."""
    source = fixed(source, given.function, inputs)
    compiled = _compiler(given, pipeline)
    table = CheckTable(Path(FOLDER), given.all)
    for name in given.against:
        program = compiled(source, TARGETS[name])
        arrays = program.signature.convert_inputs(inputs)
        check_each(program.module, given.function, arrays, name, table.watcher(name))
    if given.stats == "json":
        print(json.dumps({"file": given.file, "kernels": table.rows, "passed": table.passed}))
    else:
        print(table.text())
    return table.passed


def pass_checker(inputs: str | None, file: str, others: Observer) -> PassChecker:
    """What compares the values of a module of a file after every pass; `inputs` as `fuse-opt --inputs` takes them."""
    saved = inputs if inputs is not None and inputs.endswith(".npz") else None
    seed = int((inputs or "random:0").partition(":")[2]) if saved is None else 0

    def arguments(module: ModuleOp, function: str) -> Sequence[Any]:
        signature = Signature.of(entry_function(module, function))
        random = [] if saved is not None else example_inputs(module, seed, function)
        return signature.convert_inputs(read_arguments(signature, saved, {}, random, {}))

    return PassChecker(file, arguments, others)


Front = tuple[int, list[Plan]]
"""How many plans others beat, and those that none beats."""


def profile_call(
    given: argparse.Namespace,
    source: ModuleOp,
    inputs: Sequence[Any],
    pipeline: str | None,
    plans: Callable[[], Front],
) -> None:
    """Times the kernels of a program, prints the table, and writes the trace and the report, with plans, that are asked for."""
    compiled = _compiler(given, pipeline)
    program = compiled(source)
    given_now = [a for a, v in zip(inputs, program.signature.arguments, strict=True) if not v.frozen]
    program.freeze({number: inputs[number] for number, v in enumerate(program.signature.arguments) if v.frozen})
    found = program.profile(*given_now, repeat=given.repeat or 10)
    print(found.text())
    known = fixed(source, given.function, inputs)
    if given.profile is not None:
        steps: list[tuple[str, float]] = []
        run_pipeline(known.clone(), make_passes(pipeline), make_context(), observer=_Stopwatch(steps))
        steps.append(("C compiler", program.stats.compile_s))
        Path(given.profile).write_text(json.dumps(found.trace(steps)) + "\n", encoding="utf-8")
    if given.report is not None:
        module = (program if known is source else compiled(known)).module
        sections = [profile_section(found), _plans_section(given, plans)]
        with Path(given.report).open("w", encoding="utf-8") as page:
            write_page(module, page, given.file, sections)


def _plans_section(given: argparse.Namespace, plans: Callable[[], Front]) -> Section:
    """What `--pareto` prints and writes, with the files beside the page; or why there are no plans."""
    try:
        if given.budget is not None:
            raise ValueError("the program is the one of a budget; a report without --budget has plans for others")
        html = pareto_section(*plans())
    except (InputError, ValueError) as error:
        html = f"<p>No plans: {escape(str(error))}</p>\n"
    return Section("plans", "Memory and time of plans", html)


def pareto_front(given: argparse.Namespace, plans: Callable[[], Front]) -> None:
    """Prints a table of plans with ever less memory and writes the page of them."""
    left_out, found = plans()
    print(table(found))
    Path(given.pareto).write_text(pareto_page(given.file, left_out, found), encoding="utf-8")


def plans_of(
    given: argparse.Namespace, source: ModuleOp, inputs: Sequence[Any], pipeline: str | None, page: Path
) -> Front:
    """
    Times plans with ever less memory, in turns, and those that no other beats once more; writes a file of decisions for each
    plan that is left, from which that plan was made here, too. Gives these plans, and how many others there were.
    """
    source = fixed(source, given.function, inputs)
    options = {"pipeline": pipeline, "function": given.function, "backend": given.backend, "tuned": given.tuned}
    front = trials(source, **options).front(_POINTS)
    with TemporaryDirectory() as folder:
        files = {str(Path(folder, f"{number}.decisions")): trial for number, trial in enumerate(front)}
        programs = {file: _replayed(file, trial, source, inputs, options) for file, trial in files.items()}
        arenas = {file: trial.arena for file, trial in files.items()}
        times = _times_of_undominated(arenas, programs, inputs, given.repeat)
    names = _plan_files(page, len(times))
    passes = "--default" if pipeline is None else f"-p {shlex.quote(pipeline)}"
    command = f"fuse-opt {shlex.quote(given.file)} {passes} --replay-decisions"
    found = [_plan(name, files[file], each, command) for name, (file, each) in zip(names, times.items(), strict=True)]
    for plan in found:
        Path(plan.file).write_text(plan.decisions, encoding="utf-8")
    return len(front) - len(found), found


def _plan_files(page: Path, count: int) -> list[str]:
    """Where decisions of plans are written: a folder beside the page, of which those of earlier plans are removed."""
    folder = page.with_name(f"{page.stem}-plans")
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.decisions"):
        old.unlink()
    return [str(folder / f"{number}.decisions") for number in range(1, count + 1)]


def _replayed(
    file: str, trial: Trial, source: ModuleOp, inputs: Sequence[Any], options: dict[str, Any]
) -> CompiledProgram:
    """The program of a plan by its decisions alone, which are written to a file."""
    Path(file).write_text(format_decisions(trial.decisions), encoding="utf-8")
    with steered(file):
        program = compile_program(source, **options)
    arguments = program.signature.arguments
    bound: dict[int | str, Any] = {number: inputs[number] for number, value in enumerate(arguments) if value.frozen}
    return program.freeze(bound) if bound else program


def _times_of_undominated(
    arenas: dict[str, int], programs: dict[str, CompiledProgram], inputs: Sequence[Any], repeat: int
) -> dict[str, Times]:
    """
    By file, with the smallest arena first; those that no other beats are confirmed by a fresh rotation. One thread's time is that
    of the processor, which other work of the machine takes less part in.
    """
    times: dict[str, Times] = {}
    clock = time.process_time if num_threads() == 1 else time.perf_counter
    for _ in range(2):
        times = interleave(programs, inputs, repeat or 10, clock=clock)
        files = list(programs)
        kept = [files[k] for k in undominated([(arenas[file], times[file].median) for file in files])]
        programs = {file: programs[file] for file in kept}
    return {file: times[file] for file in programs}


def _plan(file: str, trial: Trial, times: Times, command: str) -> Plan:
    again = sum(len(made.ops) for made in trial.decisions if made.pass_name == RematerializePass.name)
    seconds = (times.minimum, times.median, times.maximum)
    return Plan(trial.arena, seconds, again, file, format_decisions(trial.decisions), f"{command} {shlex.quote(file)}")


@dataclass(frozen=True)
class _Stopwatch:
    """An observer of a pipeline that notes how long passes take."""

    steps: list[tuple[str, float]]

    def applied(self, pass_: ModulePass, module: ModuleOp, seconds: float) -> None:
        self.steps.append((pass_.name, seconds))

    def verified(self, module: ModuleOp, seconds: float) -> None:
        self.steps.append(("verify", seconds))
