"""Lower tensor functions of fused kernels to programs on buffers: loops, an arena, launches and library calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, NoneType, StringAttr, UnitAttr
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from fuse_opt.dialects.analysis.contractions.attention import ATTENTION
from fuse_opt.dialects.analysis.contractions.attention_gradients import ATTENTION_GRADIENT
from fuse_opt.dialects.analysis.contractions.conv_kernels import WINOGRAD
from fuse_opt.dialects.analysis.contractions.convolutions import CONV
from fuse_opt.dialects.analysis.contractions.generated_products import PRODUCT_KINDS
from fuse_opt.dialects.analysis.contractions.products import MATMUL
from fuse_opt.dialects.analysis.kernel_access import COLUMN, SPLIT, TILE
from fuse_opt.dialects.analysis.loop_body import LoopBody
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.fused.knobs import CUT, REGISTER_BITS, TABLE, TASKS, UNROLL, WINDOW
from fuse_opt.dialects.types.extents import estimate
from fuse_opt.dialects.types.size import Extent
from fuse_opt.dialects.types.symbolic_shape import SizeAttr
from fuse_opt.lowering.convert.functions import ConvertedKernel, ModuleConverter, convert_programs, scheduled
from fuse_opt.lowering.convert.memory import put_first
from fuse_opt.lowering.convert.overwritten_boxes import trace_copied, written_elements
from fuse_opt.lowering.convert.register_parts import split_registers
from fuse_opt.lowering.convert.shared_starts import are_starts
from fuse_opt.lowering.convert.stack_room import fit_stack
from fuse_opt.lowering.convert.vector_bits import WIDEST, is_for_lines_alone, vector_bits
from fuse_opt.lowering.convert.versions import Version, join_versions, short_version, versions_of
from fuse_opt.lowering.cpu.attention.gradients import build_attention_gradient_loops
from fuse_opt.lowering.cpu.attention.loops import build_attention_loops
from fuse_opt.lowering.cpu.columns import build_column_loops
from fuse_opt.lowering.cpu.convolution.loops import build_convolution_loops, build_winograd_loops
from fuse_opt.lowering.cpu.horizontal import build_horizontal_loops
from fuse_opt.lowering.cpu.kernel import KernelLoops, build_kernel_loops, kernel_function
from fuse_opt.lowering.cpu.matmul.loops import build_product_loops
from fuse_opt.lowering.cpu.packed.packed_rows import build_packed_loops
from fuse_opt.lowering.cpu.split_rows import build_split_loops
from fuse_opt.lowering.cpu.tiles import build_tile_loops
from fuse_opt.lowering.hints import HALF_LINES, VECTOR_BITS, WRITTEN, is_nontemporal, is_requested
from fuse_opt.lowering.kernel.buffers import Parameter, Scratch
from fuse_opt.lowering.kernel.common_reductions import merge_equal_reductions
from fuse_opt.lowering.kernel.naming import kernel_comment, kernel_name
from fuse_opt.lowering.loops.block_conversions import convert_in_blocks
from fuse_opt.lowering.loops.constant_division import carry_digits, divide_in_f64
from fuse_opt.lowering.loops.distribution import distribute_loops, instructions
from fuse_opt.lowering.loops.excess_precision import (
    choose_narrow,
    keep_wide,
    keeps_excess,
    round_in_registers,
    store_clean,
)
from fuse_opt.lowering.loops.fast_math import is_fast, relax_math
from fuse_opt.lowering.loops.moderate_arguments import ask_for_moderate_arguments
from fuse_opt.lowering.loops.nontemporal_stores import make_nontemporal
from fuse_opt.lowering.loops.ranges.index_set_splitting import split_index_sets
from fuse_opt.lowering.loops.ranges.sized_ends import split_sized_ends
from fuse_opt.lowering.loops.ranges.strided_pairs import pair_strided_loads
from fuse_opt.lowering.loops.ranges.unswitching import unswitch_loops
from fuse_opt.lowering.loops.requested_lines import request_lines
from fuse_opt.lowering.loops.scalar_loops import leave_scalar
from fuse_opt.lowering.loops.shared_exponentials import share_exponentials
from fuse_opt.lowering.loops.strip_mining import unroll_vectors
from fuse_opt.lowering.loops.tails.masked_tails import mask_tails
from fuse_opt.lowering.loops.value_tables import WORTH_A_THREAD, has_table, look_up_values, lookup_of
from fuse_opt.lowering.loops.vector_widths import WIDTH


@dataclass(frozen=True)
class ConvertFusedToLoopsPass(ModulePass):
    """A function on tensors becomes a program on buffers, and each kernel in it a function of loops.

    ```mlir
    func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
      %r = fused.kernel(%a = %x : tensor<8xf32>) -> (tensor<8xf32>) { ... graph.exp ... }
      func.return %r : tensor<8xf32>
    }
    ```
    becomes
    ```mlir
    func.func private @kernel_exp(%a: memref<8xf32>, %r: memref<8xf32>, %begin: index, %end: index) { ... scf.parallel ... }
    func.func @main(%x: memref<8xf32>, %r: memref<8xf32>) {
      gpu.bulk 0 {
        func.call @kernel_exp(%x, %r, %c0, %c8) : ...
      }
      func.return
    }
    ```
    A result is a buffer after the arguments, unless `fused.results` says that it is a donated argument or a copy.
    Kernels that say the same share a function; so do products that differ in where they begin in an operand, which have the
    place as an argument. One whose schedule says `math = "fast"` computes with the approximations of
    `docs/c.md`, and its function says `fused.math = "fast"`; one that says `stores = "nontemporal"` stores past the caches where
    it can; of one that says `precision = "kernel"`, f16 and bf16 are rounded at its results alone. Decisions that are
    missing are made simply: an intermediate
    value without a slot gets a range of the arena to itself, a kernel without a segment one of its own.

    Requires: static shapes; every graph op but stored constants and views that move nothing is in a kernel.
    Ensures: no tensors but in the functions of kernels that only the reference can run.
    """

    name = "convert-fused-to-loops"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        convert_programs(op, _LoopsConverter)

    def traced(self, op: ModuleOp) -> list[ConvertedKernel]:
        """The same with each kernel in a bulk of its own; gives what became of each, in order."""
        found: list[ConvertedKernel] = []
        convert_programs(op, _LoopsConverter, found)
        return found


@dataclass(frozen=True, slots=True)
class _Generated:
    """The launches of a kernel in order; most have one."""

    functions: tuple[func.FuncOp, ...]
    phases: tuple[KernelLoops, ...]


class _LoopsConverter(ModuleConverter[_Generated]):
    """Kernels as functions of loops."""

    def generate(
        self, kernel: KernelOp, passes: Sequence[LoopBody], memory: Sequence[int], before: func.FuncOp
    ) -> _Generated:
        phases = list(build_phases(kernel, passes, memory))
        functions: list[func.FuncOp] = []
        for number, loops in enumerate(phases):
            loops, bits, lines_alone = _transform(kernel, loops, bool(passes))
            phases[number] = loops
            if len(phases) == 1 and passes:
                loops = phases[number] = _with_versions(kernel, passes, memory, loops)
            fit_stack(loops.body)
            function = kernel_function(self.unique(kernel_name(kernel)), loops, kernel_comment(kernel))
            function.location = kernel.location
            if (written := written_elements(kernel, passes)) is not None:
                function.attributes[WRITTEN] = SizeAttr(written)
            if is_fast(kernel):
                function.attributes["fused.math"] = StringAttr("fast")
            if bits < WIDEST:
                function.attributes[VECTOR_BITS] = IntegerAttr(bits, 64)
                if lines_alone:
                    function.attributes[HALF_LINES] = UnitAttr()
            self._declare_helpers(loops)
            self.define(function, before)
            functions.append(function)
        return _Generated(tuple(functions), tuple(phases))

    def generates_product(self, kernel: KernelOp) -> bool:
        return generates_loops_of_product(kernel)

    def parameters(self, generated: _Generated) -> Sequence[Parameter]:
        return generated.phases[0].parameters

    def scratch(self, generated: _Generated) -> Sequence[Scratch]:
        every = (each.scratch for loops in generated.phases for each in loops.parameters)
        return [each for each in every if each is not None]

    def launch(
        self, generated: _Generated, buffers: Sequence[SSAValue], number: Callable[[Extent], SSAValue]
    ) -> Operation:
        loops = generated.phases[0]
        arguments = [*buffers, *map(number, loops.sizes), number(0), number(loops.tasks)]
        return func.CallOp(generated.functions[0].sym_name.data, arguments, [])

    def launches(
        self, generated: _Generated, buffer: Callable[[Parameter], SSAValue], number: Callable[[Extent], SSAValue]
    ) -> Sequence[Operation]:
        calls: list[Operation] = []
        for function, loops in zip(generated.functions, generated.phases, strict=True):
            sizes = map(number, loops.sizes)
            arguments = [*(buffer(parameter) for parameter in loops.parameters), *sizes, number(0), number(loops.tasks)]
            calls.append(func.CallOp(function.sym_name.data, arguments, []))
        return calls

    def _declare_helpers(self, loops: KernelLoops) -> None:
        for name, (inputs, result) in loops.helpers.items():
            if name not in self.symbols:
                declaration = func.FuncOp.external(name, list(inputs), [] if isinstance(result, NoneType) else [result])
                self.symbols[name] = declaration
                put_first(self.block, declaration)


def _transform(kernel: KernelOp, loops: KernelLoops, has_passes: bool) -> tuple[KernelLoops, int, bool]:
    """
    What is done to the loops of a kernel; gives them, the bits of vectors, and whether these are for the sake of lines alone.
    """
    lookup = lookup_of(loops.body)
    choose_narrow(loops.body)
    sizes = {value: size for value, size in loops.size_arguments().items() if not are_starts([size])}
    unswitch_loops(loops.body, bool(sizes))
    split_index_sets(loops.body, loops.tasks)
    if sizes:
        split_sized_ends(loops.body, sizes)
        pair_strided_loads(loops.body, loops.shared, loops.helpers)
    if keeps_excess(kernel):
        keep_wide(loops.body)
    if is_fast(kernel):
        keep_wide(loops.body)
        share_exponentials(loops.body, loops.helpers, fast=True)
        relax_math(loops.body, loops.helpers)
    else:
        round_in_registers(loops.body, loops.helpers)
        divide_in_f64(loops.body, loops.helpers)
        share_exponentials(loops.body, loops.helpers)
    if is_nontemporal(kernel):
        make_nontemporal(loops.body, loops.shared, estimate(loops.tasks), loops.helpers)
    store_clean(loops.body, loops.helpers)
    convert_in_blocks(loops.body, loops.helpers)
    distribute_loops(loops.body, loops.tasks, CUT.word(kernel), WINDOW.number(kernel))
    work = instructions(loops.body)
    ask_for_moderate_arguments(loops.body, loops.tasks, loops.helpers, loops.shared)
    bits, lines_alone = vector_bits(kernel, loops.body), is_for_lines_alone(kernel, loops.body)
    lanes, only_results = min(REGISTER_BITS.number(kernel) // 32, WIDTH), not (has_passes or sizes)
    mask_tails(loops.body, loops.helpers, sizes, loops.shared, bits // 8, lanes, only_results)
    if is_requested(kernel):
        request_lines(loops.body, loops.shared, loops.helpers)
    if (vectors := UNROLL.count(kernel)) is not None:
        unroll_vectors(loops.body, vectors * WIDTH)
    carry_digits(loops.body)
    if sizes and (register := REGISTER_BITS.number(kernel)) < WIDEST:
        split_registers(loops.body, register // 32)
    if (
        lookup is not None
        and not is_nontemporal(kernel)
        and has_table(lookup, work, TABLE.word(kernel))
        and look_up_values(loops.body, lookup, loops.tasks, loops.helpers)
    ):
        loops = loops if TASKS.count(kernel) else replace(loops, grain=max(loops.grain, WORTH_A_THREAD))
    leave_scalar(loops.body)
    return loops, bits, lines_alone


def _with_versions(
    kernel: KernelOp, passes: Sequence[LoopBody], memory: Sequence[int], loops: KernelLoops
) -> KernelLoops:
    """The function with those of the kernel's versions in it that its schedule asks for."""
    made: list[tuple[Version, KernelLoops]] = []
    if (short := short_version(kernel, passes)) is not None:
        body = merge_equal_reductions((scheduled(short.kernel) or passes)[0])
        if (packed := build_packed_loops(short.kernel, body, memory)) is not None:
            made.append((short, _transform(short.kernel, packed, True)[0]))
    for version in versions_of(kernel, passes):
        phases = build_phases(version.kernel, scheduled(version.kernel) or (), memory)
        if len(phases) == 1:
            made.append((version, _transform(version.kernel, phases[0], True)[0]))
    return join_versions(made, loops)


_PRODUCTS = {
    MATMUL: build_product_loops,
    ATTENTION: build_attention_loops,
    ATTENTION_GRADIENT: build_attention_gradient_loops,
    CONV: build_convolution_loops,
    WINOGRAD: build_winograd_loops,
}
"""What builds the loops of kernels with opaque ops in them, by schedule kind."""


def generates_loops_of_product(kernel: KernelOp) -> bool:
    """Whether a kernel with an opaque op in it has loops: without passes."""
    return kernel.schedule_kind() in PRODUCT_KINDS


def build_phases(kernel: KernelOp, passes: Sequence[LoopBody], memory: Sequence[int]) -> Sequence[KernelLoops]:
    """The launches of a kernel by its schedule."""
    if not passes:
        return _PRODUCTS[kernel.schedule_kind() or MATMUL](kernel, memory)
    if len(passes) > 1:
        return [build_horizontal_loops(kernel, passes, memory)]
    kind, loop_body = kernel.schedule_kind(), merge_equal_reductions(passes[0])
    if kind == COLUMN and loop_body.is_row:
        return build_column_loops(kernel, loop_body, memory)
    if kind == SPLIT and loop_body.is_row:
        return build_split_loops(kernel, loop_body, memory)
    if kind == TILE and not loop_body.is_row:
        return build_tile_loops(kernel, loop_body, memory)
    parts = trace_copied(kernel, loop_body) or (loop_body,)
    return [build_kernel_loops(kernel, part, memory) for part in parts]
