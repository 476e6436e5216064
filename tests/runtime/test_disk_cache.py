"""The cache of compiled objects: intact, private, and safe to share."""

import errno
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from fuse_opt.runtime.disk_cache import CacheStats, DiskCache, default_directory


def writer(content: bytes) -> Callable[[Path], None]:
    def build(path: Path) -> None:
        path.write_bytes(content)

    return build


def refuse(path: Path) -> None:
    raise AssertionError(f"built again: {path}")


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "deep" / "cache")


def test_builds_once(cache: DiskCache) -> None:
    path = cache.get_or_build(["a", "b"], ".so", writer(b"one"))
    assert cache.get_or_build(["a", "b"], ".so", refuse) == path
    assert path.read_bytes() == b"one"
    assert path.suffix == ".so"
    assert cache.stats == CacheStats(hits=1, misses=1)
    assert stat.S_IMODE(cache.directory.stat().st_mode) == 0o700


def test_another_object_finds_the_entry(cache: DiskCache) -> None:
    path = cache.get_or_build(["a"], ".so", writer(b"one"))
    assert DiskCache(cache.directory).get_or_build(["a"], ".so", refuse) == path


def test_keys_are_not_joined_parts(cache: DiskCache) -> None:
    keys = [["ab", "c"], ["a", "bc"], ["abc"], ["abc", ""], ["\ud800"]]
    paths = {cache.get_or_build(key, suffix, writer(b"x")) for key in keys for suffix in (".so", ".o")}
    assert len(paths) == 2 * len(keys)


@pytest.mark.parametrize("damage", [b"", b"on", b"onE", b"one more"])
def test_damaged_object_is_rebuilt(cache: DiskCache, damage: bytes) -> None:
    path = cache.get_or_build(["a"], ".so", writer(b"one"))
    path.write_bytes(damage)
    assert cache.get_or_build(["a"], ".so", writer(b"one")).read_bytes() == b"one"
    assert cache.get_or_build(["a"], ".so", refuse).read_bytes() == b"one"
    assert cache.stats == CacheStats(hits=1, misses=2, damaged=1)


@pytest.mark.parametrize("note", [b"", b"../../x", b"0" * 64, b"\xff" * 64])
def test_damaged_checksum_is_rebuilt(cache: DiskCache, note: bytes) -> None:
    cache.get_or_build(["a"], ".so", writer(b"one"))
    next(cache.directory.glob("*.sha256")).write_bytes(note)
    assert cache.get_or_build(["a"], ".so", writer(b"two")).read_bytes() == b"two"


def test_symbolic_links_are_replaced_and_never_followed(cache: DiskCache, tmp_path: Path) -> None:
    path = cache.get_or_build(["a"], ".so", writer(b"one"))
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    rebuilt = cache.get_or_build(["a"], ".so", writer(b"one"))
    assert not rebuilt.is_symlink()
    assert elsewhere.read_bytes() == b"one"
    assert cache.stats.misses == 2


def test_failed_build_leaves_nothing(cache: DiskCache) -> None:
    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        cache.get_or_build(["a"], ".so", fail)
    with pytest.raises(ValueError, match="nothing was built"):
        cache.get_or_build(["a"], ".so", writer(b""))
    with pytest.raises(ValueError, match="nothing was built"):
        cache.get_or_build(["a"], ".so", Path.unlink)
    assert list(cache.directory.iterdir()) == []
    assert cache.stats == CacheStats()


def test_removed_directory_is_made_again(cache: DiskCache) -> None:
    path = cache.get_or_build(["a"], ".so", writer(b"one"))
    for entry in cache.directory.iterdir():
        entry.unlink()
    cache.directory.rmdir()
    assert cache.get_or_build(["a"], ".so", writer(b"one")) == path


def open_to_others(directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o777)


def open_to_group(directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o770)


def symbolic_link(directory: Path) -> None:
    (directory.parent / "real").mkdir(mode=0o700)
    directory.symlink_to("real")


def plain_file(directory: Path) -> None:
    directory.touch()


@pytest.mark.parametrize("prepare", [open_to_others, open_to_group, symbolic_link, plain_file])
def test_refused_directory(tmp_path: Path, prepare: Callable[[Path], None]) -> None:
    wanted = tmp_path / "cache"
    prepare(wanted)
    cache = DiskCache(wanted)
    with pytest.warns(RuntimeWarning, match="kept for this process only"):
        used = cache.directory
    assert used != wanted
    assert stat.S_IMODE(used.lstat().st_mode) == 0o700
    path = cache.get_or_build([str(wanted)], ".so", writer(b"one"))
    assert path.parent == used
    assert DiskCache(wanted).get_or_build([str(wanted)], ".so", refuse) == path


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o707])
def test_folders_above_must_not_be_open_to_others(tmp_path: Path, mode: int) -> None:
    """Who may write to one of them may put another directory in the place of this one, unless it is sticky."""
    above = tmp_path / "open"
    wanted = above / "own" / "cache"
    wanted.mkdir(parents=True, mode=0o700)
    above.chmod(mode)
    with pytest.warns(RuntimeWarning, match=f"is in '{above}', which is writable by others .mode {mode:o}."):
        assert DiskCache(wanted).directory != wanted
    above.chmod(mode | stat.S_ISVTX)
    assert DiskCache(wanted).directory == wanted


def test_folders_above_are_those_that_links_lead_to_as_well(tmp_path: Path) -> None:
    above = tmp_path / "open"
    (above / "real" / "cache").mkdir(parents=True, mode=0o700)
    above.chmod(0o777)
    (tmp_path / "link").symlink_to(above / "real")
    wanted = tmp_path / "link" / "cache"
    with pytest.warns(RuntimeWarning, match=f"is in '{above}', which is writable by others"):
        assert DiskCache(wanted).directory != wanted


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_folder_above_of_another_user_is_refused(tmp_path: Path) -> None:
    wanted = tmp_path / "theirs" / "cache"
    wanted.mkdir(parents=True, mode=0o700)
    os.chown(wanted.parent, 12345, 12345)
    with pytest.warns(RuntimeWarning, match=f"is in '{wanted.parent}', which belongs to user 12345"):
        assert DiskCache(wanted).directory != wanted


def test_folders_that_are_made_are_private(tmp_path: Path) -> None:
    """Whatever the user's mask lets through."""
    old = os.umask(0)
    try:
        directory = DiskCache(tmp_path / "a" / "b" / "cache").directory
    finally:
        os.umask(old)
    assert directory == tmp_path / "a" / "b" / "cache"
    for folder in (directory, directory.parent, directory.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    wanted = tmp_path / "cache"
    wanted.mkdir(mode=0o700)
    os.chown(wanted, 12345, 12345)
    with pytest.warns(RuntimeWarning, match="belongs to user 12345"):
        assert DiskCache(wanted).directory != wanted


def test_full_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, replace = tmp_path / "cache", os.replace
    cache = DiskCache(wanted)
    first = cache.get_or_build(["first"], ".so", writer(b"one"))

    def full(source: Path, target: Path) -> None:
        if target.parent == wanted and target.suffix == ".sha256":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(RuntimeWarning, match=r"cannot be written to \(No space left on device\)"):
        path = cache.get_or_build(["second"], ".so", writer(b"two"))
    assert path.parent != wanted and path.read_bytes() == b"two"
    assert cache.get_or_build(["second"], ".so", refuse) == path
    assert cache.get_or_build(["first"], ".so", refuse) == first
    assert set(wanted.iterdir()) == {first, *wanted.glob("*.sha256")}


def test_directory_from_which_nothing_can_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def noexec(directory: Path) -> SimpleNamespace:
        return SimpleNamespace(f_flag=os.ST_NOEXEC)

    monkeypatch.setattr(os, "statvfs", noexec)
    with pytest.warns(RuntimeWarning, match="noexec"):
        assert DiskCache(tmp_path / "cache").directory != tmp_path / "cache"


def test_home_of_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSE_OPT_CACHE_DIR", "~no-such-user/cache")
    with pytest.warns(RuntimeWarning, match="'~no-such-user/cache' has no home directory"):
        assert DiskCache().directory.is_dir()


def test_default_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("FUSE_OPT_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert default_directory() == Path("/home/someone/.cache/fuse-opt")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_directory() == Path("/home/someone/.cache/fuse-opt")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert default_directory() == Path("/xdg/fuse-opt")
    monkeypatch.setenv("FUSE_OPT_CACHE_DIR", "~/mine")
    assert default_directory() == Path("/home/someone/mine")


def test_concurrent_threads(cache: DiskCache) -> None:
    together = threading.Barrier(8)

    def use(_: int) -> bytes:
        together.wait()
        return cache.get_or_build(["a"], ".so", writer(b"x" * 100_000)).read_bytes()

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(use, range(8))) == {b"x" * 100_000}
    assert cache.stats.hits + cache.stats.misses == 8
    assert len(list(cache.directory.iterdir())) == 2


BUILD_BY_TURNS = """
import sys
from pathlib import Path
from types import SimpleNamespace
from fuse_opt.runtime.disk_cache import DiskCache

# Entries whose content differs from builder to builder, as a compiler that writes the time would make.
cache, content = DiskCache(Path(sys.argv[1])), sys.argv[2].encode() * 50_000
for turn in range(40):
    found = cache.get_or_build([str(turn)], ".so", lambda path: path.write_bytes(content)).read_bytes()
    assert len(found) == 50_000 and len(set(found)) == 1
"""


def test_concurrent_processes(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BUILD_BY_TURNS, str(tmp_path / "cache")]
    processes = [subprocess.Popen([*command, letter]) for letter in "ABCD"]
    assert [process.wait(60) for process in processes] == [0] * 4
    cache = DiskCache(tmp_path / "cache")
    for turn in range(40):
        cache.get_or_build([str(turn)], ".so", refuse)
    assert not list((tmp_path / "cache").glob(".build-*"))
