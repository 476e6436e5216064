"""Entries of a schedule changed together: all ways, or a sample of them, which learns from what it gave where optuna is there."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from math import prod
from typing import Any

from fuse_opt.passes.scheduling.tuned_schedules import Settings
from fuse_opt.tools.tuning.search.candidates import Candidate, Site

LIBRARY = "optuna"
_ASKED = 4
"""Times as many are asked of a sampler as are wanted: it may give one again."""
Shown = Callable[[Candidate], float | None]
"""What the first pairs of a candidate showed; None where it was not measured, or failed."""


def combinations(site: Site, winners: Sequence[Candidate], seed: int, most: int, shown: Shown) -> Iterable[Candidate]:
    """
    The default with several entries changed at once, each as in one of `winners` that changed it alone: all, or where there are
    more than `most` some of them, by the seed.
    """
    base = site.default.settings
    values: dict[str, list[Candidate]] = {}
    for winner in winners:
        changed = [name for name, value in winner.settings.items() if base.get(name) != value]
        if len(changed) == 1 and changed[0] != "kind":
            values.setdefault(changed[0], []).append(winner)
    count = prod(1 + len(each) for each in values.values()) - 1 - sum(map(len, values.values()))
    if count > most and find_spec(LIBRARY) is not None:
        return _learnt(base, values, seed, most, shown)
    found = _all(base, values)
    if count <= most:
        return found
    drawn = set(random.Random(seed).sample(range(count), most))
    return (candidate for number, candidate in enumerate(found) if number in drawn)


def _all(base: Settings, values: Mapping[str, Sequence[Candidate]]) -> Iterator[Candidate]:
    for count in range(2, len(values) + 1):
        for names in itertools.combinations(values, count):
            for chosen in itertools.product(*(values[name] for name in names)):
                yield _together(base, chosen)


def _learnt(
    base: Settings, values: Mapping[str, Sequence[Candidate]], seed: int, most: int, shown: Shown
) -> Iterator[Candidate]:
    """As a tree-structured Parzen estimator asks for them (Bergstra et al. 2011), in memory: records are the study."""
    optuna: Any = import_module(LIBRARY)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    waiting: dict[int, Candidate] = {}
    seen: set[Candidate] = set()
    for _ in range(_ASKED * most):
        for number, candidate in list(waiting.items()):
            if (result := shown(candidate)) is not None:
                study.tell(number, result)
                del waiting[number]
        trial = study.ask()
        places: dict[str, int] = {
            name: trial.suggest_categorical(name, list(range(1 + len(each)))) for name, each in values.items()
        }
        candidate = _together(base, [values[name][place - 1] for name, place in places.items() if place])
        waiting[trial.number] = candidate
        seen.add(candidate)
        if len(seen) > most:
            return
        yield candidate


def _together(base: Settings, chosen: Sequence[Candidate]) -> Candidate:
    settings = {**base, **_changes(base, chosen)}
    return Candidate.of(settings, all(each.same_bits for each in chosen))


def _changes(base: Settings, chosen: Iterable[Candidate]) -> dict[str, str | int]:
    return {n: v for each in chosen for n, v in each.settings.items() if base.get(n) != v}
