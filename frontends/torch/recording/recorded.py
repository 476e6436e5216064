"""A compiled graph that is recorded when it has been called some times, and then replayed: the host enqueues it by one call.

A recording reads arguments at the addresses that they had. These are compared in each call; arguments that come from another
place are copied to one that stays from then on; where that would be much, or they are overwritten, the graph is recorded anew.
A call that no recording fits runs as if there were none: on a stream that somebody captures, beside a call of another thread, and
while the backward graph of an earlier one has yet to run.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Sequence
from typing import Any

from fuse_opt.frontends.torch.fx.api import is_tensor, torch
from fuse_opt.frontends.torch.recording.handed_out import HandedOut
from fuse_opt.frontends.torch.recording.recorders import Call, Recorder, Recording

_log = logging.getLogger("fuse_opt.torch")
WARM = 2
"""Calls before the first recording: libraries choose and load what they need in the first one."""
_MOST = 8
"""Recordings of one graph: each takes as long as many calls, and more tell that addresses never settle."""
_COPIED = 0.25
_COPIED_BYTES = 4 << 20
"""The largest part of the bytes of all arguments that is copied in each call, and what is copied in any case."""


class Made:
    """A recording with the arguments that it reads."""

    def __init__(
        self, recording: Recording, given: Sequence[Any], copied: dict[int, Any], stream: int, visible: int
    ) -> None:
        """`stream` is that of the call which it was recorded for."""
        self.recording, self.copied, self.stream = recording, copied, stream
        self.places = [n for n, argument in enumerate(given) if is_tensor(argument) and n not in copied]
        self.addresses = [given[n].data_ptr() for n in self.places]
        self.results = HandedOut(recording.results, given, visible)

    def moved(self, args: Sequence[Any]) -> list[int]:
        """The arguments that are elsewhere than the recording reads them."""
        found = [args[n].data_ptr() for n in self.places]
        if found == self.addresses:
            return []
        return [n for n, new, old in zip(self.places, found, self.addresses, strict=True) if new != old]


class Recorded:
    """The function that runs a graph, for the list of its arguments, which it empties."""

    def __init__(self, overwritten: Sequence[int], parameters: Collection[int], visible: int | None) -> None:
        """
        Arguments `overwritten` are written to where they are; those of `parameters` seldom move. The first `visible` results are
        the caller's to keep, None for all; the others are autograd's.
        """
        self._staying = {*overwritten, *parameters}
        self._overwritten = tuple(overwritten)
        self._visible = visible
        self._lock = threading.Lock()
        self._made: Made | None = None
        self._copied: set[int] = set()
        self._calls = 0
        self._missed: list[tuple[int, int]] = []
        """Arguments that were elsewhere in the last call, and where: they are recorded where they are twice."""
        self._last: int | None = None
        self._over = False
        self.replays = self.recordings = 0
        """For tests and reports."""

    def begin(self, call: Call, recorder: Recorder) -> None:
        """Says what is recorded, and how."""
        self._call, self._recorder = call, recorder

    def __call__(self, args: list[Any]) -> Any:
        if self._over or not self._lock.acquire(blocking=False):
            return self._call(args)
        try:
            stream = self._recorder.stream()
            made = None if stream is None else self._fitting(stream, args)
            if stream is None or made is None or made.results.in_use():
                return self._call(args)
            return self._replayed(made, stream, args)
        finally:
            self._lock.release()

    def _replayed(self, made: Made, stream: int, args: list[Any]) -> Any:
        self._recorder.follow(self._last, stream)
        for number, memory in made.copied.items():
            memory.copy_(args[number])
        made.recording.replay()
        results = made.results.take(args)
        self._recorder.done(stream)
        self._last = stream
        self.replays += 1
        for number in self._overwritten:
            if not args[number].is_inference():
                torch.autograd.graph.increment_version(args[number])
        args.clear()
        return results

    def _fitting(self, stream: int, args: Sequence[Any]) -> Made | None:
        """The recording for a call, made now where it is time; None where the call is to run without."""
        self._calls += 1
        if self._calls <= WARM:
            return None
        if (made := self._made) is None:
            return self._record(stream, args) if self._is_ready(args) else None
        if made.results.keeps and stream != made.stream:
            return None
        if not (moved := made.moved(args)):
            self._missed = []
            return made
        if self.recordings >= _MOST or not self._is_ready(args):
            return None
        self._copied.update(self._to_copy(moved, args))
        missed, self._missed = self._missed, [(n, args[n].data_ptr()) for n in moved if n not in self._copied]
        return self._record(stream, args) if self._missed == missed or not self._missed else None

    def _is_ready(self, args: Sequence[Any]) -> bool:
        """Whether all arguments are of one kind of device, or numbers that are the same in each call."""
        tensors = [arg for arg in args if is_tensor(arg)]
        return len({arg.device for arg in tensors}) == 1 and type(args) is list

    def _to_copy(self, moved: Sequence[int], args: Sequence[Any]) -> list[int]:
        """Those of arguments that moved that are copied from now on."""
        found = [n for n in moved if n not in self._staying and _is_apart(args[n])]
        sizes = {n: arg.nbytes for n, arg in enumerate(args) if is_tensor(arg)}
        nbytes = sum(sizes[n] for n in (*found, *self._copied))
        return found if nbytes <= max(_COPIED * sum(sizes.values()), _COPIED_BYTES) else []

    def _record(self, stream: int, args: Sequence[Any]) -> Made | None:
        self._made = None  # its memory is used again
        self.recordings += 1
        self._missed = []
        try:
            with torch.inference_mode(False), torch.no_grad():
                copied = {n: _like(args[n]) for n in self._copied}
                given = [copied.get(n, arg) for n, arg in enumerate(args)]
                recording = self._recorder.record(self._call, given, self._overwritten)
                visible = len(recording.results) if self._visible is None else self._visible
                self._made = Made(recording, given, copied, stream, visible)
        except RuntimeError as error:
            self._over = True
            _log.info("a graph is not recorded, and runs as it did: %s", error)
        return self._made


def _is_apart(tensor: Any) -> bool:
    """Whether no two elements are in one place, as those of an expanded axis are."""
    reach = 0
    for stride, extent in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if extent > 1:
            if stride <= reach:
                return False
            reach += stride * (extent - 1)
    return True


def _like(tensor: Any) -> Any:
    """Memory for a copy, of the same layout."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
