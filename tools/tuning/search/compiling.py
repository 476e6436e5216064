"""Programs compiled side by side before they are measured one after the other: nothing else runs while one is timed."""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from fuse_opt.lowering.program import Program
from fuse_opt.runtime.cpu.program import KERNELS_STAY_FUNCTIONS
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.host.c_compiler import CompileError, find_c_compiler


def compile_ahead(programs: Sequence[Program], jobs: int, seconds: float) -> None:
    """
    Has the cache hold the objects of programs, `jobs` of which are compiled at a time, each for so many seconds at most. What
    cannot be compiled is found again by whoever measures it, which says so.
    """
    cache = DiskCache()
    if (compiler := find_c_compiler(cache)) is None:
        return

    def compiled(source: str) -> None:
        with suppress(CompileError, OSError):
            compiler.compile_shared(source, cache, KERNELS_STAY_FUNCTIONS, seconds)

    sources = dict.fromkeys(program.source for program in programs if program.source and not program.units)
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(compiled, sources))


def compile_seconds(program: Program) -> float:
    """
    The processor time of a C compiler for the texts of a program, of which nothing is kept. Raises CompileError, OSError, and
    RuntimeError where there is no compiler.
    """
    if (compiler := find_c_compiler(DiskCache())) is None:
        raise RuntimeError("tuning needs a C compiler")
    before = _spent_by_children()
    with tempfile.TemporaryDirectory(prefix="fuse-tune-") as folder:
        cache = DiskCache(Path(folder))
        for each in (program, *([] if program.prepare is None else [program.prepare.program])):
            if each.source:
                compiler.compile_shared(each.source, cache, KERNELS_STAY_FUNCTIONS)
    return _spent_by_children() - before


def _spent_by_children() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime
