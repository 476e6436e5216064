"""The first decision with which a command fails, found with log2(N) + 1 runs of it."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

_NOT_RUN = (126, 127)
"""What a shell says of a command that it cannot run."""


class NotRunError(ValueError):
    """A command cannot be run at all."""


def first_failing(count: int, fails: Callable[[int], bool]) -> int | None:
    """
    The least number of decisions, up to `count`, with which something fails; None where it does not with all of them. One
    call for all, then one for each halving: it is taken for granted that what fails with N of them fails with more.
    """
    if not fails(count):
        return None
    good, bad = -1, count
    while bad - good > 1:
        middle = (good + bad) // 2
        if fails(middle):
            bad = middle
        else:
            good = middle
    return bad


def command_fails(command: str, file: Path) -> bool:
    """
    Whether a shell's command has another exit status than 0 for a file, which stands for `{}` in it or comes last. Raises
    NotRunError where there is no such command.
    """
    quoted = shlex.quote(str(file))
    text = command.replace("{}", quoted) if "{}" in command else f"{command} {quoted}"
    done = subprocess.run(text, shell=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    if done.returncode in _NOT_RUN:
        raise NotRunError(f"the shell cannot run '{text}': status {done.returncode}")
    return done.returncode != 0
