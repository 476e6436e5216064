"""The pictures of docs/: boxes apart from each other, text inside of them, and files that any reader of XML takes."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fuse_opt.tools.develop.architecture import Band, Box, import_order, layout
from fuse_opt.tools.develop.packages import Package, packages
from fuse_opt.tools.develop.svg import name_width, text_width, wrapped

DOCS = Path(__file__).resolve().parents[3] / "docs"
BANDS = layout()
SVG = "{http://www.w3.org/2000/svg}"


def overlap(one: Box | Band, other: Box | Band) -> bool:
    left, right = getattr(one, "x", 0.0), getattr(other, "x", 0.0)
    beside = left + one.width <= right or right + other.width <= left
    return not (beside or one.y + one.height <= other.y or other.y + other.height <= one.y)


def test_every_package_has_a_box_once() -> None:
    assert sorted(box.package.path for band in BANDS for box in band.boxes) == sorted(packages())


def test_boxes_and_bands_are_apart() -> None:
    boxes = [box for band in BANDS for box in band.boxes]
    assert not [(a.name, b.name) for a, b in combinations(boxes, 2) if overlap(a, b)]
    assert not [(a.folder, b.folder) for a, b in combinations(BANDS, 2) if overlap(a, b)]
    for band in BANDS:
        for box in band.boxes:
            assert (
                band.y + 20 < box.y
                and box.y + box.height < band.y + band.height
                and box.x + box.width < band.width + 12
            )


@pytest.mark.parametrize("box", [box for band in BANDS for box in band.boxes], ids=lambda box: box.package.path)
def test_text_fits_its_box(box: Box) -> None:
    assert name_width(box.name) <= box.width - 12
    assert all(text_width(line) <= box.width - 12 for line in box.lines)
    assert 20 + 13 * len(box.lines) < box.height, "shorten its sentence in tools/develop/packages.tsv"


def test_packages_import_what_comes_after_them() -> None:
    for band in BANDS:
        listed = [box.package for box in band.boxes]
        for number, package in enumerate(listed):
            assert not [other.path for other in listed[:number] if package.allows(other.path)], package.path


def test_packages_in_a_circle_are_refused() -> None:
    with pytest.raises(ValueError, match="may import each other: a, b"):
        import_order([Package("a", "One.", ("b",)), Package("b", "Two.", ("a",))])


def test_lines_are_no_wider_than_asked() -> None:
    lines = wrapped("a few words that need several lines", 60)
    assert " ".join(lines) == "a few words that need several lines" and len(lines) > 2
    assert all(text_width(line) <= 60 for line in lines)


@pytest.mark.parametrize("name", ["architecture.svg", "arena.svg"])
def test_pictures_are_well_formed(name: str) -> None:
    root = ElementTree.parse(DOCS / name).getroot()
    assert root.tag == f"{SVG}svg" and root.get("aria-label")
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    for text in root.iter(f"{SVG}text"):
        assert 0 <= float(text.get("x", "-1")) < width and 0 < float(text.get("y", "0")) <= height, text.text
    style = root.find(f"{SVG}style")
    assert style is not None and "prefers-color-scheme: dark" in (style.text or "")
