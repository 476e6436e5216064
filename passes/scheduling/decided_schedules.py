"""Schedules as decisions: the kind of a kernel's and its entries as text, `column(splits=4)`, where it is not the plain one.

What is asked of all kernels, as accuracy is, is no decision.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from xdsl.dialects.builtin import DictionaryAttr

from fuse_opt.dialects.fused import KernelOp
from fuse_opt.passes.decisions.choices import Choices
from fuse_opt.passes.decisions.steering import Step
from fuse_opt.passes.scheduling.tuned_schedules import Settings, settings_of

_TEXT = re.compile(r"(\w+)(?:\((\w+=\w+(?:,\w+=\w+)*)\))?", re.ASCII)


def told_schedule(kernel: KernelOp, choices: Choices) -> tuple[Step, Settings] | None:
    """The last that a file says about a kernel's schedule. Raises DecisionError for what cannot be read."""
    steps = choices.told(kernel)
    if not steps:
        return None
    match = _TEXT.fullmatch(steps[-1].decision.choice.replace(" ", ""))
    if match is None:
        message = f"expected a schedule, as in 'row' or 'column(splits=4)', got '{steps[-1].decision.choice}'"
        raise steps[-1].decision.choice_error(message)
    entries = dict(entry.split("=") for entry in (match[2] or "").split(",") if entry)
    return steps[-1], {"kind": match[1], **{k: int(v) if v.isdecimal() else v for k, v in entries.items()}}


def settle(kernel: KernelOp, plain: DictionaryAttr, asked: Collection[str], choices: Choices) -> None:
    """Leaves a kernel with the plain schedule where another one is not decided; `asked` are entries that no one decides."""
    if choices.is_asked and kernel.schedule is not None:
        text = _text(kernel.schedule, asked)
        if text != _text(plain, asked) and not choices.take(kernel, text):
            kernel.schedule = plain


def _text(schedule: DictionaryAttr, asked: Collection[str]) -> str:
    settings = settings_of(schedule)
    entries = ",".join(f"{k}={v}" for k, v in settings.items() if k != "kind" and k not in asked)
    return f"{settings['kind']}({entries})" if entries else str(settings["kind"])
