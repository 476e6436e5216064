"""The table of passes as Markdown, from the registry: `python -m fuse_opt.tools.develop.pass_table`."""

from __future__ import annotations

from fuse_opt.tools.compiler.registry import available_passes, pass_summary


def pass_table() -> str:
    """A row for each registered pass: its flag and what it does."""
    rows = [f"| `--{name}` | {pass_summary(name)} |" for name in sorted(available_passes())]
    return "\n".join(["| flag | what it does |", "|---|---|", *rows])


if __name__ == "__main__":
    print(pass_table())
