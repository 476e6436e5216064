"""The command `fuse-run`: compiles a program, runs it, compares it with the reference, times it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuse_opt.tools.commands.command import (
    BACKEND_HELP,
    EXPECT_HELP,
    TUNED_HELP,
    Parser,
    budget_bytes,
    expectations,
    run_command,
)

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from fuse_opt.passes.implementation.chosen_sites import Sites
    from fuse_opt.tools.commands.array_files import InputWords
    from fuse_opt.tools.commands.measuring import Times
    from fuse_opt.tools.compiler.compiled_program import CompiledProgram
    from fuse_opt.tools.compiler.signature import Array, Value

OK, FAILED = 0, 1
_DESCRIPTION = "Compiles a program, runs it on given or random arguments, compares it with the reference, and times it."


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status: 1 when the input is refused or a check fails, 2 for wrong usage."""
    return run_command("fuse-run", _main, argv)


def _main(arguments: Sequence[str]) -> int:
    parser = _make_parser()
    if "--calibrate" in arguments:
        return _calibrate([argument for argument in arguments if argument != "--calibrate"])
    given = parser.parse_args(arguments)
    if given.repeat < 0:
        parser.error(f"argument --repeat: expected 0 or more, got {given.repeat}")
    if given.poison and given.target != "cpu":
        parser.error(f"argument --poison: expected --target cpu, got --target {given.target}")
    if (given.profile or given.report or given.pareto) and given.target != "cpu":
        parser.error(f"arguments --profile, --report and --pareto: expected --target cpu, got --target {given.target}")
    if given.pareto and given.budget is not None:
        parser.error("--pareto and --budget exclude each other")
    if given.unfused and given.passes is not None:
        parser.error("--unfused and -p exclude each other")
    from fuse_opt.tools.commands.array_files import input_words

    inputs = input_words(parser, given.inputs or ["random:0"])
    if given.results is not None and not given.results.endswith(".npz"):
        parser.error(f"argument --results: expected FILE.npz, got '{given.results}'")
    from fuse_opt.passes.implementation.chosen_sites import collect_sites
    from fuse_opt.tools.compiler.pipeline import UsageError
    from fuse_opt.tools.source.diagnostics import InputError, with_notes

    try:
        with collect_sites() as sites:
            return _run(given, inputs, sites)
    except UsageError as error:
        parser.error(str(error))
    except InputError as error:
        print(with_notes(error), file=sys.stderr)
    except (OSError, MemoryError, IndexError, RuntimeError, TypeError, ValueError) as error:
        expected = (IndexError, RuntimeError, TypeError, ValueError)
        runs = type(error).__module__.startswith("fuse_opt.runtime.")
        if not isinstance(error, OSError | MemoryError) and type(error) not in expected and not runs:
            raise
        print(f"fuse-run: error: {_reason(error)}", file=sys.stderr)
    return FAILED


def _calibrate(options: Sequence[str]) -> int:
    """As `fuse-tune calibrate`, which stands above this command and so is a process of its own."""
    from subprocess import run

    return run([sys.executable, "-m", "fuse_opt.tools.tuning.fuse_tune_main", "calibrate", *options]).returncode


def _target(text: str) -> str:
    from fuse_opt.tools.compiler.targets import check_target

    try:
        check_target(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def _make_parser() -> argparse.ArgumentParser:
    parser = Parser("fuse-run", _DESCRIPTION)
    add = parser.add_argument
    add("file", metavar="FILE", help="the program, MLIR text or an .onnx model; - for standard input")
    add(
        "--target",
        default="cpu",
        type=_target,
        help="what runs it: cpu (default), cuda, cuda:1 and so on, or reference",
    )
    add("-p", "--passes", metavar="PIPELINE", help='instead of the default pipeline; "" fuses nothing')
    add("--unfused", action="store_true", help="one kernel for each op: the same as -p unfused")
    add("--backend", metavar="NAME,-NAME,FILE.py", help=BACKEND_HELP)
    add("--expect", metavar="FIGURES", type=expectations, help=EXPECT_HELP)
    add("--budget", metavar="64MiB", type=budget_bytes, help="compute values again as far as the arena needs it to fit")
    add("--tuned", metavar="tuned.json", help=TUNED_HELP)
    add("--function", metavar="NAME", help="which function (default: the only one, or main)")
    add(
        "--inputs",
        metavar="random:SEED|[NAME=]FILE.npz",
        action="append",
        help="where arguments come from (default: random:0), or one of them, as scipy.sparse.save_npz writes a sparse one",
    )
    add("--results", metavar="FILE.npz", help="write the result there, of several FILE.0.npz, FILE.1.npz ...")
    add(
        "--weights",
        metavar="FILE.npz",
        help="arrays of some arguments, by name: what fuse-opt wrote beside a model's text",
    )
    add(
        "--extents",
        metavar="NAME=N|A..B,...",
        default="",
        help="random arguments' unknown extents (default: 4 each); with ranges the program runs at each of them",
    )
    add("--check", action="store_true", help="compare with the reference on the program as written")
    add("--check-each", action="store_true", help="compare each kernel with the reference on its own operands")
    add("--against", metavar="c,cuda", type=_against, default=["c"], help="as which text (default: c; CUDA C by g++)")
    add("--all", action="store_true", help="with --check-each: go on behind a kernel that is wrong")
    add("--profile", metavar="TRACE.json", help="time each kernel; the trace opens in Perfetto and chrome://tracing")
    add(
        "--report",
        metavar="FILE.html",
        help="time each kernel; a page with graph, arena, roofline, table and plans of less memory, for offline",
    )
    add(
        "--pareto",
        metavar="FILE.html",
        help="time plans with ever less memory; a page, and a file of decisions for each that no other beats",
    )
    add(
        "--calibrate",
        action="store_true",
        help="alone, with -o FILE.toml: measure this machine, as fuse-tune calibrate",
    )
    add("--poison", action="store_true", help="fill what no later step reads with NaN after each, to find errors")
    add("--repeat", type=int, default=0, metavar="N", help="time N calls after a warm-up")
    add("--stats", choices=("text", "json"), default="text", help="how the summary is printed")
    return parser


def _run(given: argparse.Namespace, wanted: InputWords, sites: Sites) -> int:
    from fuse_opt.tools.commands.array_files import read_arguments
    from fuse_opt.tools.commands.measuring import (
        check_against_reference,
        example_inputs,
        fresh_arguments,
        interleave,
        tolerance,
    )
    from fuse_opt.tools.compiler.api import compile as compile_program
    from fuse_opt.tools.watching.run_summary import counts, print_summary

    source, weights = _load(given, wanted.file)
    pipeline = "unfused" if given.unfused or given.passes == "" else given.passes
    if given.check_each or given.profile or given.report or given.pareto:
        return _watch(given, wanted, source, weights, pipeline)
    program = compile_program(
        source,
        given.target,
        pipeline,
        given.function,
        poison=given.poison,
        backend=given.backend,
        budget=given.budget,
        expect=given.expect,
        tuned=given.tuned,
    )
    points = _points(given)
    if len(points) > 1:
        return _sweep(given, wanted, source, program, points)
    random = [] if wanted.file else example_inputs(source, wanted.seed, given.function, points[0])
    inputs = read_arguments(program.signature, wanted.file, wanted.own, random, weights)
    program.freeze({number: inputs[number] for number, v in enumerate(program.signature.arguments) if v.frozen})
    if any(-1 in value.shape for value in program.signature.arguments):
        program(*fresh_arguments(program, inputs))  # compiled for these shapes, and its statistics known, from now on
    passed, seen = True, dict[str, Any]()
    if given.check:
        error, allowed = check_against_reference(source, program, inputs, given.function), tolerance(program)
        passed = error <= allowed
        seen["check"] = {"passed": passed, "error": error if error < float("inf") else None, "tolerance": allowed}
    if given.repeat:
        seen["seconds"] = _times(interleave({"": program}, inputs, given.repeat)[""], given.repeat)
    elif not given.check or given.results:
        seen["results"] = _results(program, inputs, given.results)
    print_summary({"file": given.file, "target": program.target, **counts(program, sites), **seen}, given.stats)
    return OK if passed else FAILED


def _watch(
    given: argparse.Namespace, wanted: InputWords, source: ModuleOp, weights: dict[str, Array], pipeline: str | None
) -> int:
    from fuse_opt.lowering.reference.interpreter import entry_function
    from fuse_opt.tools.commands.array_files import read_arguments
    from fuse_opt.tools.commands.measuring import example_inputs
    from fuse_opt.tools.commands.watching import check_kernels, pareto_front, plans_of, profile_call
    from fuse_opt.tools.compiler.signature import Signature

    points = _points(given)
    if len(points) > 1:
        raise ValueError(
            "--check-each, --profile, --report, --pareto: expected one size of each extent, got a range in --extents"
        )
    random = [] if wanted.file else example_inputs(source, wanted.seed, given.function, points[0])
    signature = Signature.of(entry_function(source, given.function))
    inputs = read_arguments(signature, wanted.file, wanted.own, random, weights)
    passed = not given.check_each or check_kernels(given, source, inputs, pipeline)
    plans = cache(partial(plans_of, given, source, inputs, pipeline, Path(given.pareto or given.report or "")))
    if given.profile or given.report:
        profile_call(given, source, inputs, pipeline, plans)
    if given.pareto:
        pareto_front(given, plans)
    return OK if passed else FAILED


def _against(text: str) -> list[str]:
    from fuse_opt.tools.commands.watching import against

    return against(text)


def _points(given: argparse.Namespace) -> list[dict[str, int]]:
    """The extents of arguments, one or many of each; a model of another tool has got them when it was read."""
    from fuse_opt.tools.commands.models import is_model, parse_points

    return [{}] if is_model(given.file) else parse_points(given.extents)


def _sweep(
    given: argparse.Namespace,
    wanted: InputWords,
    source: ModuleOp,
    program: CompiledProgram,
    points: Sequence[Mapping[str, int]],
) -> int:
    from fuse_opt.tools.commands.measuring import Sweep
    from fuse_opt.tools.watching.run_summary import print_summary

    if wanted.file or wanted.own or given.results or given.weights:
        raise ValueError("--extents: a range needs random arguments, and writes no results")
    if any(value.frozen for value in program.signature.arguments):
        raise ValueError("--extents: a range needs a program without frozen arguments")
    found = Sweep(source, program, wanted.seed, given.function, given.check, given.repeat).run(points)
    print_summary({"file": given.file, "target": program.target, **found}, given.stats)
    return OK if found.get("check", {"passed": True})["passed"] else FAILED


def _load(given: argparse.Namespace, saved: str | None) -> tuple[ModuleOp, dict[str, Array]]:
    """The program, and what its arguments are bound to by name."""
    from fuse_opt.tools.commands.array_files import read_arrays
    from fuse_opt.tools.commands.models import is_model, parse_extents, read_model, text_or_path
    from fuse_opt.tools.compiler.api import load

    weights: dict[str, Array] = read_arrays(given.weights) if given.weights else {}
    if not is_model(given.file):
        return load(text_or_path(given.file)), weights
    arrays = None if saved is None else read_arrays(saved)
    model = read_model(given.file, parse_extents(given.extents), arrays, 4 if saved is None else None)
    return model.module, {**model.weights, **weights}


def _results(program: CompiledProgram, inputs: Sequence[Any], file: str | None) -> list[Any]:
    """What results are, which are written to a file where one is given."""
    from fuse_opt.tools.commands.array_files import write_results
    from fuse_opt.tools.commands.measuring import fresh_arguments

    found: Any = program(*fresh_arguments(program, inputs))
    values = program.signature.results
    results: list[Any] = [found] if len(values) == 1 else list(found)
    shown = [_describe(value, result) for value, result in zip(values, results, strict=True)]
    if file is not None:
        for entry, name in zip(shown, write_results(file, program.signature, results), strict=True):
            entry["file"] = name
    return shown


def _describe(value: Value, result: Any) -> dict[str, Any]:
    from fuse_opt.lowering.program.float_formats import computed, type_name

    array: Array = result if value.stored is None else result[-1]
    mean = float(computed(array).astype("float64").mean()) if array.size else None
    found = {"shape": list(array.shape), "dtype": type_name(array.dtype), "mean": mean}
    if value.stored is not None:
        found |= {"shape": list(value.shape), "storage": value.stored.kind, "entries": len(array)}
    return found


def _times(times: Times, count: int) -> dict[str, Any]:
    return {"calls": count, "min": times.minimum, "median": times.median, "max": times.maximum}


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"cannot read '{error.filename}': {error.strerror}"
    return str(error).partition("\n")[0] or type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
