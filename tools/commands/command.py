"""How a command ends: exit statuses, and no traceback but for faults of its own."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from fuse_opt.tools.steering.expectations import Expectation

from fuse_opt.passes.deprecated_spellings import current_spelling

EXPECT_HELP = (
    "an error where figures of functions are not so, with what explains it: kernels<=7, arena<=14MiB, copies=0"
)
TUNED_HELP = "schedules that fuse-tune measured on this machine: its file, or a folder of records"
FAILED = 1
USAGE = 2
INTERNAL = 70
BACKEND_HELP = "what may run opaque ops: backends by name, -NAME without one, none, FILE.py with one of yours"
_INTERRUPTED = 130
_COLLECT_AFTER = 50_000
"""New objects after which cyclic garbage is looked for: what is imported and parsed makes none, and takes a tenth longer with
Python's 700."""
_BROKEN_PIPE = 141

WIDTH, COLUMN = 112, 32
"""Of help: characters in a line, and where texts begin."""


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps line breaks, writes what an option takes once, and does not depend on the terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=COLUMN, width=WIDTH)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings:
            return super()._format_action_invocation(action)
        value = "" if action.nargs == 0 else f" {self._format_args(action, action.dest.upper())}"
        return f"{', '.join(action.option_strings)}{value}"


class Parser(argparse.ArgumentParser):
    """Wrong usage is one line on stderr, with the flag that may have been meant, and status 2; help keeps its line breaks."""

    def __init__(
        self,
        prog: str,
        description: str,
        epilog: str | None = None,
        flags: Sequence[str] = (),
        *,
        add_help: bool = True,
    ) -> None:
        """`flags` are there besides those that are added."""
        super().__init__(
            prog,
            description=description,
            epilog=epilog,
            formatter_class=_HelpFormatter,
            allow_abbrev=False,
            add_help=add_help,
        )
        self._flags = flags

    def error(self, message: str) -> NoReturn:
        unknown = message.partition("unrecognized arguments: ")[2].split(" ")[0]
        if unknown.startswith("-"):
            from difflib import get_close_matches

            known = [*(flag for action in self._actions for flag in action.option_strings), *self._flags]
            close = get_close_matches(unknown.partition("=")[0], known, 1)
            message = f"unknown flag '{unknown}'" + (f"; did you mean '{close[0]}'?" if close else "")
        print(f"{self.prog}: error: {message}", file=sys.stderr)
        raise SystemExit(USAGE)


def run_command(name: str, body: Callable[[list[str]], int], argv: Sequence[str] | None) -> int:
    """
    The exit status of `body` on the arguments (those of the process when None), whatever ends it. Warnings meanwhile
    look as errors do.
    """
    _open_streams()
    usual, warnings.formatwarning = warnings.formatwarning, partial(_warning_line, name)
    thresholds = gc.get_threshold()
    gc.set_threshold(_COLLECT_AFTER, *thresholds[1:])
    try:
        status = body(with_current_spellings(name, sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return status
    except SystemExit as stop:  # argparse: --help, --version, wrong usage
        return stop.code if isinstance(stop.code, int) else USAGE
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return _BROKEN_PIPE
    except OSError as error:  # a full disk behind standard output
        _drop_output()
        print(f"{name}: error: {error}", file=sys.stderr)
        return FAILED
    except Warning as error:  # PYTHONWARNINGS=error
        print(f"{name}: error: {error}", file=sys.stderr)
        return FAILED
    except Exception as error:
        import traceback

        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{type(error).__name__} at {last.filename}:{last.lineno}"
        print(f"{name}: internal error: {place}; please report it with the input and this text", file=sys.stderr)
        traceback.print_exc()
        return INTERNAL
    finally:
        warnings.formatwarning = usual
        gc.set_threshold(*thresholds)


def with_current_spellings(name: str, arguments: Sequence[str]) -> list[str]:
    """The arguments with flags that have another name today under that name, each with a warning."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    parts = [argument.partition("=") for argument in arguments[:end]]
    return [*("".join((current_spelling(name, flag), *rest)) for flag, *rest in parts), *arguments[end:]]


def _warning_line(name: str, message: Warning | str, *where: object) -> str:
    return f"{name}: warning: {message}\n"


def _open_streams() -> None:
    """Gives those that the caller has closed to the null device: else the next file opened would take a stream's number."""
    for number, (stream, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, stream) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, stream, open(number, mode, encoding="utf-8"))  # noqa: SIM115


def _drop_output() -> None:
    """Python would complain again when it flushes standard output at exit."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def expectations(text: str) -> list[Expectation]:
    """Those of an argument such as kernels<=7, arena<=14MiB."""
    from fuse_opt.tools.steering.expectations import parse_expectations

    try:
        return parse_expectations(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def budget_bytes(text: str) -> int:
    """The bytes of a budget, for an argument such as 64MiB."""
    from fuse_opt.passes.recompute.budget import parse_budget

    try:
        return parse_budget(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).partition(": ")[2]) from None
