"""What differs between two files of decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fuse_opt.passes.decisions import Decision


def diff_decisions(old: Sequence[Decision], new: Sequence[Decision]) -> str:
    """
    A line for each decision that one of them has alone, `-` or `+`, and `~` with both where another thing is chosen about the
    same ops; empty where they are the same. Decisions in another order are said to be so.
    """
    before, after = (_by_subject(decisions) for decisions in (old, new))
    lines: list[str] = []
    for subject, (decision, count) in before.items():
        other, times = after.get(subject, (decision, 0))
        if count != times:
            sign, more = ("-", count - times) if count > times else ("+", times - count)
            lines += [f"{sign} {decision}\n"] * more
        elif decision.choice != other.choice:
            lines.append(f"~ {decision} -> {other.choice}\n")
    lines += [f"+ {decision}\n" for s, (decision, count) in after.items() for _ in range(count) if s not in before]
    if not lines and list(map(str, old)) != list(map(str, new)):
        return "# the same decisions in another order\n"
    return "".join(lines)


def _by_subject(decisions: Sequence[Decision]) -> dict[Decision, tuple[Decision, int]]:
    """By what it is about, the last decision, and how many there are; of one kernel several choices may be made."""
    found: dict[Decision, tuple[Decision, int]] = {}
    for decision in decisions:
        words = decision.choice.split()[:-1]  # what is chosen comes last; before it stands about what of the op
        subject = replace(decision, choice=" ".join(words))
        found[subject] = decision, found.get(subject, (decision, 0))[1] + 1
    return found
