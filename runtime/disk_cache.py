"""Compiled objects kept on disk between processes, in a directory private to the user."""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import re
import shutil
import stat
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class CacheStats:
    """What a `DiskCache` object has answered so far, in calls of `get_or_build` that returned."""

    hits: int = 0
    """Entries found intact."""
    misses: int = 0
    """Entries built, the damaged ones included."""
    damaged: int = 0
    """Entries that were there but not as they had been written."""


def default_directory() -> Path:
    """
    The directory the environment asks for: `$FUSE_OPT_CACHE_DIR`, else `$XDG_CACHE_HOME/fuse-opt` (an absolute path
    only, as that standard wants), else `~/.cache/fuse-opt`. Raises `RuntimeError` where there is no home directory.
    """
    if chosen := os.environ.get("FUSE_OPT_CACHE_DIR"):
        return Path(chosen).expanduser().absolute()
    shared = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(shared) if os.path.isabs(shared) else Path.home() / ".cache"
    return base / "fuse-opt"


def _why_refused(directory: Path) -> str | None:
    """Why objects from `directory` must not be loaded, or None; creates it (mode 0700) where it is missing."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        status = directory.lstat()
    except OSError as error:
        return f"cannot be created ({error.strerror})"
    if not stat.S_ISDIR(status.st_mode):
        return "is not a directory of its own (a file or a symbolic link)"
    if status.st_uid != os.geteuid():
        return f"belongs to user {status.st_uid}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"is writable by others (mode {stat.S_IMODE(status.st_mode):o})"
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        return "is not writable"
    return None


@functools.cache
def _directory_of_process(pid: int) -> Path:
    """A fresh private directory, removed when the process `pid` ends (a forked child makes its own)."""
    directory = Path(tempfile.mkdtemp(prefix="fuse-opt-"))

    def remove() -> None:
        if os.getpid() == pid:
            shutil.rmtree(directory, ignore_errors=True)

    atexit.register(remove)
    return directory


@functools.cache
def _warn_refused(directory: Path, reason: str) -> None:
    warnings.warn(
        f"cache directory '{directory}' {reason}; compiled objects are kept for this process only "
        "(set FUSE_OPT_CACHE_DIR to a directory that only you can write)",
        RuntimeWarning,
        stacklevel=4,
    )


def _read_own_file(path: Path) -> bytes | None:
    """The bytes of a regular file of this user, or None; a symbolic link, pipe or directory is never opened."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            return None
        return file.read()


class DiskCache:
    """
    A cache of files by the content they were built from, safe for several threads and processes.

    An entry is an object file whose name ends in its own checksum, and a small file naming that checksum. Both are put
    in place by a rename, so a reader sees an old entry or a new one and never half of one.
    """

    def __init__(self, directory: Path | None = None) -> None:
        """Keeps entries in `directory`, or where `default_directory` says. Touches no file yet."""
        self._wanted = None if directory is None else directory.absolute()
        self._stats = CacheStats()
        self._lock = threading.Lock()

    @property
    def stats(self) -> CacheStats:
        """The counts so far."""
        return self._stats

    @property
    def directory(self) -> Path:
        """
        Where entries go now, checked at each call: the wanted directory, or one private to this process, with one
        warning, where the wanted one is missing and cannot be made, not the user's own, or writable by others.
        """
        try:
            wanted = self._wanted or default_directory()
        except RuntimeError:
            wanted, reason = Path("~/.cache/fuse-opt"), "has no home directory to be in"
        else:
            reason = _why_refused(wanted)
        if reason is None:
            return wanted
        _warn_refused(wanted, reason)
        return _directory_of_process(os.getpid())

    def get_or_build(self, key_parts: Sequence[str], suffix: str, build: Callable[[Path], None]) -> Path:
        """
        The file for `key_parts` (everything its content depends on) with the name ending `suffix`, such as ".so".

        Where no intact one is there, `build` is called with the path of an empty file to fill or replace. What it
        raises is passed on and leaves no entry. Several processes may build one entry at once; each gets an intact
        file. Raises `ValueError` if `build` leaves no content, `OSError` if the directory cannot be written.
        """
        directory = self.directory
        key = _key(key_parts, suffix)
        note = directory / f"{key}{suffix}.sha256"
        recorded = _read_own_file(note)
        if recorded is not None and (found := _intact_object(directory, key, suffix, recorded)):
            self._count(hits=1)
            return found
        path = _build_entry(directory, key, suffix, build)
        self._count(misses=1, damaged=int(recorded is not None))
        return path

    def _count(self, hits: int = 0, misses: int = 0, damaged: int = 0) -> None:
        with self._lock:
            old = self._stats
            self._stats = CacheStats(old.hits + hits, old.misses + misses, old.damaged + damaged)


def _key(parts: Sequence[str], suffix: str) -> str:
    digest = hashlib.sha256()
    for part in (*parts, suffix):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def _object_path(directory: Path, key: str, suffix: str, checksum: str) -> Path:
    return directory / f"{key}-{checksum[:16]}{suffix}"


def _intact_object(directory: Path, key: str, suffix: str, recorded: bytes) -> Path | None:
    checksum = recorded.decode("ascii", "replace")
    if _DIGEST.fullmatch(checksum) is None:
        return None
    path = _object_path(directory, key, suffix, checksum)
    content = _read_own_file(path)
    if content is None or hashlib.sha256(content).hexdigest() != checksum:
        return None
    return path


def _build_entry(directory: Path, key: str, suffix: str, build: Callable[[Path], None]) -> Path:
    draft = _new_file(directory, suffix)
    try:
        build(draft)
        content = _read_own_file(draft)
        if not content:
            raise ValueError(f"nothing was built in '{draft.name}': expected a file with content")
        checksum = hashlib.sha256(content).hexdigest()
        path = _object_path(directory, key, suffix, checksum)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    _write_note(directory / f"{key}{suffix}.sha256", checksum)
    return path


def _write_note(note: Path, checksum: str) -> None:
    draft = _new_file(note.parent, ".sha256")
    try:
        draft.write_text(checksum, encoding="ascii")
        os.replace(draft, note)
    finally:
        draft.unlink(missing_ok=True)


def _new_file(directory: Path, suffix: str) -> Path:
    descriptor, name = tempfile.mkstemp(suffix, ".build-", directory)
    os.close(descriptor)
    return Path(name)
