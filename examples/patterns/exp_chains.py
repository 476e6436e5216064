"""Fuse chains of exponentials, and nothing else."""

from fuse_opt.passes.fusion.patterns import Group, GroupGraph, Refusal, member_ops


class ExpChains:
    name = "exp-chains"

    def consider(self, graph: GroupGraph, producer: Group, consumer: Group) -> list[Group] | Refusal | None:
        if any(op.name != "graph.exp" for op in member_ops([*producer.ops, *consumer.ops])):
            return None
        return [producer, consumer]


rule = ExpChains()
