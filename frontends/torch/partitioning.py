"""How AOTAutograd's joint graph becomes a forward and a backward graph: within a budget, no more is kept than has room in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from fuse_opt.frontends.torch.saved_values import saved_bytes_of

Partition = Callable[..., tuple[Any, Any]]
"""What makes the two graphs of a joint graph, its arguments, and `num_fwd_outputs`."""

_SHARES = (1.0, 0.9, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0)
"""Of what autograd would keep without recomputation: parts that PyTorch's partitioner is asked to keep, the largest first."""


def least_cut(joint: Any, arguments: Sequence[Any], **options: Any) -> tuple[Any, Any]:
    """The graphs between which PyTorch's least cut lies, where pointwise ops are computed again and others are not."""
    return import_module("torch._functorch.partitioners").min_cut_rematerialization_partition(
        joint, arguments, **options
    )


@dataclass(frozen=True)
class WithinBudget:
    """
    The graphs that keep the most of those that fit, by the arenas that passes make of them without more recomputation; those
    that need the least where none fits, as the passes may compute more again.
    """

    budget: int
    arena: Callable[[Any, str], int]
    """Bytes of the arena of a graph of a kind."""

    def __call__(self, joint: Any, arguments: Sequence[Any], **options: Any) -> tuple[Any, Any]:
        config: Any = import_module("torch._functorch.config")
        found: list[tuple[int, tuple[Any, Any]]] = []
        seen: set[int] = set()
        for share in _SHARES:
            with config.patch(activation_memory_budget=share):
                graphs = least_cut(deepcopy(joint), arguments, **options)
            saved = saved_bytes_of(graphs[0], options["num_fwd_outputs"])
            if saved in seen or saved > self.budget:
                continue
            seen.add(saved)
            needed = saved + max(map(self.arena, graphs, ("forward", "backward")))
            if needed <= self.budget:
                return graphs
            found.append((needed, graphs))
        if not found:
            return least_cut(joint, arguments, **options)
        return min(found, key=lambda each: each[0])[1]
