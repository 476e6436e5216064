"""How AOTAutograd's joint graph becomes a forward and a backward graph: within a budget, no more is kept than has room in it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import Any

from fuse_opt.frontends.torch.cuts import Cut, CutSearch, Trials
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


_KEPT: ContextVar[dict[object, Trials] | None] = ContextVar("fuse_opt_torch_trials", default=None)


@contextmanager
def keep_trials() -> Generator[None]:
    """Keeps the trials of graphs that are made in its body: other budgets of the same model go on with them."""
    token = _KEPT.set(kept if (kept := _KEPT.get()) is not None else {})
    try:
        yield
    finally:
        _KEPT.reset(token)


def kept_trials(program: object, make: Callable[[], Trials]) -> Trials:
    """The trials of a program, which `program` is equal for: made once where they are kept."""
    if (kept := _KEPT.get()) is None:
        return make()
    if program not in kept:
        kept[program] = make()
    return kept[program]


@dataclass(frozen=True)
class WithinBudget:
    """
    The graphs that keep the most of those that fit, as passes plan their arenas, or where none does, of those that fit with more
    recomputation of loops; if none does so, either, those that are likely to fit, as passes may compute products again, and if
    they do not, those that need least. Raises ValueError where these do not fit: it says what they need, and that does.

    The less is kept, the less is needed, mostly: so cuts are halved by what is alive in their graphs, and few go through all
    passes.
    """

    budget: int
    trials: Callable[[Any, str], Trials | None]
    """Of a graph of a kind; None where extents are unknown."""
    chosen: list[Trials]
    """Filled with those of the graphs that are given."""

    def __call__(self, joint: Any, arguments: Sequence[Any], **options: Any) -> tuple[Any, Any]:
        search = CutSearch(self.budget, len(_SHARES), cache(partial(self._cut, joint, arguments, options)))
        with keep_trials():  # cuts may have a graph in common
            if (cut := search.choice()) is None:
                cut = search.least()
                if cut.least > self.budget:
                    raise cut.refusal(self.budget)
            self.chosen[:] = cut.tried.values()
        return cut.graphs

    def _cut(self, joint: Any, arguments: Sequence[Any], options: dict[str, Any], number: int) -> Cut:
        config: Any = import_module("torch._functorch.config")
        with config.patch(activation_memory_budget=_SHARES[number]):
            graphs = least_cut(deepcopy(joint), arguments, **options)
        return Cut(saved_bytes_of(graphs[0], options["num_fwd_outputs"]), graphs, self.trials)
