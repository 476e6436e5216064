"""Choose how each kernel runs: over elements, by rows, as tiles of products, side by side, by a library, or op by op."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from xdsl.context import Context
from xdsl.dialects.builtin import DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute
from xdsl.passes import ModulePass

from fuse_opt.dialects.analysis.contractions.conv_kernels import conv_kernel_of
from fuse_opt.dialects.analysis.contractions.convolutions import Convolution
from fuse_opt.dialects.analysis.contractions.generated_products import (
    PRODUCT_KINDS,
    product_kind_problem,
    why_no_product,
)
from fuse_opt.dialects.analysis.kernel_access import is_library, kernel_access, structure_now
from fuse_opt.dialects.analysis.loop_body import trace_kernel
from fuse_opt.dialects.analysis.loop_order import LoopOrder, choose_order, version_entries
from fuse_opt.dialects.analysis.precision import precision_of, precision_problem, rounds
from fuse_opt.dialects.analysis.storage import functions_of
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.fused.gpu_schedule import gpu_entry_problem
from fuse_opt.dialects.fused.knobs import KNOBS, MATH, PRECISION, RIGHT_OPERAND, SCRATCH, SPLITS, STORES, Knob
from fuse_opt.dialects.implementation.selection import generated_kind
from fuse_opt.passes.decisions.choices import Choices, choosing
from fuse_opt.passes.devices.device import Device, find_device
from fuse_opt.passes.devices.this_machine import Machine, machine_for
from fuse_opt.passes.remarks import RefusedError, remark
from fuse_opt.passes.scheduling.decided_schedules import settle, told_schedule
from fuse_opt.passes.scheduling.near_operands import NearOperands
from fuse_opt.passes.scheduling.nontemporal_rules import StoreRules
from fuse_opt.passes.scheduling.processor_entries import entries_of_kernel
from fuse_opt.passes.scheduling.tuned_lookup import KernelKeys, is_tunable
from fuse_opt.passes.scheduling.tuned_schedules import TunedTable, entry_problem, read_tuned, schedule_of


def _generated(scheme: str, otherwise: str) -> Callable[[KernelOp], str | None]:
    """Why a kernel cannot be generated code of the scheme, or None when it can; `otherwise` is said of the other one."""

    def refuse(kernel: KernelOp) -> str | None:
        if is_library(kernel):
            return "it is a library call"
        access = kernel_access(kernel)
        if access.scheme is None:
            return f"it {access.message}"
        return None if access.scheme == scheme else otherwise

    return refuse


def _refuse_library(kernel: KernelOp) -> str | None:
    return None if is_library(kernel) else "it holds no op of a library and names no implementation"


def _product(kind: str) -> Callable[[KernelOp], str | None]:
    """Why a kernel cannot be generated code of a kind with an opaque op, or None when it can."""

    def refuse(kernel: KernelOp) -> str | None:
        problem = product_kind_problem(kernel, kind)
        return None if problem is None else str(problem)

    return refuse


def _refuse_reference(kernel: KernelOp) -> str | None:
    return None


def _refuse_entries(kernel: KernelOp) -> str | None:
    """Why the numbers of a schedule cannot be used."""
    assert kernel.schedule is not None
    for knob in KNOBS:
        if (problem := knob.problem(kernel)) is not None:
            return problem
    if STORES.word(kernel) != "temporal" and kernel.schedule_kind() in _NOT_GENERATED:
        return "entry 'stores': expected generated code, or \"temporal\""
    return None


_NOT_GENERATED = ("library", "reference")
_PROGRAM_FILE = ".json"
"""How the name of a program's file ends; others are records of any kernels."""

SCHEMES: dict[str, Callable[[KernelOp], str | None]] = {
    "pointwise": _generated("pointwise", "it holds a reduction"),
    "row": _generated("row", "it holds no reduction"),
    "tile": _generated("pointwise", "it holds a reduction"),
    "column": _generated("row", "it holds no reduction"),
    "split": _generated("row", "it holds no reduction"),
    "pack": _generated("pack", "it is one part"),
    **{kind: _product(kind) for kind in PRODUCT_KINDS},
    "library": _refuse_library,
    "reference": _refuse_reference,
}
"""By kind: why a kernel cannot run so, or None when it can."""


@dataclass(frozen=True)
class ScheduleKernelsPass(ModulePass):
    """Gives each kernel without a schedule the fastest kind that can run it.

    ```mlir
    %r = fused.kernel(%a = %x : tensor<8x4xf32>) -> (tensor<8xf32>) { ... graph.sum ... }
    ```
    becomes
    ```mlir
    %r = fused.kernel(%a = %x : tensor<8x4xf32>) -> (tensor<8xf32>) attributes {schedule = {kind = "row"}} { ... }
    ```
    `pointwise`: one loop over elements. `tile`: elements in blocks, where what is read and what is stored lie in different
    orders. `row`: the stages of one row before the next row. `column`: those of a block of rows, where neighbours in memory
    belong to different rows, or what is reduced lies in stretches shorter than a vector. `split`: parts of rows that are
    few and long. `column` and `split` reduce in `splits` parts, which are joined in order: the result does not depend on
    the number of threads. `pack`: parts that do not depend on each other side by side, each a `pointwise` or a `row` one.
    `matmul`: a product as tiles in registers, with the pointwise ops behind it. `attention`: two products, and between them
    rows of the first one's result, which are never in memory. `conv`: a convolution, or a gradient of one, by such tiles, without
    unfolded windows. `library`: an implementation runs it as a whole.
    `reference`: op by op, for what is neither passes nor a library's.

    With `math=fast` the schedules of generated kernels say so: the C target then uses the approximations, reciprocals and
    contractions whose bounds `docs/c.md` states, the CUDA target those of `docs/cuda.md`. Without it arithmetic is as the
    IR says.

    With `precision=kernel`, or where the function says `graph.precision = "kernel"`, they say so, too: f16 and bf16 then stay f32
    inside of a kernel and are rounded at its results, as other compilers do. Without it every op rounds.

    A kernel that moves more bytes than caches hold (twice the device's `last_level_cache_bytes`), and waits for memory
    rather than for arithmetic, gets `stores = "nontemporal"`: results of such sizes are stored past the caches where they are
    not in place. Write "temporal", or remove the entry, for ordinary stores. Kernels of rows with one reduction that stay with
    these get "requested" where rows are neither short nor long. The CUDA target does not look at it.

    Products of few rows that stream a right operand of more than 1 MiB, or meet a transposed one column by column, get
    `right_operand = "near"` where all values of their function fit into half of the last level cache, so that it is still there
    from the call before.

    With `scratch=little` kernels of a processor work in less memory beside their values, as budgets may need it: gradients of
    convolutions (the entry of that name), and reductions in one part, which leave less to several threads.

    Of a processor whose record says another `window`, `first_cache_bytes` or `vector_bytes` than `device_cpu.toml`, kernels get
    the entries `window`, `lent` (a forty-eighth of that cache), `tile_bits` and `register_bits`, those of f16 and bf16 `table`.

    With `versions`, a kernel over rows whose length is a size gets the entries `short` and `long`: C of its own for very short
    rows and for long ones, chosen by the length at the entry of its function. Compilers take two to four times as long for it.

    With `tuned`, a file or a folder that `fuse-tune` wrote, kernels that were measured on this machine get what was found for
    them, and a remark says of each whether it is `tuned`, `tuned-stale` (measured with another version of lowering, and still
    legal) or `untuned`, and why.

    A schedule that is there is kept, with all of its entries: edit it by hand. Requires: that it can run the kernel. What is
    given otherwise is a decision where it is not the plain one, which is `pointwise` or `row` without entries for loops.
    Ensures: every kernel has a schedule.
    """

    name = "schedule-kernels"

    math: Literal["strict", "fast"] = "strict"
    """Accuracy of the functions in generated C: "strict" or "fast"."""
    precision: Literal["strict", "kernel"] | None = None
    """Rounding of f16 and bf16: "strict", by every op, "kernel", at results of kernels; otherwise as the function says."""
    device: str = "cpu"
    """
    What decides on non-temporal stores and entries for a processor: a device's name, such as cpu or h100, or the path of a .toml
    file like theirs.
    """
    versions: bool = False
    """Kernels over rows of an unknown length have versions for very short rows and for long ones."""
    scratch: Literal["any", "little"] = "any"
    """Memory that kernels work in beside their values: "any" that is of use, or as "little" as can be."""
    tuned: str = ""
    """Measured schedules: a program's tuned.json, a file of records, or a folder of them; none where empty."""

    def __post_init__(self) -> None:
        find_device(self.device)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        device, table = find_device(self.device), _read_table(self.tuned, op)
        with choosing(self.name, op) as choices:
            for function in functions_of(op):
                if (problem := precision_problem(function)) is not None:
                    raise RefusedError(problem, function)
                words = {MATH: self.math, PRECISION: self.precision or precision_of(function)}
                little = self.scratch == "little" and device.platform == "cpu"
                rules = _Rules(StoreRules(function, device), NearOperands(function, device), self.versions, little)
                measured = None if table is None else _Measured(table, KernelKeys(function), machine_for(op), device)
                for kernel in function.body.block.ops:
                    if isinstance(kernel, KernelOp):
                        _schedule(kernel, words, rules, measured, choices)
                if measured is not None and self.tuned.endswith(_PROGRAM_FILE):
                    measured.say_if_of_another(function, self.tuned)


def _read_table(path: str, module: ModuleOp) -> TunedTable | None:
    """What was measured. Raises RefusedError for a file that cannot be used."""
    if not path:
        return None
    option = f"'{ScheduleKernelsPass.name}' option tuned"
    try:
        table = read_tuned(path)
    except OSError as error:
        raise RefusedError(f"{option}: '{path}': {error.strerror}", module) from None
    except ValueError as error:
        raise RefusedError(f"{option}: {error}", module) from None
    machine = machine_for(module)
    for code, fault in table.faults:
        if machine is None or code == machine.code:
            raise RefusedError(f"{option}: {fault}", module)
    for problem in (*table.problems, *(fault for _, fault in table.faults)):
        remark(ScheduleKernelsPass.name, module, "tuned-problem", problem)
    return table


@dataclass(frozen=True)
class _Rules:
    """What decides where nothing was measured."""

    stores: StoreRules
    operands: NearOperands
    versions: bool
    little: bool
    """Scratch memory."""


@dataclass
class _Measured:
    """What was measured, and how the kernels of a function are called there."""

    table: TunedTable
    keys: KernelKeys
    machine: Machine | None
    device: Device
    _asked: int = 0
    _known: int = 0

    def apply(self, kernel: KernelOp, words: Mapping[str, Attribute]) -> None:
        """Gives a kernel, which has its default schedule, what was found for it, beside `words`; says so in a remark."""
        given = {name: value.data for name, value in words.items() if isinstance(value, StringAttr)}
        key = self.keys.key(kernel, given).key
        tuned, state = self.table.find(key, self.machine)
        self._asked += 1
        self._known += key in self.table.entries
        if tuned is None:
            remark(
                ScheduleKernelsPass.name, kernel, "untuned", f"keeps its default schedule: {state}", flip="fuse-tune"
            )
            return
        if tuned.is_default:
            remark(
                ScheduleKernelsPass.name,
                kernel,
                state,
                f"keeps its default schedule: nothing was faster, by {tuned.place}",
            )
            return
        default = kernel.schedule
        processor = entries_of_kernel(kernel, str(tuned.settings["kind"]), self.device)
        kernel.schedule = DictionaryAttr({**schedule_of({**processor, **tuned.settings}).data, **words})
        if (problem := _problem(kernel)) is not None:
            kernel.schedule = default
            message = f"keeps its default schedule: {tuned.place} cannot be used: {problem}"
            remark(ScheduleKernelsPass.name, kernel, "untuned", message, flip="fuse-tune")
            return
        message = f"runs as {kernel.schedule}: {tuned.speedup:.2f}x, by {tuned.place}"
        remark(ScheduleKernelsPass.name, kernel, state, message)

    def say_if_of_another(self, function: FuncOp, file: str) -> None:
        """A remark where the file of a program knows nothing of a function."""
        if self._asked and not self._known and self.table.entries:
            message = (
                f"{file} is for another program: none of the {self._asked} kernels of '@{function.sym_name.data}' is in it, "
                "so that rules decide; run fuse-tune on this one"
            )
            remark(ScheduleKernelsPass.name, function, "tuned-problem", message)


def _schedule(
    kernel: KernelOp, words: Mapping[Knob, str], rules: _Rules, measured: _Measured | None, choices: Choices
) -> None:
    if (given := kernel.schedule_kind()) is None:
        plain = _plain(kernel)
        said = dict(_words(kernel, words)) if plain not in _NOT_GENERATED else {}
        if choices.replays:
            _give_told(kernel, plain, said, choices)
        else:
            _give(kernel, said, rules, measured)
        settle(kernel, DictionaryAttr({"kind": StringAttr(plain), **said}), said, choices)
        return
    if given not in SCHEMES:
        raise RefusedError(f"'fused.kernel' schedule kind \"{given}\": expected one of {', '.join(SCHEMES)}", kernel)
    if (problem := _problem(kernel)) is not None:
        hint = f'remove the schedule, or write "{_choose(kernel).kind}"'
        raise RefusedError(f"'fused.kernel' schedule kind \"{given}\" cannot run the kernel: {problem}; {hint}", kernel)
    remark(ScheduleKernelsPass.name, kernel, "kept", f'keeps its schedule "{given}"')


def _give(kernel: KernelOp, said: Mapping[str, Attribute], rules: _Rules, measured: _Measured | None) -> None:
    """The schedule that rules find, or that was measured."""
    order = _choose(kernel)
    if rules.little and SPLITS.name in order.entries:
        order = LoopOrder("row" if order.kind == "split" else order.kind)
    settings = {**entries_of_kernel(kernel, order.kind, rules.stores.device), **order.entries}
    if rules.versions and order.kind == "row" and (versions := version_entries(trace_kernel(kernel))):
        settings |= versions
        lengths = " and ".join(f"{'up to' if name == 'short' else 'from'} {n}" for name, n in versions.items())
        remark(ScheduleKernelsPass.name, kernel, "versions", f"has code of its own for rows of {lengths} elements")
    entries = dict(schedule_of(settings).data)
    if rules.little and order.kind in SCRATCH.kinds and not isinstance(conv_kernel_of(kernel), Convolution):
        entries[SCRATCH.name] = StringAttr("little")
    kernel.schedule = DictionaryAttr({"kind": StringAttr(order.kind), **entries, **said})
    if rules.operands.is_near(kernel):
        kernel.schedule = DictionaryAttr({**kernel.schedule.data, RIGHT_OPERAND.name: StringAttr("near")})
    verdict = rules.stores.judge(kernel)
    if verdict.stores:
        kernel.schedule = DictionaryAttr({**kernel.schedule.data, "stores": StringAttr(verdict.stores)})
    if verdict.code:
        remark(ScheduleKernelsPass.name, kernel, verdict.code, verdict.message, flip=verdict.flip)
    if measured is not None and is_tunable(order.kind):
        measured.apply(kernel, said)


def _give_told(kernel: KernelOp, plain: str, said: Mapping[str, Attribute], choices: Choices) -> None:
    """The schedule that a file says, or the plain one. Raises DecisionError for one that cannot run the kernel."""
    kernel.schedule = DictionaryAttr({"kind": StringAttr(plain), **said})
    if (told := told_schedule(kernel, choices)) is None:
        return
    step, settings = told
    kind = str(settings["kind"])
    if kind not in SCHEMES:
        raise step.decision.choice_error(f"expected one of {', '.join(SCHEMES)}, got '{kind}'")
    for name, value in settings.items():
        if name != "kind" and (problem := entry_problem(name, value, kind)) is not None:
            raise step.decision.choice_error(f"entry '{name}': {problem}, got {value}")
    kernel.schedule = DictionaryAttr({**schedule_of(settings).data, **(said if kind not in _NOT_GENERATED else {})})
    if (problem := _problem(kernel)) is not None:
        raise step.decision.choice_error(f"'{kind}' cannot run the kernel: {problem}")


def _words(kernel: KernelOp, words: Mapping[Knob, str]) -> Iterator[tuple[str, Attribute]]:
    """The entries that say what was asked of all kernels, where it is not what holds without them."""
    for knob, word in words.items():
        if word != knob.word(kernel) and (knob is not PRECISION or rounds(kernel.ops())):
            yield knob.name, StringAttr(word)


def _problem(kernel: KernelOp) -> str | None:
    """Why its schedule cannot run the kernel."""
    assert kernel.schedule is not None
    return (
        SCHEMES[kernel.schedule_kind() or ""](kernel) or _refuse_entries(kernel) or gpu_entry_problem(kernel.schedule)
    )


def _plain(kernel: KernelOp) -> str:
    """The simplest kind that can run a kernel, by what implementation was chosen."""
    if is_library(kernel):
        return generated_kind(kernel) or "library"
    return kernel_access(kernel, scheduled=False).scheme or "reference"


def _choose(kernel: KernelOp) -> LoopOrder:
    if is_library(kernel):
        kind = generated_kind(kernel)
        why = "" if kind else why_no_product(kernel)
        remark(ScheduleKernelsPass.name, kernel, "scheduled", f'runs as "{kind or "library"}"{why}')
        return LoopOrder(kind or "library")
    access = kernel_access(kernel, scheduled=False)
    if access.scheme is None:
        remark(ScheduleKernelsPass.name, kernel, access.code, f'runs op by op ("reference"): {access.message}')
        return LoopOrder("reference")
    order = LoopOrder("pack") if access.scheme == "pack" else _order(kernel)
    why = f": {order.reason}" if order.reason else ""
    remark(ScheduleKernelsPass.name, kernel, "scheduled", f'runs as "{order.kind}"{why}')
    return order


_ORDERS: dict[tuple[object, ...], LoopOrder] = {}
_REMEMBERED = 4096


def _order(kernel: KernelOp) -> LoopOrder:
    """That of a kernel's loops; chosen once for kernels that compute the same."""
    key = structure_now(kernel)
    if (found := _ORDERS.get(key)) is None:
        if len(_ORDERS) >= _REMEMBERED:
            _ORDERS.clear()
        found = _ORDERS[key] = choose_order(trace_kernel(kernel))
    return found
