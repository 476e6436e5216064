"""What the HTML page says of ops and values, as plain text, and how any text gets into HTML."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from xdsl.dialects.builtin import ShapedType
from xdsl.ir import Operation, SSAValue

from fuse_opt.dialects.analysis.storage import byte_size
from fuse_opt.dialects.fused import OutlinedOp, PartitionOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.properties import ints
from fuse_opt.dialects.types.extents import is_number
from fuse_opt.tools.source.diagnostics import format_position, source_position
from fuse_opt.tools.targets.target_json import describe_attribute

Names = Mapping[SSAValue, str]

_LONGEST_CELL = 2000
_NUMBER = re.compile(r"[-\d][\d.,]*(?:e[-+]?\d+)?%?", re.ASCII)
_LONGEST_ENTRY = 400
"""Characters of one attribute."""


def escaped(text: str) -> str:
    """The text for HTML, in an element as in a quoted attribute; characters that do not print are spelled out."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c == "\n" else _spelled(c) for c in text)
    return html.escape(text)


def scrolled(label: str, lines: Iterable[str]) -> Iterator[str]:
    """HTML that scrolls by itself where the window is narrower."""
    yield f'<div class="wide" role="region" aria-label="{escaped(label)}" tabindex="0">'
    yield from lines
    yield "</div>"


def table_lines(
    heads: Sequence[str], rows: Iterable[Sequence[str]], links: Mapping[int, str] | None = None
) -> Iterator[str]:
    """
    A table, numbers to the right; the first cell of a row is what it is about, and leads to the id that `links` has for the
    row's number.
    """
    named = "".join(f'<th scope="col">{escaped(head)}</th>' for head in heads)
    yield f"<table><thead><tr>{named}</tr></thead><tbody>"
    for number, (first, *others) in enumerate(rows):
        link = (links or {}).get(number)
        name = escaped(first) if link is None else f'<a href="#{link}">{escaped(first)}</a>'
        yield f'<tr><th scope="row">{name}</th>{"".join(map(_cell, others))}</tr>'
    yield "</tbody></table>"


def _cell(text: str) -> str:
    kind = ' class="number"' if _NUMBER.fullmatch(text) else ""
    return f"<td{kind}>{escaped(shortened(text, _LONGEST_CELL))}</td>"


def shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def short_type(value: SSAValue) -> str:
    """`4x8xf32` for a tensor of that type."""
    type_, text = value.type, str(value.type)
    return text.partition("<")[2].removesuffix(">") if isinstance(type_, ShapedType) else text


def short_name(op: Operation) -> str:
    return op.name.removeprefix("graph.")


def typed(value: SSAValue, names: Names) -> str:
    return f"{names.get(value, '?')}: {value.type}"


def is_library_call(op: Operation) -> bool:
    """Whether an implementation runs it as a whole."""
    if isinstance(op, OutlinedOp):
        return op.schedule_kind() == "library" or op.implementation is not None or any(map(is_library_call, op.ops()))
    return isinstance(op, OpaqueOp)


def describe_op(op: Operation, names: Names) -> str:
    """All that is known of an op, in lines: itself, types, properties and attributes, where it comes from, its ops."""
    return "\n".join(_lines(op, names))


def op_line(op: Operation, names: Names) -> str:
    """`%r = graph.add %a, %b`."""
    results = ", ".join(names.get(value, "?") for value in op.results)
    operands = ", ".join(names.get(value, "?") for value in op.operands)
    call = f"{op.name} {operands}".rstrip()
    return f"{results} = {call}" if results else call


def entries(op: Operation) -> Iterator[str]:
    """`name = value` of each property and attribute."""
    for key, value in {**op.properties, **op.attributes}.items():
        text = json.dumps(describe_attribute(value), ensure_ascii=False)
        yield f"{key} = {shortened(text, _LONGEST_ENTRY)}"


def schedule_text(kernel: OutlinedOp) -> str:
    """How a kernel runs, and with which others."""
    segment = "" if kernel.segment is None else f", segment {kernel.segment.value.data}"
    return f"{kernel.schedule_kind() or 'kernel'}{segment}"


def inplace_lines(kernel: OutlinedOp, names: Names) -> list[str]:
    """`%r ← %a` for each result that takes over an operand's memory."""
    return [
        f"{names.get(kernel.results[result], '?')} ← {names.get(kernel.operands[operand], '?')}"
        for result, operand in kernel.inplace_pairs()
    ]


def slot_lines(kernel: OutlinedOp, names: Names) -> list[str]:
    """The slot of each result, of the workspace, and of values inside, where slots are decided."""
    pairs = zip(kernel.results, ints(kernel.slots), strict=False)
    found = [f"{names.get(value, '?')} {f'at {slot:,}' if slot >= 0 else 'outside'}" for value, slot in pairs]
    place = kernel.workspace_offset()
    found += [] if place is None else [f"workspace at {place:,}"]
    if isinstance(kernel, PartitionOp) and kernel.inner_slots is not None:
        found += [f"inside at {offset:,}" for offset in ints(kernel.inner_slots)]
    return found


def total_bytes(values: Iterable[SSAValue]) -> int | None:
    """Bytes of the values, each counted once; None where an extent or a type is not known."""
    sizes = [byte_size(value) for value in dict.fromkeys(values)]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def bytes_text(count: int | None) -> str:
    if count is None:
        return "?"
    return f"{count:,}" if is_number(count) else str(count)


def _lines(op: Operation, names: Names) -> Iterator[str]:
    yield op_line(op, names)
    for title, values in (("operands", op.operands), ("results", op.results)):
        if values:
            yield f"{title}:"
            yield from (f"  {typed(value, names)}" for value in dict.fromkeys(values))
    if isinstance(op, OutlinedOp):
        yield "in the body:"
        yield from (
            f"  {names.get(i, '?')} is {names.get(o, '?')}" for i, o in zip(op.block.args, op.operands, strict=True)
        )
    yield from entries(op)
    if isinstance(op, OutlinedOp):
        yield from (f"in place: {line}" for line in inplace_lines(op, names))
        yield from (f"slot: {line}" for line in slot_lines(op, names))
    if (position := source_position(op)) is not None:
        yield f"at {format_position(*position)}"
    inner = [nested for region in op.regions for block in region.blocks for nested in block.ops]
    if inner:
        yield "body:"
        yield from (f"  {op_line(nested, names)}" for nested in inner)


def _spelled(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()
