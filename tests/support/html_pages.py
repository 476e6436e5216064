"""Reads pages of HTML as a browser would have to: tags that match, scripts that are whole, nothing from anywhere else."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = ("meta", "link")
SHAPES = ("path", "rect", "circle", "polyline")
_OPENING = {")": "(", "]": "[", "}": "{"}
_TOKEN = re.compile(
    r"""(?P<skip>//[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*")|(?P<bad>['"]|/\*)|(?P<mark>[`(){}\[\]]|\$\{)""",
    re.DOTALL,
)


class Reader(HTMLParser):
    """Reads a page and refuses tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        """By tag: the texts right inside of it."""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        assert len(attrs) == len(dict(attrs))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in SHAPES
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)

    def values(self, attribute: str) -> list[str]:
        return [value for _, attributes in self.tags if (value := attributes.get(attribute)) is not None]

    def boxes(self, kind: str) -> list[str]:
        return [value for value in self.values("class") if value.split()[0] == "box" and kind in value.split()]


def read(text: str) -> Reader:
    """The page, checked: ids are unique, links lead somewhere, nothing is fetched, pictures have a text, scripts are whole."""
    found = Reader(text)
    ids = found.values("id")
    assert len(ids) == len(set(ids))
    assert {end for ends in found.values("data-ends") for end in ends.split()} <= set(ids)
    assert {link[1:] for link in found.values("href") if link != "data:,"} <= set(ids)
    assert found.values("src") == [] and not re.search(r"@import|https?:|url\((?!#arrow\))", text)
    assert [tag for tag, _ in found.tags].count("script") == 1
    assert script_problem("".join(found.texts["script"])) is None
    assert not [name for _, attributes in found.tags for name in attributes if name.startswith("on")]
    assert "nan" not in "".join(found.values("d") + found.values("transform"))
    for tag, attributes in found.tags:
        assert tag != "svg" or "aria-hidden" in attributes or attributes.get("aria-label") or attributes.get("role")
    return found


def script_problem(text: str) -> str | None:
    """What is not closed in a script without regular expressions: a string, a comment, a bracket; None where all is."""
    open_: list[str] = []
    place = 0
    while place < len(text):
        if open_ and open_[-1] == "`":
            match = re.compile(r"(?:\\.|(?!\$\{)[^`\\])*(`|\$\{)", re.DOTALL).match(text, place)
            if match is None:
                return "a template is open"
            place = match.end()
            if match[1] == "`":
                open_.pop()
            else:
                open_.append("{")
            continue
        match = _TOKEN.search(text, place)
        if match is None:
            break
        place, mark = match.end(), match["mark"]
        if match["bad"]:
            return f"{match['bad']} is open at {match.start()}"
        if mark is None:
            continue
        if mark in _OPENING:
            if not open_ or open_.pop() != _OPENING[mark]:
                return f"{mark} closes nothing at {match.start()}"
        else:
            open_.append(mark[-1])
    return f"{open_[-1]} is open" if open_ else None
