"""Questions that several fusion rules ask about groups: who else reads a value, what would be computed again, and does it pay."""

from __future__ import annotations

from collections.abc import Sequence

from fuse_opt.dialects.types import extents
from fuse_opt.passes.fusion.engine.cost_model import Estimate, elements, estimate, evaluations, total_work
from fuse_opt.passes.fusion.engine.group_graph import Group, GroupGraph, Refusal


def is_internal(graph: GroupGraph, producer: Group, consumer: Group) -> bool:
    """Whether nobody but the consumer reads the values that it takes from the producer."""
    if len(producer.consumers) == 1:
        return True
    members = {producer, consumer}
    return not any(value in consumer.inputs and graph.is_used(value, members) for value in producer.outputs)


def refuse_recompute(graph: GroupGraph, producer: Group, consumer: Group) -> Refusal | None:
    """Refuses to compute values once for every place that they are broadcast to, when they are costly or it costs time."""
    before, after = elements(graph, producer), elements(graph, consumer)
    if after <= before:
        return None
    cost = total_work(producer)
    if cost > graph.device.recompute_limit:
        message = f"{cost} operations would run {after} times instead of {before}; cheaper stored and read again"
        numbers: dict[str, float] = {"work": cost, "times": after, "instead_of": before}
        return Refusal(
            "recompute", message, numbers, f"at most {graph.device.recompute_limit} operations before the broadcast"
        )
    members = [producer, consumer]
    times = evaluations(graph, producer, members)
    return refuse_loss(graph, estimate(graph, members, cost * max(times - before, 0)))


def refuse_loss(graph: GroupGraph, found: Estimate) -> Refusal | None:
    """Refuses what the model says would be slower."""
    if found.seconds >= 0:
        return None
    device = graph.device
    gain = found.seconds + device.work_seconds(found.work_added)
    message = (
        f"{found.work_added} operations more would cost {device.work_seconds(found.work_added) * 1e6:.3g} us to save "
        f"{max(gain, 0) * 1e6:.3g} us on '{device.name}'"
    )
    return Refusal("recompute", message, flip=f"at most {int(max(gain, 0) * device.rate)} operations more")


def refuse_results(graph: GroupGraph, members: Sequence[Group]) -> Refusal | None:
    """Refuses results of unequal sizes, which one loop cannot store."""
    sizes = graph.result_sizes(members)
    if len(sizes) < 2:
        return None
    message = f"results of {', '.join(map(str, sorted(sizes, key=extents.estimate)))} elements would share one loop"
    return Refusal("unequal-results", message, flip="no reader of the results but those of one size")


def refuse_multi_use(size: str = "") -> Refusal:
    """The refusal of a producer that must be stored for others in any case."""
    message = f"its result {size}is read elsewhere as well, so it is stored anyway"
    return Refusal("multi-use", message, flip="a single reader")
