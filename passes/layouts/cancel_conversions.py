"""Leave out conversions between layouts that undo each other, share equal ones, and move them to where they move fewer bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from fuse_opt.dialects.analysis.storage import byte_size, functions_of
from fuse_opt.dialects.fused import directives
from fuse_opt.dialects.graph.materialize import is_conversion, laid_out
from fuse_opt.dialects.interfaces.layouts import encoding, has_order
from fuse_opt.dialects.interfaces.shapes import is_static, shape, tensor
from fuse_opt.dialects.interfaces.structured_op import FusionKind, StructuredOp
from fuse_opt.dialects.types.encodings import EncodingPart, with_encoding
from fuse_opt.passes.remarks import remark
from fuse_opt.passes.rewrite_pass import RewritePass

Layout = EncodingPart | None


@dataclass(frozen=True)
class CancelConversionsPass(RewritePass):
    """Conversions that follow each other become one, inverse ones none, equal ones one; others pass by pointwise ops.

    ```mlir
    %1 = graph.to_layout %0 : (tensor<4x8xf32, #graph.order<1, 0>>) -> tensor<4x8xf32>
    %2 = graph.exp %1 : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %3 = graph.to_layout %2 : (tensor<4x8xf32>) -> tensor<4x8xf32, #graph.order<1, 0>>
    ```
    becomes
    ```mlir
    %3 = graph.exp %0 : (tensor<4x8xf32, #graph.order<1, 0>>) -> tensor<4x8xf32, #graph.order<1, 0>>
    ```
    A pointwise op runs before conversions of its operands, or behind one of its result, where fewer bytes are converted then.
    Ops with directives stay as they are, and so do those in kernels, where conversions cost nothing.
    """

    name = "cancel-conversions"

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        for function in functions_of(op):
            block = function.body.block
            if not any(is_conversion(inner) for inner in block.ops):
                continue
            while self._simplify(block) or self._sink(block) or self._hoist(block):
                pass

    def _simplify(self, block: Block) -> bool:
        """One sweep: of conversions of conversions the last, none that change nothing, equal ones once."""
        changed = False
        known: dict[tuple[SSAValue, Attribute], SSAValue] = {}
        for op in list(block.ops):
            if not is_conversion(op) or directives(op):
                continue
            source = _unconverted_at_all(op.operands[0])
            result = op.results[0]
            if source.type == result.type:
                self._replace(op, source, "undoes another conversion, or changes nothing")
                changed = True
            elif (equal := known.setdefault((source, result.type), result)) is not result:
                self._replace(op, equal, "is the same as another conversion")
                changed = True
            elif source is not op.operands[0]:
                op.operands[0] = source
                changed = True
        for op in reversed(list(block.ops)):
            if is_conversion(op) and not directives(op) and not op.results[0].uses:
                Rewriter.erase_op(op)
                changed = True
        return changed

    def _replace(self, op: Operation, value: SSAValue, why: str) -> None:
        remark(self.name, op, "cancelled", why, bytes=byte_size(op.results[0]) or 0)
        op.results[0].replace_all_uses_with(value)
        Rewriter.erase_op(op)

    def _sink(self, block: Block) -> bool:
        """Runs ops before the conversions of their operands."""
        changed = False
        for op in list(block.ops):
            if not (pointwise := _pointwise(op)):
                continue
            operands = _whole_operands(pointwise)
            sources = [_source(op.operands[number], op) for number in operands]
            layouts = {encoding(source) for source in sources if source is not None}
            if None in sources or len(layouts) != 1:
                continue
            (layout,) = layouts
            before = _bytes(op.operands[number] for number in operands)
            result = op.results[0]
            after = (
                0
                if result.uses and all(_converts_to(use.operation, layout) for use in result.uses)
                else _bytes([result])
            )
            if after < before:
                self._move(pointwise, dict(zip(operands, sources, strict=True)), layout, before - after)
                changed = True
        return changed

    def _hoist(self, block: Block) -> bool:
        """Runs ops behind conversions of their operands, in place of one of their result."""
        changed = False
        for op in reversed(list(block.ops)):
            if not (pointwise := _pointwise(op)) or len(uses := list(op.results[0].uses)) != 1:
                continue
            reader = uses[0].operation
            if not is_conversion(reader) or directives(reader):
                continue
            layout = encoding(reader.results[0])
            operands = _whole_operands(pointwise)
            given = {number: _unconverted(op.operands[number], layout) for number in operands}
            before = _bytes([reader.results[0]])
            after = _bytes(dict.fromkeys(op.operands[n] for n, source in given.items() if source is None))
            if after < before:
                self._move(pointwise, given, layout, before - after)
                changed = True
        return changed

    def _move(self, op: StructuredOp, sources: dict[int, SSAValue | None], layout: Layout, saved: int) -> None:
        """Lets an op work in a layout, on those operands or converted ones; what read it gets its result converted."""
        remark(
            self.name, op, "moved", "runs on the other side of conversions, of which fewer bytes are left", bytes=saved
        )
        assert op.parent is not None
        old = encoding(op.results[0])
        for number, source in sources.items():
            if source is None:
                conversion = laid_out(op.operands[number], layout)
                conversion.location = op.location
                op.parent.insert_op_before(conversion, op)
                source = conversion.results[0]
            op.operands[number] = source
        result = Rewriter.replace_value_with_new_type(op.results[0], with_encoding(tensor(op.results[0]), layout))
        conversion = laid_out(result, old)
        conversion.location = op.location
        uses = list(result.uses)
        op.parent.insert_op_after(conversion, op)
        for use in uses:
            if use.operation is not conversion:
                use.operation.operands[use.index] = conversion.results[0]


def _unconverted_at_all(value: SSAValue) -> SSAValue:
    """What a value was converted from in the first place."""
    while isinstance(owner := value.owner, Operation) and is_conversion(owner) and not directives(owner):
        value = owner.operands[0]
    return value


def _pointwise(op: Operation) -> StructuredOp | None:
    """The op where it is pointwise and free to move, and an order means something to its result."""
    if not isinstance(op, StructuredOp) or is_conversion(op) or directives(op) or not op.operands:
        return None
    if not all(map(is_static, (*op.operands, *op.results))) or not has_order(shape(op.results[0])):
        return None
    return op if op.fusion_kind() <= FusionKind.BROADCAST and _whole_operands(op) else None


def _whole_operands(op: StructuredOp) -> list[int]:
    """The operands that lie as the result does."""
    extents = shape(op.results[0])
    return [number for number, value in enumerate(op.operands) if shape(value) == extents]


def _source(value: SSAValue, reader: Operation) -> SSAValue | None:
    """What a value was converted from, for that op alone; None where it was not, or others read it, too."""
    owner = value.owner
    if not isinstance(owner, Operation) or not is_conversion(owner) or directives(owner):
        return None
    return owner.operands[0] if all(use.operation is reader for use in value.uses) else None


def _unconverted(value: SSAValue, layout: Layout) -> SSAValue | None:
    """What a value was converted from, where that lies as wanted."""
    owner = value.owner
    if not isinstance(owner, Operation) or not is_conversion(owner) or encoding(owner.operands[0]) != layout:
        return None
    return owner.operands[0]


def _converts_to(op: Operation, layout: Layout) -> bool:
    return is_conversion(op) and not directives(op) and encoding(op.results[0]) == layout


def _bytes(values: Iterable[SSAValue]) -> int:
    return sum(byte_size(value) or 0 for value in values)
