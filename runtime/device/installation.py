"""Where CUDA is installed: toolkits, NVIDIA's packages for pip, and the libraries and headers in them."""

from __future__ import annotations

import ctypes
import os
import site
import sys
from collections.abc import Iterator
from pathlib import Path

_HOMES = ("CUDA_HOME", "CUDA_PATH")


def toolkits() -> Iterator[Path]:
    """Folders in which a CUDA toolkit may be installed."""
    for name in _HOMES:
        if home := os.environ.get(name):
            yield Path(home)
    yield Path("/usr/local/cuda")


def _wheels() -> Iterator[Path]:
    """Folders of NVIDIA's packages for pip, each with an `include` or `lib` of its own."""
    folders = [*site.getsitepackages(), site.getusersitepackages(), *sys.path]
    for folder in dict.fromkeys(folders):
        yield from sorted(Path(folder, "nvidia").glob("*")) if folder else ()


VERSIONS = (".13", ".12", "")
"""What names of libraries end in, the newest first."""


def find_cuda_library(
    name: str, mode: int = ctypes.DEFAULT_MODE, versions: tuple[str, ...] = VERSIONS
) -> ctypes.CDLL | None:
    """
    A library of CUDA's, the newest version of `lib{name}.so` that can be loaded: where the system looks, in toolkits and
    in NVIDIA's packages for pip.
    """
    plain = [f"lib{name}.so{version}" for version in versions]
    placed = [
        str(path)
        for home in (*toolkits(), *_wheels())
        for folder in ("lib64", "lib")
        for path in sorted((home / folder).glob(f"lib{name}.so*"), reverse=True)
    ]
    for candidate in (*plain, *placed):
        try:
            return ctypes.CDLL(candidate, mode)
        except OSError:
            continue
    return None


def include_folders() -> Iterator[Path]:
    """Where cuda_fp16.h and what it includes are."""
    for home in (*toolkits(), *_wheels()):
        folder = home / "include"
        if (folder / "cuda_fp16.h").is_file():
            yield folder
            return
