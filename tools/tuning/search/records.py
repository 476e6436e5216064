"""What was measured, kept as lines: appended as it comes, so that nothing that is finished is lost or made twice."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import cast

from fuse_opt.passes.devices.this_machine import Machine
from fuse_opt.passes.scheduling.tuned_schedules import CONFIRMED, KEPT, VERSION, Line, read_lines
from fuse_opt.tools.tuning.search.candidates import Candidate, Site
from fuse_opt.tools.tuning.search.race import Asked
from fuse_opt.tools.tuning.search.study import AheadBench, Bench, Measured, Outcome, TrialFailed, WideBench, refusal

RACED, FAILED, TEXT, TOTAL = "raced", "failed", "text", "total"
"""States of lines: pairs of one turn; why a candidate cannot be used; what it prints; seconds of a whole program."""
_TURN_DIGITS = 5
_TARGET = "c"
"""Of lines that do not say it."""


@dataclass
class Records:
    """The lines of a folder, those of other processes included, and a file of this process's own that new ones go to."""

    folder: Path
    machine: Machine
    problems: list[str] = field(default_factory=list[str])
    _lines: dict[str, list[Line]] = field(default_factory=dict[str, list[Line]])
    _families: dict[str, list[Line]] = field(default_factory=dict[str, list[Line]])
    written: int = 0

    def __post_init__(self) -> None:
        """Reads what is there. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._file = self.folder / f"{os.getpid()}-{os.urandom(4).hex()}.jsonl"
        for path in sorted(self.folder.glob("*.jsonl")):
            for _, line in read_lines(path, self.problems):
                self._enter(line)

    def _enter(self, line: Line) -> None:
        self._lines.setdefault(str(line.get("key")), []).append(line)
        if line.get("state") == CONFIRMED:
            self._families.setdefault(str(line.get("family")), []).append(line)

    def add(self, site: Site, entries: Line, *, durable: bool = True) -> None:
        """
        Writes a line about a kernel, to the disk before anything else happens where it is to be durable: what took a while to
        find. Raises OSError.
        """
        given: Line = {"inputs": site.given} if site.given else {}
        self._add(site.key.key, site.key.family, site.target, {**entries, **given}, durable)

    def total(self, program: str, measure: Callable[[], float]) -> float:
        """The seconds of a call of a program of that digest: measured once. Raises OSError."""
        key = f"p:{program}"
        for line in self._here(key):
            if isinstance(seconds := line.get("seconds"), float):
                return seconds
        seconds = measure()
        self._add(key, key, _TARGET, {"state": TOTAL, "seconds": float(f"{seconds:.4g}")}, True)
        return seconds

    def _add(self, key: str, family: str, target: str, entries: Line, durable: bool) -> None:
        line: Line = {
            "v": VERSION,
            "key": key,
            "family": family,
            "device": self.machine.device,
            "code": self.machine.code,
            "target": target,
            **entries,
        }
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            if durable:
                os.fsync(file.fileno())
        self.written += 1
        self._enter(line)

    def of(self, site: Site) -> list[Line]:
        """What was measured here of a kernel, by this code, on its inputs; in an order that does not depend on files."""
        return [line for line in self._here(site.key.key) if line.get("inputs", "") == site.given]

    def _here(self, key: str) -> list[Line]:
        machine = self.machine
        found = [
            line
            for line in self._lines.get(key, [])
            if (line.get("device"), line.get("code")) == (machine.device, machine.code)
        ]
        return sorted(found, key=lambda line: json.dumps(line, sort_keys=True))

    def earlier(self, site: Site) -> list[Candidate]:
        """Schedules that are confirmed for the kernel elsewhere, or for one like it: where to begin, and no more than that."""
        same = [line for line in self._lines.get(site.key.key, []) if line.get("state") == CONFIRMED]
        found = {
            json.dumps(line.get("schedule"), sort_keys=True): line
            for line in (*same, *self._families.get(site.key.family, []))
        }
        return [_candidate(found[text]) for text in sorted(found) if found[text].get("target", _TARGET) == site.target]


def _candidate(line: Line) -> Candidate:
    settings = cast("dict[str, str | int]", line["schedule"])
    return Candidate.of(settings, line.get("same_bits") is True)


class RecordedBench:
    """A bench that measures nothing twice: turns that have a line are read, others are measured and get one."""

    def __init__(self, site: Site, records: Records, bench: Callable[[], Bench]) -> None:
        """`bench` makes what measures, which nobody needs who finds all in the records."""
        self._site, self._records, self._made = site, records, bench
        self.measured = 0
        self._texts: dict[str, str] = {}
        self._turns: dict[tuple[str, int, int], Measured] = {}
        self._failed: dict[str, str] = {}
        for line in records.of(site):
            text = json.dumps(line.get("schedule"), sort_keys=True)
            pairs, turn = line.get("pairs"), line.get("turn")
            if line.get("state") == FAILED:
                self._failed[text] = str(line.get("reason"))
            elif line.get("state") == TEXT:
                self._texts[text] = str(line.get("text"))
            elif line.get("state") == RACED and isinstance(pairs, list) and isinstance(turn, int):
                numbers = tuple(float(each) for each in cast("list[float]", pairs))
                seconds = line.get("seconds")
                spent = float(seconds) if isinstance(seconds, int | float) else 0.0
                self._turns[text, turn, len(numbers)] = Measured(numbers, line.get("same_bits") is True, spent)

    @cached_property
    def _bench(self) -> Bench:
        return self._made()

    def text(self, candidate: Candidate) -> str:
        """By which candidates with the same program are told; nothing is lowered twice. Raises TrialFailed."""
        if candidate.text not in self._texts:
            if candidate.text in self._failed:
                raise TrialFailed(self._failed[candidate.text])
            try:
                self._texts[candidate.text] = found = self._site.text(candidate)
            except Exception as error:  # whatever lowering says of it
                entries: Line = {"state": FAILED, "schedule": candidate.settings, "reason": refusal(error)}
                self._records.add(self._site, entries, durable=False)
                raise TrialFailed(refusal(error)) from None
            self._records.add(self._site, {"state": TEXT, "schedule": candidate.settings, "text": found}, durable=False)
        return self._texts[candidate.text]

    def look_again(self, candidate: Candidate) -> str:
        """Raises TrialFailed, which is recorded."""
        try:
            return self._bench.look_again(candidate)
        except TrialFailed as failure:
            self._records.add(self._site, {"state": FAILED, "schedule": candidate.settings, "reason": str(failure)})
            raise

    def close(self) -> None:
        """Closes what measures, where anything did."""
        if "_bench" in self.__dict__:
            self._bench.close()

    def measure(self, candidate: Candidate, turn: int, pairs: int) -> Measured:
        """Raises TrialFailed, also where a line says so."""
        asked = (candidate, turn, pairs)
        if not self._is_known(asked):
            try:
                self._keep(asked, self._bench.measure(candidate, turn, pairs))
            except TrialFailed as failure:
                self._keep(asked, failure)
        if candidate.text in self._failed:
            raise TrialFailed(self._failed[candidate.text])
        return self._turns[candidate.text, turn, pairs]

    def prepare(self, asked: Sequence[Asked]) -> None:
        """
        Measures what has no line yet where that goes side by side, and makes it ready where only that does; each turn gets its
        line as soon as it is there.
        """
        unknown = [each for each in asked if not self._is_known(each)]
        if not unknown:
            return
        if isinstance(bench := self._bench, WideBench):
            for each, found in bench.together(unknown):
                self._keep(each, found)
        elif isinstance(bench, AheadBench):
            bench.ahead([candidate for candidate, _, _ in unknown])

    def _is_known(self, asked: Asked) -> bool:
        candidate, turn, pairs = asked
        return candidate.text in self._failed or (candidate.text, turn, pairs) in self._turns

    def _keep(self, asked: Asked, found: Measured | TrialFailed) -> None:
        """Writes what came out."""
        candidate, turn, pairs = asked
        self.measured += 1
        if isinstance(found, Measured) and not all(isfinite(pair) for pair in found.pairs):
            found = TrialFailed("nan: times are no numbers")
        if isinstance(found, TrialFailed):
            self._failed[candidate.text] = str(found)
            self._records.add(
                self._site, {"state": FAILED, "schedule": candidate.settings, "reason": str(found), "turn": turn}
            )
            return
        numbers = tuple(round(pair, _TURN_DIGITS) for pair in found.pairs)
        self._records.add(
            self._site,
            {
                "state": RACED,
                "schedule": candidate.settings,
                "turn": turn,
                "pairs": list(numbers),
                "seconds": float(f"{found.seconds:.4g}"),
                "same_bits": found.same_bits,
            },
        )
        self._turns[candidate.text, turn, pairs] = Measured(numbers, found.same_bits, found.seconds)


def outcome_line(outcome: Outcome, study: str) -> Line:
    """The line that says what came out; `study` names the options of the search."""
    chosen = outcome.winner or outcome.site.default
    found: Line = {"state": CONFIRMED if outcome.winner else KEPT, "schedule": chosen.settings}
    if outcome.winner and (verdict := outcome.verdict) is not None:
        found["speedup"] = [round(each, 4) for each in (verdict.low, verdict.median, verdict.high)]
        found["pairs"] = verdict.pairs
    found |= {"unchecked": outcome.unchecked} if outcome.unchecked else {}
    found |= {"same_bits": outcome.same_bits, "default": outcome.site.default.settings, "trials": outcome.trials}
    found |= {"seconds": float(f"{outcome.seconds:.4g}"), "from": outcome.site.place, "study": study}
    return found


def finished(lines: Iterable[Line], study: str) -> Line | None:
    """The line of a search with these options that came to its end."""
    return next((line for line in lines if line.get("study") == study), None)


def study_name(seed: int, same_bits: bool, budget: str) -> str:
    """Options that one search has and another one may not have."""
    return f"seed={seed} same-bits={str(same_bits).lower()} {budget}"


def program_digest(text: str) -> str:
    """Of a program's text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
