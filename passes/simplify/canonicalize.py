"""Simplify ops by algebra: neutral elements, double negations, views of views, casts that change nothing."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import OpResult, SSAValue, SSAValues
from xdsl.rewriter import Rewriter
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.fused import KernelOp, directives, walk_open
from fuse_opt.dialects.graph.materialize import laid_out
from fuse_opt.dialects.interfaces.layouts import encoding
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.shapes import dtype, is_static, shape, tensor
from fuse_opt.dialects.interfaces.structured_op import FusionKind, StructuredOp
from fuse_opt.dialects.scalar.simplify import is_same
from fuse_opt.dialects.scalar.simplify_rules import converts_alike
from fuse_opt.dialects.types.encodings import has_default_encoding, with_encoding
from fuse_opt.dialects.types.index_expr import dimensions
from fuse_opt.passes.rewrite_pass import RewritePass
from fuse_opt.passes.simplify.body_simplifier import BodyAlgebra

_MODES = ("strict", "fast")


@dataclass(frozen=True)
class CanonicalizePass(RewritePass):
    """Applies each op's own simplification and the algebra of scalar bodies, in one forward sweep per round.

    ```mlir
    %one = graph.constant dense<1.0> : tensor<f32>
    %r = graph.multiply %x, %one : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>   // becomes %x
    ```
    Exact: NaN, infinities, signed zeros and rounding are as before. Ops with directives are left alone.

    With `math=fast` floats are taken for real numbers, too: x * 0 is 0, x - x is 0, x / c is x * (1 / c), sums and products
    with several constants are joined into one. Results may differ in the last digits, and where there are NaN or infinities.
    """

    name = "canonicalize"

    math: str = "strict"
    """`strict`: no bit of a result changes. `fast`: floats are taken for real numbers."""

    def __post_init__(self) -> None:
        if self.math not in _MODES:
            raise ValueError(f"option 'math': expected {' or '.join(_MODES)}, got '{self.math}'")

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        _without_default_encodings(op)
        simplifier = _Simplifier(self.math == "fast")
        while any([simplifier.simplify(inner) for inner in walk_open(op) if isinstance(inner, GraphOp)]):
            pass


class _Simplifier:
    def __init__(self, fast: bool) -> None:
        self._fast = fast
        self._algebra = BodyAlgebra(fast)

    def simplify(self, op: GraphOp) -> bool:
        """Replaces the op, and what stands for it, while something simpler gives the same; whether it did."""
        changed = False
        waiting = [op]
        while waiting:
            current = waiting.pop()
            value = self._simpler(current) if _may_change(current) else None
            if value is not None:
                changed = True
                value = _in_layout(value, current.results[0])
                new = _inserted(value, current)
                _replace(current, value)
                waiting += reversed([each for each in new if each.parent is not None])
        return changed

    def _simpler(self, op: GraphOp) -> SSAValue | None:
        """A value that equals the op's result, of ops that need not be in the IR yet; None when there is none."""
        if isinstance(op, StructuredOp) and op.operands:
            if op.is_alias() and op.operands[0].type == op.results[0].type:
                return op.operands[0]
            if not op.COMBINE and (value := self._algebra.simpler(op)) is not None:
                return value
            if (value := _converted_once(op)) is not None:
                return value
        simpler = op.canonical() or (op.relaxed() if self._fast else None)
        if simpler is not None:
            return simpler.results[0]
        return _without_view(op) if isinstance(op, StructuredOp) else None


def _without_default_encodings(module: ModuleOp) -> None:
    """Leaves out encodings that say what is so without them, such as the order of the identity."""
    changed = False
    for op in module.walk():
        blocks = [block for region in op.regions for block in region.blocks]
        for value in [*op.results, *(argument for block in blocks for argument in block.args)]:
            if has_default_encoding(value.type):
                Rewriter.replace_value_with_new_type(value, with_encoding(tensor(value), None))
                changed = True
    for op in module.walk() if changed else ():
        if isinstance(op, FuncOp) and not op.is_declaration:
            op.update_function_type()


def _may_change(op: GraphOp) -> bool:
    if op.parent is None or directives(op) or not any(result.uses for result in op.results):
        return False
    return not (isinstance(kernel := op.parent.parent_op(), KernelOp) and kernel.schedule is not None)


def _in_layout(value: SSAValue, wanted: SSAValue) -> SSAValue:
    """What gives the same as a value that is in no block yet, lying in memory as another one does."""
    found, op = encoding(wanted), value.owner
    if encoding(value) == found:
        return value
    if isinstance(op, StructuredOp) and op.parent is None:
        kept = op.results
        op.results = SSAValues([OpResult(with_encoding(tensor(value), found), op, 0)])
        try:
            op.verify_()
            return op.results[0]
        except VerifyException:
            op.results = kept
    return laid_out(value, found).results[0]


def _inserted(value: SSAValue, before: GraphOp) -> list[GraphOp]:
    """Puts the op of a value, and those it needs that are in no block, before another one; in that order."""
    found: dict[GraphOp, None] = {}
    stack = [(value, False)]
    while stack:
        current, ready = stack.pop()
        owner = current.owner
        if not isinstance(owner, GraphOp) or owner.parent is not None or owner in found:
            continue
        if ready:
            found[owner] = None
        else:
            stack.append((current, True))
            stack.extend((operand, False) for operand in reversed(owner.operands))
    assert before.parent is not None
    for op in found:
        op.location = before.location
        before.parent.insert_op_before(op, before)
    return list(found)


def _replace(op: GraphOp, value: SSAValue) -> None:
    value.name_hint = value.name_hint or op.results[0].name_hint
    op.results[0].replace_all_uses_with(value)
    _erase_dead(op)


def _erase_dead(op: GraphOp) -> None:
    """Erases the op and, upwards, the pure ops that only it kept alive; one that carries a directive stays."""
    stack = [op]
    while stack:
        dead = stack.pop()
        if any(result.uses for result in dead.results) or dead.parent is None or directives(dead):
            continue
        owners = [value.owner for value in dead.operands]
        Rewriter.erase_op(dead)
        stack.extend(o for o in dict.fromkeys(owners) if isinstance(o, GraphOp) and o.has_trait(Pure()))


def _is_conversion(op: StructuredOp) -> bool:
    """Whether the result is the operand in another element type."""
    if len(op.operands) != 1 or op.COMBINE or dtype(op.operands[0]) is dtype(op.results[0]):
        return False
    body = op.body()
    inner = body.args[0] if body.function == "cast" else body
    return inner.function == "operand" and op.fusion_kind() is FusionKind.ELEMENTWISE


def _converted_once(op: StructuredOp) -> SSAValue | None:
    """Of two conversions the second alone, of what the first was given; or that itself."""
    inner = op.operands[0].owner
    if not isinstance(inner, StructuredOp) or not inner.operands or len(op.operands) != 1:
        return None
    if not _is_conversion(op) or not _is_conversion(inner):
        return None
    source = inner.operands[0]
    if not converts_alike(dtype(source), dtype(op.operands[0]), dtype(op.results[0])):
        return None
    if source.type == op.results[0].type:
        return source
    new = _with_operands(op, [source])
    return None if new is None else new.results[0]


def _without_view(op: StructuredOp) -> SSAValue | None:
    """The op on what a view repeats, where its own index maps read the same elements without the view."""
    if not op.operands or op.body().function == "operand":
        return None
    for number, value in enumerate(op.operands):
        view = value.owner
        if not isinstance(view, StructuredOp) or len(view.operands) != 1 or not view.is_view():
            continue
        if (
            not all(map(is_static, (*op.operands, view.operands[0], op.results[0])))
            or view.fusion_kind() > FusionKind.BROADCAST
        ):
            continue
        operands = [view.operands[0] if k == number else other for k, other in enumerate(op.operands)]
        new = _with_operands(op, operands)
        if new is None:
            continue
        if _reads_alike(op, new, number, view):
            return new.results[0]
        new.erase()
    return None


def _with_operands(op: StructuredOp, operands: list[SSAValue]) -> StructuredOp | None:
    """The op on other operands, when its result keeps its type; not in the IR."""
    try:
        new = type(op).build_op(*operands, **op.properties)
    except VerifyException:
        return None
    if new.results[0].type == op.results[0].type:
        return new
    new.erase()
    return None


def _reads_alike(op: StructuredOp, new: StructuredOp, number: int, view: StructuredOp) -> bool:
    """Whether every operand is read at the same elements, operand `number` of `op` through the view."""
    if op.reduced_extents() != new.reduced_extents() or not is_same(op.body(), new.body()):
        return False
    index, reduced = dimensions("i", shape(op.results[0])), dimensions("r", op.reduced_extents())
    for k in range(len(op.operands)):
        before, after = (each.operand_index(k, index, reduced) for each in (op, new))
        if (view.operand_index(0, before, ()) if k == number else before) != after:
            return False
    return True
