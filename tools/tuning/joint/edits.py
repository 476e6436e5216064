"""What may be other about a whole program than rules have it: each pass, each option that says so, each decision.

A candidate is a few edits, by what they are about:

    {"order-for-memory": "strategy=dfs", "fuse-row @main: graph.max#0 + graph.subtract#0": "dropped"}
    {"select-implementation @main: graph.matmul#0 %h": "numpy.matmul"}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from fuse_opt.dialects.analysis.kernel_access import dispatched_ops
from fuse_opt.dialects.analysis.prepared import frozen_arguments
from fuse_opt.dialects.analysis.storage import functions_of
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.implementation.selection import candidates
from fuse_opt.passes.decisions import Decision, record_decisions
from fuse_opt.passes.decisions.steering import Recorder
from fuse_opt.passes.devices.device import Device
from fuse_opt.passes.devices.device_pass import DevicePass
from fuse_opt.passes.fusion.rules import FUSION_RULES, SECOND_ROUND
from fuse_opt.passes.options import Value, tunable_options
from fuse_opt.tools.compiler.pipeline import run_pipeline
from fuse_opt.tools.compiler.registry import make_context
from fuse_opt.tools.steering.tuned_plan import ADDED, DROPPED, EARLIER, TWICE, WITHOUT, Plan, pass_labels
from fuse_opt.tools.tuning.search.candidates import Candidate

PROFIT = ("recompute", "locality", "parallelism", "little-shared", "large")
"""Codes of refusals that rest on a model of what is faster, not on what is right."""
SELECTION = "select-implementation"
FUSION = tuple(dict.fromkeys((*FUSION_RULES, *SECOND_ROUND, "duplicate-producers", "fuse-horizontal")))
"""Passes of which the default pipeline may lose one, run one twice, or two in another order."""
_MEMORY = "fuse_opt.passes.memory."
"""Passes of this package move values and kernels, and compute nothing in another way."""


@dataclass(frozen=True)
class Baseline:
    """What rules make of a program: the passes, what they decided, and what else they might have."""

    passes: Sequence[ModulePass]
    decisions: tuple[Decision, ...]
    refused: tuple[Decision, ...]
    """Merges that a model of what is faster refused."""
    offers: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """By the text of a decision without what it chooses, the other implementations that take the kernel."""

    def plan(self, edits: Mapping[str, str | int]) -> Plan:
        """The plan with these edits."""
        return Plan.of(self.decisions, {label: str(change) for label, change in edits.items()})

    def near(self, edits: Mapping[str, str | int]) -> dict[str, list[str]]:
        """By edit of a decision, the ops that it is about and what is near them."""
        known = {decision.subject: list(decision.near) for decision in (*self.refused, *self.decisions)}
        return {label: known[label] for label in edits if label in known}


def baseline(module: ModuleOp, passes: Sequence[ModulePass]) -> Baseline:
    """What rules make of a copy of the program. Raises what passes raise."""
    copy, context, refused = module.clone(), make_context(), list[tuple[Decision, str]]()
    place = next((k for k, pass_ in enumerate(passes) if pass_.name == SELECTION), len(passes))
    with record_decisions(recorder=Recorder(refused, near=True)) as made:
        run = partial(run_pipeline, copy, ctx=context)
        run(passes[:place])
        chooser = passes[place] if place < len(passes) else None
        kernels = _offered(copy, chooser.machine(copy)) if isinstance(chooser, DevicePass) else []
        run(passes[place : place + 1])
        chosen = [decision for decision in made if decision.pass_name == SELECTION]
        run(passes[place + 1 :])
    offers: dict[str, tuple[str, ...]] = {}
    named = [(kernel, names) for kernel, names in kernels if kernel.implementation is not None]
    if [kernel.implementation.data for kernel, _ in named if kernel.implementation] == [one.choice for one in chosen]:
        for (_, names), decision in zip(named, chosen, strict=True):
            offers[decision.subject] = tuple(name for name in names if name != decision.choice)
    profit = tuple(dict.fromkeys(decision for decision, code in refused if code in PROFIT))
    return Baseline(passes, tuple(made), profit, offers)


def _offered(module: ModuleOp, machine: Device) -> list[tuple[KernelOp, list[str]]]:
    """The kernels with opaque ops, and what can run each."""
    found: list[tuple[KernelOp, list[str]]] = []
    for function in functions_of(module):
        frozen: set[SSAValue] = {function.body.block.args[number] for number in frozen_arguments(function)}
        for kernel in function.body.block.ops:
            if isinstance(kernel, KernelOp) and dispatched_ops(kernel):
                able = candidates(kernel, machine, "strict", frozen)
                found.append((kernel, [one.offer.name for one in able if not one.refusal]))
    return found


def changes(base: Baseline, same_bits: bool) -> Iterator[Candidate]:
    """
    Single edits: implementations, what a model of profit refused, options and passes, and each decision of fusion dropped; with
    `same_bits` those alone that promise to keep them.
    """
    if not same_bits:
        for label, names in base.offers.items():
            yield from (Candidate.of({label: name}, False) for name in names)
        yield from (Candidate.of({str(decision): ADDED}, False) for decision in base.refused)
    labels = pass_labels(base.passes)
    for label, pass_ in zip(labels, base.passes, strict=True):
        keeps = type(pass_).__module__.startswith(_MEMORY)
        if keeps or not same_bits:
            for name, value in tunable_options(pass_):
                yield Candidate.of({label: f"{name}={spelt(value)}"}, keeps)
    if same_bits:
        return
    for place, (label, pass_) in enumerate(zip(labels, base.passes, strict=True)):
        if pass_.name in FUSION:
            yield Candidate.of({label: WITHOUT}, False)
            yield Candidate.of({label: TWICE}, False)
            if base.passes[place - 1].name in FUSION:
                yield Candidate.of({label: EARLIER}, False)
    for decision in base.decisions:
        if decision.pass_name in FUSION:
            yield Candidate.of({decision.subject: DROPPED}, False)


def spelt(value: Value) -> str:
    """An option's value as pipelines have it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
