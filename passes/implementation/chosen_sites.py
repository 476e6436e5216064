"""What runs each site of a module, what is next and what refuses: noted as it is chosen, for whoever shows it afterwards.

    with collect_sites() as sites:
        compile(...)
    sites.groups()

A run of `select-implementation` visits every site, so the last one has the last word: what earlier ones noted (trials of a
budget, a pipeline that chooses twice) is dropped. Outside of `collect_sites` nothing is noted.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.passes.implementation.choice import Choice
from fuse_opt.passes.remarks import location


@dataclass(frozen=True, slots=True)
class SiteGroup:
    """Sites that are alike: the same ops of the same types, for which the same was chosen."""

    ops: str
    types: str
    """Of the first op's operands."""
    at: str
    """Where the first of them comes from."""
    choice: Choice
    count: int = 1

    @property
    def seconds(self) -> float:
        """What all of them are said to take; 0 where that is not known."""
        chosen = self.choice.chosen
        return 0.0 if chosen is None else self.count * (chosen.seconds or 0.0)

    def record(self) -> dict[str, Any]:
        """As data that JSON has."""
        what = {"op": self.ops, "types": self.types, "at": self.at, "sites": self.count}
        return {**what, **self.choice.record()}


class Sites:
    """What was noted."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, str], SiteGroup] = {}

    def begin(self) -> None:
        """Another run visits all sites."""
        self._found.clear()

    def note(self, kernel: KernelOp, ops: Sequence[GraphOp], choice: Choice) -> None:
        """A kernel for which that was chosen; one object for kernels that compute the same."""
        names = " and ".join(op.name for op in ops)
        key = id(choice), names
        if (found := self._found.get(key)) is not None:
            self._found[key] = replace(found, count=found.count + 1)
            return
        types = ", ".join(str(value.type) for value in ops[0].operands)
        self._found[key] = SiteGroup(names, types, location(kernel), choice)

    def groups(self) -> list[SiteGroup]:
        """The groups, in the order in which the first of each was met."""
        merged: dict[str, SiteGroup] = {}
        for group in self._found.values():
            key = str({**group.record(), "at": "", "sites": 0})
            known = merged.get(key)
            merged[key] = group if known is None else replace(known, count=known.count + group.count)
        return list(merged.values())


_NOTED: ContextVar[Sites | None] = ContextVar("fuse_opt_chosen_sites", default=None)


@contextmanager
def collect_sites() -> Generator[Sites]:
    """Has what is chosen in the body noted, in this thread."""
    token = _NOTED.set(sites := Sites())
    try:
        yield sites
    finally:
        _NOTED.reset(token)


def noted_sites() -> Sites | None:
    """Where a run of the pass that chooses notes sites, of which there are none yet; None where nobody asks."""
    if (sites := _NOTED.get()) is not None:
        sites.begin()
    return sites
