"""Tables of `--help`: passes in groups with their options, one pass in full, named pipelines, targets."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from fuse_opt.tools.commands.command import COLUMN, WIDTH
from fuse_opt.tools.compiler.pass_docs import Option, group_summary, pass_docs, pass_groups, shared_options
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE, PIPELINES
from fuse_opt.tools.compiler.registry import available_passes, available_targets, pass_summary, target_summary

_OPTION_INDENT = 6
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_PASSES = "passes/"


def passes_text() -> str:
    """All passes by the package that holds them, in the order in which the default pipeline first uses one of each."""
    parts = ["passes, in groups; --PASS=help shows one with all its options:\n"]
    groups = pass_groups()
    for folder in sorted(groups, key=lambda folder: _first_use(folder, groups)):
        parts.append(f"\n{_group_name(folder)}: {group_summary(folder)}\n")
        for name in groups[folder]:
            parts.append(_row(f"  --{name}", pass_summary(name)))
            parts += [_option_row(option) for option in pass_docs(name).own_options]
    for options, names in shared_options().items():
        flags = ", ".join(f"--{name}" for name in names)
        heading = textwrap.fill(f"options that {flags} share:", WIDTH, break_on_hyphens=False)
        parts.append(f"\n{heading}\n")
        parts += [_option_row(option) for option in options]
    return "".join(parts)


def pass_text(name: str) -> str:
    """One pass, or one named pipeline: what it does, and what it can be told."""
    if name in PIPELINES:
        return f"--{name}: {PIPELINES[name].summary}\n\n{_order(PIPELINES[name].passes, '  ')}\n"
    docs = pass_docs(name)
    parts = [f"usage: fuse-opt [FILE] --{name}{'[=option=value,...]' if docs.options else ''}\n\n"]
    parts += [f"{textwrap.fill(pass_summary(name), WIDTH)}\n\n", f"{docs.doc}\n"]
    if docs.options:
        parts.append("\noptions:\n")
        parts += [_row(f"  {option.usage}", option.text) for option in docs.options]
    return "".join(parts)


def pipelines_text() -> str:
    """The named pipelines, with what they stand for."""
    parts = ["pipelines, written like passes:\n"]
    for name, pipeline in PIPELINES.items():
        parts.append(_row(f"  --{name}", pipeline.summary))
        parts.append(f"{_order(pipeline.passes, ' ' * COLUMN)}\n")
    return "".join(parts)


def targets_text() -> str:
    """The targets of `-t`, a line for each."""
    column = max(map(len, available_targets())) + 4
    rows = [_row(f"  {name}", target_summary(name), column) for name in available_targets()]
    return f"targets of -t:\n{''.join(rows)}"


def knobs_text() -> str:
    """Entries of schedules: of C programs, and of the entry `gpu` those of CUDA."""
    from fuse_opt.dialects.fused.gpu_schedule import ENTRY, GPU_KNOBS
    from fuse_opt.dialects.fused.knobs import KNOBS

    parts: list[str] = []
    for heading, knobs in (("entries of schedules:", KNOBS), (f"entries of their entry '{ENTRY}':", GPU_KNOBS)):
        parts.append(f"{heading}\n")
        for knob in knobs:
            kept = "; keeps every bit" if knob.same_bits else ""
            said = _LINK.sub(r"\1", knob.doc)
            parts.append(_row(f"  {knob.name}", f"{said}: {knob.values}{kept}"))
            parts.append(_row("", f"for {', '.join(knob.kinds)}"))
    return "".join(parts)


def flat_passes_text() -> str:
    """A line for each pass, by name."""
    names = list(available_passes())
    width = max(map(len, names), default=0)
    return "".join(f"  --{name:<{width}}  {pass_summary(name)}\n" for name in names)


def _first_use(folder: str, groups: dict[str, list[str]]) -> tuple[int, bool, str]:
    """Where the default pipeline first uses a pass of the folder or of one beside it in the same package."""
    package = "/".join(folder.split("/")[:2])
    members = [name for other, names in groups.items() if f"{other}/".startswith(f"{package}/") for name in names]
    uses = [DEFAULT_PIPELINE.index(name) for name in members if name in DEFAULT_PIPELINE]
    return min(uses, default=len(DEFAULT_PIPELINE)), not folder.startswith(_PASSES), folder


def _group_name(folder: str) -> str:
    return folder.removeprefix(_PASSES)


def _option_row(option: Option) -> str:
    return _row(f"{' ' * _OPTION_INDENT}{option.usage}", option.text)


def _row(head: str, text: str, column: int = COLUMN) -> str:
    """A head and a text beside it; below it where the head is too long."""
    lines = textwrap.wrap(text, WIDTH - column, break_on_hyphens=False) or [""]
    indent = " " * column
    first = f"{head:<{column}}{lines[0]}" if len(head) < column - 1 else f"{head}\n{indent}{lines[0]}"
    return "".join(f"{line.rstrip()}\n" for line in (first, *(f"{indent}{line}" for line in lines[1:])))


def _order(passes: Sequence[str], indent: str) -> str:
    options = {"initial_indent": indent, "subsequent_indent": indent, "break_on_hyphens": False}
    return textwrap.fill(", ".join(passes), WIDTH, **options)  # pyright: ignore[reportArgumentType]
