"""Choose what runs each kernel with an opaque op: the cheapest implementation that takes it, or the one that is asked for."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.kernel_access import dispatched_ops, kernel_structure
from fuse_opt.dialects.analysis.numerics import Numerics, numerics_of
from fuse_opt.dialects.analysis.prepared import unchanging_arguments
from fuse_opt.dialects.analysis.storage import byte_size, functions_of
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.implementation.cost_table import CostTable, read_cost_table
from fuse_opt.dialects.implementation.offers import BackendFault
from fuse_opt.dialects.implementation.queries import unread_operands, wanted_implementation
from fuse_opt.dialects.implementation.selection import (
    Candidate,
    best,
    candidates,
    check_pairs,
    machine_refusal,
    with_times,
    workspace_of,
)
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.layouts import any_encoded
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import is_sized, is_static
from fuse_opt.passes.decisions.choices import Choices, choosing
from fuse_opt.passes.devices.device import Device
from fuse_opt.passes.devices.device_pass import DevicePass
from fuse_opt.passes.implementation.choice import (
    Choice,
    Found,
    check_known_for,
    check_preferred,
    name_nothing,
    promised,
    refusals,
    write,
)
from fuse_opt.passes.implementation.chosen_sites import noted_sites
from fuse_opt.passes.remarks import Number, RefusedError, is_collecting, remark
from fuse_opt.passes.simplify.decompose import decomposed


@dataclass(frozen=True)
class SelectImplementationPass(DevicePass):
    """Names what runs a kernel with an opaque op: code of the program, or a function of a backend.

    ```mlir
    %r = fused.kernel(%a = %x : tensor<4x4xf32>) -> (tensor<4x4xf32>) { ... graph.matmul ... }
    ```
    becomes
    ```mlir
    %r = fused.kernel(...) -> (tensor<4x4xf32>) attributes {implementation = "fuse.matmul"} { ... graph.matmul ... }
    ```
    Of the implementations that take the kernel (by backends that the module allows, see attach-backends) it is the first one
    that is preferred; without a preference the cheapest by what they say they cost, one being cheaper by less than 5 % not
    counting but for a call of compiled code in place of Python's; where one does not say, the first. With `table`, where all of
    them were measured, one that took 5 % less time than the cheapest comes before it. The remark has the next best one, and why
    others refuse.

    An implementation that the kernel names is kept while it takes the kernel: edit it by hand. `use_implementation = "name"`
    on an op or a kernel is a promise: an error where that implementation does not take it.

    Requires: kernels. Ensures: every kernel of an opaque op, but those that the schedule leaves to the reference and those of
    unknown extents, names an implementation that takes it, and how many bytes of `workspace` that asks for, if any. In-place
    pairs, slots and workspaces that another one offered are dropped: decide them anew. Of a GPU, ops that nothing takes there
    name nothing: the host runs them.
    """

    name = "select-implementation"

    prefer: tuple[str, ...] = ()
    """Implementations, or backends (what is before the first dot of a name), in order of preference."""
    numerics: Numerics = "strict"
    """Which implementations are taken: "strict" for those within the bounds of ops, "finite" for those that are so
    of finite operands and sums, or "fast" for all; the module's attribute `graph.numerics` may say more."""
    table: str = ""
    """A file with the times that implementations took, in place of what they say they cost: `fuse-tune dispatch` writes it."""
    forbid_fallback: bool = False
    """Whether an op that nothing takes in the orders of its values is an error; if not, the reference runs it."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        check_preferred(self.name, self.prefer, op)
        machine, table = self.machine(op), self._table(op)
        try:
            numerics_of(op)
        except ValueError as error:
            raise RefusedError(str(error), op) from None
        known: dict[Hashable, Choice] = {}
        sites = noted_sites()
        with choosing(self.name, op) as choices:
            for function in functions_of(op):
                frozen = _frozen(function)
                for kernel in function.body.block.ops:
                    if isinstance(kernel, KernelOp) and (ops := dispatched_ops(kernel)):
                        choice = self._visit(kernel, ops, machine, frozen, table, known, choices)
                        if sites is not None and choice is not None:
                            sites.note(kernel, ops, choice)

    def _table(self, op: ModuleOp) -> CostTable | None:
        if not self.table:
            return None
        try:
            table = read_cost_table(self.table)
        except OSError as error:
            raise RefusedError(f"'{self.name}' option table: '{self.table}': {error.strerror}", op) from None
        except ValueError as error:
            raise RefusedError(f"'{self.name}' option table: {error}", op) from None
        for first in table.problems[:1]:
            more = f" (and {len(table.problems) - 1} more)" if len(table.problems) > 1 else ""
            warnings.warn(f"a line was left out: {first}{more}", stacklevel=2)
        return table

    def _visit(
        self,
        kernel: KernelOp,
        ops: Sequence[GraphOp],
        machine: Device,
        frozen: Collection[SSAValue],
        table: CostTable | None,
        known: dict[Hashable, Choice],
        choices: Choices,
    ) -> Choice | None:
        """
        Decides for a kernel, and gives what was found, if anything was asked; `known` are choices for kernels that say
        nothing, by what they compute.
        """
        if (kind := kernel.schedule_kind()) == "reference":
            return None
        is_free = kernel.implementation is None and wanted_implementation(kernel, ops) is None
        never = tuple([value in frozen for value in kernel.operands]) if frozen else ()
        key = (kernel_structure(kernel), never, kind) if is_free and not choices.replays else None
        if key is not None and (same := known.get(key)) is not None:
            return self._take(kernel, ops, same, choices)
        values = (*kernel.operands, *kernel.results)
        if not all(map(is_sized, values)):
            message = "has unknown extents: what runs it is chosen for the shapes of a call"
            remark(self.name, kernel, "unknown-extents", message, flip="extents in its types")
            return None
        try:
            found = candidates(kernel, machine, self.numerics, frozen)
            choice = self._checked(kernel, found, machine, frozen, table)
            if choice.chosen is not None and choice.by_rule and choices.replays:
                choice = self._told(kernel, choice, machine, frozen, choices)
        except BackendFault as fault:
            raise RefusedError(str(fault), kernel) from fault
        if choice.chosen is None:
            if choice.by_rule:
                name_nothing(kernel)
                return choice
            if not all(map(is_static, values)):
                message = "has extents that are sizes, and nothing that runs it takes them"
                remark(self.name, kernel, "sizes", message, refused=refusals(choice.found))
                return choice
            self._refuse(kernel, choice.found, machine)
            return choice if isinstance(ops[0], OpaqueOp) else None  # code of the program is no site
        if key is not None:
            known[key] = choice
        return self._take(kernel, ops, choice, choices)

    def _checked(
        self,
        kernel: KernelOp,
        found: Found,
        machine: Device,
        frozen: Collection[SSAValue],
        table: CostTable | None,
    ) -> Choice:
        """What runs the kernel, also by what the machine says of it."""
        found = found if table is None else with_times(found, kernel, frozen, table)
        while (pair := self._choose(kernel, found)) is not None:
            chosen, second = pair
            if (reason := machine_refusal(kernel, chosen.offer, machine, frozen)) is None:
                return self._made(kernel, found, chosen, second, machine, frozen)
            found = tuple(Candidate(one.offer, reason) if one is chosen else one for one in found)
        return Choice(found)

    def _made(
        self,
        kernel: KernelOp,
        found: Found,
        chosen: Candidate,
        second: Candidate | None,
        machine: Device,
        frozen: Collection[SSAValue],
    ) -> Choice:
        """A choice, with what later passes ask of it."""
        check_pairs(kernel, chosen.offer)
        named = None if kernel.implementation is None else kernel.implementation.data
        by_rule = wanted_implementation(kernel) is None and named != chosen.offer.name
        space, unread = workspace_of(kernel, chosen.offer, machine, frozen), unread_operands(kernel, chosen.offer)
        return Choice(found, chosen, second, space, unread, by_rule)

    def _told(
        self, kernel: KernelOp, choice: Choice, machine: Device, frozen: Collection[SSAValue], choices: Choices
    ) -> Choice:
        """What a file says in place of a rule; nothing is chosen where it says nothing. Raises DecisionError."""
        chosen = replace(choice, chosen=None)
        for decision in (step.decision for step in choices.told(kernel)):
            wanted = next((one for one in choice.found if one.offer.name == decision.choice), None)
            refusal = f"expected one of {', '.join(one.offer.name for one in choice.found)}, got '{decision.choice}'"
            if wanted is not None:
                reason = wanted.refusal or machine_refusal(kernel, wanted.offer, machine, frozen)
                refusal = f"'{decision.choice}' does not run it: {reason}" if reason else ""
            if wanted is None or refusal:
                raise decision.choice_error(refusal)
            chosen = self._made(kernel, choice.found, wanted, choice.second, machine, frozen)
        return chosen

    def _choose(self, kernel: KernelOp, found: Sequence[Candidate]) -> tuple[Candidate, Candidate | None] | None:
        """What runs the kernel, and the next best one where that was compared; None where nothing runs it as a whole."""
        if (wanted := wanted_implementation(kernel)) is not None:
            return promised(dispatched_ops(kernel)[0], wanted, found), None
        if kernel.implementation is not None:
            named = kernel.implementation.data
            check_known_for(kernel, named)
            kept = next((one for one in found if one.offer.name == named and not one.refusal), None)
            if kept is not None:
                return kept, None
        chosen, second = best(found, self.prefer)
        return None if chosen is None else (chosen, second)

    def _refuse(self, kernel: KernelOp, found: Sequence[Candidate], machine: Device) -> None:
        """
        Nothing runs the kernel as a whole: ops are run one by one where each can be, and those of a GPU by the host; else it
        is an error.
        """
        ops = dispatched_ops(kernel)
        if len(ops) > 1:
            name_nothing(kernel)
            message = f"has {len(ops)} opaque ops, and nothing runs them together: it runs op by op"
            remark(self.name, kernel, "several-ops", message, refused=refusals(found))
            return
        if machine.platform != "cpu" and isinstance(ops[0], OpaqueOp):
            self._leave_to_host(kernel, found)
            return
        if not isinstance(ops[0], OpaqueOp):
            self._leave_to_code(kernel, ops[0], found)
            return
        if kernel.schedule is not None and kernel.implementation is None:
            return  # schedule-kernels says why its schedule cannot run it
        if any_encoded((*ops[0].operands, *ops[0].results)):
            message = f"'{ops[0].name}' is run by the reference: nothing takes the orders of its operands and results"
            flip = "assign-layouts before wrap-kernels"
            if self.forbid_fallback:
                raise RefusedError(f"{message} ({refusals(found)}), and fallbacks are forbidden; run {flip}", ops[0])
            name_nothing(kernel)
            remark(self.name, kernel, "fallback", message, flip=flip, numbers={"refused": refusals(found)})
            return
        reasons = refusals(found) or "none is allowed"
        types = ", ".join(str(value.type) for value in ops[0].operands)
        raise RefusedError(
            f"'{ops[0].name}' of {types}: no implementation runs it: {reasons}; "
            "allow a backend that does, or cast or reshape what it gets",
            ops[0],
        )

    def _leave_to_code(self, kernel: KernelOp, op: GraphOp, found: Sequence[Candidate]) -> None:
        """What an implementation may run no longer is generated code, by its scalar meaning or its decomposition."""
        refused, beside = refusals(found) or "none is allowed", kernel.saved_ops()
        remark(self.name, kernel, "generated", f"'{op.name}' is code of the program again: {refused}")
        kernel.drop_decisions()
        for inner in (op, *beside):
            if isinstance(inner, CompositeOp):
                decomposed(inner)

    def _leave_to_host(self, kernel: KernelOp, found: Sequence[Candidate]) -> None:
        """The kernel names nothing: the reference's function runs it, on copies of its operands."""
        name_nothing(kernel)
        op = dispatched_ops(kernel)[0]
        moved = sum(byte_size(value) or 0 for value in (*kernel.operands, *kernel.results))
        numbers: dict[str, Number] = {"bytes": moved, "refused": refusals(found) or "none"}
        message = f"'{op.name}' runs on the host, between copies: no implementation takes it on the device"
        remark(self.name, kernel, "host", message, flip="a backend that does, or other types", numbers=numbers)

    def _take(self, kernel: KernelOp, ops: Sequence[GraphOp], choice: Choice, choices: Choices) -> Choice:
        """What is left of the choice."""
        assert choice.chosen is not None
        name = choice.chosen.offer.name
        if kernel.implementation is not None and kernel.implementation.data == name:
            kernel.set_workspace(choice.workspace)
            kernel.set_unread(choice.unread)
            remark(self.name, kernel, "kept", f'is run by "{name}", as it says')
            return choice
        if choice.by_rule and not choices.take(kernel, name, inner=ops[0]):
            name_nothing(kernel)
            return replace(choice, chosen=None)
        write(kernel, choice.chosen.offer)
        kernel.set_workspace(choice.workspace)
        kernel.set_unread(choice.unread)
        if is_collecting():
            names = " and ".join(f"'{op.name}'" for op in ops)
            flip = "" if choice.second is None else f'use_implementation = "{choice.second.offer.name}"'
            remark(self.name, kernel, "selected", f'{names}: run by "{name}"', flip=flip, numbers=choice.numbers())
        return choice


def _frozen(function: FuncOp) -> set[SSAValue]:
    return {function.body.block.args[number] for number in unchanging_arguments(function)}
