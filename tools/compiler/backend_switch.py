"""
What may run ops, from what a person says: names of backends, `-name`, `none`, and files of Python that bring one; and files
of measured times and schedules by which passes choose.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from fuse_opt.dialects.implementation.offers import forget_backend
from fuse_opt.passes.devices.device import HOST, NARROW_HOST, is_host_named
from fuse_opt.tools.compiler.pipeline import TUNED_OPTION, UsageError, parse_pipeline
from fuse_opt.tools.compiler.registry import offer_implementations

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xdsl.passes import ModulePass

VARIABLE = "FUSE_OPT_BACKEND"
TABLE_VARIABLE = "FUSE_OPT_DISPATCH_TABLE"
TUNED_VARIABLE = "FUSE_OPT_TUNED"
_TABLE_OPTION = "table"
GROUP = "fuse_opt.backends"
_NUMBERS = count()


def backend_passes(
    text: str | None,
    unavailable: Mapping[str, str] | None = None,
    load_problem: Callable[[str], str | None] = lambda name: None,
) -> list[ModulePass]:
    """
    The pass that writes the choice on a module; `$FUSE_OPT_BACKEND` stands in for None. Files are run, and packages that
    bring a named backend by the entry points `fuse_opt.backends` imported. `unavailable` ones, with the reason, are left out;
    naming one is an error, as is one that `load_problem` gives a reason for. Raises UsageError.
    """
    unavailable = unavailable or {}
    given = os.environ.get(VARIABLE, "") if text is None else text
    source = f"{VARIABLE}={given}" if text is None else f"backend '{given}'"
    words = [word.strip() for word in given.split(",") if word.strip()]
    if not words:
        return [*_attach((), tuple(sorted(unavailable)))]
    from fuse_opt.dialects.implementation.switch import chosen_backends

    offer_implementations()
    names: list[str] = []
    for word in words:
        names += _load_file(word) if word.endswith(".py") else [word]
    _import_named(names)
    try:
        chosen_backends(names)
    except ValueError as error:
        raise UsageError(f"{source}: {error}") from None
    for name in names:
        if (reason := unavailable.get(name) or load_problem(name)) is not None:
            raise UsageError(f"{source}: backend '{name}' cannot be used here: {reason}")
    return [*_attach(tuple(names), tuple(sorted(unavailable)))]


@lru_cache(maxsize=16)
def _attach(names: tuple[str, ...], unavailable: tuple[str, ...]) -> tuple[ModulePass, ...]:
    """The same for every program of a process, as a rule; xDSL's reader of pipelines takes its time."""
    given = {"backends": names, "unavailable": unavailable}
    options = (
        f"{key}={','.join(f'{chr(34)}{name}{chr(34)}' for name in value)}" for key, value in given.items() if value
    )
    text = " ".join(options)
    return tuple(parse_pipeline(f"attach-backends{{{text}}}")) if text else ()


def _import_named(names: list[str]) -> None:
    """Imports what packages have under names that nobody registered yet; others are not touched."""
    from importlib.metadata import entry_points  # which imports what reads mail

    from fuse_opt.dialects.implementation.switch import known_backends

    known = known_backends()
    for point in entry_points(group=GROUP):
        if point.name in names and point.name not in known:
            try:
                point.load()
            except Exception as error:
                raise UsageError(f"backend '{point.name}' cannot be loaded: {_said(error)}") from error


@dataclass(frozen=True)
class _Loaded:
    source: bytes
    names: list[str]


_LOADED: dict[str, _Loaded] = {}
"""By path: what a file said when it was run."""


def forget_files() -> None:
    """Has files run again, when they are named next."""
    _LOADED.clear()


def _load_file(shown: str) -> list[str]:
    """The names of the backends that a file defines; it is run once in a process, and again when it changed."""
    path = str(Path(shown).resolve())
    try:
        source = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"backend '{shown}': {error.strerror}") from None
    if (known := _LOADED.get(path)) is not None:
        if known.source == source:
            return known.names
        for name in known.names:
            forget_backend(name)
    _LOADED[path] = _Loaded(source, names := _run_file(path, source, shown))
    return names


def _run_file(path: str, source: bytes, shown: str) -> list[str]:
    from fuse_opt.lowering.reference.kernels.backend import Backend, Refused

    module = ModuleType(f"_fuse_opt_backend_{next(_NUMBERS)}")
    module.__file__ = path
    sys.modules[module.__name__] = module  # where dataclasses look for the module of a class
    try:
        exec(compile(source, path, "exec", dont_inherit=True), vars(module))
    except Refused as refused:
        raise UsageError(f"backend '{shown}' cannot be loaded: {refused}") from None
    except SyntaxError as error:
        raise UsageError(f"{shown}:{error.lineno}:{error.offset}: error: {error.msg}: expected Python") from None
    except Exception as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        line = frames[-1].lineno if frames else 1
        raise UsageError(f"{shown}:{line}:1: error: the file raised {_said(error)}") from error
    names = [value.name for value in vars(module).values() if isinstance(value, Backend)]
    if not names:
        raise UsageError(f"{shown}:1:1: error: expected a fuse_opt.backend.Backend in the file, got none")
    return names


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def with_dispatch_table(passes: Sequence[ModulePass]) -> list[ModulePass]:
    """The passes, of which those that take a table of times and have none get the file of `$FUSE_OPT_DISPATCH_TABLE`."""
    return _with_path(passes, _TABLE_OPTION, os.environ.get(TABLE_VARIABLE, ""))


def with_tuned(passes: Sequence[ModulePass], tuned: str | os.PathLike[str] | None = None) -> list[ModulePass]:
    """
    The passes, of which those that take measured schedules and have none get these; `$FUSE_OPT_TUNED` stands in for None. Where
    nothing is at its path, a warning says so and all schedules are the default ones.
    """
    path = os.environ.get(TUNED_VARIABLE, "") if tuned is None else os.fspath(tuned)
    if tuned is None and path and not Path(path).exists():
        message = (
            f"{TUNED_VARIABLE}={path!r}: there is no such file or folder; fuse-tune writes it, until then defaults hold"
        )
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return list(passes)
    return _with_path(passes, TUNED_OPTION, path)


def host_device() -> str:
    """
    The device that HOST is here: the one with vectors of 256 bits where the processor has no wider ones, and where
    `$FUSE_OPT_DEVICE` says nothing of it.
    """
    return NARROW_HOST if not is_host_named() and is_narrow_host() else HOST


def with_host_device(passes: Sequence[ModulePass], host: str | None = None) -> list[ModulePass]:
    """
    The passes of a program that runs on a CPU, of which those that are for HOST, or say nothing, are for the processor that is
    there, or for the device `host`.
    """
    if (device := host or host_device()) == HOST:
        return list(passes)
    return [
        replace(cast("Any", each), device=device) if getattr(each, "device", None) in (HOST, "") else each
        for each in passes
    ]


@cache
def is_narrow_host() -> bool:
    from fuse_opt.runtime.host.processors import is_avx2_alone, processor_features

    return is_avx2_alone(processor_features(("avx2", "avx512f")))


def _with_path(passes: Sequence[ModulePass], option: str, path: str) -> list[ModulePass]:
    return [_with_option(each, option, path) if path else each for each in passes]


def _with_option(each: ModulePass, option: str, path: str) -> ModulePass:
    takes = any(field.name == option for field in fields(each))
    return replace(cast("Any", each), **{option: path}) if takes and not getattr(each, option) else each
