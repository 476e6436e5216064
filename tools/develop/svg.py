"""What drawings for the docs share: colours for light and dark pages, and an estimate of how wide text is."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

NAME_SIZE, TEXT_SIZE = 12.0, 10.5
"""Of letters, in px: of names, which have a fixed width, and of text."""
_FIXED, _WIDE = 0.61, 0.57
"""Widths of letters in sizes: those of names, and more than most fonts' average of those of text."""

_COLOURS: tuple[tuple[str, str, str, str], ...] = (
    (".paper", "fill", "#ffffff", "#14171a"),
    (".band, .ground", "fill", "#f3f5f8", "#1c2126"),
    (".band, .ground, rect.box, .storage > rect", "stroke", "#aab4be", "#56616c"),
    ("rect.box", "fill", "#ffffff", "#262d34"),
    ("text", "fill", "#1b1f24", "#e4e8ec"),
    (".dim, .tick", "fill", "#57606a", "#a6b0ba"),
    (".arrow", "stroke", "#0757c2", "#6cb0ff"),
    (".head", "fill", "#0757c2", "#6cb0ff"),
    (".bound", "stroke", "#b3261e", "#ff8a80"),
    (".tint0 > rect", "fill", "#cfe2f8", "#24476e"),
    (".tint1 > rect", "fill", "#d8efd6", "#28502c"),
    (".tint2 > rect", "fill", "#fbe5c4", "#5f4518"),
    (".tint3 > rect", "fill", "#eadcf6", "#4a3264"),
)
"""Selector, property, and its value on light and on dark pages; no variables, which few programs but browsers know."""

_SHAPES = f"""text {{ font-family: system-ui, "Segoe UI", Helvetica, Arial, sans-serif; font-size: {TEXT_SIZE}px; }}
.name {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: {NAME_SIZE}px; }}
.name {{ font-weight: 600; }}
.arrow {{ fill: none; stroke-width: 1.4; }}
.bound {{ fill: none; stroke-width: 1.5; stroke-dasharray: 5 3; }}"""


def _style() -> str:
    light = [f"{selector} {{ {name}: {value}; }}" for selector, name, value, _ in _COLOURS]
    dark = [f"{selector} {{ {name}: {value}; }}" for selector, name, _, value in _COLOURS]
    lines = [_SHAPES, *light, "@media (prefers-color-scheme: dark) {", *dark, "}"]
    return "\n".join(["<style>", *lines, "</style>"])


def name_width(text: str) -> float:
    """Of a name, in px."""
    return len(text) * NAME_SIZE * _FIXED


def text_width(text: str) -> float:
    """Of other text, at most about so many px."""
    return len(text) * TEXT_SIZE * _WIDE


def wrapped(text: str, width: float) -> list[str]:
    """The lines of a text that may be so wide."""
    lines = [""]
    for word in text.split():
        if lines[-1] and text_width(f"{lines[-1]} {word}") > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".lstrip()
    return lines


def text_line(x: float, y: float, text: str, css: str = "") -> str:
    kind = f' class="{css}"' if css else ""
    return f'<text x="{x:g}" y="{y:g}"{kind}>{escape(text)}</text>'


def rectangle(x: float, y: float, width: float, height: float, css: str, radius: float = 0) -> str:
    rounded = f' rx="{radius:g}"' if radius else ""
    return f'<rect class="{css}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"{rounded}/>'


def drawing(width: float, height: float, label: str, lines: Iterator[str]) -> str:
    """A file of SVG, readable on light and dark pages."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(label)}" '
        f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}">'
    )
    return "\n".join([head, _style(), rectangle(0, 0, width, height, "paper"), *lines, "</svg>"]) + "\n"
