"""The C compiler of the machine with a cache of the test's own, and scripts that stand in for compilers."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.host.c_compiler import CCompiler, find_c_compiler


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "cache")


@pytest.fixture
def compiler(cache: DiskCache) -> CCompiler:
    found = find_c_compiler(cache)
    if found is None:
        pytest.skip("no C compiler")
    return found


def executable(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(stat.S_IRWXU)
    return path


def variant(compiler: CCompiler, path: Path) -> CCompiler:
    """The compiler as it is, but for the program that is run."""
    return CCompiler(str(path), compiler.version, compiler.flags, compiler.target)
