"""The C compiler of this machine: found, tried, and asked for shared objects."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shlex
import shutil
import signal
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.host.compiler_process import NeverEnds, run_compiler, stop_compilers
from fuse_opt.runtime.host.processors import usable_processors

_OPTIMISATION = "-O3"
_MACHINE_CHOICES = (("-march=native",), ("-mcpu=native",), ())
_WIDE_VECTORS = ("-mprefer-vector-width=512",)
# Masks of gathers are vectors where there is no AVX-512. gcc 12 writes the place of a gather over its mask, where all lanes
# have one place that it knows and has in a general register: such numbers are to come from memory, which takes as long.
_GATHER_MASKS = ("-mtune-ctrl=^inter_unit_moves_to_vec",)
# The meaning of generated C rests on these: integers wrap, buffers of different types may share memory. Traps and errno
# are not observable in it, so the compiler may if-convert and vectorise.
_MEANING = ("-fwrapv", "-fno-strict-aliasing", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off")
# gcc 12 moves loads into the branches that use them, and makes wrong masks of such loads of 3, 5, 6 or 7 neighbours. What it
# finds that a called function reads and writes (ipa-modref) is wrong for some functions on vectors, so that stores in front of
# a call of theirs are taken for dead, or loads behind it for known. Tiles of products are such functions. On some processors
# it takes apart multiplications with additions that wait for each other, by a guess about the loop: bits would depend on how
# many sums a function has. Of loops that copy it makes string instructions, which are slow where rows begin anywhere.
# What it makes of neighbouring statements (SLP) lacks stores of several short loops whose elements alternate; where loops are
# written for vectors it gains little (45 kernels took .95 to 1.08 of the time without it, depthwise convolutions 1.08 to 1.14).
_OPTIONAL = (
    "-fopenmp-simd", "-fno-tree-sink", "-fno-ipa-modref", "--param=avoid-fma-max-bits=0", "-fno-tree-loop-distribute-patterns",
    "-fno-tree-slp-vectorize",
)  # fmt: skip
_LINKED = "-shared"
_SHARED = ("-fPIC", _LINKED)
_LIBRARIES = ("-lm",)
_FEW_LIBRARIES = ("-nostdlib", "-fno-use-linker-plugin", "-lm", "-lgcc")
"""Objects are without what a C library has for programs of its own, and find its functions in this process, which has them."""

_PROBE_SECONDS = 60.0
_MESSAGE_LINES = 20
_TRIAL_SOURCE = """\
double exp(double);
void *memmove(void *, const void *, __SIZE_TYPE__);
double fuse_opt_trial(double x) { return exp(x); }
void *fuse_opt_trial_copy(void *to, const void *from, __SIZE_TYPE__ size) { return memmove(to, from, size); }
"""
_ASKS_FOR_NO_LIBRARY = re.compile(r"-(?:O|m|g\d?$|D|W(?!l,)|fno-|fdisable-|ffp-|fira-)")
"""Arguments of a user that leave open what is linked, where those of sanitizers, say, do not."""
_TRIALS = ("fuse_opt_trial", "fuse_opt_trial_copy")


class CompileError(RuntimeError):
    """The C compiler refused a source or could not be run; the text is the first lines of what it said."""


class _NotThere(CompileError):
    """There is no such program."""


class CompilerUnusable(CompileError):
    """The compiler was stopped, as it did not end, or cannot be asked at all: to ask it for less would end in the same way."""


class CompilerKilled(CompileError):
    """Somebody ended the compiler, or memory did: that says nothing of the source."""


_SAID_OF_KILLED = ("Killed signal terminated program", "unable to execute command: Killed")
"""By gcc, and by clang, of a process of theirs."""


@dataclass(frozen=True)
class CCompiler:
    """A C compiler that was seen to build a shared object which this process could load and call."""

    path: str
    """The program, as an absolute path."""
    version: str
    """What the compiler says it is, such as "gcc 12.2.0"."""
    flags: tuple[str, ...]
    """Arguments of every compilation, without the libraries."""
    target: str
    """Checksum of the predefined macros: the instruction sets that `flags` mean on this machine."""
    libraries: tuple[str, ...] = _LIBRARIES
    """The last arguments where something is linked."""

    def compile_shared(
        self, source: str, cache: DiskCache, extra: Sequence[str] = (), timeout: float | None = None
    ) -> Path:
        """
        The shared object of the C text `source`, from `cache` where it is there; `extra` are arguments more, such as
        "-pthread", `timeout` are seconds. The mathematical library is linked. Raises `CompileError`, also where no file can be
        written.
        """
        key = self.shared_key(source, extra)

        def build(path: Path) -> None:
            arguments = [*self.flags, *extra, "-x", "c", "-", "-o", str(path), *self._linked_with(extra)]
            _run(self.path, arguments, source, timeout)

        return self._made(cache, key, ".so", build)

    def load_shared(
        self,
        source: str,
        cache: DiskCache,
        functions: Sequence[str],
        extra: Sequence[str] = (),
        timeout: float | None = None,
    ) -> ctypes.CDLL:
        """
        The object of `compile_shared`, loaded. One that cannot be loaded, or lacks one of the functions, leaves the cache,
        and is built once more. Raises `CompileError`.
        """
        key = self.shared_key(source, extra)
        return self._loaded(
            lambda: self.compile_shared(source, cache, extra, timeout), functions, lambda: cache.discard(key, ".so")
        )

    def load_units(
        self, sources: Sequence[str], cache: DiskCache, functions: Sequence[str], extra: Sequence[str] = ()
    ) -> ctypes.CDLL:
        """The object of `compile_units`, loaded as `load_shared` does."""

        def discard() -> None:
            cache.discard(("c units", *sources, *self._identity(extra)), ".so")
            self._discard_objects(sources, cache, extra)

        return self._loaded(lambda: self.compile_units(sources, cache, extra), functions, discard)

    def _loaded(self, build: Callable[[], Path], functions: Sequence[str], discard: Callable[[], None]) -> ctypes.CDLL:
        path = build()
        with suppress(CompileError):
            return load_object(self, path, functions)
        discard()
        path = build()
        try:
            return load_object(self, path, functions)
        except CompileError:
            discard()
            raise

    def compile_units(self, sources: Sequence[str], cache: DiskCache, extra: Sequence[str] = ()) -> Path:
        """
        The shared object of C texts that are compiled apart, as many at a time as this process may use processors, and
        linked; otherwise as `compile_shared`. A text that `cache` knows from another program is not compiled again.
        """
        key = ("c units", *sources, *self._identity(extra))

        def compiled(source: str) -> Path:
            return self._object(source, cache, extra)

        def build(path: Path) -> None:
            with ThreadPoolExecutor(min(len(sources), usable_processors())) as pool:
                waiting = [pool.submit(compiled, source) for source in sources]
                try:
                    objects = [each.result() for each in waiting]
                except BaseException as error:
                    pool.shutdown(wait=False, cancel_futures=True)
                    if not isinstance(error, Exception):  # the user's interrupt does not reach other process groups
                        stop_compilers()
                    raise
            try:
                linked = [*map(str, objects), "-o", str(path), *self._linked_with(extra)]
                _run(self.path, [*self.flags, *extra, *linked], "")
            except CompileError:
                self._discard_objects(sources, cache, extra)
                raise

        return self._made(cache, key, ".so", build)

    def _object(self, source: str, cache: DiskCache, extra: Sequence[str]) -> Path:
        def build(path: Path) -> None:
            flags = [flag for flag in self.flags if flag != _LINKED]
            _run(self.path, [*flags, *extra, "-c", "-x", "c", "-", "-o", str(path)], source)

        return self._made(cache, ("c object", source, *self._identity(extra)), ".o", build)

    def _discard_objects(self, sources: Sequence[str], cache: DiskCache, extra: Sequence[str]) -> None:
        for source in sources:
            cache.discard(("c object", source, *self._identity(extra)), ".o")

    def _made(self, cache: DiskCache, key: Sequence[str], suffix: str, build: Callable[[Path], None]) -> Path:
        try:
            return cache.get_or_build(key, suffix, build)
        except ValueError as error:
            raise CompileError(f"'{self.path}' made no object and did not say why") from error
        except OSError as error:  # of a full disk, say: what needs no object runs all the same
            raise CompileError(_cause(error)) from error

    def shared_key(self, source: str, extra: Sequence[str] = ()) -> tuple[str, ...]:
        """All that the object of `compile_shared` depends on."""
        return ("c", source, *self._identity(extra))

    def _identity(self, extra: Sequence[str]) -> tuple[str, ...]:
        """What an object depends on besides its source."""
        return (self.path, self.version, self.target, *self.flags, *extra, *self._linked_with(extra))

    def _linked_with(self, extra: Sequence[str]) -> tuple[str, ...]:
        """Threads are in a library of their own on some machines."""
        return _LIBRARIES if "-pthread" in extra else self.libraries


def find_c_compiler(cache: DiskCache | None = None) -> CCompiler | None:
    """
    The first compiler that works, or None: `$FUSE_OPT_CC` alone where it is set (a warning says why it does not work),
    else `$CC`, cc, gcc, clang on the search path.

    Each is asked to build a trivial shared object through `cache` (the default one where None), and the object is
    called. The arguments of `$FUSE_OPT_CFLAGS` come after all others. The answer is remembered for the process as long as
    these variables and `$PATH` stay the same.
    """
    return _found(cache)[0]


def compiler_problem(cache: DiskCache | None = None) -> str:
    """Why `find_c_compiler` gives none: what is wrong with the first compiler that is there; empty where a warning said it."""
    return _found(cache)[1]


def _found(cache: DiskCache | None) -> tuple[CCompiler | None, str]:
    names = ("FUSE_OPT_CC", "CC", "FUSE_OPT_CFLAGS", "PATH")
    return _find(tuple(os.environ.get(name, "") for name in names), cache)


@functools.lru_cache(maxsize=8)
def _find(environment: tuple[str, ...], cache: DiskCache | None) -> tuple[CCompiler | None, str]:
    """The compiler, or else the reason why there is none."""
    chosen, conventional, last, _ = environment
    cache = cache or DiskCache()
    if chosen:
        try:
            return _tried(chosen, last, cache), ""
        except (CompileError, OSError, ValueError) as error:
            warnings.warn(f"FUSE_OPT_CC={chosen!r} does not work: {_cause(error)}", RuntimeWarning, stacklevel=4)
            return None, ""
    reasons: list[str] = []
    for name in (conventional, "cc", "gcc", "clang"):
        try:
            return _tried(name, last, cache), ""
        except _NotThere:
            continue
        except (CompileError, OSError, ValueError) as error:
            reasons.append(_cause(error))
    return None, reasons[0] if reasons else "there is none on the search path"


def _cause(error: Exception) -> str:
    """What is wrong with a compiler; an error of files is about those that compiling makes."""
    if not isinstance(error, OSError):
        return str(error)
    where = f" '{error.filename}'" if error.filename else ""
    return f"no file for it can be written{where}: {error.strerror or error} (TMPDIR names the folder)"


def _tried(command: str, last: str, cache: DiskCache) -> CCompiler:
    """The compiler that `command` names (it may hold arguments), with the best flags under which it works, then `last`."""
    program, *arguments = shlex.split(command) or [""]
    asked = shlex.split(last)
    path = shutil.which(program)
    if path is None:
        raise _NotThere(f"'{program}' is not an executable on the search path")

    def working(flags: tuple[str, ...]) -> CCompiler:
        compiler = described(os.path.abspath(path), (*arguments, *flags, *asked))
        if all(map(_ASKS_FOR_NO_LIBRARY.match, (*arguments, *asked))):
            with _unless_unusable():
                return _checked(replace(compiler, libraries=_FEW_LIBRARIES), cache)
        return _checked(compiler, cache)

    wanted, *others, plainest = _flag_choices()
    with _unless_unusable():
        return working(wanted)
    fallback = working(plainest)  # one that refuses all is asked twice, not for every set of flags
    for flags in others:
        with _unless_unusable():
            return working(flags)
    return fallback


@contextmanager
def _unless_unusable() -> Generator[None]:
    """A compiler that refuses is asked for something else; one that is not to be asked again is an error."""
    try:
        yield
    except CompilerUnusable:
        raise
    except CompileError:
        return


def _flag_choices() -> Iterator[tuple[str, ...]]:
    """Sets of flags, the wanted one first; `described` refuses those that are for other machines."""
    for optional in (kept for count in range(len(_OPTIONAL), -1, -1) for kept in combinations(_OPTIONAL, count)):
        for machine in _MACHINE_CHOICES:
            for width in (_WIDE_VECTORS, _GATHER_MASKS, ()) if machine else ((),):
                yield (_OPTIMISATION, *machine, *width, *_MEANING, *optional, *_SHARED)


def described(path: str, flags: tuple[str, ...]) -> CCompiler:
    """
    Asks the compiler for its predefined macros, which tell its version and the instruction sets together. Raises `CompileError`.
    """
    listing = _run(path, [*flags, "-dM", "-E", "-x", "c", "-"], "", _PROBE_SECONDS)
    lines = sorted(listing.splitlines())
    macros = dict(line.split(" ", 2)[1:] for line in lines if line.count(" ") > 1)
    family = "clang" if "__clang__" in macros else "gcc"
    version = macros.get("__VERSION__", "unknown").strip('"')
    if "__AVX512F__" not in macros and set(_WIDE_VECTORS) <= set(flags):
        raise CompileError("this machine has no vectors of 512 bits")
    if set(_GATHER_MASKS) <= set(flags) and ("__AVX2__" not in macros or "__AVX512VL__" in macros):
        raise CompileError("this machine has no gathers whose masks are vectors")
    target = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return CCompiler(path, f"{family} {version}", flags, target)


def _checked(compiler: CCompiler, cache: DiskCache) -> CCompiler:
    """Raises where the compiler cannot link, or its objects cannot be loaded here (other machine, noexec directory)."""
    library = compiler.load_shared(_TRIAL_SOURCE, cache, _TRIALS, timeout=_PROBE_SECONDS)
    function = library.fuse_opt_trial
    function.argtypes, function.restype = [ctypes.c_double], ctypes.c_double
    if function(0.0) != 1.0:
        raise CompileError(f"'{compiler.path}' built an object that computes exp(0) wrongly")
    return compiler


def load_object(compiler: CCompiler, path: Path, functions: Sequence[str] = ()) -> ctypes.CDLL:
    """What the compiler has made, which must have these functions. Raises `CompileError`."""
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise CompileError(f"'{compiler.path}' built an object that cannot be loaded: {error}") from error
    for function in functions:
        if not hasattr(library, function):
            raise CompileError(f"'{compiler.path}' built an object without the function '{function}' that it was given")
    return library


def _run(path: str, arguments: Sequence[str], source: str, timeout: float | None = None) -> str:
    """Standard output of the compiler fed with `source`."""
    try:
        done = run_compiler([path, *arguments], source, timeout)
    except (NeverEnds, ValueError) as error:
        raise CompilerUnusable(str(error)) from None
    except OSError as error:
        raise CompileError(f"'{path}' could not be run: {error}") from error
    if done.status == 0:
        return done.output
    lines = done.messages.splitlines()
    shown = lines[:_MESSAGE_LINES]
    if len(lines) > len(shown):
        shown.append(f"({len(lines) - len(shown)} more lines)")
    ending = f"was killed by signal {-done.status}" if done.status < 0 else "failed"
    cause = next((line for line in lines if "error" in line), lines[0] if lines else "it did not say why")
    was_killed = done.status == -signal.SIGKILL or any(said in done.messages for said in _SAID_OF_KILLED)
    raise (CompilerKilled if was_killed else CompileError)("\n".join([f"'{path}' {ending}: {cause}", *shown]))
