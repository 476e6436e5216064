"""The packages and what each may import: `packages.tsv`, read by a test and by whatever draws it.

python -m fuse_opt.tools.develop.packages [--check]     # writes first lines and imports of packages into their `__init__.py`
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from fuse_opt.tools.develop.generated import Files, Generator, read

_TABLE = Path(__file__).with_name("packages.tsv")
_DOCSTRING = re.compile(r'\A""".*?"""\n', re.DOTALL)
WIDTH = 120


@dataclass(frozen=True)
class Package:
    """A package of the tree, by the path of its folder."""

    path: str
    holds: str
    """A sentence."""
    may_import: tuple[str, ...]
    """Paths of packages; `a/*` is all below `a`, and a package may always import itself."""

    def allows(self, other: str) -> bool:
        return other == self.path or any(
            other.startswith(rule[:-1]) if rule.endswith("/*") else other == rule for rule in self.may_import
        )

    @property
    def docstring(self) -> str:
        """What its `__init__.py` begins with."""
        allowed = ", ".join(rule for rule in self.may_import) or "no other package of ours"
        lines = _wrapped(f"May import {allowed}.")
        return f'"""{self.holds}\n\n{lines}\n"""\n'


def packages() -> dict[str, Package]:
    """By path, in the order of the table: what stands above knows nothing of what stands below."""
    rows = [line.split("\t") for line in _TABLE.read_text(encoding="utf-8").splitlines()[1:]]
    return {path: Package(path, holds, tuple(allowed.split())) for path, holds, allowed in rows}


def _wrapped(text: str) -> str:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + 1 + len(word) > WIDTH:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".lstrip()
    return "\n".join(lines)


def files() -> Files:
    """The `__init__.py` of each package, its docstring as the table has it."""
    found: dict[str, str] = {}
    for package in packages().values():
        if package.path != "fuse_opt":
            text = read(f"{package.path}/__init__.py")
            body = _DOCSTRING.sub("", text).lstrip()
            correct = text.startswith(package.docstring)
            found[f"{package.path}/__init__.py"] = (
                text if correct else package.docstring + ("\n" + body if body else "")
            )
    return found


GENERATOR = Generator("packages", files)

if __name__ == "__main__":
    sys.exit(GENERATOR.main())
