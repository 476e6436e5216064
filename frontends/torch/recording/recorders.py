"""What records a call: PyTorch's CUDA graphs on a device, and for emulated kernels a repetition of the call."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Protocol

from fuse_opt.frontends.torch.fx.api import is_tensor, torch

Call = Callable[[list[Any]], Sequence[Any]]
"""A compiled graph, of a list of arguments, which it empties."""


@dataclass(frozen=True)
class Recording:
    """A call that was recorded with given arguments."""

    replay: Callable[[], None]
    """Does on the current stream what the call would do; the results are then those of the call."""
    results: Sequence[Any]
    """In memory that each replay writes to."""
    held: Any
    """What the recording needs as long as it is used."""


class Recorder(Protocol):
    """Records calls, and knows streams."""

    def stream(self) -> int | None:
        """The current one; None where somebody records what is enqueued there."""
        ...

    def follow(self, last: int | None, stream: int) -> None:
        """Makes work that is enqueued on a stream from now on wait for the last replay, which was on another one."""
        ...

    def done(self, stream: int) -> None:
        """Notes that a replay has been enqueued."""
        ...

    def record(self, call: Call, arguments: Sequence[Any], overwritten: Sequence[int]) -> Recording:
        """Records a call with the arguments where they are; runs nothing. Raises RuntimeError where that is refused."""
        ...


class CudaRecorder:
    """PyTorch's CUDA graphs, each with memory of its own in PyTorch's allocator, for one compiled graph."""

    def __init__(self, device: Any, lent: Callable[[int, int], AbstractContextManager[list[Any]]]) -> None:
        """`lent` gives calls on another stream what those on one have made, as tables, pieces and checks."""
        self._device, self._lent = device, lent
        self._event: Any = torch.cuda.Event()
        self._current: Callable[[], int] = partial(torch._C._cuda_getCurrentRawStream, device.index)

    def stream(self) -> int | None:
        return None if torch.cuda.is_current_stream_capturing() else self._current()

    def follow(self, last: int | None, stream: int) -> None:
        if last is None or last == stream:
            return
        if last == 0:
            self._event.record(torch.cuda.default_stream(self._device))
        torch.cuda.current_stream(self._device).wait_event(self._event)

    def done(self, stream: int) -> None:
        if stream:  # now, and not when another stream needs it: this one may be gone then
            self._event.record(torch.cuda.current_stream(self._device))

    def record(self, call: Call, arguments: Sequence[Any], overwritten: Sequence[int]) -> Recording:
        del overwritten  # nothing runs
        graph, side, pool = torch.cuda.CUDAGraph(), _side_stream(self._device), torch.cuda.graph_pool_handle()
        torch.cuda.synchronize(self._device)
        with (
            torch.cuda.device(self._device),
            _without_workspaces(),
            _without_collection(),
            self._lent(self._current(), side.cuda_stream) as frames,
            torch.cuda.stream(side),
        ):
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                results = call(list(arguments))
            except BaseException:
                self._end(graph, pool)
                raise
            graph.capture_end()
        checks = [check for _, _, check in frames]

        def replay() -> None:
            for check in checks:
                check()
            graph.replay()

        return Recording(replay, results, frames)

    def _end(self, graph: Any, pool: Any) -> None:
        """Ends a recording that failed, or all that is enqueued on the stream would fail, and memory would stay set aside."""
        try:
            graph.capture_end()
        except RuntimeError:
            with suppress(Exception):
                torch._C._cuda_endAllocateToPool(self._device.index, pool)


@cache
def _side_stream(device: Any) -> Any:
    """The stream of a device that calls are recorded on; nothing ever runs there."""
    return torch.cuda.Stream(device)


@contextmanager
def _without_workspaces() -> Generator[None]:
    """
    Workspaces of cuBLAS are kept by stream: one that was made before would be shared with other recordings, and one that is
    made now with those to come, which may run at the same time.
    """
    clear: Callable[[], None] = getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None)
    clear()
    try:
        yield
    finally:
        clear()


@contextmanager
def _without_collection() -> Generator[None]:
    """No garbage is collected: what is dropped may destroy something of the driver's, which ends a recording."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class RepeatingRecorder:
    """Where kernels are emulated: a replay calls again, and writes to where the results of the first call are."""

    def stream(self) -> int | None:
        return 0

    def follow(self, last: int | None, stream: int) -> None:
        pass

    def done(self, stream: int) -> None:
        pass

    def record(self, call: Call, arguments: Sequence[Any], overwritten: Sequence[int]) -> Recording:
        before = [arguments[number].clone() for number in overwritten]
        results = call(list(arguments))
        for number, contents in zip(overwritten, before, strict=True):
            arguments[number].copy_(contents)
        given = {storage_of(argument) for argument in arguments if is_tensor(argument)}

        def replay() -> None:
            for kept, found in zip(results, call(list(arguments)), strict=True):
                if is_tensor(kept) and storage_of(kept) not in given:
                    kept.copy_(found)

        return Recording(replay, results, None)


def storage_of(tensor: Any) -> int:
    """What tensors of one memory have in common, and no others that are there at the same time."""
    return tensor.untyped_storage()._cdata
