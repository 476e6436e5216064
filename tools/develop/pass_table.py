"""The table of passes in README.md, from the registry: `python -m fuse_opt.tools.develop.pass_table [--check]`."""

from __future__ import annotations

import sys

from fuse_opt.tools.compiler.registry import available_passes, pass_summary
from fuse_opt.tools.develop.generated import Files, Generator, read, section

PAGE = "README.md"


def pass_table() -> str:
    """A row for each registered pass: its flag and what it does."""
    rows = [f"| `--{name}` | {pass_summary(name)} |" for name in sorted(available_passes())]
    return "\n".join(["| flag | what it does |", "|---|---|", *rows])


def files() -> Files:
    """README.md with the table."""
    return {PAGE: section(read(PAGE), "passes", GENERATOR.command, pass_table())}


GENERATOR = Generator("pass_table", files)

if __name__ == "__main__":
    sys.exit(GENERATOR.main())
