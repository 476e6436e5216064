"""How a command ends: exit statuses, and no traceback but for faults of its own."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NoReturn

FAILED = 1
USAGE = 2
INTERNAL = 70
_INTERRUPTED = 130
_BROKEN_PIPE = 141


class Parser(argparse.ArgumentParser):
    """Wrong usage is one line on stderr, with the flag that may have been meant, and status 2; help keeps its line breaks."""

    def __init__(
        self, prog: str, description: str | None, epilog: str | None = None, flags: Sequence[str] = ()
    ) -> None:
        """`flags` are there besides those that are added."""
        kind = argparse.RawDescriptionHelpFormatter
        super().__init__(prog, description=description, epilog=epilog, formatter_class=kind, allow_abbrev=False)
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
    try:
        status = body(list(sys.argv[1:] if argv is None else argv))
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
    except Exception:
        import traceback

        print(f"{name}: internal error; please report it with the input and this text", file=sys.stderr)
        traceback.print_exc()
        return INTERNAL
    finally:
        warnings.formatwarning = usual


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
