"""C++ for the shim, built by g++."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.emulation.translation import FLAGS, SHIM

_LINKED = ("-nostdlib", "-fno-use-linker-plugin", "-lm", "-lc", "-lgcc")
"""Nothing of C++'s own library is called: to look it through is half of what linking takes."""


def identity(cxx: str, flags: Sequence[str]) -> tuple[str, ...]:
    """What an object depends on besides its text."""
    return (cxx, _version(cxx), *FLAGS, *flags, *_LINKED, SHIM.read_text())


def build(cxx: str, write: Callable[[Path], str], flags: Sequence[str], path: Path) -> subprocess.CompletedProcess[str]:
    """Makes a shared object of the text that `write` gives, told where the shim will lie; what g++ said."""
    with tempfile.TemporaryDirectory(prefix="fuse-opt-") as folder:
        source, shim = Path(folder, "kernels.cpp"), Path(folder, SHIM.name)
        source.write_text(write(shim))
        shim.symlink_to(SHIM)  # g++ looks beside it for what was read before, and reads it where that does not suit
        if (read := _shim_as_read(cxx, tuple(flags))) is not None:
            shim.with_name(f"{SHIM.name}.gch").symlink_to(read)
        linked = () if flags else _LINKED  # sanitizers have libraries of their own
        command = [cxx, *FLAGS, *flags, str(source), "-o", str(path), *linked]
        return subprocess.run(command, capture_output=True, text=True, check=False)


@functools.cache
def _version(cxx: str) -> str:
    return subprocess.run([cxx, "--version"], capture_output=True, text=True, check=False).stdout


@functools.cache
def _shim_as_read(cxx: str, flags: tuple[str, ...]) -> Path | None:
    """The shim as g++ keeps what it has read, which takes longer than to read most texts; None where it keeps nothing."""

    def build(path: Path) -> None:
        command = [cxx, *FLAGS, *flags, "-x", "c++-header", str(SHIM), "-o", str(path)]
        subprocess.run(command, capture_output=True, check=True)

    try:
        return DiskCache().get_or_build(identity(cxx, flags), ".gch", build)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return None
