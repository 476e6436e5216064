"""What `fuse-opt` does with its input: read it, run the passes, print the result; everything else goes to stderr."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TextIO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.printer import Printer
from xdsl.utils.arg_spec import ArgSpec, parse_spec
from xdsl.utils.exceptions import ArgSpecParseError, DiagnosticException
from xdsl.utils.target import Target

from fuse_opt.dialects.analysis.chosen_sizes import at_sizes
from fuse_opt.dialects.interfaces.shapes import sizes_asked_for
from fuse_opt.passes.decisions.text import Decision
from fuse_opt.passes.devices.gpu_attach_device import make_for
from fuse_opt.passes.recompute.budget import within_budget
from fuse_opt.passes.remarks import Remark, collect
from fuse_opt.tools.compiler.builders import measure_of_printed
from fuse_opt.tools.compiler.pipeline import Observer, UsageError, make_passes, run_pipeline
from fuse_opt.tools.compiler.registry import available_targets, make_context
from fuse_opt.tools.source.diagnostics import InputError, located, located_error, one_line, with_notes
from fuse_opt.tools.source.parsing import decode, parse_module
from fuse_opt.tools.steering.expectations import Expectation, checked

_SEPARATOR = "// -----\n"
_SPLIT = re.compile(rb"^[ \t]*// -----[ \t]*$\n?", re.MULTILINE)


@dataclass(frozen=True)
class Options:
    """What was asked for, beside the passes."""

    file: str = "-"
    output: str | None = None
    target: str = "mlir"
    split: bool = False
    verify_diagnostics: bool = False
    generic: bool = False
    debuginfo: bool = False
    allow_unregistered: bool = False
    dump_all: bool = False
    dump_changes: bool = False
    timing: bool = False
    remarks: str | None = None
    """A file for remarks; empty for stderr."""
    fuel: int | None = None
    """Decisions that all fusion passes may make together."""
    dump_decisions: str | None = None
    replay_decisions: str | None = None
    budget: int | None = None
    """Bytes that the arena may have at most."""
    expected: Sequence[Expectation] = ()
    """What is to come of each function."""
    check_passes: bool = False
    inputs: str | None = None
    """For checking passes: random:SEED or FILE.npz."""
    extents: Mapping[str, int] | None = None
    """What the names of a model's unknown extents stand for; with `sizes` the values for which the output is."""
    sizes: bool = False
    """Whether types say sizes, which passes take."""


class UnreadableError(Exception):
    """A file cannot be read or written."""


def run(options: Options, passes: Sequence[ModulePass]) -> int:
    """
    Reads, transforms and prints; returns the exit status. Raises UsageError for a target that does not exist and
    UnreadableError for files.
    """
    target = make_target(options)
    if options.budget is not None and (options.replay_decisions or options.fuel) is not None:
        raise UsageError(
            "--budget decides what is computed again, and --replay-decisions and --fuel do: give one of them"
        )
    if options.replay_decisions == options.file == "-":
        raise UsageError("the input and --replay-decisions cannot both be standard input")
    data, name = _read(options.file)
    chunks = _chunks(data, options.split)
    steering = Steering(options, len(chunks))
    report = Report(options)
    parts: list[str] = []
    status = 0
    remarks: list[Remark] = []
    with steering.whole_run():
        for number, (chunk, first_line) in enumerate(chunks):
            steered = steering.module(number)
            try:
                with _remarks_into(remarks, options):
                    parts.append(_process(chunk, name, first_line, options, passes, target, report, steered))
            except InputError as error:
                if options.verify_diagnostics:
                    parts.append(f"{with_notes(error)}\n")
                    continue
                status = 1
                print(with_notes(error), file=sys.stderr)
    if status == 0 or parts:
        write_text(_SEPARATOR.join(parts), options.output if status == 0 else None)
    if options.timing:
        report.print_times(sys.stderr)
    if options.remarks is not None:
        _write_remarks(remarks, options.remarks)
    return status


@contextmanager
def _remarks_into(remarks: list[Remark], options: Options) -> Generator[None]:
    """Adds the remarks made in the body, where they are wanted; making them costs time."""
    if options.remarks is None:
        yield
        return
    with collect() as found:
        try:
            yield
        finally:
            remarks += found


def make_target(options: Options) -> Target:
    """The target of `-t name{option=value}`. Raises UsageError."""
    targets = available_targets()
    try:
        spec = parse_spec(options.target)
        if spec.name not in targets:
            raise UsageError(f"unknown target '{spec.name}'; there is {', '.join(targets)}")
        if spec.name == "mlir":
            given = {"generic": options.generic, "debuginfo": options.debuginfo}
            spec = ArgSpec("mlir", {**{k: (v,) for k, v in given.items()}, **spec.parameters})
        return targets[spec.name]().from_spec(spec)
    except UsageError:
        raise
    except (ArgSpecParseError, ValueError) as error:
        raise UsageError(f"target '{options.target}': {one_line(str(error))}") from None


@dataclass
class Report:
    """Dumps and times of the passes; the pipeline tells it what happens."""

    options: Options
    times: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    _before: str | None = None
    """The text of the module after the last pass; None until it is verified, as only then it can be printed."""

    def add(self, step: str, start: float) -> None:
        self.times.append((step, time.perf_counter() - start))

    def started(self) -> None:
        """Another module follows."""
        self._before = None

    def verified(self, module: ModuleOp, seconds: float) -> None:
        if self.options.dump_changes and self._before is None:
            self._before = _text(module)
        self.times.append(("  verify", seconds))

    def applied(self, pass_: ModulePass, module: ModuleOp, seconds: float) -> None:
        self.times.append((str(pass_), seconds))
        if not (self.options.dump_all or self.options.dump_changes):
            return
        text = _text(module)
        changed = text != self._before
        self._before = text
        if self.options.dump_all or changed:
            print(f"// -----// IR after {pass_} //----- //\n{text}", file=sys.stderr)
        else:
            print(f"// -----// IR after {pass_}: no change //----- //", file=sys.stderr)

    def print_times(self, stream: TextIO) -> None:
        total = sum(seconds for _, seconds in self.times) or 1e-9
        print("===-- time of each step, in seconds --===", file=stream)
        for step, seconds in [*self.times, ("total", total)]:
            print(f"{seconds:10.4f} {100 * seconds / total:5.1f}%  {step}", file=stream)


class Steering:
    """Fuel, and the decisions that are dumped and replayed, of one run of the command; costs nothing unasked for."""

    def __init__(self, options: Options, modules: int) -> None:
        self.options = options
        self._dumped = [""] * modules
        self._scripts: list[tuple[bytes, int]] = []
        self._file = options.replay_decisions or ""
        if options.replay_decisions is not None:
            data, self._file = _read(options.replay_decisions)
            self._scripts = _chunks(data, options.split)
            if len(self._scripts) > modules:
                raise UsageError(
                    f"{one_line(self._file)} has {len(self._scripts)} parts between // -----, the input has {modules}"
                )

    @contextmanager
    def whole_run(self) -> Generator[None]:
        """Lets all modules share the fuel; dumps their decisions at the end, of a run that fails those before it failed."""
        try:
            with ExitStack() as stack:
                if self.options.fuel is not None:
                    from fuse_opt.passes.decisions.steering import limit_fuel

                    stack.enter_context(limit_fuel(self.options.fuel))
                yield
        finally:
            if self.options.dump_decisions is not None:
                write_text(_SEPARATOR.join(self._dumped), self.options.dump_decisions)

    @contextmanager
    def module(self, number: int) -> Generator[None]:
        """Around the passes over a module. Raises InputError for decisions that cannot be read or applied."""
        if self.options.dump_decisions is None and self.options.replay_decisions is None:
            yield
            return
        from fuse_opt.passes.decisions.steering import record_decisions, replay_decisions
        from fuse_opt.passes.decisions.text import DecisionError, format_decisions, parse_decisions

        with record_decisions() as decisions:
            try:
                if self.options.replay_decisions is None:
                    yield
                else:
                    script, first_line = self._scripts[number] if number < len(self._scripts) else (b"", 1)
                    text = decode(script, self._file)
                    with replay_decisions(parse_decisions(text, self._file, first_line)):
                        yield
            except DecisionError as error:
                raise InputError(error.file, error.line, error.col, error.message) from error
            finally:
                self._dumped[number] = format_decisions(decisions)


def read_decisions(file: str) -> list[Decision]:
    """The decisions of a file. Raises InputError and UnreadableError."""
    from fuse_opt.passes.decisions.text import DecisionError, parse_decisions

    data, name = _read(file)
    try:
        return parse_decisions(decode(data, name), name)
    except DecisionError as error:
        raise InputError(error.file, error.line, error.col, error.message) from error


def _process(
    chunk: bytes,
    name: str,
    first_line: int,
    options: Options,
    passes: Sequence[ModulePass],
    target: Target,
    report: Report,
    steered: AbstractContextManager[None],
) -> str:
    """The output for one module. Raises InputError, whatever is wrong with it."""
    ctx = make_context(options.allow_unregistered)
    start = time.perf_counter()
    module = _read_module(chunk, name, first_line, ctx, options)
    report.add("parse", start)
    report.started()
    try:
        with steered:
            make_for(module, getattr(target, "platform", ""))
            if options.budget is not None:
                run_pipeline(module, (), ctx)  # which verifies it, as trials do not
                run = partial(run_pipeline, ctx=ctx, verify=False)
                measure = measure_of_printed(getattr(target, "platform", ""))
                passes = within_budget(module, passes, options.budget, run, measure)
            with checked(module, options.expected) if passes or options.expected else nullcontext():
                _run_passes(module, passes, ctx, options, _observer(options, name, report))
        start = time.perf_counter()
        output = StringIO()
        with sizes_asked_for() if options.sizes else nullcontext():
            target.emit(ctx, module, output)
        report.add(f"print as {target.name}", start)
    except Exception as error:
        raise _refusal(error, module, name) from error
    return output.getvalue()


def _run_passes(
    module: ModuleOp, passes: Sequence[ModulePass], ctx: Context, options: Options, observer: Observer
) -> None:
    if not options.sizes:
        run_pipeline(module, passes, ctx, observer=observer)
        return
    run_pipeline(module, make_passes("infer-shapes{symbols=true}"), ctx)
    with sizes_asked_for():
        run_pipeline(module, passes, ctx, observer=observer)
    if options.extents is not None:
        try:
            at_sizes(module, options.extents)
        except ValueError as error:
            raise located(module, f"--extents: {error}", options.file) from None


def _observer(options: Options, name: str, report: Report) -> Observer:
    """Who is told of the passes over a module."""
    if not options.check_passes:
        return report
    from fuse_opt.tools.commands.watching import pass_checker

    return pass_checker(options.inputs, name, report)


def _read_module(chunk: bytes, name: str, first_line: int, ctx: Context, options: Options) -> ModuleOp:
    """From text, or from a model of another tool, whose weights go beside the output."""
    from fuse_opt.tools.commands.models import is_model, read_model, write_weights

    if not is_model(name):
        return parse_module(decode(chunk, name), name, ctx, first_line)
    model = read_model(name, options.extents)
    if options.output not in (None, "-"):
        write_weights(model, str(options.output))
    return model.module


def _refusal(error: Exception, module: ModuleOp, name: str) -> Exception:
    """The located form of an error that refuses the input; an internal error as it is."""
    if isinstance(error, DiagnosticException) or hasattr(error, "op"):
        return located_error(error, name, module)
    if isinstance(error, RecursionError):
        return located(module, "the input is nested too deeply", name)
    return error


def _read(file: str) -> tuple[bytes, str]:
    try:
        if file == "-":
            return sys.stdin.buffer.read(), "<stdin>"
        return Path(file).read_bytes(), file
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise UnreadableError(f"cannot read '{one_line(file)}': {reason}") from None


def _chunks(data: bytes, split: bool) -> list[tuple[bytes, int]]:
    """The parts of a file that `// -----` divides, if it is to be split, and the line on which each begins."""
    chunks: list[tuple[bytes, int]] = []
    start, line = 0, 1
    for match in _SPLIT.finditer(data) if split else ():
        chunks.append((data[start : match.start()], line))
        line += data.count(b"\n", start, match.end())
        start = match.end()
    return [*chunks, (data[start:], line)]


def _text(module: ModuleOp) -> str:
    output = StringIO()
    Printer(stream=output).print_op(module)
    return output.getvalue()


def write_text(text: str, file: str | None) -> None:
    """To a file, or to standard output for None or `-`. Raises UnreadableError."""
    if file is None or file == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    try:
        Path(file).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise UnreadableError(f"cannot write '{one_line(file)}': {reason}") from None


def _write_remarks(remarks: Sequence[Remark], file: str) -> None:
    if file.endswith(".json"):
        entries = [{**asdict(remark), "numbers": dict(remark.numbers)} for remark in remarks]
        for entry in entries:
            del entry["provisional"]
        write_text(json.dumps(entries, indent=2) + "\n", file)
        return
    text = "".join(f"{remark}\n" for remark in remarks)
    if file:
        write_text(text, file)
    else:
        sys.stderr.write(text)
