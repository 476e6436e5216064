"""Fuse views (slices, transposes, reshapes, concats) with the elementwise ops around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fuse_opt.dialects.interfaces.structured_op import FusionKind
from fuse_opt.passes.fusion.engine.access_paths import MAX_PATHS, Access, AccessPaths
from fuse_opt.passes.fusion.engine.cost_model import elements, estimate, moves_nothing
from fuse_opt.passes.fusion.engine.group_graph import Group, GroupGraph, Refusal, Rule
from fuse_opt.passes.fusion.engine.rule_checks import is_internal, refuse_multi_use, refuse_recompute, refuse_results
from fuse_opt.passes.fusion.engine.worklist import FusionPass
from fuse_opt.passes.remarks import is_collecting

MAX_REPETITION = 2
"""How often a value may be computed on average, because it is wanted at several indices."""


@dataclass
class InjectiveRule:
    """One side moves elements. The producer joins its only reader, or all of its readers at once."""

    paths: AccessPaths = field(default_factory=AccessPaths)
    known: dict[Group, Access] = field(default_factory=dict[Group, Access])
    foreseen: tuple[Sequence[Group], Access] | None = None
    """The members that were last found to fit, and what they would be together."""

    def joined(self, group: Group, parts: Sequence[Group]) -> None:
        """Keeps what was foreseen of a group that was made."""
        for part in parts:
            self.known.pop(part, None)
        if self.foreseen is not None and list(self.foreseen[0]) == list(parts):
            self.known[group] = self.foreseen[1]

    def consider(self, graph: GroupGraph, producer: Group, consumer: Group) -> Sequence[Group] | Refusal | None:
        kinds = (producer.kind, consumer.kind)
        if FusionKind.INJECTIVE not in kinds or max(kinds) > FusionKind.INJECTIVE:
            return None
        members = [producer, consumer]
        if (refusal := graph.refuse_by_limits(members)) is not None:
            return refusal
        if consumer.kind <= FusionKind.BROADCAST and elements(graph, producer) == elements(graph, consumer):
            return refuse_results(graph, members) or members
        if is_internal(graph, producer, consumer):
            return (
                refuse_recompute(graph, producer, consumer)
                or refuse_results(graph, members)
                or self._refuse_merge(graph, members)
                or members
            )
        if moves_nothing(consumer):
            message = "a view that keeps every element in its place costs nothing outside"
            return Refusal("alias", message, flip="nothing to gain")
        members = [producer, *producer.consumers]
        if any(group.kind > FusionKind.INJECTIVE for group in members):
            return refuse_multi_use()
        return (
            graph.refuse_by_limits(members)
            or self._refuse_broadcast(graph, members)
            or refuse_results(graph, members)
            or self._refuse_merge(graph, members)
            or members
        )

    def _refuse_broadcast(self, graph: GroupGraph, members: list[Group]) -> Refusal | None:
        """Refuses to compute a value again for each place that one of its readers broadcasts it to."""
        producer, *readers = members
        refusals = (refuse_recompute(graph, producer, reader) for reader in readers)
        return next((refusal for refusal in refusals if refusal is not None), None)

    def _refuse_merge(self, graph: GroupGraph, members: list[Group]) -> Refusal | None:
        """Refuses by copies, or first by what is easier to see where nobody hears the reason."""
        return (None if is_collecting() else graph.refuse(members)) or self._refuse_copies(graph, members)

    def _refuse_copies(self, graph: GroupGraph, members: list[Group]) -> Refusal | None:
        """Refuses when reading a value at several indices would repeat too much, or lose the neighbourhood of elements."""
        inside = set(members)
        parts = [
            (self._access(group), group.outputs, graph.has_result(group, inside))
            for group in sorted(members, key=lambda group: group.rank)
        ]
        merged, size = self.paths.merged(parts), elements(graph, members[-1])
        if merged.too_many or merged.repetition(size) > MAX_REPETITION:
            # That was an upper bound: as if every result of a part were read wherever one of them is.
            ops = sorted((op for group in members for op in group.ops), key=graph.position.__getitem__)
            merged = self.paths.of(ops, graph.results(members))
        if merged.too_many or merged.repetition(size) > MAX_REPETITION:
            repetition = merged.repetition(size)
            message = f"values would be computed {repetition:.3g} times on average"
            flip = f"at most {MAX_REPETITION} times, and {MAX_PATHS} indices of one value"
            return Refusal("recompute", message, {"times": repetition}, flip)
        if (refusal := self._refuse_strided(graph, members)) is not None:
            return refusal
        self.foreseen = members, merged
        return None

    def _access(self, group: Group) -> Access:
        if group not in self.known:
            self.known[group] = self.paths.of(group.ops, group.outputs)
        return self.known[group]

    def _refuse_strided(self, graph: GroupGraph, members: list[Group]) -> Refusal | None:
        """Refuses when several operands would be read with a stride, in place of the one value made from them."""
        producer, device = members[0], graph.device
        places = [self._access(group).reads.get(value) for group in members[1:] for value in producer.outputs]
        if not any(paths is not None and self.paths.is_strided(paths) for paths in places):
            return None
        made = max(map(graph.nbytes, producer.outputs))
        sizes = [min(graph.nbytes(value), made) for value in producer.inputs]
        read = sum(nbytes for nbytes in sizes if 2 * nbytes >= made)
        lost = device.move_seconds(max(read - made, 0)) * (device.strided - 1)
        gain = estimate(graph, members).seconds
        if lost <= gain:
            return None
        message = f"{read} bytes would be read with a stride instead of {made}: {lost * 1e6:.3g} us lost to save {gain * 1e6:.3g}"
        return Refusal("locality", message, {"strided_bytes": read}, "fewer operands before the transpose")


@dataclass(frozen=True)
class FuseInjectivePass(FusionPass):
    """A view becomes an index expression of the kernel that reads or makes its operand.

    ```mlir
    %0 = graph.add %x, %b : (tensor<8x4xf32>, tensor<4xf32>) -> tensor<8x4xf32>
    %1 = graph.permute_dims %0 {axes = array<i64: 1, 0>} : (tensor<8x4xf32>) -> tensor<4x8xf32>
    ```
    becomes one kernel that reads `%x` transposed. A value that all readers slice is computed slice by slice in one
    kernel with several results.

    Ensures: the contracted graph is acyclic; limits and directives hold. Needs nothing; existing kernels may grow.
    """

    name = "fuse-injective"

    def rule(self) -> Rule:
        return InjectiveRule()
