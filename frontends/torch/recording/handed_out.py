"""What a replay hands out, so that no later replay changes it while somebody may read it.

Results that the caller sees are copies in memory of their own, several of one memory in one memory again. Values that autograd
keeps for the backward graph stay where they are, as they may be most of a model's memory: a recording is in use as long as one is
alive. What lies in an argument is taken from the argument of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fuse_opt.frontends.torch.fx.api import is_tensor, torch
from fuse_opt.frontends.torch.fx.strides import dense_order
from fuse_opt.frontends.torch.recording.recorders import storage_of

_strided: Callable[..., Any] = torch._C._dynamo.guards._reinterpret_tensor
_Item = Callable[[Sequence[Any], Sequence[Any]], Any]
"""A result, of the arguments of a call and the copies that were made."""


class HandedOut:
    """The results of replays of one recording."""

    def __init__(self, results: Sequence[Any], arguments: Sequence[Any], visible: int) -> None:
        """`results` are those of the recording, which was given `arguments`; the first `visible` are the caller's to keep."""
        self._sources: list[Any] = []
        self._copied: dict[int, int] = {}
        """By memory, the number of its copy."""
        given = {storage_of(a): n for n, a in enumerate(arguments) if is_tensor(a) and a.numel()}
        users = [storage_of(r) for r in results[:visible] if is_tensor(r)]
        self._shared = {key for key in users if users.count(key) > 1} if len(set(users)) < len(users) else set[int]()
        self._items: list[_Item] = []
        self._saved: dict[int, Any] = {}
        for number, result in enumerate(results):
            if not is_tensor(result):
                self._items.append(_same(result))
            elif (place := given.get(storage_of(result))) is not None:
                self._items.append(_in_argument(place, result, arguments[place]))
            elif number < visible:
                self._items.append(self._copy(result))
            else:
                self._saved[storage_of(result)] = result.untyped_storage()
                self._items.append(_alias(result))
        self._uses = [(key, torch._C._storage_Use_Count(key)) for key in self._saved]
        """As long as nobody else has the memory."""

    @property
    def keeps(self) -> bool:
        """Whether values stay where they are that somebody may read on the stream of the replay, later than it."""
        return bool(self._uses)

    def in_use(self) -> bool:
        """Whether a replay would change what somebody keeps."""
        count = torch._C._storage_Use_Count
        return any(count(key) != uses for key, uses in self._uses)

    def take(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """The results of the replay that was enqueued last, with the arguments of the call."""
        copies = [torch.empty_strided(s.shape, s.stride(), dtype=s.dtype, device=s.device) for s in self._sources]
        if len(copies) == 1:
            copies[0].copy_(self._sources[0])
        elif copies:
            torch._foreach_copy_(copies, self._sources)
        return tuple([item(arguments, copies) for item in self._items])

    def _copy(self, result: Any) -> _Item:
        """By itself where it fills its memory alone, else as a view of a copy of all that is there."""
        key = storage_of(result)
        whole = result.numel() * result.element_size() == result.untyped_storage().nbytes()
        if key not in self._shared and whole and dense_order(tuple(result.shape), result.stride()) is not None:
            number = len(self._sources)
            self._sources.append(result)
            return lambda arguments, copies: copies[number]
        if key not in self._copied:
            self._copied[key] = len(self._sources)
            memory = result.untyped_storage()
            flat = torch.empty(0, dtype=torch.uint8, device=result.device).set_(memory, 0, (memory.nbytes(),), (1,))
            self._sources.append(flat)
        number, dtype = self._copied[key], result.dtype
        shape, strides, offset = tuple(result.shape), result.stride(), result.storage_offset()
        return lambda arguments, copies: _strided(copies[number].view(dtype), shape, strides, offset)


def _same(value: Any) -> _Item:
    return lambda arguments, copies: value


def _in_argument(place: int, result: Any, argument: Any) -> _Item:
    if result is argument:
        return lambda arguments, copies: arguments[place]
    shape, strides = tuple(result.shape), result.stride()
    offset = result.storage_offset() - argument.storage_offset()
    return lambda arguments, copies: _strided(arguments[place], shape, strides, offset)


def _alias(result: Any) -> _Item:
    shape, strides = tuple(result.shape), result.stride()
    return lambda arguments, copies: _strided(result, shape, strides, 0)
