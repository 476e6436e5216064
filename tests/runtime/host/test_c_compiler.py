"""Finding the C compiler of the machine and building shared objects with it."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest
from c_compilers import cache as cache
from c_compilers import compiler as compiler
from c_compilers import executable, variant

from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.host import c_compiler
from fuse_opt.runtime.host.c_compiler import CCompiler, CompileError, CompilerKilled, compiler_problem, find_c_compiler


def test_description(compiler: CCompiler) -> None:
    assert Path(compiler.path).is_absolute()
    assert compiler.version.split()[0] in ("gcc", "clang")
    assert {"-O3", "-fwrapv", "-shared"} <= set(compiler.flags)
    assert "-fopenmp" not in compiler.flags


def test_compiles_loads_and_remembers(compiler: CCompiler, cache: DiskCache) -> None:
    source = "double tanh(double); double f(double x) { return tanh(x); }"
    path = compiler.compile_shared(source, cache)
    misses = cache.stats.misses
    assert compiler.compile_shared(source, cache) == path
    assert cache.stats.misses == misses
    function = ctypes.CDLL(str(path)).f
    function.argtypes, function.restype = [ctypes.c_double], ctypes.c_double
    assert function(0.0) == 0.0
    assert function(100.0) == 1.0


def test_extra_arguments_are_part_of_the_key(compiler: CCompiler, cache: DiskCache) -> None:
    source = "int f(void) { return N; }"
    one = compiler.compile_shared(source, cache, ["-DN=1"])
    two = compiler.compile_shared(source, cache, ["-DN=2"])
    assert ctypes.CDLL(str(one)).f() == 1
    assert ctypes.CDLL(str(two)).f() == 2


def test_signed_overflow_wraps(compiler: CCompiler, cache: DiskCache) -> None:
    function = ctypes.CDLL(str(compiler.compile_shared("int f(int x) { return x + 1 > x; }", cache))).f
    assert function(2**31 - 1) == 0


def test_refused_source(compiler: CCompiler, cache: DiskCache) -> None:
    wrong = "\n".join(f"int f{i}(void) {{ return missing{i}; }}" for i in range(100))
    with pytest.raises(CompileError, match="missing0") as caught:
        compiler.compile_shared(wrong, cache)
    text = str(caught.value)
    first = text.splitlines()[0]
    assert first.startswith(f"'{compiler.path}' failed: ") and "missing0" in first
    assert len(text.splitlines()) < 30
    assert "more lines)" in text


@pytest.mark.parametrize(
    "text", ["kill -9 $$", "echo 'cc: fatal error: Killed signal terminated program cc1' >&2; exit 1"]
)
def test_a_compiler_that_somebody_ends(compiler: CCompiler, cache: DiskCache, tmp_path: Path, text: str) -> None:
    ended = variant(compiler, executable(tmp_path / "ended", f"cat > {tmp_path / 'source'}; {text}"))
    with pytest.raises(CompilerKilled, match="killed by signal 9|failed: .*Killed"):
        ended.compile_shared("int x;", cache)


def test_vanished_compiler(compiler: CCompiler, cache: DiskCache) -> None:
    gone = variant(compiler, Path("/nonexistent/cc"))
    with pytest.raises(CompileError, match="could not be run"):
        gone.compile_shared("int x;", cache)


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, cache: DiskCache, tmp_path: Path) -> None:
    monkeypatch.delenv("FUSE_OPT_CC", raising=False)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_c_compiler(cache) is None


def test_same_answer_from_a_new_process(compiler: CCompiler, cache: DiskCache) -> None:
    program = (
        "import sys, pathlib; from fuse_opt.runtime import disk_cache; from fuse_opt.runtime.host import c_compiler\n"
    )
    program += "cache = disk_cache.DiskCache(pathlib.Path(sys.argv[1]))\n"
    program += "print(c_compiler.find_c_compiler(cache), cache.stats.misses)"
    done = subprocess.run(
        [sys.executable, "-c", program, str(cache.directory)], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{compiler} 0\n"


def test_broken_cc_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, compiler: CCompiler, cache: DiskCache, tmp_path: Path
) -> None:
    monkeypatch.setenv("CC", str(executable(tmp_path / "cc", "exit 0")))
    assert find_c_compiler(cache) == compiler


@pytest.mark.parametrize("text", ["exit 1", "exit 0", "echo '#define __VERSION__ \"1\"'; exit 0", "kill -9 $$"])
def test_broken_choice_is_named(monkeypatch: pytest.MonkeyPatch, cache: DiskCache, tmp_path: Path, text: str) -> None:
    monkeypatch.setenv("FUSE_OPT_CC", str(executable(tmp_path / "broken", text)))
    with pytest.warns(RuntimeWarning, match="FUSE_OPT_CC=.*broken.*does not work"):
        assert find_c_compiler(cache) is None


def test_a_compiler_that_never_ends_is_tried_once(
    monkeypatch: pytest.MonkeyPatch, cache: DiskCache, tmp_path: Path
) -> None:
    monkeypatch.setattr(c_compiler, "_PROBE_SECONDS", 0.2)
    calls = tmp_path / "calls"
    monkeypatch.setenv("FUSE_OPT_CC", str(executable(tmp_path / "endless", f"echo >> {calls}; exec sleep 60")))
    with pytest.warns(RuntimeWarning, match="did not end within 0.2 seconds"):
        assert find_c_compiler(cache) is None
    assert calls.read_text() == "\n"


@pytest.mark.parametrize(("made", "message"), [(":", "made no object"), ("echo garbage > $o", "cannot be loaded")])
def test_objects_that_are_none(compiler: CCompiler, cache: DiskCache, tmp_path: Path, made: str, message: str) -> None:
    script = executable(tmp_path / "liar", f'for a; do [ "$p" = -o ] && o=$a; p=$a; done; {made}')
    liar = variant(compiler, script)
    with pytest.raises(CompileError, match=message):
        c_compiler.load_object(liar, liar.compile_shared("int x;", cache))


def test_choice_with_arguments(
    monkeypatch: pytest.MonkeyPatch, compiler: CCompiler, cache: DiskCache, tmp_path: Path
) -> None:
    wrapper = executable(tmp_path / "wrapper", 'exec "$@"')
    monkeypatch.setenv("FUSE_OPT_CC", f"{wrapper} {compiler.path} -DCHOSEN=7")
    found = find_c_compiler(cache)
    assert found is not None
    assert ctypes.CDLL(str(found.compile_shared("int f(void) { return CHOSEN; }", cache))).f() == 7


@pytest.mark.parametrize("name", ["", "cc"])
def test_arguments_of_the_environment_come_last(
    monkeypatch: pytest.MonkeyPatch, compiler: CCompiler, cache: DiskCache, name: str
) -> None:
    monkeypatch.setenv("FUSE_OPT_CC", name and compiler.path)
    monkeypatch.setenv("FUSE_OPT_CFLAGS", "-O0 -DCHOSEN='(3 + 4)'")
    found = find_c_compiler(cache)
    assert found is not None and found.flags[-2:] == ("-O0", "-DCHOSEN=(3 + 4)")
    assert ctypes.CDLL(str(found.compile_shared("int f(void) { return CHOSEN; }", cache))).f() == 7


CALLS = """
void *memset(void *, int, __SIZE_TYPE__);
double tanh(double);
int f(double x, int n) { char a[n]; memset(a, n, n); return a[n - 1] + (tanh(x) == 1.0); }
long long g(long long x) { __int128 a = (__int128)x << 64; return a % 1000003; }
"""


def test_functions_of_c_come_from_this_process(monkeypatch: pytest.MonkeyPatch, cache: DiskCache) -> None:
    monkeypatch.delenv("FUSE_OPT_CFLAGS", raising=False)
    found = find_c_compiler(cache)
    if found is None or not found.version.startswith("gcc"):
        pytest.skip("no gcc")
    assert "-nostdlib" in found.libraries
    library = found.load_shared(CALLS, cache, ["f", "g"])
    library.f.argtypes, library.g.argtypes = [ctypes.c_double, ctypes.c_int], [ctypes.c_longlong]
    library.g.restype = ctypes.c_longlong
    assert library.f(100.0, 5) == 6
    assert library.g(12345) == (12345 << 64) % 1000003


@pytest.mark.parametrize(
    "flags, few", [("-O2 -march=native -fno-ivopts", True), ("-fsanitize=undefined", False), ("-lm", False)]
)
def test_what_asks_for_libraries_has_all(
    monkeypatch: pytest.MonkeyPatch, compiler: CCompiler, cache: DiskCache, flags: str, few: bool
) -> None:
    monkeypatch.setenv("FUSE_OPT_CFLAGS", flags)
    found = find_c_compiler(cache)
    if found is None or not found.version.startswith("gcc"):
        pytest.skip("no gcc, or no sanitizer")
    assert ("-nostdlib" in found.libraries) is few
    assert found.shared_key("", ["-pthread"])[-1] == "-lm" and "-nostdlib" not in found.shared_key("", ["-pthread"])


@pytest.mark.parametrize("refused", ["-nostdlib", "-lgcc"])
def test_a_compiler_that_links_all_may_do_so(
    monkeypatch: pytest.MonkeyPatch, compiler: CCompiler, cache: DiskCache, tmp_path: Path, refused: str
) -> None:
    text = f'for a; do [ "$a" = "{refused}" ] && exit 1; done; exec {compiler.path} "$@"'
    monkeypatch.setenv("FUSE_OPT_CC", str(executable(tmp_path / "picky", text)))
    monkeypatch.delenv("FUSE_OPT_CFLAGS", raising=False)
    found = find_c_compiler(cache)
    assert found is not None and found.libraries == ("-lm",)
    assert {"-O3", "-fwrapv"} <= set(found.flags)


@pytest.mark.parametrize("flags", ["-no-such-flag", "-D'"])
def test_arguments_with_which_nothing_works(monkeypatch: pytest.MonkeyPatch, cache: DiskCache, flags: str) -> None:
    monkeypatch.delenv("FUSE_OPT_CC", raising=False)
    monkeypatch.setenv("FUSE_OPT_CFLAGS", flags)
    assert find_c_compiler(cache) is None
    assert compiler_problem(cache)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "refused",
    [
        "-march=native",
        "-mprefer-vector-width=512",
        "-fopenmp-simd",
        "-fno-tree-sink",
        "-fno-ipa-modref",
        "--param=avoid-fma-max-bits=0",
        "-fno-tree-loop-distribute-patterns",
        "-fno-tree-slp-vectorize",
    ],
)
def test_flags_a_compiler_does_not_know_are_left_out(
    monkeypatch: pytest.MonkeyPatch, compiler: CCompiler, cache: DiskCache, tmp_path: Path, refused: str
) -> None:
    text = f'for a; do [ "$a" = "{refused}" ] && exit 1; done; exec {compiler.path} "$@"'
    monkeypatch.setenv("FUSE_OPT_CC", str(executable(tmp_path / "picky", text)))
    found = find_c_compiler(cache)
    assert found is not None
    assert refused not in found.flags
    assert {"-O3", "-fno-ipa-modref", "-fno-tree-sink"} - {refused} <= set(found.flags) | _unknown(compiler)


def _unknown(compiler: CCompiler) -> set[str]:
    """Flags that only gcc has, for another compiler."""
    return set() if compiler.version.startswith("gcc") else {"-fno-ipa-modref", "-fno-tree-sink"}


def test_gcc_is_asked_not_to_guess_what_functions_touch(compiler: CCompiler) -> None:
    if not compiler.version.startswith("gcc"):
        pytest.skip("a flag of gcc")
    assert "-fno-ipa-modref" in compiler.flags


def test_numbers_come_from_memory_where_masks_of_gathers_are_vectors(compiler: CCompiler) -> None:
    macros = subprocess.run(
        [compiler.path, "-march=native", "-dM", "-E", "-x", "c", "-"], input="", capture_output=True, text=True
    ).stdout
    has_vectors = "__AVX2__" in macros and "__AVX512VL__" not in macros
    expected = compiler.version.startswith("gcc") and has_vectors
    assert ("-mtune-ctrl=^inter_unit_moves_to_vec" in compiler.flags) == expected
