"""Compilers as processes: none runs for ever, none outlives its caller, and what they say is printable."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

LIMIT_VARIABLE = "FUSE_OPT_COMPILE_SECONDS"
_USUAL_SECONDS = 600.0
_LONGEST_SECONDS = 86400.0
_PARTS = 64
"""Of a compiler's time: this process may be stopped with all of its group for as long as somebody likes, and that is one part."""
_GRACE_SECONDS = 5.0
"""For the pipes of a compiler that was killed: a process that left its group may hold them."""


class NeverEnds(Exception):
    """A compiler was stopped, with all processes that it started: it took longer than it was given."""


@dataclass(frozen=True)
class Completed:
    """A compiler that ended by itself."""

    status: int
    output: str
    messages: str


def compile_seconds() -> float:
    """How long a compiler may take for one text: `$FUSE_OPT_COMPILE_SECONDS`, else ten minutes. Raises ValueError."""
    text = os.environ.get(LIMIT_VARIABLE)
    if not text:
        return _USUAL_SECONDS
    with suppress(ValueError):
        if 0 < (seconds := float(text)) <= _LONGEST_SECONDS:
            return seconds
    raise ValueError(f"{LIMIT_VARIABLE}={text!r}: expected a number of seconds above 0, at most {_LONGEST_SECONDS:g}")


def run_compiler(command: Sequence[str], source: str = "", seconds: float | None = None) -> Completed:
    """
    What a compiler that is fed with `source` says, in English whatever the user's language. It gets `seconds`, or as many as
    `compile_seconds` tells, of the time in which this process is not stopped, and is then killed with its whole process group.
    Raises NeverEnds, OSError and ValueError.
    """
    limit = compile_seconds() if seconds is None else seconds
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "LC_ALL": "C"},
        process_group=0,
    )
    _running.add(process)
    try:
        output, messages = _said(process, source.encode("utf-8"), limit)
    except subprocess.TimeoutExpired:
        _stop(process)
        remedy = "" if seconds is not None else f"; give it more by {LIMIT_VARIABLE}, or name another compiler"
        raise NeverEnds(f"'{command[0]}' did not end within {limit:g} seconds{remedy}") from None
    except BaseException:
        _stop(process)
        raise
    finally:
        _running.discard(process)
    return Completed(process.returncode, output.decode("utf-8", "replace"), printable(messages))


def _said(process: subprocess.Popen[bytes], source: bytes, limit: float) -> tuple[bytes, bytes]:
    """Raises TimeoutExpired."""
    given: bytes | None = source
    for _ in range(_PARTS - 1):
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(given, timeout=limit / _PARTS)
        given = None  # the first call keeps what it could not write
    return process.communicate(given, timeout=limit / _PARTS)


def stop_compilers() -> None:
    """Kills all compilers that this process waits for, in any thread."""
    for process in list(_running):
        _kill(process)


_running: set[subprocess.Popen[bytes]] = set()


def _stop(process: subprocess.Popen[bytes]) -> None:
    _kill(process)
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=_GRACE_SECONDS)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def printable(data: bytes | str) -> str:
    """Text in which line ends and tabs are the only control characters, and what is no UTF-8 is spelled as escapes."""
    text = data.decode("utf-8", "backslashreplace") if isinstance(data, bytes) else data
    return "".join(c if c.isprintable() or c in "\n\t" else _escaped(c) for c in text.replace("\r\n", "\n"))


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
