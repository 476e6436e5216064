"""Modules as pages of HTML, which a notebook shows in a frame of their own."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from io import StringIO
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from fuse_opt.tools.compiler.registry import available_targets, make_context

_HEIGHT = 640
_MOST_SHOWN = 8 << 20
"""Characters of a page that a notebook keeps for each cell; larger ones are for files."""


@dataclass(frozen=True)
class Page:
    """The graph with its kernels, the arena over time and a table of kernels; the last line of a cell shows it."""

    html: str = field(repr=False)

    def _repr_html_(self) -> str:
        """
        A frame that holds the page: its styles, names and scripts stay apart from those of the notebook, and may not reach
        them.
        """
        if len(self.html) > _MOST_SHOWN:
            return f"<p>The page has {len(self.html) >> 20} MiB: <code>.save(path)</code> writes it for a browser.</p>"
        style = f"width: 100%; height: {_HEIGHT}px; border: 0"
        return (
            f'<iframe title="fuse-opt" sandbox="allow-scripts" style="{style}" srcdoc="{escape(self.html)}"></iframe>'
        )

    def save(self, path: str | Path) -> Path:
        """Writes the page, which opens offline in a browser; returns where it is. Raises OSError."""
        path = Path(path)
        path.write_text(self.html, encoding="utf-8")
        return path


def page_of(module: ModuleOp) -> Page:
    """What `-t html` prints."""
    output = StringIO()
    available_targets()["html"]()().emit(make_context(), module, output)
    return Page(output.getvalue())


def notebook_html(module: ModuleOp) -> str:
    """What `_repr_html_` of an object that holds a module returns."""
    return page_of(module)._repr_html_()  # pyright: ignore[reportPrivateUsage]
