"""Give ops that are no opaque ones to implementations that run them as a whole, before they are taken apart or fused."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue

from fuse_opt.dialects.analysis.bare_ops import sweep_functions
from fuse_opt.dialects.analysis.numerics import Numerics
from fuse_opt.dialects.analysis.prepared import frozen_arguments
from fuse_opt.dialects.analysis.training import is_training
from fuse_opt.dialects.implementation.offers import BackendFault, Offer, offers_of
from fuse_opt.dialects.implementation.queries import wanted_implementation
from fuse_opt.dialects.implementation.selection import NEAR, Candidate, is_called
from fuse_opt.dialects.implementation.site import Saved, Site
from fuse_opt.dialects.implementation.switch import allowed_offers
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.shapes import is_static
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.passes.decisions.choices import Choices, choosing
from fuse_opt.passes.devices.device import Device
from fuse_opt.passes.devices.device_pass import DevicePass
from fuse_opt.passes.frozen.sources import Sources, may_move
from fuse_opt.passes.fusion.engine.group_graph import GroupGraph, Limits
from fuse_opt.passes.fusion.engine.outline import build_kernels
from fuse_opt.passes.implementation.choice import check_preferred, promised
from fuse_opt.passes.implementation.costs import decomposed_seconds
from fuse_opt.passes.implementation.saved_results import name_implementation, readers_beside
from fuse_opt.passes.remarks import Number, RefusedError, remark
from fuse_opt.passes.rewrite_pass import RewritePass

_NO_LIMIT = 2**62


@dataclass(frozen=True)
class SelectCompositesPass(DevicePass, RewritePass):
    """Makes a kernel of an op that an implementation runs as a whole, and names that.

    ```mlir
    %r = graph.softmax %x {axis = -1 : i64} : (tensor<8x512xf32>) -> tensor<8x512xf32>
    ```
    becomes, where a backend `mine` offers to run it and says that it takes less time than generated code,
    ```mlir
    %r = fused.kernel(%x_1 = %x : ...) -> (tensor<8x512xf32>) attributes {implementation = "mine.softmax"} { ... }
    ```
    Code of the program is an estimate: the opaque ops of the decomposition, and one pass over what the op reads and makes
    but for values that fusion with its neighbours keeps out of memory. `use_implementation = "name"` on an op is a promise, on
    pointwise ops and reductions, too, which are given away in no other way, as are composites by `prefer`.

    What other ops make of the same operands may be left by the same call, where the implementation `saves` it: the statistics of
    rows that a backward pass reads. They are results of the kernel then, as `saved = array<i64: 1, 2>` says.

    Requires: nothing. Ensures: what `decompose` takes apart and fusion joins is better off so, as far as implementations say.
    """

    name = "select-composites"

    prefer: tuple[str, ...] = ()
    """Implementations, or backends (what is before the first dot of a name), that run composites whatever they cost."""
    numerics: Numerics = "strict"
    """Which implementations are taken: "strict" for those within the bounds of ops, "finite" for those that are so
    of finite operands and sums, or "fast" for all."""

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        check_preferred(self.name, self.prefer, op)
        machine = self.machine(op)
        with choosing(self.name, op) as choices:
            self._select(op, machine, choices)

    def _select(self, module: ModuleOp, machine: Device, choices: Choices) -> None:
        for block in sweep_functions(module):
            if chosen := dict(self._choices(block, machine, choices)):
                graph = GroupGraph(block, Limits(_NO_LIMIT, _NO_LIMIT, _NO_LIMIT))
                self._save(machine, graph, chosen)
                groups = [graph.group_of[op] for op in chosen]
                for kernel, op in zip(build_kernels(graph, groups), chosen, strict=True):
                    name_implementation(kernel, op, chosen[op].name)

    def _save(self, machine: Device, graph: GroupGraph, chosen: Mapping[CompositeOp | StructuredOp, Offer]) -> None:
        """Puts ops whose results an implementation leaves beside those of its op into the group of that."""
        taken: set[Operation] = {*chosen}
        for op, offer in chosen.items():
            for other in readers_beside(op, graph) if offer.saves is not None else ():
                if other in taken or (saved := Saved.of(op, other)) is None:
                    continue
                try:
                    reason = offer.save_refusal(Site.of(op, machine), saved)
                except BackendFault as fault:
                    raise RefusedError(str(fault), op) from fault
                if reason is None and (refusal := graph.merge([graph.group_of[op], graph.group_of[other]])) is not None:
                    reason = refusal.code
                if reason is None:
                    taken.add(other)
                is_left, code = ("is", "saved") if reason is None else ("is not", "not-saved")
                message = f"{is_left} left by \"{offer.name}\" beside the result of '{op.name}'"
                remark(self.name, other, code, message, numbers={} if reason is None else {"refused": reason})

    def _choices(
        self, block: Block, machine: Device, choices: Choices
    ) -> Iterator[tuple[CompositeOp | StructuredOp, Offer]]:
        function = block.parent_op()
        sources = Sources(function) if isinstance(function, FuncOp) and frozen_arguments(function) else None
        for op in block.ops:
            if sources is not None and may_move(op):
                sources.follow(op)
            if not isinstance(op, CompositeOp | StructuredOp) or not offers_of(op.name):
                continue
            try:
                frozen = [] if sources is None else [value for value in op.operands if sources.nbytes_of(value)]
                offer = self._choice(op, machine, choices, frozen)
            except BackendFault as fault:
                raise RefusedError(str(fault), op) from fault
            if offer is not None and (
                wanted_implementation(op) is not None or choices.take(op, offer.name)  # a directive is no decision
            ):
                yield op, offer

    def _choice(
        self, op: CompositeOp | StructuredOp, machine: Device, choices: Choices, frozen: Collection[SSAValue]
    ) -> Offer | None:
        """
        What is to run the op as a whole, of whose operands some follow from frozen arguments; None where code of the program is.
        Raises BackendFault.
        """
        wanted = wanted_implementation(op)
        if wanted is None and isinstance(op, StructuredOp):
            return None
        site = Site.of(op, machine, frozen)
        offers = [offer for offer in allowed_offers(op, machine.platform) if not offer.composite]
        training = is_training(op)
        refused = {o.name: reason for o in offers if (reason := self._refusal(o, site, training)) is not None}
        if wanted is not None:
            return promised(op, wanted, [Candidate(one, refused.get(one.name, "")) for one in offers]).offer
        able = [offer for offer in offers if offer.name not in refused]
        if choices.replays:
            return self._told(op, able, choices)
        preferred = (offer for word in self.prefer for offer in able if is_called(offer, word))
        if (found := next(preferred, None)) is not None:
            remark(self.name, op, "selected", f'is run by "{found.name}", which is preferred')
            return found
        assert isinstance(op, CompositeOp)
        return self._cheapest(op, site, able, refused, machine)

    def _told(self, op: CompositeOp | StructuredOp, able: list[Offer], choices: Choices) -> Offer | None:
        """What a file says. Raises DecisionError."""
        found = None
        for decision in (step.decision for step in choices.told(op)):
            found = next((offer for offer in able if offer.name == decision.choice), None)
            if found is None:
                names = ", ".join(offer.name for offer in able) or "none"
                raise decision.choice_error(f"expected one of {names}, got '{decision.choice}'")
        return found

    def _refusal(self, offer: Offer, site: Site, training: bool) -> str | None:
        if training and not offer.differentiable:
            return "training"
        if not offer.is_within(self.numerics):
            return "numerics"
        if (reason := offer.refusal(site)) is not None or offer.probe is None:
            return reason
        return offer.machine_refusal(site)

    def _cheapest(
        self, op: CompositeOp, site: Site, able: list[Offer], refused: dict[str, str], machine: Device
    ) -> Offer | None:
        numbers: dict[str, Number] = {}
        if refused:
            numbers["refused"] = ",".join(f"{name}:{reason}" for name, reason in refused.items())
        known = [(seconds, offer) for offer in able if (seconds := offer.seconds(site)) is not None]
        if not known or not all(map(is_static, op.operands)):
            if able or refused:
                why = "what takes it does not say what it costs" if able else "nothing that is offered takes it"
                remark(self.name, op, "generated", f"is code of the program: {why}", numbers=numbers)
            return None
        seconds, offer = min(known, key=lambda one: one[0])
        own = decomposed_seconds(op, machine)
        numbers = {"us": round(seconds * 1e6, 1), "generated_us": round(own * 1e6, 1), **numbers}
        if seconds * NEAR <= own:
            remark(self.name, op, "selected", f'is run by "{offer.name}"', numbers=numbers)
            return offer
        flip = f'use_implementation = "{offer.name}"'
        remark(self.name, op, "generated", f'is code of the program, not "{offer.name}"', flip=flip, numbers=numbers)
        return None
