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
        for missing in reversed([folder for folder in (directory, *directory.parents) if not folder.exists()]):
            with suppress(FileExistsError):
                missing.mkdir(mode=0o700)
        status = directory.lstat()
    except OSError as error:
        return f"cannot be created ({error.strerror})"
    if not stat.S_ISDIR(status.st_mode):
        return "is not a directory of its own (a file or a symbolic link)"
    if status.st_uid != os.geteuid():
        return f"belongs to user {status.st_uid}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"is writable by others (mode {stat.S_IMODE(status.st_mode):o})"
    if (reason := _why_exchangeable(directory)) is not None:
        return reason
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        return "is not writable"
    if os.statvfs(directory).f_flag & getattr(os, "ST_NOEXEC", 0):
        return "is on a file system from which nothing can be loaded (noexec)"
    return None


def _why_exchangeable(directory: Path) -> str | None:
    """How another user could put a directory in the place of this one: by a folder above it, or above what links lead to."""
    above = dict.fromkeys((*directory.parents, *directory.resolve().parents))
    for folder in above:
        try:
            status = folder.stat()
        except OSError as error:
            return f"is in '{folder}', which cannot be looked at ({error.strerror})"
        if status.st_uid not in (0, os.geteuid()):
            return f"is in '{folder}', which belongs to user {status.st_uid}"
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX:
            return f"is in '{folder}', which is writable by others (mode {stat.S_IMODE(status.st_mode):o})"
    return None


_own_directories: dict[int, Path] = {}
"""By process: a forked child makes its own."""


def _directory_of_process() -> Path:
    """A private directory, removed when the process ends."""
    pid = os.getpid()
    if pid not in _own_directories:
        directory = _own_directories[pid] = Path(tempfile.mkdtemp(prefix="fuse-opt-"))

        def remove() -> None:
            if os.getpid() == pid:
                shutil.rmtree(directory, ignore_errors=True)

        atexit.register(remove)
    return _own_directories[pid]


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
        warning, where the wanted one is missing and cannot be made, not the user's own, or writable by others, itself or
        through a folder above it.
        """
        try:
            wanted = self._wanted or default_directory()
        except RuntimeError:  # of a user who does not exist, too
            wanted = Path(os.environ.get("FUSE_OPT_CACHE_DIR") or "~/.cache/fuse-opt")
            reason = "has no home directory to be in"
        else:
            reason = _why_refused(wanted)
        if reason is None:
            return wanted
        _warn_refused(wanted, reason)
        return _directory_of_process()

    def get_or_build(self, key_parts: Sequence[str], suffix: str, build: Callable[[Path], None]) -> Path:
        """
        The file for `key_parts` (everything its content depends on) with the name ending `suffix`, such as ".so".

        Where no intact one is there, `build` is called with the path of an empty file to fill or replace. What it
        raises is passed on and leaves no entry. Several processes may build one entry at once; each gets an intact
        file. Raises `ValueError` if `build` leaves no content, `OSError` if no directory can be written to.
        """
        key, directory = _key(key_parts, suffix), self.directory
        found, damaged = _find_entry(directory, key, suffix)
        if found is None and (own := _own_directories.get(os.getpid())) is not None:
            found, _ = _find_entry(own, key, suffix)
        if found is not None:
            self._count(hits=1)
            return found
        with tempfile.TemporaryDirectory(prefix="fuse-opt-") as folder:
            draft = _new_file(Path(folder), suffix)
            build(draft)
            path = _enter(draft, directory, key, suffix)
        self._count(misses=1, damaged=int(damaged))
        return path

    def discard(self, key_parts: Sequence[str], suffix: str) -> None:
        """Forgets an entry, so that it is built when it is next asked for; the file of it may be in use."""
        for directory in {self.directory, _own_directories.get(os.getpid())} - {None}:
            with suppress(OSError):
                (Path(str(directory)) / f"{_key(key_parts, suffix)}{suffix}.sha256").unlink()

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


def _find_entry(directory: Path, key: str, suffix: str) -> tuple[Path | None, bool]:
    """The file of an intact entry, and whether there is a damaged one."""
    recorded = _read_own_file(directory / f"{key}{suffix}.sha256")
    if recorded is None:
        return None, False
    checksum = recorded.decode("ascii", "replace")
    path = _object_path(directory, key, suffix, checksum)
    content = _read_own_file(path) if _DIGEST.fullmatch(checksum) else None
    intact = content is not None and hashlib.sha256(content).hexdigest() == checksum
    return (path if intact else None), not intact


def _enter(draft: Path, directory: Path, key: str, suffix: str) -> Path:
    """Makes an entry of a file in `directory`, or in that of the process, with a warning, where no more can be written."""
    content = _read_own_file(draft)
    if not content:
        raise ValueError(f"nothing was built in '{draft.name}': expected a file with content")
    checksum = hashlib.sha256(content).hexdigest()
    path, note = _object_path(directory, key, suffix, checksum), directory / f"{key}{suffix}.sha256"
    try:
        _put(path, content, stat.S_IMODE(draft.stat().st_mode))
        _put(note, checksum.encode("ascii"))
    except OSError as error:
        if directory == _own_directories.get(os.getpid()):
            raise
        with suppress(OSError):
            if not note.exists():
                path.unlink()
        _warn_refused(directory, f"cannot be written to ({error.strerror})")
        return _enter(draft, _directory_of_process(), key, suffix)
    return path


def _put(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Puts a file in place as a whole."""
    draft = _new_file(path.parent, path.suffix)
    try:
        draft.write_bytes(content)
        draft.chmod(mode)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _new_file(directory: Path, suffix: str) -> Path:
    descriptor, name = tempfile.mkstemp(suffix, ".build-", directory)
    os.close(descriptor)
    return Path(name)
