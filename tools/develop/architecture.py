"""The picture of the packages, from packages.tsv: docs/architecture.svg.

python -m fuse_opt.tools.develop.architecture [--check]

A band for each root folder, what knows least at the bottom; in a band, a package may import those that come after it. Lines
at the right go from a folder to the folders that it imports.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from fuse_opt.tools.develop.generated import Files, Generator
from fuse_opt.tools.develop.packages import Package, packages
from fuse_opt.tools.develop.svg import NAME_SIZE, drawing, rectangle, text_line, wrapped

PAGE = "docs/architecture.svg"
_WIDTH, _HEIGHT, _GAP = 224.0, 62.0, 10.0
"""Of boxes."""
_COLUMNS = 4
_MARGIN, _TITLE, _LANE = 12.0, 28.0, 18.0
_LINE = 13.0


@dataclass(frozen=True, slots=True)
class Box:
    """A package: a rectangle with its name, and lines of text below."""

    package: Package
    name: str
    x: float
    y: float
    lines: tuple[str, ...]
    width: float = _WIDTH
    height: float = _HEIGHT


@dataclass(frozen=True, slots=True)
class Band:
    """A root folder with the boxes of its packages."""

    folder: str
    y: float
    height: float
    boxes: tuple[Box, ...]
    imports: tuple[str, ...]
    """The other folders that its packages may import."""

    @property
    def width(self) -> float:
        return _COLUMNS * (_WIDTH + _GAP) + _GAP


def files() -> Files:
    """The picture."""
    bands = layout()
    width = 2 * _MARGIN + bands[0].width + _LANE * (len(bands) + 1)
    height = max(band.y + band.height for band in bands) + _MARGIN
    return {PAGE: drawing(width, height, "The packages of fuse-opt, and who imports whom", _lines(bands))}


def layout() -> list[Band]:
    """The bands from the top of the picture to its bottom."""
    table = list(packages().values())
    folders = list(dict.fromkeys(_folder(package.path) for package in table))
    bands: list[Band] = []
    y = _MARGIN
    for folder in reversed(folders):
        rows = _rows([package for package in table if _folder(package.path) == folder])
        boxes = tuple(_placed(rows, y + _TITLE))
        height = _TITLE + len(rows) * (_HEIGHT + _GAP)
        bands.append(Band(folder, y, height, boxes, _imported(folder, table)))
        y += height + _MARGIN
    return bands


def import_order(given: Sequence[Package]) -> list[Package]:
    """The packages so that each may import those that come after it, and no other of these; else as the table has them.

    Raises ValueError where packages may import each other.
    """
    found: list[Package] = []
    waiting = list(given)
    while waiting:
        ready = (p for p in waiting if not any(p is not other and p.allows(other.path) for other in waiting))
        if (package := next(ready, None)) is None:
            raise ValueError(f"packages may import each other: {', '.join(package.path for package in waiting)}")
        waiting.remove(package)
        found.insert(0, package)
    return found


def _rows(given: Sequence[Package]) -> list[list[Package]]:
    ordered = import_order(given)
    return [ordered[start : start + _COLUMNS] for start in range(0, len(ordered), _COLUMNS)]


def _placed(rows: Sequence[Sequence[Package]], top: float) -> Iterator[Box]:
    for number, row in enumerate(rows):
        for column, package in enumerate(row):
            name = package.path.partition("/")[2] or package.path
            x = _MARGIN + _GAP + column * (_WIDTH + _GAP)
            lines = tuple(wrapped(package.holds.replace("`", ""), _WIDTH - 12))
            yield Box(package, name, x, top + number * (_HEIGHT + _GAP), lines)


def _imported(folder: str, table: Sequence[Package]) -> tuple[str, ...]:
    own = [package for package in table if _folder(package.path) == folder]
    others = [p for p in table if _folder(p.path) != folder and any(package.allows(p.path) for package in own)]
    return tuple(dict.fromkeys(_folder(package.path) for package in others))


def _folder(path: str) -> str:
    return path.partition("/")[0]


def _lines(bands: Sequence[Band]) -> Iterator[str]:
    for band in bands:
        yield rectangle(_MARGIN, band.y, band.width, band.height, "band", 6)
        yield text_line(_MARGIN + _GAP, band.y + 18, f"{band.folder}/", "name")
        if band.imports:
            x = _MARGIN + _GAP + 110
            yield text_line(x, band.y + 18, f"imports {', '.join(band.imports)}", "dim")
        for box in band.boxes:
            yield from _box(box)
    for lane, band in enumerate(bands):
        yield from _lane(lane, band, bands)


def _box(box: Box) -> Iterator[str]:
    allowed = ", ".join(box.package.may_import) or "no other package"
    yield f"<g><title>{escape(f'{box.package.path}: {box.package.holds} May import {allowed}.')}</title>"
    yield rectangle(box.x, box.y, box.width, box.height, "box", 4)
    yield text_line(box.x + 6, box.y + NAME_SIZE + 4, box.name, "name")
    for number, line in enumerate(box.lines):
        yield text_line(box.x + 6, box.y + NAME_SIZE + 4 + _LINE * (number + 1), line)
    yield "</g>"


def _lane(number: int, source: Band, bands: Sequence[Band]) -> Iterator[str]:
    """The line of what a folder imports: down (or up) a lane of its own, with an arrow into each band."""
    edge = _MARGIN + source.width
    x = edge + _LANE * (number + 1)
    start = source.y + source.height / 2
    targets = [band for band in bands if band.folder in source.imports]
    for target in targets:
        end = target.y + 8 + 6 * number
        yield f'<path class="arrow" d="M{edge:g} {start:g}H{x:g}V{end:g}H{edge + 6:g}"/>'
        yield f'<path class="head" d="M{edge + 1:g} {end:g}l7 -3.5v7z"/>'


GENERATOR = Generator("architecture", files)

if __name__ == "__main__":
    sys.exit(GENERATOR.main())
