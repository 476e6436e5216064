"""Schedules that were measured, as text: read from files, and looked up by what a kernel is and where it was measured.

```
{"v": 1, "key": "k:9f3c", "device": "d:41c0", "code": "c:5d2e", "state": "confirmed", "schedule": {"kind": "row", "lanes": 128}}
```
Such lines are written by `fuse-tune`, a file for each process, so that files are merged by `cat` and their order says nothing. A
file `tuned.json` holds the entries of one program as one object, for people and for their repositories.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import cast

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute

from fuse_opt.dialects.fused.gpu_schedule import ENTRY, GPU_KNOBS, GpuKnob
from fuse_opt.dialects.fused.knobs import KNOBS, Knob
from fuse_opt.passes.devices.this_machine import Machine

VERSION = 1
HEADER = "fuse-opt-tuned"
"""The entry of a program's file that says its version."""
CONFIRMED, KEPT = "confirmed", "default"
"""States of an entry: another schedule than the default is faster, on pairs that did not choose it; none is."""

Settings = Mapping[str, str | int]
"""A schedule: its kind, and what differs from the default."""
Line = dict[str, object]


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was found for a kernel."""

    key: str
    machine: Machine
    settings: Settings
    speedup: float
    place: str
    """File and line."""
    is_default: bool = False
    """Whether it is the default, as nothing was faster."""

    def rank(self) -> tuple[object, ...]:
        """The least one counts, where several were found: in whatever order they stand."""
        return -self.speedup, json.dumps(self.settings, sort_keys=True), self.place


@dataclass(frozen=True)
class TunedTable:
    """Entries by key, each key's in the order in which they count."""

    entries: Mapping[str, tuple[Tuned, ...]]
    problems: tuple[str, ...] = field(default=(), compare=False)
    """What is wrong with lines that were left out, with their places."""
    faults: tuple[tuple[str, str], ...] = ()
    """Entries of a program's file that no schedule may have: the code that wrote it, and what is wrong."""

    def find(self, key: str, machine: Machine | None) -> tuple[Tuned | None, str]:
        """What counts for a kernel here, and its state: "tuned", "tuned-stale" (by other code), or why there is none."""
        found = self.entries.get(key, ())
        here = [each for each in found if machine is not None and each.machine.device == machine.device]
        if same := [each for each in here if machine is not None and each.machine.code == machine.code]:
            return same[0], "tuned"
        if here:
            return here[0], "tuned-stale"
        if found:
            return None, f"{found[0].place} is of another machine ({found[0].machine.device})"
        return None, "it was not measured"


def settings_of(schedule: DictionaryAttr, of_gpu: bool = False) -> dict[str, str | int]:
    """A schedule as plain values; without what is said of the GPU, or with that as `gpu.threads` and so on."""
    found: dict[str, str | int] = {}
    for name, value in schedule.data.items():
        if of_gpu and name == ENTRY and isinstance(value, DictionaryAttr):
            found |= {f"{_OF_GPU}{inner}": each for inner, each in settings_of(value).items()}
        if isinstance(value, StringAttr):
            found[name] = value.data
        elif isinstance(value, IntegerAttr):
            found[name] = value.value.data
    return found


def schedule_of(settings: Settings) -> DictionaryAttr:
    """The schedule that these values say."""
    entries, of_gpu = dict[str, Attribute](), dict[str, Attribute]()
    for name, value in settings.items():
        entry = _attribute(value)
        if name.startswith(_OF_GPU):
            of_gpu[name.removeprefix(_OF_GPU)] = entry
        else:
            entries[name] = entry
    return DictionaryAttr({**entries, **({ENTRY: DictionaryAttr(of_gpu)} if of_gpu else {})})


def _attribute(value: str | int) -> StringAttr | IntegerAttr:
    return StringAttr(value) if isinstance(value, str) else IntegerAttr(value, i64)


def entries_of(target: str) -> Mapping[str, Knob | GpuKnob]:
    """What schedules of a target, "c" or "cuda", may say beside their kind, by name."""
    return _OF_TARGET[target]


_OF_GPU = f"{ENTRY}."
_OF_TARGET: Mapping[str, Mapping[str, Knob | GpuKnob]] = {
    "c": {knob.name: knob for knob in KNOBS},
    "cuda": {f"{_OF_GPU}{knob.name}": knob for knob in GPU_KNOBS},
}
_KNOWN: Mapping[str, Knob | GpuKnob] = {name: knob for found in _OF_TARGET.values() for name, knob in found.items()}
_KINDS = tuple(dict.fromkeys(kind for knob in KNOBS if knob.tries for kind in knob.kinds))


def settings_problem(settings: object) -> str | None:
    """What no kernel's schedule may say; None where nothing is wrong."""
    if not isinstance(settings, dict):
        return f'expected a schedule, such as {{"kind": "row"}}, got {settings!r}'
    given = cast("Line", settings)
    if (kind := given.get("kind")) not in _KINDS:
        return f"entry 'kind': expected one of {', '.join(_KINDS)}, got {json.dumps(kind)}"
    for name, value in given.items():
        plain = value if isinstance(value, str | int) and not isinstance(value, bool) else None
        if name != "kind" and (problem := entry_problem(name, plain, str(kind))) is not None:
            return f"entry '{name}': {problem}, got {json.dumps(value)}"
    return None


@lru_cache(maxsize=1024)
def entry_problem(name: str, value: str | int | None, kind: str) -> str | None:
    """What is wrong with an entry of a schedule of a kind; a value of None stands for what is neither a word nor a number."""
    if (knob := _KNOWN.get(name)) is None:
        return f"expected kind or one of {', '.join(_KNOWN)}"
    if kind not in knob.kinds:
        return f'expected none for kind "{kind}", as it means something for {", ".join(knob.kinds)} alone'
    fits = value is not None and knob.values.has(_attribute(value))
    return None if fits else f"expected {knob.values}"


def read_tuned(path: str | Path) -> TunedTable:
    """
    The entries of a file of lines, of all such files of a folder, or of a program's file. Lines of another version or that say
    nothing are left out. Raises OSError, and ValueError for a program's file that cannot be used.
    """
    path = Path(path)
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    return _table(tuple((str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files))


@lru_cache(maxsize=8)
def _table(files: tuple[tuple[str, int, int], ...]) -> TunedTable:
    found: dict[str, list[Tuned]] = {}
    problems: list[str] = []
    faults: list[tuple[str, str]] = []
    for name, _, _ in files:
        for tuned in _program_entries(name, faults) if name.endswith(".json") else _line_entries(name, problems):
            found.setdefault(tuned.key, []).append(tuned)
    entries = {key: tuple(sorted(each, key=Tuned.rank)) for key, each in found.items()}
    return TunedTable(entries, tuple(problems), tuple(faults))


def read_lines(path: str | Path, problems: list[str]) -> Iterator[tuple[int, Line]]:
    """The lines of a file that are objects of this version, with their numbers; others are problems. Raises OSError."""
    for number, line in enumerate(Path(path).read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        if line.strip():
            if (found := _object(line)) is None or found.get("v") != VERSION:
                problems.append(f'{path}:{number}: expected an object with "v": {VERSION}; the line is left out')
            else:
                yield number, found


def _line_entries(name: str, problems: list[str]) -> Iterator[Tuned]:
    for number, line in read_lines(name, problems):
        if line.get("state") in (CONFIRMED, KEPT):
            if (problem := _entry_problem(line) or settings_problem(line["schedule"])) is not None:
                problems.append(f"{name}:{number}: {problem}; the line is left out")
            else:
                yield _entry(line, line, f"{name}:{number}")


def _program_entries(name: str, faults: list[tuple[str, str]]) -> Iterator[Tuned]:
    text = Path(name).read_text(encoding="utf-8", errors="replace")
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        line, column = (error.lineno, error.colno) if isinstance(error, json.JSONDecodeError) else (1, 1)
        raise ValueError(f"{name}:{line}:{column}: error: expected JSON, as fuse-tune writes it: {error}") from None
    whole = cast("Line", found) if isinstance(found, dict) else {}
    if whole.get(HEADER) != VERSION:
        got = json.dumps(whole.get(HEADER))
        raise ValueError(f'{name}:1:1: error: expected "{HEADER}": {VERSION}, got {got}; run fuse-tune again')
    kernels = whole.get("kernels")
    for each in cast("list[object]", kernels) if isinstance(kernels, list) else [None]:
        entry = cast("Line", each) if isinstance(each, dict) else {}
        if (problem := _entry_problem({**whole, **entry})) is not None:
            raise ValueError(f"{name}:1:1: error: kernels: {problem}; mend it, or run fuse-tune again")
        place = f"{name}:{text.count(chr(10), 0, max(text.find(json.dumps(entry['key'])), 0)) + 1}"
        if (problem := settings_problem(entry["schedule"])) is not None:
            faults.append((str(whole["code"]), f"{place}: {problem}; mend it, or run fuse-tune again"))
        else:
            yield _entry(whole, entry, place)


def _entry_problem(line: Line) -> str | None:
    for name in ("key", "device", "code"):
        if not isinstance(line.get(name), str):
            return f"entry '{name}': expected a text, got {json.dumps(line.get(name))}"
    return None if "schedule" in line else "entry 'schedule': expected a schedule, got none"


def _entry(whole: Line, line: Line, place: str) -> Tuned:
    speedup = line.get("speedup")
    numbers = cast("list[object]", speedup) if isinstance(speedup, list) else []
    median = numbers[len(numbers) // 2] if numbers else 1.0
    return Tuned(
        str(line["key"]),
        Machine(str(whole["device"]), str(whole["code"])),
        cast("Settings", line["schedule"]),
        float(median) if isinstance(median, int | float) and median > 0 else 1.0,
        place,
        line.get("state") == KEPT,
    )


def _object(line: str) -> Line | None:
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("Line", found) if isinstance(found, dict) else None
