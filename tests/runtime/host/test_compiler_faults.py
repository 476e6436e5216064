"""Compilers that hang, leave things out, cannot write, or say what no terminal should see."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from c_compilers import cache as cache
from c_compilers import compiler as compiler
from c_compilers import executable, variant

import fuse_opt
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.host import c_compiler, compiler_process, thread_pool
from fuse_opt.runtime.host.c_compiler import CCompiler, CompileError, CompilerUnusable, find_c_compiler
from fuse_opt.runtime.host.compiler_process import LIMIT_VARIABLE, compile_seconds, printable

PROGRAM = """\
func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = graph.exp %x : (tensor<8xf32>) -> tensor<8xf32>
  func.return %0 : tensor<8xf32>
}
"""


@pytest.fixture(autouse=True)
def forgetting() -> Iterator[None]:
    """What a process remembers of compilers is not for other tests."""
    yield
    c_compiler._find.cache_clear()  # pyright: ignore[reportPrivateUsage]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_compiler_that_hangs_on_a_program_is_stopped_with_all_it_started(
    monkeypatch: pytest.MonkeyPatch, compiler: CCompiler, cache: DiskCache, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    hanging = variant(compiler, executable(tmp_path / "cc", f"sleep 60 & echo $! $$ > {pids}; wait"))
    monkeypatch.setenv(LIMIT_VARIABLE, "0.5")
    started = time.perf_counter()
    with pytest.raises(CompilerUnusable, match=f"within 0.5 seconds; give it more by {LIMIT_VARIABLE}"):
        hanging.compile_shared("int x;", cache)
    assert time.perf_counter() - started < 10
    time.sleep(0.2)
    assert not any(is_alive(int(pid)) for pid in pids.read_text().split())


@pytest.mark.skipif(os.name != "posix", reason="processes are stopped by signals")
def test_time_in_which_all_are_stopped_is_not_the_compilers(tmp_path: Path) -> None:
    """As where a shell stops a job, or a machine sleeps; the process that is stopped here is one of its own."""
    script = executable(tmp_path / "cc", "(sleep 3; kill -CONT $PPID) & kill -STOP $PPID; sleep 3.2; cat")
    program = "import sys; from fuse_opt.runtime.host.compiler_process import run_compiler\n"
    program += "print(run_compiler([sys.argv[1]], 'int x;', 2.0).output)"
    done = subprocess.run(
        [sys.executable, "-c", program, str(script)], capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.stdout, done.stderr) == ("int x;\n", "")


def test_a_compiler_that_hangs_is_not_asked_kernel_by_kernel(
    monkeypatch: pytest.MonkeyPatch, compiler: CCompiler, tmp_path: Path
) -> None:
    thread_pool.pool_library()
    calls = tmp_path / "calls"
    text = f'grep -q fuse_segment - && {{ echo >> {calls}; exec sleep 60; }}; exec {compiler.path} "$@" < /dev/null'
    script = executable(
        tmp_path / "cc", f'case "$*" in *"-dM"*) exec {compiler.path} "$@";; esac; cat > $0.$$.c; {text}'
    )
    script.write_text(script.read_text().replace("grep -q fuse_segment -", "grep -q fuse_segment $0.$$.c"))
    script.write_text(script.read_text().replace("< /dev/null", "< $0.$$.c"))
    monkeypatch.setenv("FUSE_OPT_CC", str(script))
    monkeypatch.setenv("FUSE_OPT_CACHE_DIR", str(tmp_path / "own"))
    monkeypatch.setenv(LIMIT_VARIABLE, "0.5")
    with pytest.raises(CompilerUnusable, match="did not end"):
        fuse_opt.compile(PROGRAM, "cpu")
    assert calls.read_text() == "\n"


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan", "inf", "1e9"])
def test_the_limit_is_a_number_of_seconds(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, text)
    with pytest.raises(
        ValueError, match=f"{LIMIT_VARIABLE}='{text}': expected a number of seconds above 0, at most 86400"
    ):
        compile_seconds()


def test_a_wrong_limit_is_said_where_it_counts(
    monkeypatch: pytest.MonkeyPatch, compiler: CCompiler, cache: DiskCache
) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "soon")
    with pytest.raises(CompilerUnusable, match="expected a number of seconds"):
        compiler.compile_shared("int x;", cache)


def test_an_object_without_our_functions_is_named_and_built_again(
    compiler: CCompiler, cache: DiskCache, tmp_path: Path
) -> None:
    """The first objects are empty, as of a compiler that was broken for a while."""
    text = f'[ -e {tmp_path}/mended ] && cat > $0.$$.c || echo "static int other;" > $0.$$.c; exec {compiler.path} "$@" < $0.$$.c'
    forgetful = variant(compiler, executable(tmp_path / "cc", text))
    source, trials = "int f(void) { return 7; }", set(cache.directory.glob("*.sha256"))
    with pytest.raises(CompileError, match="without the function 'f' that it was given"):
        forgetful.load_shared(source, cache, ["f"])
    with pytest.raises(CompileError, match="without the function 'f'"):
        forgetful.load_units([source, "int g(void) { return 8; }"], cache, ["f", "g"])
    assert set(cache.directory.glob("*.sha256")) == trials, "nothing is left"
    (tmp_path / "mended").touch()
    assert forgetful.load_shared(source, cache, ["f"]).f() == 7
    assert forgetful.load_units([source, "int g(void) { return 8; }"], cache, ["f", "g"]).g() == 8


def test_an_entry_without_our_functions_is_built_anew(compiler: CCompiler, cache: DiskCache, tmp_path: Path) -> None:
    """The compiler works now: what it left in the cache before is no reason to refuse."""
    text = (
        f'[ -e {tmp_path}/mended ] && cat > $0.$$.c || echo "int other;" > $0.$$.c; exec {compiler.path} "$@" < $0.$$.c'
    )
    mended = variant(compiler, executable(tmp_path / "cc", text))
    source = "int f(void) { return 7; }"
    mended.compile_shared(source, cache)
    (tmp_path / "mended").touch()
    assert mended.load_shared(source, cache, ["f"]).f() == 7


def test_a_program_of_which_no_object_has_the_functions_runs_on_the_reference(tmp_path: Path) -> None:
    """With one warning, and no AttributeError."""
    found = find_c_compiler()
    if found is None:
        pytest.skip("no C compiler")
    lines = f"""case "$*" in *"-dM"*) exec {found.path} "$@";; esac
cat > $0.$$.c
grep -q "fuse_segment" $0.$$.c && echo "int other;" > $0.$$.c
exec {found.path} "$@" < $0.$$.c"""
    script = executable(tmp_path / "cc", lines)
    (path := tmp_path / "program.mlir").write_text(PROGRAM)
    environment = {**os.environ, "FUSE_OPT_CC": str(script), "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "fuse_opt.tools.commands.fuse_run_main", str(path), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and "without the function 'fuse_segment_0'" in done.stderr
    assert "check: passed" in done.stdout


def test_a_full_temporary_folder_is_said(
    monkeypatch: pytest.MonkeyPatch, compiler: CCompiler, cache: DiskCache, tmp_path: Path
) -> None:
    def full(*args: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path))

    monkeypatch.delenv("FUSE_OPT_CC", raising=False)
    monkeypatch.setattr("fuse_opt.runtime.disk_cache.tempfile.TemporaryDirectory", full)
    other = DiskCache(tmp_path / "other")
    assert find_c_compiler(other) is None
    problem = c_compiler.compiler_problem(other)
    assert problem == f"no file for it can be written '{tmp_path}': No space left on device (TMPDIR names the folder)"


DISKS = """
import errno, os, sys, numpy as np, fuse_opt
from fuse_opt.runtime import disk_cache
put, left = disk_cache._put, int(sys.argv[1])
def full(*args):
    global left
    left -= 1
    if left < 0:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    put(*args)
disk_cache._put = full
x = np.arange(8, dtype=np.float32) / 8
np.testing.assert_allclose(fuse_opt.compile(sys.argv[2], "cpu")(x), np.exp(x), rtol=1e-6)
print(left)
"""
MANY = 1000
"""Files: more than a program of one op needs. How many those are depends on what is tried of a machine's compiler."""


def test_programs_run_where_a_disk_takes_few_files(compiler: CCompiler, tmp_path: Path) -> None:
    """Of the compiler's trial, of the pool, of the program: what is missing at last is the reference's."""

    def run(files: int) -> tuple[int, str]:
        """How many more files there was room for, and what was said."""
        environment = {**os.environ, "FUSE_OPT_CACHE_DIR": str(tmp_path / str(files)), "FUSE_OPT_CC": ""}
        command = [sys.executable, "-c", DISKS, str(files), PROGRAM]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        return int(done.stdout), done.stderr

    left, said = run(MANY)
    every = MANY - left
    assert every > 1 and "reference" not in said
    for files in (0, every // 2, every - 1):
        _, said = run(files)
        assert "reference" in said and "No space left" in said, files


def test_what_a_compiler_says_is_printable(compiler: CCompiler, cache: DiskCache, tmp_path: Path) -> None:
    rude = variant(
        compiler, executable(tmp_path / "cc", r"printf 'error: \033[31mred\a \377\tna\303\257ve\r\n' >&2; exit 1")
    )
    with pytest.raises(CompileError) as caught:
        rude.compile_shared("int x;", cache)
    assert r"error: \x1b[31mred\x07 \xff" in str(caught.value) and "naïve" in str(caught.value)
    assert all(c.isprintable() or c in "\n\t" for c in str(caught.value))


def test_printable_keeps_lines() -> None:
    assert printable("a\r\nb\tc\x00\u202e\x85") == "a\nb\tc\\x00\\u202e\\x85"


def test_programs_of_a_working_compiler_are_as_before(compiler: CCompiler, cache: DiskCache) -> None:
    x = np.arange(8, dtype=np.float32) / 8
    np.testing.assert_allclose(fuse_opt.compile(PROGRAM, "cpu")(x), np.exp(x), rtol=1e-6)
    assert not compiler_process._running  # pyright: ignore[reportPrivateUsage]
