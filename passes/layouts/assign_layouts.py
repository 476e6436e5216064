"""Choose how values lie in memory, over the whole graph, by what implementations want and what conversions cost."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from fuse_opt.dialects.analysis.storage import byte_size, functions_of
from fuse_opt.dialects.graph.materialize import laid_out
from fuse_opt.dialects.implementation.offers import BackendFault
from fuse_opt.dialects.implementation.site import Site
from fuse_opt.dialects.implementation.switch import allowed_offers
from fuse_opt.dialects.interfaces.layouts import any_encoded, encoding
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import tensor
from fuse_opt.dialects.types.encodings import with_encoding
from fuse_opt.passes.decisions.choices import choosing
from fuse_opt.passes.devices.device_pass import DevicePass
from fuse_opt.passes.layouts.choices import Alternative, Layout
from fuse_opt.passes.layouts.decided_layouts import decided
from fuse_opt.passes.layouts.followed import Values
from fuse_opt.passes.layouts.layout_problem import LayoutProblem
from fuse_opt.passes.remarks import RefusedError, is_collecting, remark
from fuse_opt.passes.rewrite_pass import RewritePass


@dataclass(frozen=True)
class AssignLayoutsPass(DevicePass, RewritePass):
    """Gives values an order of memory where implementations run faster on it, with conversions where orders meet.

    ```mlir
    %0 = graph.conv %x, %w : (tensor<1x8x56x56xf32>, tensor<8x8x1x1xf32>) -> tensor<1x8x56x56xf32>
    ```
    becomes, where that costs less,
    ```mlir
    %1 = graph.to_layout %x : (tensor<1x8x56x56xf32>) -> tensor<1x8x56x56xf32, #graph.order<0, 2, 3, 1>>
    %2 = graph.conv %1, %w : ... -> tensor<1x8x56x56xf32, #graph.order<0, 2, 3, 1>>
    %0 = graph.to_layout %2 : (tensor<1x8x56x56xf32, #graph.order<0, 2, 3, 1>>) -> tensor<1x8x56x56xf32>
    ```
    Each op that an implementation has to run may lie as one of its implementations offers (`Offer.layouts`), at the cost that it
    says; pointwise ops, reductions that keep their axes and windows that are connected lie in any order, all in one. A
    conversion costs its bytes, read and written, and a launch; none for frozen arguments, whose conversions `hoist-frozen` moves.
    The sum is least over the function, exactly where its graph is one of branches that join again. Arguments and results stay
    as they are, and so do functions in which somebody has given a value an encoding: these are made to run alone.

    Ensures: what an op gets in another order than any implementation takes is converted before and behind it. Run it before
    fusion, which takes conversions into kernels.
    """

    name = "assign-layouts"

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        machine = self.machine(op)
        with choosing(self.name, op) as choices:
            for function in functions_of(op):
                try:
                    problem = LayoutProblem(function, machine)
                except BackendFault as fault:
                    raise RefusedError(str(fault), function) from fault
                if not problem.settled:
                    self._assign(problem, decided(problem, choices))
                _make_run(problem.open_ops(), self.name)

    def _assign(self, problem: LayoutProblem, chosen: Sequence[int]) -> None:
        misplaced = problem.misplaced(chosen)
        taken = [
            None if variable.choices.are_plain[number] else variable.alternatives[number]
            for variable, number in zip(problem.variables, chosen, strict=True)
        ]
        made: dict[tuple[SSAValue, Layout], SSAValue] = {}
        for place, (op, variable) in enumerate(zip(problem.ops, problem.variable_of, strict=True)):
            for number, wanted in misplaced.get(place, ()):
                value = op.operands[number]
                if (found := made.get((value, wanted))) is None:
                    found = made[value, wanted] = _converted(value, wanted, op)
                    us = round(problem.conversion_seconds(value) * 1e6, 1)
                    remark(self.name, op, "converted", _says(value, wanted), bytes=byte_size(value) or 0, us=us)
                op.operands[number] = found
            if variable is not None and (alternative := taken[variable]) is not None:
                self._give(problem, op, alternative)

    def _give(self, problem: LayoutProblem, op: Operation, chosen: Alternative) -> None:
        """Lets the op's results lie as chosen."""
        for number, value in enumerate(op.results):
            layout = chosen.result(number)
            if layout is None or (type_ := problem.types.laid_out(value, layout)) is None:
                continue
            _retype(value, type_)
            if chosen.name and is_collecting():
                us = round(chosen.seconds * 1e6, 1)
                remark(self.name, op, "assigned", f"lies as '{chosen.name}' wants it: {layout}", us=us)


def _retype(value: SSAValue, type_: Attribute) -> None:
    """Gives a value another type as it is: xDSL's rewriter makes a new value and moves each use, half of the time of the pass."""
    value._type = type_  # pyright: ignore[reportPrivateUsage]


def _says(value: SSAValue, wanted: Layout) -> str:
    return f"reads '{value.type}' in {'row-major order' if wanted is None else wanted}: it is converted"


def _converted(value: SSAValue, wanted: Layout, before: Operation) -> SSAValue:
    """A value in another layout, converted before an op."""
    conversion = laid_out(value, wanted)
    conversion.location = before.location
    conversion.results[0].name_hint = value.name_hint
    assert before.parent is not None
    before.parent.insert_op_before(conversion, before)
    return conversion.results[0]


def _make_run(ops: Iterable[OpaqueOp], name: str) -> None:
    """Puts conversions around ops with encodings that no implementation takes."""
    types, known = Values(), dict[Hashable, bool]()
    for op in ops:
        if not any_encoded((*op.operands, *op.results)):
            continue
        if (runs := known.get(key := types.key(op))) is None:
            runs = known[key] = _is_taken(op)
        if runs:
            continue
        _run_in_row_major(op)
        nbytes = sum(byte_size(value) or 0 for value in (*op.operands, *op.results))
        remark(name, op, "fallback", "is run in row-major order, as no implementation takes another one", bytes=nbytes)


def _is_taken(op: OpaqueOp) -> bool:
    """Whether an implementation takes the op as its operands and results lie, and runs it on this machine."""
    site = Site.of(op)
    try:
        offers = (offer for offer in allowed_offers(op) if not offer.composite and offer.refusal(site) is None)
        return any(offer.machine_refusal(site) is None for offer in offers)
    except BackendFault as fault:
        raise RefusedError(str(fault), op) from fault


def _run_in_row_major(op: OpaqueOp) -> None:
    for number, value in enumerate(op.operands):
        if encoding(value) is not None:
            op.operands[number] = _converted(value, None, op)
    for value in list(op.results):
        if (wanted := encoding(value)) is None:
            continue
        plain = Rewriter.replace_value_with_new_type(value, with_encoding(tensor(value), None))
        conversion = laid_out(plain, wanted)
        conversion.location = op.location
        assert op.parent is not None
        plain.replace_all_uses_with(conversion.results[0])
        conversion.operands[0] = plain
        op.parent.insert_op_after(conversion, op)
