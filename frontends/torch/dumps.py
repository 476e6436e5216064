"""What became of a graph, as files to read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def dump(directory: Path, kind: str, texts: Mapping[str, object]) -> None:
    """Writes texts, by the ends of their files' names; which begin with the number of the graph in the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    number = len(list(directory.glob("*_report.txt")))
    for suffix, text in texts.items():
        # not by a format: xDSL's is another text than that of the module
        (directory / f"{number:03}_{kind}{suffix}").write_text(str(text) + "\n", encoding="utf-8")
