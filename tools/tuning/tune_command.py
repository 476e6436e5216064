"""`fuse-tune FILE`: the schedules of a program's kernels, measured on this machine and written as text."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuse_opt.tools.commands.command import BACKEND_HELP, Parser, budget_bytes

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.passes import ModulePass

    from fuse_opt.tools.tuning.places import Place
    from fuse_opt.tools.tuning.progress import Progress
    from fuse_opt.tools.tuning.search.candidates import Site
    from fuse_opt.tools.tuning.search.tune_program import Result

_DESCRIPTION = "Measures schedules of a program's kernels on this machine, and writes those that are faster as text."
_EPILOG = """\
fuse-tune dispatch measures what runs products, convolutions and other opaque ops, fuse-tune calibrate the
machine: each has a --help of its own.
Exit status: 0 fine, also where the defaults are best, 1 the program was refused or cannot be compiled, 2
wrong usage.
"""
_MINUTES = 2.0
_DIGITS = 8
_OF_CPU = ("cluster", "joint", "objective", "budget", "jobs", "inputs")
_OBJECTIVES = ("time", "peak", "compile", "pareto")


def tune_parser() -> Parser:
    """The arguments of `fuse-tune FILE`."""
    parser = Parser("fuse-tune", _DESCRIPTION, _EPILOG)
    add = parser.add_argument
    add("file", metavar="FILE", help="the program, MLIR text or an .onnx model; - for standard input")
    add("-o", "--output", metavar="tuned.json", default="tuned.json", help="where schedules go (default: tuned.json)")
    add("--trials", type=int, metavar="N", help="try so many candidates, however long it takes")
    add("--minutes", type=float, metavar="M", help=f"stop after so many minutes (default: {_MINUTES:g})")
    add("--kernel", metavar="NAME", help="tune this kernel alone")
    add("--target", choices=("cpu", "cuda"), default="cpu", help="what runs the program: this processor or its GPU")
    add("--joint", action="store_true", help="first try other passes, options, decisions and implementations, too")
    add(
        "--objective",
        choices=_OBJECTIVES,
        default="time",
        help="what is to be least: time (default), bytes of the arena, time to compile; pareto: the first two",
    )
    add("--budget", metavar="64MiB", type=budget_bytes, help="tune the program that computes again to fit into it")
    add(
        "--inputs",
        metavar="random:SEED|[NAME=]FILE.npz",
        action="append",
        help="the program's arguments, of which each kernel gets what it has in a run (default: numbers for each kernel)",
    )
    add("--same-bits", action="store_true", help="try only what keeps every bit of the results")
    add("--seed", type=int, default=0, metavar="N", help="of inputs, and of what is tried where that is a sample")
    add("--threads", type=int, metavar="N", help="threads of a program (default: all; schedules hold for as many)")
    add("--jobs", type=int, metavar="N", help="compile so many candidates at a time (default: one for each processor)")
    add("--cluster", metavar="tcp://HOST:PORT", help="measure on the workers of this dask scheduler, not here")
    add("--records", metavar="FOLDER", help="where measurements are kept (default: $FUSE_OPT_TUNED, or the cache)")
    add("--report", metavar="FILE.html|.txt", help="what was tried and what came out, as a page for offline or as text")
    add("--extents", metavar="NAME=N,...", default="", help="what unknown extents are")
    add("--backend", metavar="NAME,-NAME,FILE.py", help=BACKEND_HELP)
    return parser


def check_usage(parser: Parser, given: argparse.Namespace) -> None:
    """Ends with one line for numbers that cannot be meant."""
    if given.trials is not None and given.minutes is not None:
        parser.error("--trials and --minutes exclude each other: give one of them")
    if given.trials is not None and given.trials < 1:
        parser.error(f"argument --trials: expected 1 or more, got {given.trials}")
    if given.minutes is not None and not 0 < given.minutes < float("inf"):
        parser.error(f"argument --minutes: expected a number above 0, got {given.minutes:g}")
    if given.report is not None and not given.report.endswith((".html", ".txt")):
        parser.error(f"argument --report: expected FILE.html or FILE.txt, got '{given.report}'")
    if given.threads is not None and given.threads < 1:
        parser.error(f"argument --threads: expected 1 or more, got {given.threads}")
    if given.jobs is not None and given.jobs < 1:
        parser.error(f"argument --jobs: expected 1 or more, got {given.jobs}")
    if given.jobs is not None and given.cluster is not None:
        parser.error("argument --jobs: expected none with --cluster, whose workers say how many each compiles")
    given_too = [name for name in _OF_CPU if getattr(given, name) not in (None, False, "time")]
    if given.target == "cuda" and given_too:
        parser.error(f"argument --target cuda: expected no --{given_too[0]}, which is for programs of the CPU")
    if given.cluster is not None and given.inputs is not None:
        parser.error("argument --inputs: expected none with --cluster, whose workers draw their own")
    if given.cluster is not None and given.objective == "compile":
        parser.error("argument --objective compile: expected no --cluster: it is the compiler here that is timed")
    if given.inputs is not None:
        from fuse_opt.tools.commands.array_files import input_words

        given.inputs = input_words(parser, given.inputs)
    if given.cluster is not None and "://" not in given.cluster:
        parser.error(f"argument --cluster: expected an address as in tcp://HOST:8786, got '{given.cluster}'")


def run(given: argparse.Namespace) -> int:
    """Tunes the program. Raises InputError, UsageError, OSError, RuntimeError, ValueError."""
    from fuse_opt.tools.tuning.search.server import start_server

    if given.cluster is None:
        start_server(given.joint)  # before the imports below, which take as long as its own
    from fuse_opt.runtime.host.processors import usable_processors
    from fuse_opt.runtime.host.thread_pool import num_threads
    from fuse_opt.tools.compiler.api import limit_threads
    from fuse_opt.tools.tuning.places import places
    from fuse_opt.tools.tuning.progress import progress
    from fuse_opt.tools.watching.machine import on_machine

    if given.cluster is None:
        if given.threads is not None:
            limit_threads(given.threads)
        given.threads = num_threads()
    given.threads = given.threads or 1
    output = _writable("-o", given.output)
    if given.report is not None:
        _writable("--report", given.report)
    source = _program(given)
    given.arguments = _arguments(given, source)
    with (
        progress("fuse-tune: ", time.monotonic) as told,
        _on_device(given, source)
        if given.target == "cuda"
        else places(
            given.cluster,
            given.threads,
            given.seed,
            told.say,
            given.jobs or usable_processors(),
            given.arguments,
        ) as found,
        _interrupts(told.say) as interrupted,
    ):
        if len(found) == 1:
            with on_machine(found[0].machine):
                _tuned_at(found[0], given, source, output, Path(given.report or ""), told, interrupted)
            return 0
        with ThreadPoolExecutor(len(found)) as pool:
            waiting = [pool.submit(_one_of_many, each, given, source.clone(), told, interrupted) for each in found]
            for each in waiting:
                each.result()
    return 0


@contextmanager
def _on_device(given: argparse.Namespace, source: ModuleOp) -> Generator[Sequence[Place]]:
    """The GPU that is there, for which the program is made. Raises RuntimeError where there is none."""
    from fuse_opt.tools.tuning.places import on_device

    yield [on_device(source, _passes(given, source), given.seed)]


def _one_of_many(
    place: Place, given: argparse.Namespace, source: ModuleOp, told: Progress, interrupted: list[int]
) -> None:
    """Tunes for a machine of several: files and lines have its fingerprint in their names."""
    from fuse_opt.tools.watching.machine import on_machine

    short = place.machine.device.removeprefix("d:")[:_DIGITS]

    def named(file: str | None) -> Path:
        path = Path(file or "")
        return path.with_stem(f"{path.stem}-{short}") if file else path

    with on_machine(place.machine):
        _tuned_at(place, given, source, named(given.output), named(given.report), told, interrupted, f"{short}: ")


def _tuned_at(
    place: Place,
    given: argparse.Namespace,
    source: ModuleOp,
    output: Path,
    report: Path,
    told: Progress,
    interrupted: list[int],
    prefix: str = "",
) -> None:
    """Tunes for one machine; the report is written where it has a name, and `prefix` stands before each line."""
    from fuse_opt.runtime.disk_cache import default_directory
    from fuse_opt.tools.steering.tuned_plan import Plan
    from fuse_opt.tools.tuning.joint.objectives import search_plans
    from fuse_opt.tools.tuning.joint.pareto import tried_front
    from fuse_opt.tools.tuning.joint.program_site import ProgramSite
    from fuse_opt.tools.tuning.joint.whole import Search
    from fuse_opt.tools.tuning.report import plans_html, plans_text, report_html, report_text
    from fuse_opt.tools.tuning.search.records import RecordedBench, Records, program_digest
    from fuse_opt.tools.tuning.search.sites import find_sites
    from fuse_opt.tools.tuning.search.study import Limit
    from fuse_opt.tools.tuning.search.tune_program import Options, Result, Tuner, tuned_text, write_atomically

    passes = _passes(given, source, place.host)
    target = "cuda" if given.target == "cuda" else "c"

    def say(line: str) -> None:
        told.say(f"{prefix}{line}")

    def sites_of(plan: Plan) -> list[Site]:
        return find_sites(source.clone(), passes, plan, target, given.arguments)

    sites = sites_of(Plan())
    _check_kernel(given.kernel, [site.name for site in sites])
    default = Path(os.environ.get("FUSE_OPT_TUNED") or default_directory() / "tuned")
    records = Records(Path(given.records) if given.records else default, place.machine)
    for problem in records.problems[:1]:
        more = f" (and {len(records.problems) - 1} more)" if len(records.problems) > 1 else ""
        say(f"warning: {problem}{more}")

    def written(sites: Sequence[Site], result: Result, more: Mapping[str, object]) -> None:
        write_atomically(tuned_text(sites, result, place.machine, _about(given) | dict(more)), output)

    seconds = None if given.trials is not None else 60 * (given.minutes or _MINUTES)
    program = ProgramSite(source, passes, given.file, target, given.arguments)
    tuner = Tuner(
        sites,
        records,
        place.bench,
        time.monotonic,
        Options(given.trials, seconds, given.seed, given.same_bits, given.kernel, given.threads),
        lambda: records.total(program_digest(f"{source}{program.given}"), lambda: place.seconds(source)),
        say,
        told.update,
        interrupted=lambda: bool(interrupted),
        width=place.width,
    )
    if given.objective != "time":
        limit = Limit(tuner.clock, given.trials, seconds, tuner.interrupted)

        def bench() -> RecordedBench:
            return RecordedBench(program, records, lambda: place.bench(program))

        found = search_plans(given.objective, program, bench, limit, given.same_bits)
        files = {output: found.entry}
        files |= {output.with_stem(f"{output.stem}-{arena}"): entry for arena, entry in found.others.items()}
        for file, entry in files.items():
            write_atomically(tuned_text([], Result(), place.machine, _about(given) | entry), file)
        if report.name:
            text = plans_html if _is_page(report) else plans_text
            write_atomically(text(found.said, found.front, str(output)), report)
        say(f"{found.said}; written to {', '.join(map(str, files))}")
        return
    try:
        result = Search(program, tuner, sites_of, written, output, given.joint).run()
    except KeyboardInterrupt:
        written(tuner.sites, tuner.known(), {})
        say(f"ended: {output} has what was confirmed before, else the default; what was measured is in the records")
        raise
    if report.name:
        outcome = result.outcomes.get(program.key.key)
        front = None if outcome is None else tried_front(program, outcome.tried, outcome.seconds)
        text = report_html if _is_page(report) else report_text
        write_atomically(text([program, *tuner.sites], result, str(output), front), report)
    say(f"{result.message}; {result.measured} measurements; written to {output}")


def _is_page(report: Path) -> bool:
    return report.suffix == ".html"


def _writable(option: str, name: str) -> Path:
    """A file for what comes out. Raises ValueError where it cannot be written."""
    path = Path(name)
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise ValueError(f"{option}: '{name}' cannot be written: expected a file in a folder that is there and yours")
    return path


def _check_kernel(name: str | None, names: Sequence[str]) -> None:
    if name is not None and name not in names:
        there_is = ", ".join(names) or "none that has something to choose"
        raise ValueError(f"--kernel: there is no '{name}'; expected one of {there_is}")


def _program(given: argparse.Namespace) -> ModuleOp:
    """The program for known extents. Raises InputError and ValueError."""
    from fuse_opt.tools.commands.measuring import example_inputs
    from fuse_opt.tools.commands.models import is_model, parse_extents, read_model, text_or_path
    from fuse_opt.tools.commands.watching import fixed
    from fuse_opt.tools.compiler.api import load

    extents = parse_extents(given.extents)
    if is_model(given.file):
        return read_model(given.file, extents, None, 4).module
    source = load(text_or_path(given.file))
    return fixed(source, None, example_inputs(source, given.seed, None, extents)) if extents else source


def _arguments(given: argparse.Namespace, source: ModuleOp) -> list[Any] | None:
    """The program's arguments where a person gave some. Raises OSError, TypeError and ValueError."""
    if given.inputs is None:
        return None
    import numpy as np

    from fuse_opt.lowering.reference.interpreter import entry_function
    from fuse_opt.tools.commands.array_files import read_arguments
    from fuse_opt.tools.commands.measuring import example_inputs
    from fuse_opt.tools.compiler.signature import Signature
    from fuse_opt.tools.compiler.specialization import is_dynamic

    entry = entry_function(source, None)
    if is_dynamic(entry):
        raise ValueError("expected known extents of arguments, got `?`: times are of shapes; give them as --extents")
    random = [] if given.inputs.file else example_inputs(source, given.inputs.seed)
    found = read_arguments(Signature.of(entry), given.inputs.file, given.inputs.own, random, {})
    if not all(isinstance(each, np.ndarray) for each in found):
        raise ValueError(
            "--inputs: expected a program of dense arguments; numbers are drawn for those of other storage"
        )
    return [np.ascontiguousarray(each) for each in found]


def _passes(given: argparse.Namespace, source: ModuleOp, host: str | None = None) -> list[ModulePass]:
    """
    The passes that make the program for this machine, or for a processor like the device `host`, within its budget. Raises
    InputError and UsageError.
    """
    from fuse_opt.passes.recompute.budget import within_budget
    from fuse_opt.runtime.backends.registry import load_problem, unavailable_backends
    from fuse_opt.tools.compiler.backend_switch import backend_passes, with_host_device
    from fuse_opt.tools.compiler.pipeline import make_passes, run_pipeline
    from fuse_opt.tools.compiler.registry import make_context
    from fuse_opt.tools.source.located import located

    is_cpu = given.target == "cpu"
    problem: Callable[[str], str | None] = load_problem if is_cpu else lambda name: None
    unavailable = unavailable_backends(given.target)
    passes = [*backend_passes(given.backend, unavailable, problem), *make_passes(None)]
    passes = with_host_device(passes, host) if is_cpu else passes
    if given.budget is None:
        return passes
    with located(source, source):
        return within_budget(source, passes, given.budget, partial(run_pipeline, ctx=make_context()))


def _about(given: argparse.Namespace) -> dict[str, object]:
    """What people want to know of a file."""
    from fuse_opt import __version__

    return {
        "fuse-opt": __version__,
        "program": given.file,
        "objective": given.objective,
        "target": given.target,
        "machine": platform.processor() or platform.machine(),
        "threads": given.threads,
    }


@contextmanager
def _interrupts(say: Callable[[str], None]) -> Generator[list[int]]:
    """
    Within it, the first Ctrl-C or SIGTERM is noted in a list, so that what was found so far is confirmed and written; the next
    one ends the run.
    """
    seen: list[int] = []

    def noted(number: int, frame: object) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(number)
        say("interrupted: the best so far is confirmed and written; once more ends this, too")

    before = {number: signal.signal(number, noted) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
