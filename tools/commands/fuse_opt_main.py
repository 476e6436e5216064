"""The command `fuse-opt`: reads MLIR, applies passes in the order written, prints MLIR or another target.

xDSL is imported after the arguments are understood, so that `--help` and wrong usage answer at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuse_opt import __version__
from fuse_opt.tools.commands.command import (
    BACKEND_HELP,
    EXPECT_HELP,
    TUNED_HELP,
    Parser,
    budget_bytes,
    expectations,
    run_command,
)
from fuse_opt.tools.compiler.pipeline import PIPELINES
from fuse_opt.tools.compiler.registry import available_passes

if TYPE_CHECKING:
    from xdsl.passes import ModulePass

    from fuse_opt.tools.commands.driver import Options

OK, REFUSED = 0, 1
_DESCRIPTION = "Reads MLIR text, applies passes in the order written, and prints the result."
_PASSES = "--PASS[=option=value,...] runs a pass or a named pipeline of the tables below; --PASS=help describes it"
_EPILOG = """\
A pass is a flag: --fuse-elementwise, or with options --fuse-elementwise=max-ops=8,only=add,exp. Flags may
repeat and mix with -p, whose syntax is a,b{x=1 y=2} or builtin.module(a,b); -p also takes the passes of xDSL
itself. Dumps, times and remarks go to stderr. Exit status: 0 fine, 1 the input or a pass was refused, 2 wrong
usage, 70 a fault of this program.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    return run_command("fuse-opt", _main, argv)


def _main(arguments: list[str]) -> int:
    if (name := _pass_to_show(arguments)) is not None:
        from fuse_opt.tools.commands.listing import pass_text

        print(pass_text(name), end="")
        return OK
    parser = _make_parser()
    given = parser.parse_args(_with_pass_flags(arguments))
    if given.target == "help":
        print(_targets(), end="")
        return OK
    if given.diff_decisions is not None:
        return _diff(*given.diff_decisions)
    if given.file is None and sys.stdin is not None and sys.stdin.isatty():
        parser.error("no input: name a file, or - for standard input")
    from fuse_opt.tools.commands.driver import Options, UnreadableError, run
    from fuse_opt.tools.compiler.backend_switch import backend_passes, with_dispatch_table, with_tuned
    from fuse_opt.tools.compiler.pipeline import UsageError, parse_pass_flag, parse_pipeline

    options = Options(
        file=given.file or "-",
        output=given.output,
        target=given.target,
        split=given.split_input_file,
        verify_diagnostics=given.verify_diagnostics,
        generic=given.print_op_generic,
        debuginfo=given.print_debuginfo,
        allow_unregistered=given.allow_unregistered_dialect,
        dump_all=given.print_ir_after_all,
        dump_changes=given.print_ir_after_change,
        timing=given.timing,
        remarks=given.remarks,
        fuel=given.fuel,
        dump_decisions=given.dump_decisions,
        replay_decisions=given.replay_decisions,
        budget=given.budget,
        expected=given.expect,
        extents=given.extents,
        sizes=given.sizes,
        check_passes=given.check_passes,
        inputs=given.inputs,
    )
    try:
        passes = backend_passes(given.backend, load_problem=_nothing if given.target == "cuda" else _load_problem)
        for kind, name, text in given.passes:
            passes += parse_pass_flag(name, text) if kind == "flag" else parse_pipeline(text)
        passes = with_tuned(with_dispatch_table(passes), given.tuned)
        return run(options, passes) if given.bisect is None else _bisect(given.bisect, options, passes)
    except UsageError as error:
        parser.error(str(error))
    except UnreadableError as error:
        print(f"fuse-opt: error: {error}", file=sys.stderr)
        return REFUSED


def _nothing(name: str) -> None:
    """Text for CUDA is the same on all machines, whatever libraries they have."""


def _load_problem(name: str) -> str | None:
    """Why a backend cannot be used here; imported for who names one."""
    from fuse_opt.runtime.backends.registry import load_problem

    return load_problem(name)


def _diff(old: str, new: str) -> int:
    """Prints what differs between two files of decisions; as `diff`, 1 where anything does."""
    from fuse_opt.tools.commands.driver import UnreadableError, read_decisions
    from fuse_opt.tools.source.diagnostics import InputError
    from fuse_opt.tools.steering.decision_diff import diff_decisions

    try:
        text = diff_decisions(read_decisions(old), read_decisions(new))
    except (InputError, UnreadableError) as error:
        print(error if isinstance(error, InputError) else f"fuse-opt: error: {error}", file=sys.stderr)
        return REFUSED
    print(text, end="")
    return REFUSED if text else OK


def _bisect(command: str, options: Options, passes: Sequence[ModulePass]) -> int:
    """Prints the first decision with which a command fails on the output; what is tried goes to stderr."""
    from tempfile import TemporaryDirectory

    from fuse_opt.tools.commands.driver import read_decisions, run
    from fuse_opt.tools.compiler.pipeline import UsageError
    from fuse_opt.tools.steering.bisection import NotRunError, command_fails, first_failing

    if options.file == "-" or options.split:
        raise UsageError("--bisect runs the passes again and again: name one file, not standard input or one in parts")
    with TemporaryDirectory() as folder:
        output, notes = Path(folder) / "output", Path(folder) / "decisions"
        quiet = replace(options, output=str(output), dump_decisions=str(notes), remarks=None, timing=False)
        if run(replace(quiet, fuel=None), passes) != OK:
            return REFUSED
        every, runs = read_decisions(str(notes)), 0

        def fails(count: int) -> bool:
            nonlocal runs
            runs += 1
            fine = count == len(every) or run(replace(quiet, fuel=count), passes) == OK
            failed = not fine or command_fails(command, output)
            print(f"with {count} of {len(every)} decisions: {'fails' if failed else 'passes'}", file=sys.stderr)
            return failed

        try:
            found = first_failing(len(every), fails)
        except NotRunError as error:
            raise UsageError(f"--bisect: {error}") from None
    if not found:
        how = "passes with all decisions made" if found is None else "fails without any decision"
        print(f"fuse-opt: error: --bisect: '{command}' {how}: no decision is to blame", file=sys.stderr)
        return REFUSED
    print(f"decision {found} of {len(every)}, found by {runs} runs of the command:", file=sys.stderr)
    print(every[found - 1])
    return OK


class _AddPipeline(argparse.Action):
    """Keeps `-p` and pass flags in one list, in the order written."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        name, _, options = str(values).partition("=")
        is_flag = option_string == "--pass-flag"
        namespace.passes = [*(namespace.passes or []), ("flag", name, options) if is_flag else ("text", "", values)]


class _Show(argparse.Action):
    """Prints a text that is made when it is asked for, and ends the command."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        print(self.const(), end="")
        parser.exit()


def _help_text() -> str:
    from fuse_opt.tools.commands import listing

    tables = (listing.targets_text(), listing.pipelines_text(), listing.passes_text())
    return "\n".join((_make_parser().format_help(), *tables))


_EXTENTS = "what unknown extents of an ONNX model are; with --sizes, for what values of them the result is shown"


def _make_parser() -> argparse.ArgumentParser:
    flags = [f"--{name}" for name in (*available_passes(), *PIPELINES)]
    parser = Parser("fuse-opt", _DESCRIPTION, _EPILOG, flags, add_help=False)
    parser.usage = "fuse-opt [FILE] [--PASS[=option=value,...]]... [-p PIPELINE] [-t TARGET] [-o FILE] [option]..."
    add = parser.add_argument_group("input and output").add_argument
    add("file", metavar="FILE", nargs="?", help="MLIR text or an .onnx model; - or nothing for standard input")
    add("-o", "--output", "--output-file", metavar="FILE", help="where the result goes; nothing is written on failure")
    add("-t", "--target", metavar="TARGET", default="mlir", help="what is printed (default: mlir); -t help lists them")
    add("--split-input-file", action="store_true", help="treat the parts between // ----- as inputs of their own")
    add("--extents", metavar="NAME=N,...", type=_extents, help=_EXTENTS)
    add(
        "--sizes",
        action="store_true",
        help="types say what follows from unknown extents, and passes decide for all of them",
    )
    add("--allow-unregistered-dialect", action="store_true", help="accept ops of unknown dialects")
    add("--print-op-generic", action="store_true", help="print ops in the generic form")
    add("--print-debuginfo", action="store_true", help="print locations")
    add("--verify-diagnostics", action="store_true", help="print errors to stdout and exit with 0, for tests")
    add = parser.add_argument_group("passes", _PASSES).add_argument
    add(
        "-p", "--passes", "--pass-pipeline", metavar="PIPELINE", action=_AddPipeline, default=[], help="passes in order"
    )
    add("--pass-flag", dest="passes", action=_AddPipeline, default=[], help=argparse.SUPPRESS)
    add("--backend", metavar="NAME,-NAME,FILE.py", help=BACKEND_HELP)
    add("--budget", metavar="64MiB", type=budget_bytes, help="compute values again as far as the arena needs it to fit")
    add("--tuned", "--replay", metavar="tuned.json", help=TUNED_HELP)
    add("--fuel", metavar="N", type=_count, help="let all passes together make only the first N decisions")
    add("--dump-decisions", metavar="FILE", help="write every decision, one line each; - for standard output")
    add(
        "--replay-decisions",
        metavar="FILE",
        help="make the decisions of a file, which may be edited, and no other",
    )
    add("--bisect", metavar="COMMAND", help="find the first decision with which COMMAND fails on the output, {} in it")
    add("--diff-decisions", metavar="FILE", nargs=2, help="print what differs between two files of decisions")
    add = parser.add_argument_group("what happened").add_argument
    add("--remarks", metavar="FILE", nargs="?", const="", help="what passes decided and refused; JSON for FILE.json")
    add("--expect", metavar="FIGURES", type=expectations, default=(), help=EXPECT_HELP)
    add("--print-ir-after-all", action="store_true", help="dump the module after every pass")
    add("--print-ir-after-change", action="store_true", help="dump it after the passes that changed it")
    add("--check-passes", action="store_true", help="evaluate the program after every pass: which one changes a value")
    add("--inputs", metavar="random:SEED|FILE.npz", type=_inputs, help="its arguments (default: random:0)")
    add("--timing", action="store_true", help="print how long each step took")
    add = parser.add_argument_group("about").add_argument
    add("-h", "--help", action=_Show, nargs=0, const=_help_text, help="print this; --PASS=help prints one pass")
    add("--list-passes", action=_Show, nargs=0, const=_list_passes, help="print the passes, a line for each")
    add("--list-knobs", action=_Show, nargs=0, const=_list_knobs, help="print what schedules of kernels may say")
    add("--version", action="version", version=f"fuse-opt {__version__}", help="print the version")
    return parser


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"expected a number of decisions, got '{text[:40]}'")
    return int(text)


def _inputs(text: str) -> str:
    kind, _, rest = text.partition(":")
    if not text.endswith(".npz") and not (kind == "random" and rest.isascii() and rest.isdecimal()):
        raise argparse.ArgumentTypeError(f"expected random:SEED with a whole number, or FILE.npz, got '{text[:40]}'")
    return text


def _extents(text: str) -> dict[str, int]:
    from fuse_opt.tools.commands.models import parse_extents

    try:
        return parse_extents(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).partition(": ")[2]) from None


def _with_pass_flags(arguments: Sequence[str]) -> list[str]:
    """`--NAME[=OPTIONS]` of a pass as `--pass-flag=NAME[=OPTIONS]`; `--remarks FILE` must not take the input's name."""
    known = {*available_passes(), *PIPELINES}
    rewritten: list[str] = []
    for position, argument in enumerate(arguments):
        if argument == "--":
            return [*rewritten, *arguments[position:]]
        if argument == "--remarks":
            rewritten.append("--remarks=")
        elif argument.startswith("--") and argument[2:].partition("=")[0] in known:
            rewritten.append(f"--pass-flag={argument[2:]}")
        else:
            rewritten.append(argument)
    return rewritten


def _pass_to_show(arguments: Sequence[str]) -> str | None:
    """The pass or pipeline of the first `--NAME=help`."""
    shown = {f"--{name}=help": name for name in (*available_passes(), *PIPELINES)}
    ahead = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return next((shown[argument] for argument in ahead if argument in shown), None)


def _targets() -> str:
    from fuse_opt.tools.commands.listing import targets_text

    return targets_text()


def _list_knobs() -> str:
    from fuse_opt.tools.commands.listing import knobs_text

    return knobs_text()


def _list_passes() -> str:
    from fuse_opt.tools.commands.listing import flat_passes_text

    return flat_passes_text()


if __name__ == "__main__":
    sys.exit(main())
