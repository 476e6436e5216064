"""One machine compiles for another of the same compiler: what comes out is what the other one would have made."""

from dataclasses import replace
from pathlib import Path

import pytest
from c_compilers import cache as cache
from c_compilers import compiler as compiler

from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.host.c_compiler import CCompiler
from fuse_opt.runtime.host.cross_compiling import adopt, compile_for, for_others

SOURCE = "float f(float const *x) { float sum = 0; for (int k = 0; k < 64; ++k) sum += x[k] * x[k]; return sum; }"


def test_an_object_from_elsewhere_is_found_as_ones_own(compiler: CCompiler, cache: DiskCache, tmp_path: Path) -> None:
    if not compiler.version.startswith("gcc"):
        pytest.skip("only gcc says what native means")
    elsewhere = for_others(compiler)
    assert elsewhere is not None and not any("native" in flag for flag in elsewhere.flags)
    content = compile_for(elsewhere, SOURCE, ["-DN=1"], DiskCache(tmp_path / "other"))
    assert content == compiler.compile_shared(SOURCE, DiskCache(tmp_path / "own"), ["-DN=1"]).read_bytes()
    assert content is not None
    adopt(compiler, SOURCE, ["-DN=1"], content, cache)
    before = cache.stats
    assert compiler.compile_shared(SOURCE, cache, ["-DN=1"]).read_bytes() == content
    assert (cache.stats.hits, cache.stats.misses) == (before.hits + 1, before.misses)
    assert compile_for(elsewhere, "no C", [], cache) is None
    assert compile_for(replace(elsewhere, version="gcc 1"), SOURCE, [], cache) is None
