"""Files of the tree that programs write: written anew, or compared with what they should be.

A generator is a module of this package that states GENERATOR. `python -m fuse_opt.tools.develop` runs all of them; each is a
command of its own, too. With `--check` nothing is written.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
Files = Mapping[str, str]
"""By path from the root: the text."""


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Generator:
    """A module of this package that writes files."""

    name: str
    files: Callable[[], Files]
    folders: tuple[str, ...] = ()
    """In which every file is one of these."""

    @property
    def command(self) -> str:
        return f"python -m {__package__}.{self.name}"

    def problem(self) -> str:
        """What is not up to date and the command that mends it; empty where all is."""
        paths = _stale(self.files(), self.folders)
        return f"not up to date: {', '.join(paths)}; run: {self.command}" if paths else ""

    def write(self) -> None:
        """Writes what is not up to date, and prints its paths."""
        files = self.files()
        for path in _stale(files, self.folders):
            if path in files:
                (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
                (ROOT / path).write_text(files[path], encoding="utf-8")
            else:
                (ROOT / path).unlink()
            print(path)

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """The generator as a command: its exit status."""
        return run([self], self.command, arguments)


def generators() -> list[Generator]:
    """Those of this package, by name: what a module calls GENERATOR."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    names = [path.stem for path in sources if "\nGENERATOR = " in path.read_text(encoding="utf-8")]
    return [import_module(f"{__package__}.{name}").GENERATOR for name in names]


def run(chosen: Sequence[Generator], command: str, arguments: Sequence[str] | None = None) -> int:
    """Writes what they make; with `--check` nothing: then the status is 1 where something is not up to date."""
    parser = argparse.ArgumentParser(prog=command, description="Writes generated files; prints which have changed.")
    parser.add_argument("--check", action="store_true", help="write nothing; say what is not up to date, with status 1")
    if not parser.parse_args(arguments).check:
        for generator in chosen:
            generator.write()
        return 0
    problems = [found for generator in chosen if (found := generator.problem())]
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


def section(page: str, name: str, command: str, text: str) -> str:
    """The page with what is between its marks `<!-- NAME: ... -->` and `<!-- /NAME -->` replaced. Raises ValueError."""
    head, begin, rest = page.partition(f"<!-- {name}: ")
    _, end, tail = rest.partition(f"<!-- /{name} -->")
    if not begin or not end:
        raise ValueError(f"expected the marks '<!-- {name}: {command} -->' and '<!-- /{name} -->', each on its line")
    return f"{head}<!-- {name}: {command} -->\n{text.strip()}\n<!-- /{name} -->{tail}"


def _stale(files: Files, folders: Sequence[str]) -> list[str]:
    """What is missing, differs, or lies in one of the folders without being generated; sorted."""
    found = [path for path, text in files.items() if not (ROOT / path).is_file() or read(path) != text]
    there = [path.relative_to(ROOT).as_posix() for folder in folders for path in (ROOT / folder).glob("*")]
    return sorted([*found, *(path for path in there if path not in files)])
