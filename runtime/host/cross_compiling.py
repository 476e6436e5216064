"""Objects that one machine compiles for another, by the same compiler, and that the other one puts where it looks for them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.host.c_compiler import CCompiler, CompileError, described, find_c_compiler
from fuse_opt.runtime.host.compiler_process import NeverEnds, run_compiler

_NATIVE = ("-march=native", "-mcpu=native")
_COMPILER_PROPER = "cc1"
_SECONDS = 60.0


@dataclass(frozen=True)
class Elsewhere:
    """The compiler of a machine, as another one can stand in for it."""

    version: str
    target: str
    flags: tuple[str, ...]
    """By which any machine compiles what it compiles for itself: without `native`."""


def for_others(compiler: CCompiler) -> Elsewhere | None:
    """This machine's compiler for others to stand in; None where it does not say what `native` means here."""
    native = [flag for flag in compiler.flags if flag in _NATIVE]
    flags = compiler.flags
    if native:
        meant = tuple(_meant_by(compiler.path, native[0]))
        flags = tuple(new for flag in compiler.flags for new in (meant if flag in _NATIVE else (flag,)))
    try:
        same = described(compiler.path, flags).target == compiler.target
    except CompileError:
        return None
    return Elsewhere(compiler.version, compiler.target, flags) if same else None


def _meant_by(path: str, native: str) -> Iterator[str]:
    """The flags of the machine that a driver of gcc gives the compiler proper."""
    try:
        listing = run_compiler([path, native, "-###", "-E", "-x", "c", "-"], "", _SECONDS).messages
    except (NeverEnds, OSError, ValueError):
        return
    line = next((line for line in listing.splitlines() if f"/{_COMPILER_PROPER} " in line), "")
    words = shlex.split(line)
    for number, word in enumerate(words):
        if word.startswith("-m"):
            yield word
        elif word == "--param" and number + 1 < len(words):
            yield f"--param={words[number + 1]}"


def compile_for(elsewhere: Elsewhere, source: str, extra: Sequence[str], cache: DiskCache) -> bytes | None:
    """
    The shared object of a C text for another machine; None where this one has another compiler, or none, and where the text is
    refused, which that machine will say itself. Raises OSError from the cache.
    """
    own = find_c_compiler(cache)
    if own is None or own.version != elsewhere.version:
        return None
    stand_in = replace(own, flags=elsewhere.flags, target=elsewhere.target)
    try:
        return stand_in.compile_shared(source, cache, extra).read_bytes()
    except CompileError:
        return None


def adopt(compiler: CCompiler, source: str, extra: Sequence[str], content: bytes, cache: DiskCache) -> None:
    """Puts an object that was compiled for this machine where its own would be. Raises OSError from the cache."""

    def build(path: Path) -> None:
        path.write_bytes(content)

    cache.get_or_build(compiler.shared_key(source, extra), ".so", build)
