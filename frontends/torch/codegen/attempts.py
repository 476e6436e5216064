"""Calls of compiled graphs that have not worked yet: where one fails, arguments are as they were, and something else runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuse_opt.frontends.torch.fx.api import torch
from fuse_opt.frontends.torch.importer.imported import Imported

Call = Callable[[list[Any]], Any]
Failed = Callable[[Exception, list[Any]], Any]
"""What runs a call with the error that ours ended with, or raises it or another one."""


class Attempts:
    """
    Runs calls that may fail. What one that does has written to arguments is undone, and random numbers that PyTorch's kernels
    drew in it are drawn again by what runs instead.
    """

    def __init__(self, imported: Imported, failed: Failed) -> None:
        self.stored = [imported.placeholders.index(each.argument) for each in imported.stored]
        """The numbers of the arguments that are written to."""
        self.failed = failed
        self._draws = any(draws(call.target) for call in imported.calls)

    def __call__(self, call: Call, args: list[Any]) -> Any:
        given = list(args)
        before = [given[number].clone() for number in self.stored]
        state = torch.get_rng_state() if self._draws else None
        try:
            return call(args)
        except Exception as error:
            with torch.no_grad():
                for number, contents in zip(self.stored, before, strict=True):
                    given[number].copy_(contents)
            if state is not None:
                torch.set_rng_state(state)
            args.clear()
            return self.failed(error, given)


class Attempted:
    """A graph whose first call on a device may fail, as a driver or a library refuses something."""

    def __init__(self, call: Call, attempts: Attempts) -> None:
        self._call, self._attempts = call, attempts
        self._ran = False

    def __call__(self, args: list[Any]) -> Any:
        return self._call(args) if self._ran else self._attempts(self._first, args)

    def _first(self, args: list[Any]) -> Any:
        found = self._call(args)
        self._ran = True
        return found


def draws(target: Any) -> bool:
    """Whether an overload draws random numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())
