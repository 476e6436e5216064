"""A section of a page of HTML: the time of a program's kernels with the roofline; readable without colours."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from math import log10

from fuse_opt.tools.targets.html.target_html import Section
from fuse_opt.tools.targets.html.text import scrolled, table_lines
from fuse_opt.tools.watching.profile import HEADS, Profile, by_time, cells, summary

_WIDTH, _HEIGHT, _LEFT, _TOP = 640.0, 300.0, 60.0, 20.0
_LOW, _HIGH = 1e-2, 1e3
"""Operations a byte at the edges of the picture."""


def profile_section(profile: Profile) -> Section:
    """The roofline and the table of kernels."""
    rows = [(str(k), *cells(each, profile.seconds), ", ".join(each.ops)) for k, each in enumerate(by_time(profile), 1)]
    lines = [f"<p>{escape(summary(profile))}.</p>", "<h3>Roofline</h3>", *scrolled("Roofline", _picture(profile))]
    lines += ["<h3>Kernels by time</h3>", *scrolled("Kernels by time", table_lines(("no.", *HEADS, "ops"), rows))]
    return Section("times", "Time of kernels", "\n".join(lines))


def _picture(profile: Profile) -> Iterator[str]:
    """Operations a second over operations a byte, both by decades; the roof is drawn, each kernel is its number of the table."""
    roof = profile.roof
    top = max(10.0 ** (int(log10(roof.product_rate("f32"))) + 1), 1e10)
    label = "Roofline: operations a second over operations a byte, by decades; numbers are those of the table below"
    yield (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {_WIDTH + 80:g} {_HEIGHT + 70:g}" width="{_WIDTH + 80:g}" '
        f'height="{_HEIGHT + 70:g}" font-size="12" fill="currentColor" stroke="none">'
    )
    yield f"<title>{label}</title>"
    yield f'<path d="M{_LEFT} {_TOP}v{_HEIGHT}h{_WIDTH}" fill="none" stroke="currentColor"/>'
    for dash, rate in (("", roof.rate), ("6 3", roof.product_rate("f32"))):
        points = " ".join(
            f"{_x(i):.1f},{_y(min(i * roof.bandwidth, rate), top):.1f}" for i in (_LOW, rate / roof.bandwidth, _HIGH)
        )
        yield f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-dasharray="{dash}"/>'
    yield f'<text x="{_LEFT + _WIDTH:g}" y="{_y(roof.rate, top) - 5:.1f}" text-anchor="end">simple operations</text>'
    yield (
        f'<text x="{_LEFT + _WIDTH:g}" y="{_y(roof.product_rate("f32"), top) - 5:.1f}" text-anchor="end">products</text>'
    )
    for power in range(-2, 4):
        yield f'<text x="{_x(10.0**power):.1f}" y="{_TOP + _HEIGHT + 18:g}" text-anchor="middle">1e{power}</text>'
    yield f'<text x="{_LEFT + _WIDTH / 2:g}" y="{_TOP + _HEIGHT + 38:g}" text-anchor="middle">operations a byte</text>'
    yield f'<text x="4" y="{_TOP - 6:g}">operations a second, {top:.0e} at the top, a decade less every {_HEIGHT / 5:g} px</text>'
    for number, kernel in enumerate(by_time(profile), 1):
        moved = max(kernel.bytes_read + kernel.bytes_written, 1)
        x, y = _x(kernel.operations / moved), _y(kernel.operations / max(kernel.least, 1e-12), top)
        yield f"<g><title>{number}: {escape(kernel.name)}, bound by {kernel.bound}</title>"
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/><text x="{x + 5:.1f}" y="{y + 4:.1f}">{number}</text></g>'
    yield "</svg>"


def _x(intensity: float) -> float:
    share = log10(min(max(intensity, _LOW), _HIGH) / _LOW) / log10(_HIGH / _LOW)
    return _LEFT + _WIDTH * share


def _y(rate: float, top: float) -> float:
    share = log10(max(rate, top * 1e-5) / top) / 5 + 1
    return _TOP + _HEIGHT * (1 - min(share, 1.0))
