"""The graph of a function as SVG: a box for each argument and op; a kernel is a box with the graph of its ops inside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue

from fuse_opt.dialects.analysis.storage import argument_attributes
from fuse_opt.dialects.fused import OutlinedOp
from fuse_opt.dialects.graph.creation.constant import ConstantOp
from fuse_opt.dialects.interfaces.shapes import is_static
from fuse_opt.tools.targets.html.graph_drawing import Arrangement, arrange
from fuse_opt.tools.targets.html.text import (
    Names,
    describe_op,
    escaped,
    is_library_call,
    op_line,
    schedule_text,
    short_name,
    short_type,
    shortened,
    typed,
)
from fuse_opt.tools.targets.target_json import describe_attribute

_LONGEST_LABEL = 30
_LETTER = 6.7
"""Width of a letter of the 11 px monospaced font, with a little more for wider ones."""
_LINE = 15.0
_MARGIN = 12.0


@dataclass(slots=True)
class Shape:
    """A box to be drawn: its first line of text is set in bold."""

    id: str
    kinds: str
    lines: list[str]
    title: str
    details: str
    inside: Graph | None = None

    @property
    def head(self) -> float:
        """Height of the text."""
        return _LINE * len(self.lines)

    @property
    def size(self) -> tuple[float, float]:
        width, height = max(len(line) for line in self.lines) * _LETTER + _MARGIN, self.head + _MARGIN / 2
        if self.inside is not None and self.inside.shapes:
            inner = self.inside.arrangement
            return max(width, inner.width + 2 * _MARGIN), height + inner.height + _MARGIN
        return width, height


class Graph:
    """The boxes of some blocks, the values that run between them, and where everything lies."""

    def __init__(self, names: Names, ids: Iterator[int]) -> None:
        self.shapes: list[Shape] = []
        self.shape_of: dict[Operation, str] = {}
        """By op: the id of its box."""
        self._names = names
        self._ids = ids
        self._box: dict[SSAValue, int] = {}
        self._values: dict[tuple[int, int], dict[SSAValue, None]] = {}

    def add_arguments(self, block: Block, donated: Sequence[bool] = ()) -> None:
        for value in block.args:
            gone = value.index < len(donated) and donated[value.index]
            lines = [self._names.get(value, "?"), short_type(value)]
            title = f"argument {typed(value, self._names)}{', donated' if gone else ''}"
            self._box[value] = self._add("argument", [*lines, *(["donated"] if gone else [])], title, title)

    def add_ops(self, ops: Sequence[Operation]) -> None:
        boxes: list[tuple[int, Operation]] = []
        for op in ops:
            inside = self._kernel_body(op) if isinstance(op, OutlinedOp) and len(op.ops()) > 1 else None
            labels = _kernel_labels(op, self._names) if isinstance(op, OutlinedOp) else _labels(op)
            title, details = op_line(op, self._names), describe_op(op, self._names)
            number = self._add(_kinds(op), labels, title, details, inside)
            self.shape_of[op] = self.shapes[number].id
            self._box.update(dict.fromkeys(op.results, number))
            boxes.append((number, op))
        for number, op in boxes:
            outer = op.operands if isinstance(op, OutlinedOp) else [o for nested in op.walk() for o in nested.operands]
            for value in outer:
                if value in self._box and self._box[value] != number:
                    self._values.setdefault((self._box[value], number), {})[value] = None

    def arrange(self, gap: tuple[float, float]) -> None:
        self.arrangement: Arrangement = arrange([shape.size for shape in self.shapes], list(self._values), gap)

    def lines(self, indent: str = "") -> Iterator[str]:
        """SVG: the edges, then the boxes."""
        for ends, path in zip(self._values.items(), self.arrangement.paths, strict=True):
            (a, b), values = ends
            title = "\n".join(typed(value, self._names) for value in values)
            ids = f"{self.shapes[a].id} {self.shapes[b].id}"
            yield f'{indent}<path class="edge" data-ends="{ids}" d="{path}"><title>{escaped(title)}</title></path>'
        for shape, (x, y) in zip(self.shapes, self.arrangement.places, strict=True):
            yield from _shape_lines(shape, x, y, indent)

    def _kernel_body(self, kernel: OutlinedOp) -> Graph:
        body = Graph(self._names, self._ids)
        body.add_ops([op for op in kernel.block.ops if op is not kernel.block.last_op])
        body.arrange((10.0, 18.0))
        return body

    def _add(self, kinds: str, lines: list[str], title: str, details: str, inside: Graph | None = None) -> int:
        shown = [shortened(line, _LONGEST_LABEL) for line in lines]
        self.shapes.append(Shape(f"n{next(self._ids)}", kinds, shown, title, details, inside))
        return len(self.shapes) - 1


def function_graph(function: FuncOp, names: Names, ids: Iterator[int] | None = None) -> Graph:
    """The arranged graph of a function; ids of its boxes are `n1`, `n2` ... by `ids`."""
    graph = Graph(names, count(1) if ids is None else ids)
    for block in function.body.blocks:
        entry = block is function.body.blocks.first
        donated = ["graph.donated" in argument_attributes(function, k) for k in range(len(block.args))] if entry else []
        graph.add_arguments(block, donated)
    graph.add_ops([op for block in function.body.blocks for op in block.ops])
    graph.arrange((24.0, 36.0))
    return graph


def graph_lines(graph: Graph, name: str) -> Iterator[str]:
    """The SVG element; the page defines its arrow heads."""
    width, height = graph.arrangement.width + 2 * _MARGIN, graph.arrangement.height + 2 * _MARGIN
    label = escaped(f"Graph of {name}")
    yield (
        f'<svg class="graph" role="group" aria-label="{label}" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="{-_MARGIN:.0f} {-_MARGIN:.0f} {width:.0f} {height:.0f}">'
    )
    yield from graph.lines()
    yield "</svg>"


def _shape_lines(shape: Shape, x: float, y: float, indent: str) -> Iterator[str]:
    width, height = shape.size
    role = "group" if shape.inside is not None else "img"
    yield (
        f'{indent}<g class="box {shape.kinds}" id="{shape.id}" tabindex="0" role="{role}" '
        f'aria-label="{escaped(shape.title)}" transform="translate({x:.1f} {y:.1f})">'
    )
    yield f"{indent}<title>{escaped(shape.title)}</title><desc>{escaped(shape.details)}</desc>"
    corner = min(height / 2, 12.0) if shape.kinds == "argument" else 4.0
    yield f'{indent}<rect width="{width:.1f}" height="{height:.1f}" rx="{corner:.1f}"/>'
    for number, line in enumerate(shape.lines):
        style = ' class="name"' if number == 0 else ""
        down = _LINE * (number + 1)
        yield f'{indent}<text{style} x="{width / 2:.1f}" y="{down:.1f}">{escaped(line)}</text>'
    if shape.inside is not None and shape.inside.shapes:
        left = (width - shape.inside.arrangement.width) / 2
        yield f'{indent}<g transform="translate({left:.1f} {shape.head + _MARGIN / 2:.1f})">'
        yield from shape.inside.lines(f"{indent} ")
        yield f"{indent}</g>"
    yield f"{indent}</g>"


def _kinds(op: Operation) -> str:
    kind = "kernel" if isinstance(op, OutlinedOp) else "constant" if isinstance(op, ConstantOp) else "op"
    return f"{kind} library" if is_library_call(op) else kind


def _labels(op: Operation) -> list[str]:
    """What is written in a box: what it is, and the types of its results."""
    if isinstance(op, ConstantOp) and all(map(is_static, op.results)):
        return [_constant(op)]
    inside = isinstance(op.parent_op(), OutlinedOp)
    library = ["library"] if is_library_call(op) and not inside else []
    return ["return" if op.name == "func.return" else short_name(op), *library, *_types(op)]


def _kernel_labels(kernel: OutlinedOp, names: Names) -> list[str]:
    """Its results, the op when it is the only one, how it runs, and the types of the results."""
    results = ", ".join(names.get(value, "?") for value in kernel.results)
    ops = kernel.ops()
    first = f"{results} = {short_name(ops[0])}" if len(ops) == 1 else results
    return [first, schedule_text(kernel), *_types(kernel)]


def _types(op: Operation) -> list[str]:
    return list(dict.fromkeys(short_type(value) for value in op.results))


def _constant(op: ConstantOp) -> str:
    described = describe_attribute(op.value)
    if isinstance(described, dict) and "splat" in described:
        value = described["splat"]
        return f"{value:.6g}" if isinstance(value, float) else str(value)
    return f"constant {short_type(op.results[0])}"
