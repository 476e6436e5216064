"""A page of HTML that opens offline: the graph with its kernels, the arena over time, a table of kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.traits import IsTerminator
from xdsl.utils.target import Target

from fuse_opt.dialects.fused import OutlinedOp
from fuse_opt.tools.source.value_names import value_names
from fuse_opt.tools.targets.html.arena import arena_lines, arena_text, planned_arena
from fuse_opt.tools.targets.html.graph import Graph, function_graph, graph_lines
from fuse_opt.tools.targets.html.text import (
    bytes_text,
    describe_op,
    escaped,
    inplace_lines,
    is_library_call,
    schedule_text,
    scrolled,
    short_name,
    short_type,
    slot_lines,
    table_lines,
    total_bytes,
)

_TEMPLATE = Path(__file__).with_name("page.html")
_TITLE, _BODY = "<!-- title -->", "<!-- body -->"
_MOST_DRAWN = 2000
"""Ops of a function that is drawn; larger ones have the table only."""
_COLUMNS = ("kernel", "results", "ops", "operands", "bytes read", "bytes written", "schedule", "in place", "slots")


@dataclass(frozen=True)
class Section:
    """A part of a page beside its functions: HTML without scripts, which needs nothing from anywhere else."""

    id: str
    title: str
    html: str

    def lines(self) -> Iterator[str]:
        """The part with its heading."""
        yield f'<section id="{self.id}">'
        yield f"<h2>{escaped(self.title)}</h2>"
        yield self.html
        yield "</section>"


@dataclass(frozen=True)
class HtmlTarget(Target):
    """One file without dependencies; decisions of passes are shown as far as they were made."""

    name = "html"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        write_page(module, output)


def write_page(module: ModuleOp, output: IO[str], title: str = "fuse-opt", sections: Sequence[Section] = ()) -> None:
    """A page about a module, with further sections behind its functions."""
    head, tail = _TEMPLATE.read_text(encoding="utf-8").split(_BODY)
    output.write(head.replace(_TITLE, escaped(title)))
    output.writelines(f"{line}\n" for line in _Page(module).lines(title, sections))
    output.write(f"{tail.strip()}\n")


class _Page:
    def __init__(self, module: ModuleOp) -> None:
        self._names = value_names(module)
        self._functions = [op for op in module.ops if isinstance(op, FuncOp)]
        self._others = [op for op in module.ops if not isinstance(op, FuncOp)]
        self._ids = count(1)

    def lines(self, title: str, sections: Sequence[Section]) -> Iterator[str]:
        yield f"<h1>{escaped(title)}</h1>"
        links = [(f"f{k}", f"@{function.sym_name.data}") for k, function in enumerate(self._functions)]
        links += [(section.id, section.title) for section in sections]
        if len(links) > 1:
            yield "<nav>"
            yield from (f'<a href="#{id_}">{escaped(name)}</a>' for id_, name in links)
            yield "</nav>"
        for number, function in enumerate(self._functions):
            yield f'<section id="f{number}">'
            yield from self._function(function)
            yield "</section>"
        for op in self._others:
            text = escaped(describe_op(op, self._names))
            yield f"<details><summary>{escaped(op.name)}</summary><pre>{text}</pre></details>"
        for section in sections:
            yield from section.lines()

    def _function(self, function: FuncOp) -> Iterator[str]:
        name = f"@{function.sym_name.data}"
        ops = [op for block in function.body.blocks for op in block.ops]
        yield f"<h2>{escaped(name)}</h2>"
        arena = planned_arena(function)
        yield f"<p>{escaped(_summary(function, ops))}{'' if arena is None else f'; {arena_text(arena)}'}.</p>"
        graph = None
        if len(ops) + sum(len(op.ops()) for op in ops if isinstance(op, OutlinedOp)) > _MOST_DRAWN:
            yield f"<p>The graph is not drawn: it has more than {_MOST_DRAWN:,} ops.</p>"
        elif ops:
            graph = function_graph(function, self._names, self._ids)
            yield "<h3>Graph</h3>"
            yield from _view(graph_lines(graph, name), f"Graph of {name}")
        if arena is not None and arena.storages:
            yield "<h3>Arena over time</h3>"
            yield from _view(arena_lines(arena, self._names, name), f"Arena of {name}")
        listed = [op for op in ops if not op.has_trait(IsTerminator)]
        if listed:
            yield from self._table(listed, graph)

    def _table(self, ops: list[Operation], graph: Graph | None) -> Iterator[str]:
        yield "<h3>Kernels</h3>"
        rows = ((str(number), *self._cells(op)) for number, op in enumerate(ops))
        links = {} if graph is None else {number: graph.shape_of[op] for number, op in enumerate(ops)}
        yield from scrolled("Kernels", table_lines(_COLUMNS, rows, links))

    def _cells(self, op: Operation) -> Iterator[str]:
        yield self._listed(op.results)
        yield _op_names(op)
        yield self._listed(dict.fromkeys(op.operands))
        yield bytes_text(total_bytes(op.operands))
        yield bytes_text(total_bytes(op.results))
        if not isinstance(op, OutlinedOp):
            yield from ("library" if is_library_call(op) else "no kernel", "", "")
            return
        yield schedule_text(op)
        yield "\n".join(inplace_lines(op, self._names))
        yield "\n".join(slot_lines(op, self._names))

    def _listed(self, values: Iterable[SSAValue]) -> str:
        return "\n".join(f"{self._names.get(value, '?')}: {short_type(value)}" for value in values)


def _view(lines: Iterator[str], label: str) -> Iterator[str]:
    yield f'<div class="view"><div class="scroll" role="region" aria-label="{escaped(label)}" tabindex="0">'
    yield from lines
    yield '</div><pre class="details" aria-live="polite">Choose a box to read about it.</pre></div>'


def _summary(function: FuncOp, ops: Sequence[Operation]) -> str:
    kernels = [op for op in ops if isinstance(op, OutlinedOp)]
    calls = sum(map(is_library_call, ops))
    inside = sum(len(op.ops()) for op in kernels)
    if not ops:
        return f"declared only: {function.function_type}"
    if not kernels:
        return f"{len(ops) - 1} ops, no kernels"
    read = _sum(total_bytes(op.operands) for op in kernels)
    written = _sum(total_bytes(op.results) for op in kernels)
    moved = f"{bytes_text(read)} bytes read, {bytes_text(written)} bytes written by kernels"
    return f"{len(kernels)} kernels of {inside} ops, {calls} library calls; {moved}"


def _op_names(op: Operation) -> str:
    """The names of a kernel's ops, in order of first appearance, with how often they appear."""
    inner = op.ops() if isinstance(op, OutlinedOp) else [op]
    times = Counter(short_name(nested) for nested in inner)
    return ", ".join(name if number == 1 else f"{name} ×{number}" for name, number in times.items())


def _sum(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(number for number in known if number is not None)
