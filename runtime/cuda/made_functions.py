"""Functions made as text: what a call asks of its arrays and writes for its launches, in as few steps as there can be."""

from __future__ import annotations

from functools import lru_cache
from types import CodeType
from typing import Any


@lru_cache(256)
def _code(text: str) -> CodeType:
    """Reading a text takes a hundred times what running it takes; programs of one text for several extents have the same."""
    return compile(text, "<made by fuse-opt>", "exec")


def made_function(text: str, names: dict[str, Any]) -> Any:
    """The one function that a text of our own defines, which finds these names."""
    known = {**names}
    exec(_code(text), known)  # of numbers and of names that are numbered
    (made,) = [value for name, value in known.items() if name not in names and name != "__builtins__"]
    return made
