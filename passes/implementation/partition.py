"""Give parts of the graph to backends that run several ops by one call: convex groups, all of them at once without a cycle."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import cast

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Block, Operation, SSAValue

from fuse_opt.dialects.analysis.bare_ops import is_creation, sweep_functions
from fuse_opt.dialects.analysis.training import TRAINING, is_training
from fuse_opt.dialects.fused import PLANNED, KernelOp, PartitionOp, directives
from fuse_opt.dialects.implementation.offers import BackendFault
from fuse_opt.dialects.implementation.partitions import PartitionOffer, partition_backends, partition_offer
from fuse_opt.dialects.implementation.site import Site
from fuse_opt.dialects.implementation.subgraph import Subgraph
from fuse_opt.dialects.implementation.switch import allowed_backends, platform_of
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.shapes import is_static
from fuse_opt.passes.decisions.choices import Choices, choosing
from fuse_opt.passes.devices.device import Device, find_device
from fuse_opt.passes.fusion.engine.group_graph import Group, GroupGraph, Limits
from fuse_opt.passes.fusion.engine.outline import build_kernels
from fuse_opt.passes.implementation.costs import alone_seconds
from fuse_opt.passes.options import check_counts
from fuse_opt.passes.remarks import Number, RefusedError, remark
from fuse_opt.passes.rewrite_pass import RewritePass

_NO_LIMIT = 2**62


@dataclass(frozen=True)
class PartitionPass(RewritePass):
    """Makes `fused.partition`s of the ops that a backend takes and that depend on each other.

    ```mlir
    %0 = graph.exp %x : (tensor<8xf32>) -> tensor<8xf32>
    %1 = graph.tanh %0 : (tensor<8xf32>) -> tensor<8xf32>
    ```
    becomes, where a backend `mine` takes both,
    ```mlir
    %1 = fused.partition(%a = %x : tensor<8xf32>) -> (tensor<8xf32>) attributes {backend = "mine", memory = "private"} { ... }
    ```
    Ops in kernels, with directives or of unknown extents are left alone, and those that a part would have to wait for
    while they wait for it. What a backend drops from a part is left out, and the rest grouped anew. A part stays with the
    graph where it has fewer than `min_ops` ops and its backend does not say that it saves time so, or where the backend
    says what it takes and that is no less than what other implementations do. Backends are those that the module allows (see
    attach-backends) and that take parts of graphs, and have a part in training where the module says `graph.training`.

    Requires: nothing. Ensures: parts are convex, connected and together without a cycle. `unfuse` undoes it.
    """

    name = "partition"

    backend: tuple[str, ...] = ()
    """Backends in order of preference; without a word all that the module allows, in the order of their registration."""
    min_ops: int = 2
    """The fewest ops of a part, but for one that saves time by what its backend says."""
    min_us_saved: float = 0.0
    """The least time that a part has to save, in microseconds, where its backend says what it takes."""
    max_groups: int = 0
    """The most parts of a backend in a function, those that save most: 0 for no limit."""
    device: str = "cpu"
    """What times are worked out for: a device's name, such as cpu or h100, or the path of a .toml file like theirs."""

    def __post_init__(self) -> None:
        find_device(self.device)
        check_counts(self)

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        machine = find_device(self.device)
        training = is_training(op)
        if training:
            _check_gradients(op)
        with choosing(self.name, op) as choices:
            self._partition(op, machine, training, choices)

    def _partition(self, op: ModuleOp, machine: Device, training: bool, choices: Choices) -> None:
        for offer in self._offers(op):
            if training and not offer.differentiable:
                remark(self.name, op, "training", f"'{offer.backend}' takes no parts of a program that is trained")
                continue
            for block in sweep_functions(op):
                partitioner = _Partitioner(self, offer, machine, block, choices)
                while partitioner.make_parts():  # what a review dropped may be parts of its own
                    pass

    def _offers(self, module: ModuleOp) -> Iterator[PartitionOffer]:
        if platform_of(module) != "cpu":
            return  # a part is a function of the host's
        allowed = allowed_backends(module) or ()
        for name in self.backend or partition_backends():
            offer = partition_offer(name)
            if offer is None:
                known = ", ".join(partition_backends()) or "none"
                message = f"'{self.name}' option backend: '{name}' takes no parts of graphs; expected one of {known}"
                raise RefusedError(message, module)
            if name in allowed or self.backend:
                yield offer


def _check_gradients(module: ModuleOp) -> None:
    """Raises RefusedError for a part of a program that is trained whose backend is for inference alone."""
    for op in module.walk():
        if isinstance(op, PartitionOp) and (offer := partition_offer(op.backend.data)) and not offer.differentiable:
            raise RefusedError(
                f"'{op.name}' is run by '{offer.backend}', which refuses training, and the module says {TRAINING}; remove that "
                "attribute for inference, or undo the part by unfuse and remove the backend",
                op,
            )


class _Partitioner:
    """Makes parts of a block for a backend."""

    def __init__(
        self, options: PartitionPass, offer: PartitionOffer, machine: Device, block: Block, choices: Choices
    ) -> None:
        self.choices = choices
        self.options = options
        self.offer = offer
        self.machine = machine
        self.block = block
        self._said = set[tuple[Operation, str]]()

    def make_parts(self) -> bool:
        """Whether any part was made."""
        taken: set[Operation] = {op for op in self.block.ops if self._is_taken(op)}
        limits, device = Limits(_NO_LIMIT, _NO_LIMIT, _NO_LIMIT), _without_limits(self.machine)
        while True:
            graph = GroupGraph(self.block, limits, device)
            _merge(graph, taken)
            parts = [_Part.of(graph, group) for group in graph.groups() if group.first in taken]
            if not (dropped := {op for part in parts for op in self._dropped(part)}):
                break
            taken -= dropped
        name = self.offer.backend
        if self.choices.replays:
            chosen = [part for part in parts if self.choices.says(part.group.first, name)]
        else:
            chosen = self._chosen([part for part in parts if self._pays(part)])
        chosen = [part for part in chosen if self.choices.take(part.group.first, name)]
        for kernel, part in zip(build_kernels(graph, [part.group for part in chosen]), chosen, strict=True):
            self._take(kernel, part)
        return bool(chosen)

    def _is_taken(self, op: Operation) -> bool:
        if not isinstance(op, GraphOp) or is_creation(op) or directives(op):
            return False
        if not op.operands or not all(map(is_static, (*op.operands, *op.results))):
            return False
        with _faults_at(op):
            reason = self.offer.refusal(Site.of(op))
        if reason is not None:
            self._say(op, "refused", f"is not for '{self.offer.backend}': {reason}")
        return reason is None

    def _dropped(self, part: _Part) -> list[GraphOp]:
        with _faults_at(part.group.first):
            kept = self.offer.kept(part.subgraph)
        dropped = [op for number, op in enumerate(part.ops) if number not in kept]
        for op in dropped:
            self._say(op, "declined", f"is left out by '{self.offer.backend}'")
        return dropped

    def _pays(self, part: _Part) -> bool:
        """Whether the part has enough ops, and saves enough time where that is known; sets what it saves."""
        first, count = part.group.first, len(part.ops)
        with _faults_at(first):
            seconds = self.offer.call_seconds(part.subgraph, self.machine)
        if count < self.options.min_ops and seconds is None:
            message = f"is not given to '{self.offer.backend}': fewer ops than {self.options.min_ops}"
            self._say(first, "few-ops", message, f"min-ops={count}", {"ops": count})
            return False
        if seconds is None:
            part.saved = float(count)
            return True
        part.saved = 1e6 * (sum(alone_seconds(op, self.machine) for op in part.ops) - seconds)
        part.numbers = {"us": round(1e6 * seconds, 1), "us_saved": round(part.saved, 1)}
        if part.saved >= self.options.min_us_saved and (count >= self.options.min_ops or part.saved > 0):
            return True
        message = f"is not given to '{self.offer.backend}': it would save too little time"
        self._say(first, "slower", message, f"min-us-saved={part.numbers['us_saved']}", {"ops": count, **part.numbers})
        return False

    def _chosen(self, parts: Sequence[_Part]) -> list[_Part]:
        if not self.options.max_groups:
            return list(parts)
        there = sum(isinstance(op, PartitionOp) and op.backend.data == self.offer.backend for op in self.block.ops)
        left = max(self.options.max_groups - there, 0)
        most = sorted(range(len(parts)), key=lambda number: (-parts[number].saved, number))[:left]
        return [parts[number] for number in sorted(most)]

    def _take(self, kernel: KernelOp, part: _Part) -> None:
        """Makes the kernel a partition."""
        with _faults_at(kernel):
            workspace = self.offer.workspace_bytes(part.subgraph)
        types = [result.type for result in kernel.results]
        made = PartitionOp(list(kernel.operands), types, kernel.detach_region(kernel.body))
        made.backend = StringAttr(self.offer.backend)
        made.memory = StringAttr(PLANNED if self.offer.planned else "workspace" if workspace else "private")
        made.set_workspace(workspace)
        made.location = kernel.location
        assert kernel.parent is not None
        kernel.parent.insert_op_before(made, kernel)
        for old, new in zip(kernel.results, made.results, strict=True):
            new.name_hint = old.name_hint
            old.replace_all_uses_with(new)
        kernel.detach()
        kernel.erase()
        count = len(part.ops)
        self._say(
            made, "partition", f"of {count} ops is run by '{self.offer.backend}'", "", {"ops": count, **part.numbers}
        )

    def _say(
        self, op: Operation, code: str, message: str, flip: str = "", numbers: Mapping[str, Number] | None = None
    ) -> None:
        """A remark, once."""
        if (op, code) not in self._said:
            self._said.add((op, code))
            remark(PartitionPass.name, op, code, message, flip=flip, numbers=numbers)


@contextmanager
def _faults_at(op: Operation) -> Generator[None]:
    """What a backend does wrong in the body is an error at the op."""
    try:
        yield
    except BackendFault as fault:
        raise RefusedError(str(fault), op) from fault


@dataclass(eq=False)
class _Part:
    """A group that a backend may run."""

    group: Group
    ops: list[GraphOp]
    subgraph: Subgraph
    saved: float = 0.0
    """Microseconds, or ops where times are not known."""
    numbers: dict[str, Number] = field(default_factory=dict[str, Number])

    @classmethod
    def of(cls, graph: GroupGraph, group: Group) -> _Part:
        ops = cast("list[GraphOp]", sorted(group.ops, key=graph.position.__getitem__))
        results = graph.results([group]) or group.outputs[-1:]
        made = {value for op in ops for value in op.results}
        arguments = list(dict.fromkeys(value for op in ops for value in op.operands if value not in made))
        return cls(group, ops, Subgraph.of(ops, arguments, results))


def _merge(graph: GroupGraph, taken: set[Operation]) -> None:
    """Joins groups of the taken ops along what they read, again while that made another one possible."""
    edges = [
        (op, owner)
        for op in graph.position
        if op in taken
        for value in op.operands
        if (owner := _owner(value)) in taken
    ]
    waiting = True
    while edges and waiting:
        left: list[tuple[Operation, Operation | None]] = []
        waiting = False
        for op, owner in edges:
            pair = graph.group_of[op], graph.group_of[cast(Operation, owner)]
            if pair[0] is pair[1]:
                continue
            if graph.merge(pair) is None:
                waiting = True
            else:
                left.append((op, owner))
        edges = left


def _owner(value: SSAValue) -> Operation | None:
    return value.owner if isinstance(value.owner, Operation) else None


def _without_limits(machine: Device) -> Device:
    """A backend's call takes any number of operands, and its values are in no registers of ours."""
    return replace(machine, parameter_bytes=_NO_LIMIT, live_values=_NO_LIMIT)
