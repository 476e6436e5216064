"""What builds the call of a partition, by backend."""

from __future__ import annotations

from collections.abc import Callable

from fuse_opt.dialects.implementation.offers import forget_with
from fuse_opt.dialects.implementation.subgraph import Subgraph
from fuse_opt.lowering.program import Run

Build = Callable[[Subgraph], Run]
_BUILDS: dict[str, Build] = {}


def register_partition_build(backend: str, build: Build) -> None:
    """Has partitions of a backend built by the function; the last one counts."""
    _BUILDS[backend] = build


def find_partition_build(backend: str) -> Build | None:
    """The function for partitions of a backend."""
    return _BUILDS.get(backend)


forget_with(lambda backend: _BUILDS.pop(backend, None))
