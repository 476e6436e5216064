"""What times are measured on: fingerprints of this machine with its compiler, and of the code that makes programs."""

from __future__ import annotations

import functools
import hashlib
import platform
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from fuse_opt import lowering, runtime
from fuse_opt.passes.devices.this_machine import THIS_MACHINE, Machine, unknown

_DIGITS = 16
_NAMED = (
    "vendor_id",
    "cpu family",
    "model",
    "model name",
    "stepping",
    "flags",
    "CPU implementer",
    "CPU part",
    "Features",
)
"""What Linux says of a processor that does not change from one start to the next."""
_SOURCES = (".py", ".c", ".h")


@contextmanager
def on_this_machine() -> Generator[None]:
    """Within it, passes that go by measured figures know where they are, where nobody has said it of another machine."""
    with nullcontext() if THIS_MACHINE.get() is not unknown else _where(this_machine):
        yield


def on_machine(machine: Machine) -> AbstractContextManager[None]:
    """Within it, passes that go by measured figures make programs for that machine."""
    return _where(lambda: machine)


@contextmanager
def _where(said: Callable[[], Machine | None]) -> Generator[None]:
    token = THIS_MACHINE.set(said)
    try:
        yield
    finally:
        THIS_MACHINE.reset(token)


def this_machine() -> Machine | None:
    """The fingerprints, for as many threads as programs use now; None where there is no C compiler."""
    from fuse_opt.runtime.host.c_compiler import find_c_compiler
    from fuse_opt.runtime.host.thread_pool import num_threads

    if (compiler := find_c_compiler()) is None:
        return None
    described = (*_processor(), compiler.version, *compiler.flags, compiler.target, f"threads {num_threads()}")
    return Machine("d:" + _digest("\n".join(described)), code_checksum())


@functools.cache
def _processor() -> tuple[str, ...]:
    """What Linux says of the first processor and its caches; nothing of names, clocks and addresses."""
    found = [platform.machine()]
    try:
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    except OSError:
        first = ""
    for line in first.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in _NAMED:
            found.append(f"{name.strip()}: {' '.join(sorted(value.split()))}")
    return (*found, *_caches())


def _caches() -> Iterator[str]:
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            yield " ".join((index / name).read_text().strip() for name in ("level", "type", "size", "shared_cpu_list"))
        except OSError:
            continue


@functools.cache
def code_checksum() -> str:
    """Of the files that print programs, compile them and run them on a processor."""
    whole = hashlib.sha256()
    for folder in (Path(str(lowering.__file__)).parent, Path(str(runtime.__file__)).parent / "host"):
        for path in sorted(path for path in folder.rglob("*") if path.suffix in _SOURCES):
            whole.update(f"{path.relative_to(folder.parent)}\x00".encode())
            whole.update(path.read_bytes())
    return f"c:{whole.hexdigest()[:_DIGITS]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
