"""What a search came to, for people: a table of kernels, what each candidate showed, what failed; as text or as a page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape
from math import log
from typing import cast

from fuse_opt.passes.scheduling.tuned_schedules import CONFIRMED, Line
from fuse_opt.tools.tuning.joint.pareto import Front
from fuse_opt.tools.tuning.search.candidates import Site
from fuse_opt.tools.tuning.search.study import Outcome
from fuse_opt.tools.tuning.search.tune_program import Result, said_of

_HEADS = ("kernel", "share", "us", "speed-up", "99 %", "pairs", "bits", "schedule", "default")
_WIDTH, _HEIGHT, _STEP = 640.0, 160.0, 24.0
_RANGE = log(2.0)
"""Of the picture: twice as slow at the bottom, twice as fast at the top."""


def report_text(sites: Sequence[Site], result: Result, file: str, front: Front | None = None) -> str:
    """The report as text; `file` is where the schedules are, `front` has the plans of the program that were tried."""
    rows = [_HEADS, *(_cells(site, line, result) for site, line in _found(sites, result))]
    widths = [max(len(row[k]) for row in rows) for k in range(len(_HEADS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    for site, outcome in _searched(sites, result):
        lines += ["", f"{site.name}: {said_of(outcome)}"]
        lines += [f"  {speedup:6.3f}x  {text}" for text, speedup in outcome.tried]
        lines += [f"  failed   {text}: {reason}" for text, reason in outcome.failed.items()]
    lines += [] if front is None else ["", front.text()]
    return "\n".join([*lines, "", f"{result.message}.", _applied(file), ""])


def report_html(sites: Sequence[Site], result: Result, file: str, front: Front | None = None) -> str:
    """The report as a page that stands by itself: no scripts, and nothing from anywhere else."""
    return "\n".join(_page(sites, result, file, front)) + "\n"


def plans_text(message: str, front: Front | None, file: str) -> str:
    """What a search for plans alone came to, as text; `front` has those that were measured."""
    return "\n".join([*([] if front is None else [front.text(), ""]), f"{message}.", _applied(file), ""])


def plans_html(message: str, front: Front | None, file: str) -> str:
    """The same as a page."""
    return "\n".join([*_head(message, file), *([] if front is None else [front.section()]), "</html>", ""])


def _head(message: str, file: str) -> Iterator[str]:
    yield '<!doctype html><html lang="en"><meta charset="utf-8"><title>fuse-tune</title>'
    yield "<style>body{font:14px sans-serif;margin:2em}td,th{text-align:left;padding:2px 10px}</style>"
    yield f"<h1>fuse-tune</h1><p>{escape(message)}. {escape(_applied(file))}</p>"


def _page(sites: Sequence[Site], result: Result, file: str, front: Front | None) -> Iterator[str]:
    yield from _head(result.message, file)
    yield f"<table><thead><tr>{''.join(f'<th>{head}</th>' for head in _HEADS)}</tr></thead><tbody>"
    for site, line in _found(sites, result):
        yield f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in _cells(site, line, result))}</tr>"
    yield "</tbody></table>"
    for site, outcome in _searched(sites, result):
        yield f"<h2>{escape(site.name)}</h2><p>{escape(said_of(outcome))}</p>"
        yield from _picture(outcome)
        if outcome.failed:
            items = "".join(f"<li>{escape(text)}: {escape(reason)}</li>" for text, reason in outcome.failed.items())
            yield f"<h3>Failed</h3><ul>{items}</ul>"
    if front is not None:
        yield front.section()
    yield "</html>"


def _picture(outcome: Outcome) -> Iterator[str]:
    """A point for each trial, and the best so far as a line; both by their first pairs."""
    points = [(20 + _STEP * k, _y(speedup), text, speedup) for k, (text, speedup) in enumerate(outcome.tried)]
    width = max(_WIDTH, 40 + _STEP * len(points))
    label = "Speed-up of each candidate by its first pairs, in the order of trials; the line is the best so far"
    yield f'<svg role="img" aria-label="{label}" viewBox="0 0 {width:g} {_HEIGHT:g}" width="{width:g}" height="{_HEIGHT:g}">'
    yield f'<path d="M0 {_y(1.0):.1f}h{width:g}" stroke="currentColor" stroke-dasharray="4 3"/>'
    best, path = 1.0, [f"0,{_y(1.0):.1f}"]
    for x, y, text, speedup in points:
        best = max(best, speedup)
        path.append(f"{x:.0f},{_y(best):.1f}")
        yield f'<circle cx="{x:.0f}" cy="{y:.1f}" r="4"><title>{speedup:.3f}x {escape(text)}</title></circle>'
    yield f'<polyline points="{" ".join(path)}" fill="none" stroke="currentColor"/></svg>'


def _y(speedup: float) -> float:
    share = min(max(log(max(speedup, 1e-9)) / _RANGE, -1.0), 1.0)
    return _HEIGHT / 2 - share * (_HEIGHT / 2 - 8)


def _found(sites: Sequence[Site], result: Result) -> list[tuple[Site, Line]]:
    return [(site, result.lines[site.key.key]) for site in sites if site.key.key in result.lines]


def _searched(sites: Sequence[Site], result: Result) -> list[tuple[Site, Outcome]]:
    return [(site, result.outcomes[site.key.key]) for site in sites if site.key.key in result.outcomes]


def _cells(site: Site, line: Line, result: Result) -> tuple[str, ...]:
    share, seconds = result.shares.get(site.key.key), line.get("seconds")
    won = line.get("state") == CONFIRMED
    low, median, high = cast("list[float]", line["speedup"]) if won else (1.0, 1.0, 1.0)
    return (
        site.name,
        "" if share is None else f"{100 * share:.1f}%",
        f"{1e6 * seconds:.1f}" if isinstance(seconds, float) else "",
        f"{median:.3f}x" if won else "default",
        f"{low:.3f} to {high:.3f}" if won else "",
        str(line.get("pairs", "")),
        "same" if line.get("same_bits") else "differ",
        json.dumps(line["schedule"]),
        json.dumps(line.get("default")),
    )


def _applied(file: str) -> str:
    return f"Apply it: fuse-run PROGRAM --tuned {file}, or fuse_opt.compile(source, tuned={file!r})."
