"""How a command ends: exit statuses, and no traceback but for faults of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

FAILED = 1
USAGE = 2
INTERNAL = 70
_INTERRUPTED = 130
_BROKEN_PIPE = 141


def run_command(name: str, body: Callable[[list[str]], int], argv: Sequence[str] | None) -> int:
    """The exit status of `body` on the arguments (those of the process when None), whatever ends it."""
    _open_streams()
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
    except Exception:
        import traceback

        print(f"{name}: internal error; please report it with the input and this text", file=sys.stderr)
        traceback.print_exc()
        return INTERNAL


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
