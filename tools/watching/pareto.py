"""Plans of a program with ever less memory, and what they cost: those that no other beats in both, as a table and a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from fuse_opt.tools.targets.html.text import scrolled, table_lines

_WIDTH, _HEIGHT, _LEFT, _TOP = 640.0, 300.0, 60.0, 32.0
HEADS = ("no.", "arena", "of most", "ms min", "median", "max", "of fastest", "ops again", "decisions")
_STYLE = (
    "body{font:14px sans-serif;margin:2em}td,th{padding:.2em .7em;text-align:left;border-bottom:1px solid}"
    "td.number{text-align:right}pre,.wide{overflow:auto}code,summary,h1{overflow-wrap:anywhere}"
)


@dataclass(frozen=True)
class Plan:
    """A plan: the bytes of its arena, seconds of a call (least, median, largest), and the file that has its decisions."""

    arena: int
    seconds: tuple[float, float, float]
    again: int
    """Ops that are computed again."""
    file: str
    decisions: str
    command: str
    """What makes it again."""

    @property
    def median(self) -> float:
        """Of the seconds of a call."""
        return self.seconds[1]


def table(plans: Sequence[Plan]) -> str:
    """The plans as text, a line each."""
    rows = [HEADS, *map(tuple, _rows(plans))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def pareto_page(program: str, left_out: int, plans: Sequence[Plan]) -> str:
    """A page of HTML that stands by itself: what `pareto_section` has."""
    title = f"Memory and time of {escape(program)}"
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    return f"{head}</head><body><h1>{title}</h1>\n{pareto_section(left_out, plans)}</body></html>\n"


def pareto_section(left_out: int, plans: Sequence[Plan]) -> str:
    """HTML without scripts: the picture, the table, each plan's decisions and the command that makes it."""
    said = f"{len(plans)} plans that no other beats in both; {left_out} that others beat are left out."
    lines = [f"<p>{said}</p>", *scrolled("Picture of plans", _picture(plans))]
    lines += scrolled("Plans", table_lines(HEADS, _rows(plans)))
    for number, plan in enumerate(plans, 1):
        lines.append(f"<details><summary>Plan {number}: {plan.arena} bytes, {escape(plan.file)}</summary>")
        lines.append(f"<p><code>{escape(plan.command)}</code></p><pre>{escape(plan.decisions)}</pre></details>")
    return "\n".join(lines) + "\n"


def _rows(plans: Sequence[Plan]) -> Iterator[list[str]]:
    most = max((plan.arena for plan in plans), default=0)
    fastest = min((plan.median for plan in plans), default=0.0)  # 0 of a coarse clock, as under a profiler's timer
    for number, plan in enumerate(plans, 1):
        times = [f"{1e3 * seconds:.3f}" for seconds in plan.seconds]
        share = plan.arena / most if most else 1.0
        yield [
            *(str(number), str(plan.arena), f"{share:.3f}", *times),
            *(f"{plan.median / fastest:.3f}" if fastest else "-", str(plan.again), plan.file),
        ]


def _picture(plans: Sequence[Plan]) -> Iterator[str]:
    """Median seconds over bytes from 0 each; a step line through the plans, each with its number of the table."""
    most = max((plan.arena for plan in plans), default=0) or 1
    slowest = max((plan.seconds[2] for plan in plans), default=0.0) or 1.0
    label = "Time of a call over bytes of the arena; numbers are the table's, bars reach from the least to the largest"
    yield (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {_WIDTH + 90:g} {_TOP + _HEIGHT + 50:g}" width="{_WIDTH + 90:g}" '
        f'height="{_TOP + _HEIGHT + 50:g}" font-size="12" fill="currentColor" stroke="none"><title>{label}</title>'
    )
    yield f'<path d="M{_LEFT} {_TOP}v{_HEIGHT}h{_WIDTH}" fill="none" stroke="currentColor"/>'
    for part in range(5):
        x, y = _LEFT + _WIDTH * part / 4, _TOP + _HEIGHT * (1 - part / 4)
        yield f'<text x="{x:g}" y="{_TOP + _HEIGHT + 18:g}" text-anchor="middle">{most * part / 4 / 2**20:.4g}</text>'
        yield f'<text x="{_LEFT - 6:g}" y="{y + 4:g}" text-anchor="end">{1e3 * slowest * part / 4:.3g}</text>'
    yield f'<text x="{_LEFT + _WIDTH / 2:g}" y="{_TOP + _HEIGHT + 38:g}" text-anchor="middle">MiB of the arena</text>'
    yield f'<text x="4" y="{_TOP - 18:g}">milliseconds of a call</text>'
    places = [(_LEFT + _WIDTH * plan.arena / most, [_y(each / slowest) for each in plan.seconds]) for plan in plans]
    steps = "".join(f"{'L' if k else 'M'}{x:.1f} {y[1]:.1f}" for k, (x, y) in enumerate(places))
    yield f'<path d="{steps}" fill="none" stroke="currentColor" stroke-dasharray="4 3"/>'
    for number, (x, (low, y, high)) in enumerate(places, 1):
        yield f'<path d="M{x:.1f} {low:.1f}V{high:.1f}" fill="none" stroke="currentColor"/>'
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/><text x="{x + 6:.1f}" y="{y - 6:.1f}">{number}</text>'
    yield "</svg>"


def _y(share: float) -> float:
    return _TOP + _HEIGHT * (1 - share)
