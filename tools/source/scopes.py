"""The names of values that are in scope while a text is read, without a copy of all of them for each region."""

from __future__ import annotations

from xdsl.ir import SSAValue


class Mark(dict[str, tuple[SSAValue, ...]]):
    """Stands for the names that were in scope when it was made."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.depth = depth


class Scopes(dict[str, tuple[SSAValue, ...]]):
    """Names in scope, and the order in which they came."""

    def __init__(self) -> None:
        super().__init__()
        self._names: list[str] = []

    def __setitem__(self, name: str, values: tuple[SSAValue, ...]) -> None:
        super().__setitem__(name, values)
        self._names.append(name)

    def copy(self) -> Mark:
        return Mark(len(self._names))

    def drop_to(self, mark: Mark) -> None:
        for name in self._names[mark.depth :]:
            del self[name]
        del self._names[mark.depth :]
