"""Ops that read a part of an axis: where it begins may be a symbol in the place of a number."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from fuse_opt.dialects.interfaces.structured_op import StructuredOp


class PartialRead(StructuredOp):
    """Views of a part of some axes."""

    @abstractmethod
    def has_known_starts(self) -> bool:
        """Whether there is such an axis, and all that is read lies side by side along each axis."""

    @abstractmethod
    def part(self) -> tuple[int, range] | None:
        """The only axis of which it reads a part, and the neighbours on it that it reads; None where that is not all it does."""

    @abstractmethod
    def free_starts(self, name: Callable[[], str]) -> dict[str, int]:
        """
        Puts symbols of these names where parts of axes begin at numbers; gives these, by name. The types of results stay. Of an
        op that has known starts.
        """
