"""How AOTAutograd's joint graph becomes a forward and a backward graph: within a budget, no more is kept than has room in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, Protocol

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


class Trials(Protocol):
    """What passes make of a graph with ever more recomputation."""

    def fits(self, budget: int, loops: bool) -> bool: ...
    def likely(self) -> int: ...


@dataclass(frozen=True)
class _Cut:
    """A forward and a backward graph, and the bytes that the one keeps for the other."""

    saved: int
    graphs: tuple[Any, Any]
    trials: Callable[[Any, str], Trials | None]

    @cached_property
    def _trials(self) -> list[Trials]:
        """Of the backward graph, then of the forward one, whose arena is mostly the smaller."""
        found = (self.trials(self.graphs[number], kind) for number, kind in ((1, "backward"), (0, "forward")))
        return [each for each in found if each is not None]

    def fits(self, budget: int, loops: bool) -> bool:
        """Whether what is kept and either arena fit, with `loops` where all is computed again that loops compute."""
        return all(each.fits(budget - self.saved, loops) for each in self._trials)

    def likely(self) -> int:
        """About the least bytes that are needed, where half of the products may be computed again, too."""
        return self.saved + max((each.likely() for each in self._trials), default=0)


@dataclass(frozen=True)
class WithinBudget:
    """
    The graphs that keep the most of those that fit, as passes plan their arenas, or where none does, of those that fit with more
    recomputation of loops; if none does so, either, those that need the least, as passes may compute products again.
    """

    budget: int
    trials: Callable[[Any, str], Trials | None]
    """Of a graph of a kind; None where extents are unknown."""

    def __call__(self, joint: Any, arguments: Sequence[Any], **options: Any) -> tuple[Any, Any]:
        cuts = self._cuts(joint, arguments, options)
        for loops in (False, True):
            if (found := next((cut for cut in cuts if cut.fits(self.budget, loops)), None)) is not None:
                return found.graphs
        if not cuts:
            return least_cut(joint, arguments, **options)
        return min(cuts, key=_Cut.likely).graphs

    def _cuts(self, joint: Any, arguments: Sequence[Any], options: dict[str, Any]) -> list[_Cut]:
        """Those that keep no more than the budget, one for each number of bytes, the most first."""
        config: Any = import_module("torch._functorch.config")
        found: dict[int, _Cut] = {}
        for share in _SHARES:
            with config.patch(activation_memory_budget=share):
                graphs = least_cut(deepcopy(joint), arguments, **options)
            saved = saved_bytes_of(graphs[0], options["num_fwd_outputs"])
            if saved <= self.budget:
                found.setdefault(saved, _Cut(saved, graphs, self.trials))
        return [found[saved] for saved in sorted(found, reverse=True)]
