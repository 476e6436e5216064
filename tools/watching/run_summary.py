"""What a run of a program prints: its counts, what runs its sites and what that is said to cost, times and checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Protocol

from fuse_opt.passes.implementation.chosen_sites import Sites

_FAILED_SHOWN = 5
"""Points of a sweep that failed."""
_GROUPS_SHOWN = 20
"""Of sites that are alike, those that take longest."""


class Ran(Protocol):
    """A program that is ready to run."""

    @property
    def stats(self) -> Any: ...
    @property
    def implementations(self) -> dict[str, int]: ...
    @property
    def conversions(self) -> tuple[int, int]: ...
    @property
    def fallbacks(self) -> tuple[int, int]: ...


def counts(program: Ran, sites: Sites) -> dict[str, Any]:
    """What a program is made of, and what was chosen for its sites while it was compiled; nothing that is none."""
    stats = {field.name: getattr(program.stats, field.name) for field in fields(program.stats)}
    found: dict[str, Any] = {name: value for name, value in stats.items() if value is not None}
    if program.implementations:
        found["implementations"] = program.implementations
    moved = {"conversions": program.conversions, "fallbacks": program.fallbacks}
    found |= {name: {"count": count, "bytes": nbytes} for name, (count, nbytes) in moved.items() if count}
    if groups := sites.groups():
        found["choices"] = [group.record() for group in sorted(groups, key=lambda group: -group.seconds)]
    return found


def print_summary(summary: Mapping[str, Any], form: str) -> None:
    if form == "json":
        import json

        print(json.dumps(summary))
        return
    for key, value in summary.items():
        if key == "check":
            word = "passed" if value["passed"] else "FAILED"
            allowed = f"allowed {value['tolerance']}" if "tolerance" in value else f"the largest, at {value['at']}"
            print(f"check: {word}, error {value['error']} ({allowed})")
            for point in value.get("failed", [])[:_FAILED_SHOWN]:
                print(f"  failed at {point}")
        elif key == "seconds":
            parts = ", ".join(f"{name} {1e3 * value[name]:.3f}" for name in ("min", "median", "max"))
            print(f"milliseconds in {value['calls']} calls: {parts}")
        elif key == "arena":
            over = value["over_bound"]
            worst = f"mean {over['mean']:.4f}, worst {over['worst']:.4f} at {over['at']}"
            print(f"arena: at most {value['bytes']} bytes, over the lower bound {worst}")
        elif key == "medians":
            parts = ", ".join(f"{name} {1e3 * one['seconds']:.3f} at {one['at']}" for name, one in value.items())
            print(f"milliseconds, medians of sizes: {parts}")
        elif key in ("implementations", "conversions", "fallbacks"):
            print(f"{key}: {', '.join(f'{name} {count}' for name, count in value.items())}")
        elif key == "choices":
            _print_choices(value)
        else:
            print(f"{key}: {value}")


def _print_choices(choices: Sequence[Mapping[str, Any]]) -> None:
    """A line for each group of sites that are alike, those that take longest first."""
    print("choices, those that are said to take longest first:")
    for choice in choices[:_GROUPS_SHOWN]:
        alike = "" if choice["sites"] == 1 else f", {choice['sites']} alike"
        second = choice["second"]
        following = "" if second is None else f", second {_timed(second)}"
        refused = ", ".join(f"{name}: {reason}" for name, reason in choice["refused"].items())
        print(f"  {choice['op']} of {choice['types']} at {choice['at']}{alike}: {_timed(choice)}{following}")
        if refused:
            print(f"    refused by {refused}")
    if rest := choices[_GROUPS_SHOWN:]:
        print(f"  and {sum(choice['sites'] for choice in rest)} sites of {len(rest)} kinds: --stats json has all")


def _timed(choice: Mapping[str, Any]) -> str:
    name = choice["implementation"] or "nothing that is named"
    times = {"": choice.get("seconds"), " measured": choice.get("measured_seconds")}
    return name + "".join(f" {1e6 * time:.1f} us{how}" for how, time in times.items() if time is not None)
