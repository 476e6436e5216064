"""Have products and convolutions read frozen weights in panels as wide as their tiles, which are made once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, BlockArgument, Operation, OpResult, Region, SSAValue
from xdsl.rewriter import Rewriter

from fuse_opt.dialects.analysis.contractions.conv_kernels import WINOGRAD
from fuse_opt.dialects.analysis.contractions.convolutions import CONV, filter_access
from fuse_opt.dialects.analysis.contractions.generated_products import kind_problem
from fuse_opt.dialects.analysis.contractions.packed_panels import (
    copies_windows,
    filter_panel_width,
    filter_panels_problem,
    packed_bytes,
    panel_width,
    seen_product,
)
from fuse_opt.dialects.analysis.contractions.product_copies import FEW_ROWS
from fuse_opt.dialects.analysis.contractions.products import MATMUL, group_in_panels, product_operands
from fuse_opt.dialects.analysis.loop_body import Unschedulable
from fuse_opt.dialects.analysis.prepared import called_functions, frozen_arguments
from fuse_opt.dialects.analysis.storage import byte_size
from fuse_opt.dialects.fused import KernelOp, YieldOp
from fuse_opt.dialects.graph.movement.panels import packed, unpacked
from fuse_opt.dialects.implementation.queries import is_for_kind
from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import dtype, is_sized, is_static, shape
from fuse_opt.dialects.types.extents import is_number, may_exceed
from fuse_opt.passes.decisions.choices import Choices, choosing
from fuse_opt.passes.devices.device import find_device
from fuse_opt.passes.frozen.prepare_function import PrepareFunction
from fuse_opt.passes.frozen.transformed_filters import TransformedFilters
from fuse_opt.passes.options import check_counts
from fuse_opt.passes.remarks import remark
from fuse_opt.passes.rewrite_pass import RewritePass

_PACKED = "packed"
"""What is chosen for a kernel whose right operand is packed."""


@dataclass(frozen=True)
class PackWeightsPass(RewritePass):
    """A kernel of a product reads what `@f.prepare` made of a frozen right operand: `[panels][k][width]`, zeros at the end.

    ```mlir
    %y = fused.kernel(%a = %x : tensor<64x512xf32>, %b = %w : tensor<512x640xf32>) -> (tensor<64x640xf32>) {
      %0 = graph.matmul %a, %b ...
    ```
    becomes
    ```mlir
    %y = fused.kernel(%a = %x : tensor<64x512xf32>, %b = %w_packed : tensor<10x512x64xf32>) -> (tensor<64x640xf32>) {
      %1 = graph.permute_dims %b {axes = array<i64: 1, 0, 2>} ...
      %2 = graph.reshape %1 {shape = array<i64: 512, 640>} ...
      %0 = graph.matmul %a, %2 ...
    ```
    The views in the kernel move nothing: generated code reads the panels where they lie, and needs no copy of its own in each
    call. Bytes that meet unsigned ones lie in groups of four rows, `[panels][k/4][width][4]`, and an operand that differs
    along a batch has panels for each matrix of it. The weight of a convolution is such an operand of what its windows see,
    `[panels][channels][taps][width]`, where images have few positions, or, for vectors of 32 bytes, any extents: vectors are of
    filters then, and none is half empty.
    The filters of a convolution by tiles of 2x2 positions are transformed there, `[panels][16][channels][width]`, and
    `graph.winograd_taps` in the kernel, which no code computes, gives what the convolution means.
    Not packed: what is no generated product or convolution of f32 or f64, or product of such bytes; an operand that differs
    along some axes of a batch alone; one that first caches or one panel of a product would hold: transposed ones that many
    rows meet are turned, as each call would do that. Rows that are a size count as many as are likely. Run it on kernels,
    before schedule-kernels; a kernel that is packed is scheduled anew. For programs of CPUs: elsewhere the views are copies.
    """

    name = "pack-weights"

    smallest_bytes: int = 49152
    """An operand that has no more bytes is left as it is: first caches hold it, wherever its elements lie."""
    device: str = "cpu"
    """For whose vectors panels are as wide as tiles: a device's name, or the path of a .toml file like theirs."""

    def __post_init__(self) -> None:
        check_counts(self)
        find_device(self.device)

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        with choosing(self.name, op) as choices:
            for function in called_functions(op):
                if frozen_arguments(function) and function.body.first_block is function.body.last_block:
                    _Packing(function, self, choices).run()


@dataclass(frozen=True, slots=True)
class _Weight:
    """The right operand of a kernel's product."""

    op: OpaqueOp
    argument: BlockArgument
    """Of the kernel: what is in memory."""
    of: Contraction
    """By the strides of the op's own operand."""
    width: int
    group: int = 1
    """Rows of which neighbours of a column lie side by side."""
    batch: tuple[int, ...] = ()
    """The extents along which it is another one."""

    @property
    def value(self) -> SSAValue:
        return self.op.operands[1]

    @property
    def transposed(self) -> bool:
        return self.of.rhs[-1] != 1


class _Packing:
    def __init__(self, function: FuncOp, options: PackWeightsPass, choices: Choices) -> None:
        self.function = function
        self.options = options
        self.choices = choices
        self.second = PrepareFunction(function)
        self.filters = TransformedFilters(self.second, options.name)
        self.known: dict[tuple[SSAValue, int, bool, int], SSAValue] = {}
        """What is packed, by operand, width, order and rows; of operands without views in front of them."""

    def run(self) -> None:
        changed = False
        for kernel in list(self.function.body.block.ops):
            if isinstance(kernel, KernelOp):
                if kernel.implementation is not None and is_for_kind(kernel, WINOGRAD):
                    changed |= self.filters.visit(kernel)
                    continue
                changed |= any([self._visit(kernel, kind) for kind in (MATMUL, CONV) if is_for_kind(kernel, kind)])
        if changed:
            self.second.finish()

    def _visit(self, kernel: KernelOp, kind: str) -> bool:
        if kernel.schedule_kind() not in (None, kind) or (op := _product(kernel, kind)) is None:
            return False
        step = self.choices.told_one(kernel, _PACKED)
        try:
            weight = self._weight(kernel, op)
        except Unschedulable as problem:
            if step is not None:
                raise step.decision.choice_error(f"its right operand is not packed: {problem}") from None
            remark(self.options.name, kernel, problem.code, f"reads its right operand as it is: {problem}")
            return False
        if weight is None and step is not None:
            raise step.decision.choice_error("its right operand follows from no frozen argument, or is packed already")
        if weight is None or (step is None and self.choices.replays):
            return False
        if not self.choices.take(kernel, _PACKED, inner=op):
            return False
        self._pack(kernel, weight)
        return True

    def _weight(self, kernel: KernelOp, op: OpaqueOp) -> _Weight | None:
        """What is to be packed; None where nothing is frozen, or all is packed. Raises Unschedulable."""
        windows = op.window_contraction() if op.contraction() is None else None
        if windows is None and op.contraction() is None:
            return None  # a gradient, which has no weight among its operands
        of = op.contraction() if windows is None else seen_product(windows.merged())
        assert of is not None
        members = dict.fromkeys(kernel.block.ops)
        access = product_operands(op, members)[2] if windows is None else filter_access(op, members)
        argument = access.value
        if not isinstance(argument, BlockArgument) or kernel.operands[argument.index] not in self.second.values:
            return None
        if access.panels is not None or (windows is not None and access.column == 1):
            return None
        itemsize, stored = dtype(op.results[0]).itemsize, dtype(op.operands[1]).itemsize
        bits = 8 * int(find_device(self.options.device).vector_bytes)
        if windows is not None and (why := filter_panels_problem(windows.merged(), itemsize, bits)) is not None:
            raise Unschedulable("positions", why, op)
        matrices = prod(of.batch) if windows is None else 1
        batch = tuple(shape(op.operands[1])[:-2]) if matrices > 1 and access.offset.dims() else ()
        size = prod(batch) * of.depth * of.columns * stored
        if (access.offset.dims() and not batch) or byte_size(op.operands[1]) != size:
            raise Unschedulable("batched", "it is another one along a batch", op)
        if batch and prod(batch) != matrices:
            message = "it is another one along some axes of a batch, and the same along others"
            raise Unschedulable("batched", message, op)
        elements = [dtype(value) for value in (*op.operands[:2], op.results[0])]
        if not (group := group_in_panels(*elements)) or (group > 1 and windows is not None):
            message = (
                f"'{op.name}' is of {elements[0]} and {elements[1]}; packed are f32 and f64, and i8 that bytes meet"
            )
            raise Unschedulable("element-type", message, op)
        if windows is None:
            width = panel_width(of, itemsize, group, bits)
        else:
            width = filter_panel_width(windows.merged(), itemsize, bits)
        weight = _Weight(op, argument, of, width, group, batch)
        is_read_in_panels = windows is not None and copies_windows(windows.merged())
        is_small = not is_read_in_panels and (byte_size(weight.value) or 0) <= self.options.smallest_bytes * prod(batch)
        is_turned = (
            windows is None and group == 1 and access.column != 1 and may_exceed(of.rows, FEW_ROWS) and of.depth > 1
        )
        if is_turned and (is_small or width >= of.columns):  # which each call would do
            weight = replace(weight, width=of.columns)
        elif is_small:
            raise Unschedulable("small", "first caches hold it", op)
        elif windows is None and (width >= of.columns or of.depth == 1):
            raise Unschedulable("one-panel", "one panel would hold it, or it is one row", op)
        if of.rhs[-2:] not in ((of.columns, 1), (1, of.depth)):
            raise Unschedulable("strides", "its rows do not lie side by side", op)
        if any(len(view.operands) != 1 for view in _before(weight.value)):
            raise Unschedulable("strides", "it is read through ops of several operands", op)
        _check(kernel, weight)
        return weight

    def _pack(self, kernel: KernelOp, weight: _Weight) -> None:
        operand = kernel.operands[weight.argument.index]
        key = (operand, weight.width, weight.transposed, weight.of.depth) if weight.value is weight.argument else None
        made = self.known.get(key) if key is not None else None
        if made is None:
            made = self.second.give(self._packed(kernel, weight), f"{operand.name_hint or 'w'}_packed")
            if key is not None:
                self.known[key] = made
        size = packed_bytes(weight.of, weight.width, weight.group, dtype(weight.value).itemsize) * prod(weight.batch)
        numbers = {"width": weight.width, "bytes": size}
        message = f"reads its right operand in panels that '{self.second.prepare.sym_name.data}' makes"
        remark(self.options.name, kernel, "packed", message, numbers=numbers)
        _read_packed(kernel, weight, made)

    def _packed(self, kernel: KernelOp, weight: _Weight) -> SSAValue:
        """What a kernel of the second function makes: the op's operand, by the views in front of it, in panels."""
        operand = self.second.values[kernel.operands[weight.argument.index]]
        block = Block(arg_types=[operand.type])
        block.args[0].name_hint = operand.name_hint
        known: dict[SSAValue, SSAValue] = {weight.argument: block.args[0]}
        for op in _before(weight.value):
            block.add_op(copy := op.clone(known))
            known.update(zip(op.results, copy.results, strict=True))
        build = GraphBuilder()
        found = _in_panels(build, weight, known[weight.value])
        block.add_ops([*build.ops, YieldOp.create(operands=[found])])
        for op in block.ops:
            op.location = weight.op.location
        made = KernelOp([operand], [found.type], Region(block))
        made.location = kernel.location
        self.second.add(made)
        return made.results[0]


def _product(kernel: KernelOp, kind: str) -> OpaqueOp | None:
    """The only opaque op of a kernel: a product, or a convolution, whose weight has a known shape."""
    found = [op for op in kernel.ops() if isinstance(op, OpaqueOp)]
    if len(found) != 1 or len(found[0].results) != 1 or not _is_known(found[0]):
        return None
    of = found[0].contraction() if kind == MATMUL else found[0].window_contraction()
    return found[0] if of is not None else None


def _is_known(op: OpaqueOp) -> bool:
    """Whether all is a number that decides how a weight is packed."""
    if all(map(is_static, values := (*op.operands, *op.results))):
        return True
    if not all(map(is_sized, values)):
        return False
    if (of := op.contraction()) is not None:
        return all(map(is_number, (of.depth, of.columns, *shape(op.operands[1]))))
    return op.window_contraction() is not None and all(map(is_number, shape(op.operands[1])))


def _check(kernel: KernelOp, weight: _Weight) -> None:
    """Raises Unschedulable where no code would be generated for the kernel."""
    copy = kernel.clone()
    places = dict(zip(kernel.block.ops, copy.block.ops, strict=True))
    op = places[weight.op]
    assert isinstance(op, OpaqueOp)
    same = replace(weight, op=op, argument=copy.block.args[weight.argument.index])
    _read_packed(copy, same, _in_panels(GraphBuilder(), weight, Block(arg_types=[weight.value.type]).args[0]))
    problem = kind_problem(copy, MATMUL if weight.op.contraction() is not None else CONV)
    copy.erase()
    if problem is not None:
        raise problem


def _in_panels(build: GraphBuilder, weight: _Weight, value: SSAValue) -> SSAValue:
    of = weight.of
    transposed, width, group = weight.transposed, weight.width, weight.group
    return packed(
        build, value, of.depth, of.columns, transposed=transposed, width=width, group=group, batch=weight.batch
    )


def _read_packed(kernel: KernelOp, weight: _Weight, value: SSAValue) -> None:
    """Has the kernel read a packed operand, through the views that undo the packing."""
    argument = kernel.block.insert_arg(value.type, len(kernel.block.args))
    argument.name_hint = value.name_hint
    kernel.operands = [*kernel.operands, value]
    build, of = GraphBuilder(), weight.of
    extents, outer = shape(weight.value), len(weight.batch)
    seen = unpacked(build, argument, of.depth, of.columns, transposed=weight.transposed, extents=extents, outer=outer)
    for op in build.ops:
        op.location = weight.op.location
        kernel.block.insert_op_before(op, weight.op)
    before = _before(weight.value)
    weight.op.operands[1] = seen
    for op in reversed(before):
        if not any(result.uses for result in op.results):
            Rewriter.erase_op(op)
    if not weight.argument.uses:
        kernel.operands = [o for k, o in enumerate(kernel.operands) if k != weight.argument.index]
        kernel.block.erase_arg(weight.argument)
    implementation = kernel.implementation
    kernel.drop_decisions()
    kernel.implementation = implementation  # which takes it packed, too


def _before(value: SSAValue) -> Sequence[Operation]:
    """The views that a value is seen through, in order."""
    found: list[Operation] = []
    while isinstance(value, OpResult):
        found.append(value.op)
        value = value.op.operands[0]
    return found[::-1]
