"""A record of cpu_peers.py as an SVG: for each workload and size, how many times our time each peer takes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape
from typing import Any

from cpu_report import LIMIT, OWN, Ratio, Record, Row, geomean, main_rows, mean_ratio, peers_of, ratio

COLOURS = {
    "c": "#6b7280",
    "inductor": "#d1495b",
    "inductor-fixed": "#f0a202",
    "torch": "#8d5a97",
    "xla": "#2e86ab",
    "ort": "#1b998b",
    "iree": "#3d348b",
    "numexpr": "#a3b18a",
    "numpy": "#bc8a5f",
}
_LEFT, _RIGHT, _TOP, _ROW, _GAP = 330, 150, 134, 19, 52
_WIDTH = 1180
_LEAST, _MOST = 0.25, 64.0
"""Ratios beyond these are drawn at the edge, as triangles."""


def as_svg(record: Record) -> str:
    """One panel for each size; a dot is the median of a peer's rounds, the bar at its right our share of the limit."""
    peers = peers_of(record)
    parts: list[str] = []
    y = _TOP
    for size in dict.fromkeys(row["size"] for row in record["rows"]):
        rows = [row for row in record["rows"] if row["size"] == size and _x_positions(row, peers)]
        parts += _panel(record, size, rows, peers, y)
        y += _ROW * (len(rows) + 1) + _GAP
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{y}" viewBox="0 0 {_WIDTH} {y}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="12" fill="#1f2937">',
        f'<rect width="{_WIDTH}" height="{y}" fill="#ffffff"/>',
        *_title(record, peers),
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


def _title(record: Record, peers: list[str]) -> Iterable[str]:
    machine = record["machine"]
    yield _text(20, 28, "Time of each peer, as a multiple of fuse-opt's", size=18, weight="bold")
    about = f"{machine['cpu']}, {machine['cpus']} CPUs, {' '.join(machine['vectors'])}; {record['date'][:10]}; "
    about += f"median of {record['rounds']} rounds, program(*xs, out=ys); logarithmic"
    yield _text(20, 48, about, fill="#4b5563")
    x = 20.0
    for name in peers:
        yield f'<circle cx="{x + 5:.1f}" cy="71" r="5" fill="{COLOURS.get(name, "#000000")}"/>'
        yield _text(x + 15, 75, name)
        x += 32 + 7 * len(name)
    yield _text(20, 97, "left of the line at 1 a peer is faster; grey bars at the right: the least time in which "
                "the same bytes can be moved, of our time", fill="#4b5563")  # fmt: skip


def _panel(record: Record, size: str, rows: list[Row], peers: list[str], top: float) -> Iterable[str]:
    budget = record["size_bytes"].get(size)
    bottom = top + _ROW * (len(rows) + 1)
    about = f"{size}: {budget >> 20} MiB of inputs and results" if budget else "one size"
    yield _text(20, top - 10, about, size=14, weight="bold")
    yield _text(_WIDTH - _RIGHT + 14, top - 10, "share of the limit", fill="#4b5563")
    for tick in (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64):
        x, strong = _place(tick), tick == 1
        colour, width = ("#111827", 1.5) if strong else ("#d1d5db", 1)
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top - 4}" y2="{bottom}" stroke="{colour}" stroke-width="{width}"/>'
        yield _text(x, bottom + 14, f"{tick:g}x", anchor="middle", fill="#4b5563")
    for number, row in enumerate(rows):
        yield from _row(row, peers, top + _ROW * number + 10, number)
    mean = {name: mean_ratio(main_rows(record, size), name, OWN) for name in peers}
    y = top + _ROW * len(rows) + 10
    if any(mean.values()):
        yield _text(20, y + 4, "geometric mean, W1 to W13 in f32", weight="bold")
        yield from _marks({n: Ratio(m, m, m) for n, m in mean.items() if m}, y, 6)
        yield from _share(geomean(s.median for r in main_rows(record, size) if (s := ratio(r, LIMIT, OWN))), y)


def _row(row: Row, peers: list[str], y: float, number: int) -> Iterable[str]:
    if number % 2 == 0:
        yield f'<rect x="14" y="{y - 9.5}" width="{_WIDTH - 28}" height="{_ROW}" fill="#f3f4f6" opacity="0.7"/>'
    yield _text(20, y + 4, f"{row['workload']} {row['dtype']}", weight="bold")
    yield _text(84, y + 4, row["about"].partition(", last")[0])
    yield from _marks(_x_positions(row, peers), y, 4.5)
    share = ratio(row, LIMIT, OWN)
    yield from _share(share and share.median, y)


def _x_positions(row: Row, peers: list[str]) -> dict[str, Ratio]:
    return {name: found for name in peers if (found := ratio(row, name, OWN))}


def _marks(ratios: dict[str, Ratio], y: float, radius: float) -> Iterable[str]:
    """Dots, with lines from the least round to the most."""
    for name, of in ratios.items():
        colour, x = COLOURS.get(name, "#000000"), _place(of.median)
        title = f"<title>{escape(name)}: {of}</title>"
        yield (
            f'<line x1="{_place(of.least):.1f}" x2="{_place(of.most):.1f}" y1="{y}" y2="{y}" stroke="{colour}" '
            'stroke-width="1.5" opacity="0.45"/>'
        )
        if _LEAST <= of.median <= _MOST:
            yield f'<circle cx="{x:.1f}" cy="{y}" r="{radius}" fill="{colour}" fill-opacity="0.85">{title}</circle>'
            continue
        tip = 6 if of.median > _MOST else -6
        yield f'<path d="M{x + tip:.1f} {y} l{-tip} -5 v10 z" fill="{colour}" fill-opacity="0.85">{title}</path>'


def _share(share: float | None, y: float) -> Iterable[str]:
    if share is None:
        return
    x, width = _WIDTH - _RIGHT + 14, 80
    yield f'<rect x="{x}" y="{y - 6}" width="{width}" height="12" fill="#e5e7eb"/>'
    yield f'<rect x="{x}" y="{y - 6}" width="{min(share, 1.0) * width:.1f}" height="12" fill="#6b7280"/>'
    yield _text(x + width + 6, y + 4, f"{share:.0%}")


def _place(value: float) -> float:
    """The x of a ratio."""
    bounded = min(max(value, _LEAST), _MOST)
    share = math.log(bounded / _LEAST) / math.log(_MOST / _LEAST)
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT - 14)


def _text(x: float, y: float, text: str, **style: Any) -> str:
    names = {"size": "font-size", "weight": "font-weight", "anchor": "text-anchor", "fill": "fill"}
    attributes = "".join(f' {names[key]}="{value}"' for key, value in style.items())
    return f'<text x="{x:.1f}" y="{y:.1f}"{attributes}>{escape(text)}</text>'
