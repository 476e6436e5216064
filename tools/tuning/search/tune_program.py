"""Tunes the kernels of a program one after another, those that take the longest first, and writes what came out as it comes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

from fuse_opt.passes.devices.this_machine import Machine
from fuse_opt.passes.scheduling.tuned_schedules import CONFIRMED, HEADER, KEPT, VERSION, Line
from fuse_opt.tools.tuning.search.candidates import Candidate, Site
from fuse_opt.tools.tuning.search.records import (
    FAILED,
    RACED,
    RecordedBench,
    Records,
    finished,
    outcome_line,
    study_name,
)
from fuse_opt.tools.tuning.search.study import Bench, Limit, Outcome, Study, TrialFailed

LEAST_SHARE = 0.02
"""Of the program's time: kernels below it are left alone."""
WORTH_IT = 0.05
"""Of the program's time that can be tuned: below it nothing is tried."""
_WEIGHING = -2
"""The turn in which the default alone is timed, against itself."""
_WEIGHED_IN = 0.25
"""Of the time, after which no further kernel is weighed: those that move the most bytes are by then."""


@dataclass(frozen=True)
class Options:
    """What was asked for."""

    trials: int | None = None
    seconds: float | None = 120.0
    seed: int = 0
    same_bits: bool = False
    kernel: str | None = None
    threads: int = 1

    @property
    def study(self) -> str:
        """By which a search with these options is known."""
        budget = f"trials={self.trials}" if self.trials is not None else f"seconds={self.seconds:g}"
        return study_name(self.seed, self.same_bits, budget)


@dataclass
class Result:
    """What a run came to: the lines of its kernels, as records have them, and what was left alone."""

    lines: dict[str, Line] = field(default_factory=dict[str, Line])
    """By key."""
    outcomes: dict[str, Outcome] = field(default_factory=dict[str, Outcome])
    """Of those that were searched now."""
    shares: dict[str, float] = field(default_factory=dict[str, float])
    measured: int = 0
    """Turns of pairs that were measured now."""
    before: int = 0
    """Trials of earlier runs on the same program, behind which this one goes on."""
    unweighed: int = 0
    """Kernels of which nobody knows how long they take, as there was no time to see."""
    message: str = ""

    @property
    def trials(self) -> int:
        return sum(outcome.trials for outcome in self.outcomes.values())

    @property
    def won(self) -> list[str]:
        """The keys of kernels for which something faster is confirmed."""
        return [key for key, line in self.lines.items() if line.get("state") == CONFIRMED]


@dataclass
class Tuner:
    """A run; `bench` makes what measures a kernel, `clock` is for limits alone."""

    sites: Sequence[Site]
    records: Records
    bench: Callable[[Site], Bench]
    clock: Callable[[], float]
    options: Options
    total: Callable[[], float]
    """Seconds of a call of the whole program."""
    told: Callable[[str], None] = lambda line: None
    advanced: Callable[[Outcome, Limit], None] = lambda outcome, limit: None
    """Is told how far a search is."""
    improved: Callable[[Result], None] = lambda result: None
    interrupted: Callable[[], bool] = lambda: False
    begun: float | None = None
    """When the time began to run; at the search where it is None."""
    used: int = 0
    """Trials that were made before."""
    width: int = 1
    """Candidates that are measured side by side."""

    def run(self) -> Result:
        """Raises OSError where records cannot be written."""
        result = Result()
        sites = [site for site in self.sites if self.options.kernel in (None, site.name)]
        waiting: list[Site] = []
        for site in sites:
            if (line := finished(self.records.of(site), self.options.study)) is None:
                waiting.append(site)
            else:
                result.lines[site.key.key] = line
                result.before += int(cast("int", line.get("trials", 0))) if line.get("from") == site.place else 0
        if not sites:
            return self._ended(result, "no kernel has something to choose: nothing is tried")
        if not waiting:
            return self._ended(result, "nothing to measure: all kernels are in the records")
        shares = self._weights(sites, result)
        weights = {site.key.key: shares[site.key.key] for site in waiting if site.key.key in shares}
        worth = sum(shares.values())
        if self.options.kernel is None and not result.unweighed and worth < WORTH_IT:
            return self._ended(
                result, f"{100 * worth:.1f}% of the time is in kernels that have something to choose: nothing is tried"
            )
        if self.options.kernel is None and weights and max(weights.values()) < LEAST_SHARE:
            of = f"{len(weights)} of {len(waiting)}" if result.unweighed else str(len(waiting))
            least = f"none of {of} kernels takes {100 * LEAST_SHARE:.0f}% of the time"
            return self._ended(result, f"{least}: nothing is tried")
        self._search(waiting, weights, result)
        return self._ended(result, "")

    def known(self) -> Result:
        """What was confirmed of its kernels, now or before."""
        lines: dict[str, Line] = {}
        for site in self.sites:
            confirmed = [line for line in self.records.of(site) if line.get("state") == CONFIRMED]
            if confirmed:
                lines[site.key.key] = max(confirmed, key=confirmed_of)
        return Result(lines)

    def _ended(self, result: Result, message: str) -> Result:
        if not message:
            tried = _counted(result.trials)
            confirmed = len(result.won)
            message = f"{confirmed} of {len(result.lines)} kernels are faster: {tried}"
            if not confirmed:
                message = f"the default is best: {tried}, none >= 1.02x"
        result.message = message
        self.improved(result)
        return result

    def _weights(self, sites: Sequence[Site], result: Result) -> dict[str, float]:
        """
        By key, the share of the program's time that all kernels like this take: of those that move the most bytes, as many as a
        part of the time has room for.
        """
        limit = Limit(self.clock, None, self._left(), self.interrupted)
        whole, seconds = self.total(), dict[str, float]()
        waiting = sorted(sites, key=lambda site: -site.count * site.nbytes)
        while waiting and not (seconds and limit.is_spent(_WEIGHED_IN)):
            site = waiting.pop(0)
            recorded = RecordedBench(site, self.records, partial(self.bench, site))
            try:
                seconds[site.key.key] = recorded.measure(site.default, _WEIGHING, 1).seconds * site.count
            except TrialFailed as failure:
                self.told(f"{site.name}: its default cannot be measured: {failure}")
            finally:
                recorded.close()
                result.measured += recorded.measured
        total = max(whole, sum(seconds.values()), 1e-12)
        shares = {key: spent / total for key, spent in seconds.items()}
        result.shares |= shares
        for site in sites:
            if (share := shares.get(site.key.key)) is not None:
                self.told(f"{site.name}: {100 * share:.1f}% of the time, {site.default.text}")
        if (count := len(waiting)) and not self.interrupted():
            self.told(f"{count} of {len(sites)} kernels are left alone: there was no time to see how long they take")
        result.unweighed = count
        return shares

    def _left(self) -> float | None:
        """Seconds until the time is over, where there is one."""
        if self.options.seconds is None:
            return None
        return self.options.seconds - (0.0 if self.begun is None else self.clock() - self.begun)

    def _search(self, sites: Sequence[Site], shares: dict[str, float], result: Result) -> None:
        alone = self.options.kernel is not None
        order = sorted(
            (site for site in sites if shares.get(site.key.key, -1.0) >= (0.0 if alone else LEAST_SHARE)),
            key=lambda site: -shares[site.key.key],
        )
        if known := sum(map(_is_of_search, (line for site in order for line in self.records.of(site)))):
            self.told(f"goes on behind {known} measurements that are in the records")
        start, used = self.clock() if self.begun is None else self.begun, self.used + result.before
        for number, site in enumerate(order):
            part = shares[site.key.key] / sum(shares[each.key.key] for each in order[number:])
            left = None if self.options.seconds is None else self.options.seconds - (self.clock() - start)
            trials = None if self.options.trials is None else round((self.options.trials - used) * part)
            limit = Limit(self.clock, trials, None if left is None else left * part, self.interrupted)
            used += self._one(site, limit, result)
            self.improved(result)
            if self.interrupted():
                return

    def _one(self, site: Site, limit: Limit, result: Result) -> int:
        recorded = RecordedBench(site, self.records, partial(self.bench, site))
        options = self.options
        study = Study(
            site,
            recorded,
            limit,
            seed=options.seed,
            same_bits=options.same_bits,
            text=recorded.text,
            width=self.width,
            prepare=recorded.prepare,
            told=self.advanced,
        )
        try:
            outcome = study.run(self.records.earlier(site))
        finally:
            recorded.close()
            result.measured += recorded.measured
        line = outcome_line(outcome, "" if self.interrupted() else options.study)
        self.records.add(site, line)
        result.lines[site.key.key], result.outcomes[site.key.key] = line, outcome
        self.told(f"{site.name}: {said_of(outcome)}")
        return outcome.trials


def _is_of_search(line: Line) -> bool:
    """Whether a line of the records is what came of a turn of a candidate."""
    return line.get("state") in (RACED, FAILED) and line.get("turn") != _WEIGHING


def _counted(candidates: int) -> str:
    return f"{candidates} candidate{'' if candidates == 1 else 's'}"


def said_of(outcome: Outcome) -> str:
    """A sentence about a search."""
    tried = f"{_counted(outcome.trials)} ({outcome.duplicates} others have the same text, {len(outcome.failed)} failed)"
    noise = f"; this machine is too busy to see less than {outcome.visible:.2f}x" if outcome.is_noisy else ""
    verdict = outcome.verdict
    if outcome.winner is not None and verdict is not None:
        bits = "" if outcome.same_bits else ", bits of results differ"
        unchecked = f" ({outcome.unchecked})" if outcome.unchecked else ""
        interval = f"{verdict.median:.3f}x ({verdict.low:.3f} to {verdict.high:.3f}, {verdict.pairs} pairs)"
        return f"{interval} by {outcome.winner.text}{bits}{unchecked}; {tried}{noise}"
    if outcome.refused is not None and verdict is not None:
        return f"the default stays: {outcome.refused.text} was not confirmed ({verdict.median:.3f}x); {tried}{noise}"
    return f"the default is best: {tried}, none >= 1.02x{noise}"


def tuned_text(sites: Sequence[Site], result: Result, machine: Machine, about: Line) -> str:
    """The file of a program, which `compile(tuned=...)` reads; `about` is for people."""
    kernels: list[Line] = []
    for site in sites:
        if (line := result.lines.get(site.key.key)) is not None:
            kept = ("schedule", "default", "speedup", "pairs", "same_bits", "state")
            share = result.shares.get(site.key.key)
            entry: Line = {"name": site.name, "key": site.key.key, "from": site.place}
            entry |= {} if share is None else {"share": round(share, 4)}
            kernels.append(entry | {name: line[name] for name in kept if name in line})
    head: Line = {HEADER: VERSION, **about, "device": machine.device, "code": machine.code}
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
    entries = ",\n".join(f"    {json.dumps(entry)}" for entry in kernels)
    lines.append(f'  "kernels": [\n{entries}\n  ]' if entries else '  "kernels": []')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write_atomically(text: str, file: Path) -> None:
    """Puts a text in the place of a file at once, so that nobody ever reads a half of it. Raises OSError."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(file)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def confirmed_of(line: Line) -> float:
    """The median speed-up of a line, 1 where the default stays."""
    speedup = line.get("speedup")
    return float(cast("list[float]", speedup)[1]) if line.get("state") != KEPT and isinstance(speedup, list) else 1.0


def candidate_of(line: Line) -> Candidate:
    """The schedule of a line."""
    return Candidate.of(cast("dict[str, str | int]", line["schedule"]))
