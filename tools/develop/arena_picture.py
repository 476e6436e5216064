"""The picture of an arena over time, as the page of `-t html` draws it: docs/arena.svg.

python -m fuse_opt.tools.develop.arena_picture [--check]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from xdsl.dialects.func import FuncOp

from fuse_opt.tools.compiler.api import optimize
from fuse_opt.tools.develop.generated import ROOT, Files, Generator
from fuse_opt.tools.develop.svg import drawing, text_line, wrapped
from fuse_opt.tools.source.value_names import value_names
from fuse_opt.tools.targets.html.arena import arena_lines, arena_text, planned_arena

PAGE = "docs/arena.svg"
EXAMPLE = "examples/transformer_block.mlir"
_LINE = 15.0


def files() -> Files:
    """The picture, after the default pipeline."""
    module = optimize(ROOT / EXAMPLE)
    function = next(op for op in module.ops if isinstance(op, FuncOp))
    arena = planned_arena(function)
    assert arena is not None
    chart = list(arena_lines(arena, value_names(module), f"@{function.sym_name.data}"))
    size = re.search(r'width="(\d+)" height="(\d+)"', chart[0])
    assert size is not None
    width, height = map(float, size.groups())
    caption = wrapped(arena_text(arena), width - 24)

    def lines() -> Iterator[str]:
        yield from chart
        for number, part in enumerate(caption):
            yield text_line(12, height + 12 + _LINE * number, part, "dim")

    return {PAGE: drawing(width, height + 8 + _LINE * len(caption), f"The arena of {EXAMPLE} over time", lines())}


GENERATOR = Generator("arena_picture", files)

if __name__ == "__main__":
    sys.exit(GENERATOR.main())
