"""Calls of compiled graphs that have not worked yet: where one fails, arguments are as they were, and something else runs it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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

    def __init__(self, imported: Imported, failed: Failed, device: Any = None) -> None:
        """Random numbers are drawn on the processor, and on a device where one is given."""
        self.stored = [imported.placeholders.index(each.argument) for each in imported.stored]
        """The numbers of the arguments that are written to before the call is at its end, or may be."""
        self.failed = failed
        self._generators = generators(device) if any(draws(call.target) for call in imported.calls) else []

    def __call__(self, call: Call, args: list[Any], most: int | None = None) -> Any:
        """Where more than `most` bytes of arguments may be written to, nothing is undone: an error is raised as it is."""
        given = list(args)
        if most is not None and sum(given[number].nbytes for number in self.stored) > most:
            return call(args)
        before = [given[number].clone() for number in self.stored]
        states = [get() for get, _ in self._generators]
        try:
            return call(args)
        except Exception as error:
            with torch.no_grad():
                for number, contents in zip(self.stored, before, strict=True):
                    given[number].copy_(contents)
            for state, (_, put) in zip(states, self._generators, strict=True):
                put(state)
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


def generators(device: Any) -> list[tuple[Callable[[], Any], Callable[[Any], None]]]:
    """What gives the state of the random numbers of the processor, and of a device, and what sets it."""
    found: list[tuple[Callable[[], Any], Callable[[Any], None]]] = [(torch.get_rng_state, torch.set_rng_state)]
    if device is not None and device.type != "cpu":
        module = torch.get_device_module(device)
        found.append((partial(module.get_rng_state, device), partial(module.set_rng_state, device=device)))
    return found


def draws(target: Any) -> bool:
    """Whether an overload draws random numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())
