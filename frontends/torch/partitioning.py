"""How AOTAutograd's joint graph becomes a forward and a backward graph: within a budget, no more is kept than has room in it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from importlib import import_module
from itertools import islice
from math import inf
from typing import Any, Protocol, cast

from fuse_opt.frontends.torch.saved_values import saved_bytes_of
from fuse_opt.tools.compiler import api

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
    """What passes make of a graph at levels of recomputation: as they are, of all that loops compute, of products, too."""

    def alive(self, level: int) -> int: ...
    def arena(self, level: int, budget: int) -> int: ...
    def within(self, budget: int) -> Any: ...
    @property
    def least(self) -> Any: ...


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


LOOPS, PRODUCTS = 1, 2
"""Levels above 0, which is recomputation as the passes do it."""

_FAR = 1.3
"""By which part more may be alive than is needed, where nothing is known yet."""
_SURE = 0.85
"""The part of a budget that is likely to be enough where products are computed again."""
_NEAR = 1.25
"""By which part more may be alive with a cut than with another one whose arenas are made to know the least budget."""
_FURTHER = 2
"""Cuts that keep more than one that fits, that are looked at for less work."""
_TRIED = 4
"""Cuts whose arenas are made for that."""


@dataclass(frozen=True)
class _Cut:
    """A forward and a backward graph, and the bytes that the one keeps for the other."""

    saved: int
    graphs: tuple[Any, Any]
    trials: Callable[[Any, str], Trials | None]

    @cached_property
    def tried(self) -> dict[str, Trials]:
        """By kind: of the backward graph, then of the forward one, whose arena is mostly the smaller."""
        found = {kind: self.trials(self.graphs[number], kind) for number, kind in ((1, "backward"), (0, "forward"))}
        return {kind: trials for kind, trials in found.items() if trials is not None}

    def predicted(self, level: int, scales: Mapping[str, float]) -> float:
        """About the bytes that are needed, without the passes behind recomputation; `scales` are arenas to what is alive."""
        arenas = (trials.alive(level) * scales.get(kind, 1.0) for kind, trials in self.tried.items())
        return self.saved + max(arenas, default=0.0)

    def fits(self, level: int, budget: int, scales: dict[str, float]) -> bool:
        """Whether what is needed is within a budget; the scales are those of these graphs then, as far as it takes to tell."""
        for kind, trials in self.tried.items():
            arena = trials.arena(level, budget - self.saved)
            if alive := trials.alive(level):
                scales[kind] = arena / alive
            if self.saved + arena > budget:
                return False
        return True

    def work(self, budget: int) -> float:
        """Seconds that the ops of its graphs take within a budget, with what they compute again; infinity without room."""
        total = 0.0
        for trials in self.tried.values():
            if (found := trials.within(budget - self.saved)) is None:
                return inf
            total += found.work
        return total

    @cached_property
    def alive(self) -> int:
        """About the bytes that are needed at least."""
        least = (min(map(trials.alive, (0, LOOPS, PRODUCTS))) for trials in self.tried.values())
        return self.saved + max(least, default=0)

    @cached_property
    def least(self) -> int:
        """Bytes that are needed, as far as is found."""
        return self.saved + max((trials.least.arena for trials in self.tried.values()), default=0)

    def refusal(self, budget: int) -> ValueError:
        """Says why a budget is not kept, and which one is."""
        if not self.tried:
            return ValueError(
                f"option 'budget': values that are kept from the forward to the backward graph take {self.saved} bytes"
            )
        trials = max(self.tried.values(), key=lambda each: each.least.arena)
        over = api.over_budget(cast(Any, trials), max(budget - self.saved, 0))
        kept = f"of {budget} bytes values that are kept from the forward to the backward graph take {self.saved}"
        return ValueError(f"option 'budget': {kept}; {over}; with those {self.least}B")


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
        search = _Search(self.budget, cache(partial(self._cut, joint, arguments, options)))
        with keep_trials():  # cuts may have a graph in common
            if (cut := search.choice()) is None:
                cut = search.least()
                if cut.least > self.budget:
                    raise cut.refusal(self.budget)
            self.chosen[:] = cut.tried.values()
        return cut.graphs

    def _cut(self, joint: Any, arguments: Sequence[Any], options: dict[str, Any], number: int) -> _Cut:
        config: Any = import_module("torch._functorch.config")
        with config.patch(activation_memory_budget=_SHARES[number]):
            graphs = least_cut(deepcopy(joint), arguments, **options)
        return _Cut(saved_bytes_of(graphs[0], options["num_fwd_outputs"]), graphs, self.trials)


@dataclass(frozen=True)
class _Search:
    budget: int
    cut: Callable[[int], _Cut]
    """By number of the share that is kept."""
    scales: dict[str, float] = field(default_factory=dict[str, float])
    """Arenas to what is alive, by kind of graph, as the last trials were."""

    def choice(self) -> _Cut | None:
        """None where none is found that fits."""
        for level in (0, LOOPS):
            found = api.first_that_fits(
                len(_SHARES),
                partial(self._is_likely, level, self.budget),
                lambda number, level=level: self.cut(number).fits(level, self.budget, self.scales),
                lambda number, level=level: not self.scales and self._is_likely(level, _FAR * self.budget, number),
            )
            if found is not None:
                return self.cut(found)
        asked: dict[int, float] = {}

        def is_sure(number: int) -> bool:
            cut = self.cut(number)
            asked[number] = cut.predicted(PRODUCTS, self.scales) if cut.saved <= self.budget else inf
            return asked[number] <= _SURE * self.budget

        first = bisect_left(range(len(_SHARES)), True, key=is_sure)
        first = first if first < len(_SHARES) else min(asked, key=asked.__getitem__)
        if asked[first] == inf or (work := self.cut(first).work(self.budget)) == inf:
            return None
        return self._keeping_more(first, work)

    def _keeping_more(self, number: int, work: float) -> _Cut:
        """The cut of a number, or those before it that keep more, as long as they take less work and fit, too."""
        best = self.cut(number)
        others = (cut for cut in map(self.cut, reversed(range(number))) if cut.saved != best.saved)
        for cut in islice(others, _FURTHER):
            if cut.saved > self.budget or cut.predicted(PRODUCTS, self.scales) > self.budget:
                break
            if (other := cut.work(self.budget)) >= work:
                break
            best, work = cut, other
        return best

    def least(self) -> _Cut:
        """The cut that needs least, whatever the budget."""
        found = {(cut.saved, cut.alive): cut for cut in map(self.cut, range(len(_SHARES)))}
        cuts = sorted(found.values(), key=lambda cut: cut.alive)
        near = [cut for cut in cuts[:_TRIED] if cut.alive <= _NEAR * cuts[0].alive]
        return min(near, key=lambda cut: cut.least)

    def _is_likely(self, level: int, budget: float, number: int) -> bool:
        cut = self.cut(number)
        return cut.saved <= self.budget and cut.predicted(level, self.scales) <= budget
