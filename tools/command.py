"""How a command ends: exit statuses, and no traceback but for faults of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

USAGE = 2
INTERNAL = 70
_INTERRUPTED = 130
_BROKEN_PIPE = 141


def run_command(name: str, body: Callable[[list[str]], int], argv: Sequence[str] | None) -> int:
    """The exit status of `body` on the arguments (those of the process when None), whatever ends it."""
    try:
        return body(list(sys.argv[1:] if argv is None else argv))
    except SystemExit as stop:  # argparse: --help, --version, wrong usage
        return stop.code if isinstance(stop.code, int) else USAGE
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # Python would complain again when it flushes stdout at exit.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except Exception:
        import traceback

        print(f"{name}: internal error; please report it with the input and this text", file=sys.stderr)
        traceback.print_exc()
        return INTERNAL
