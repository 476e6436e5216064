"""Plans of programs that were measured to be faster than what rules decide: other passes, options and decisions, as text.

```json
{"key": "p:41c0", "passes": {"order-for-memory": "strategy=dfs", "fuse-elementwise#1": "without"}, "steered": ["fuse-row"],
 "decisions": ["fuse-row @main: graph.max#0 + graph.subtract#0"],
 "edits": {"fuse-row @main: graph.exp#0 + graph.sum#0": "dropped"},
 "near": {"fuse-row @main: graph.exp#0 + graph.sum#0": ["1f3a", "2e0b"]}}
```
`fuse-tune --joint` writes it as the entry `plan` of its file. It holds for one program. For another one, such as this one after
an edit, those of its edits hold whose ops are there with all that was near them; where none does, or it does not fit any more, a
remark says so and rules decide.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import Context as Variables
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from fuse_opt.passes.decisions.steering import Recorder, is_replaying, record_decisions, replay_decisions
from fuse_opt.passes.decisions.text import Decision, DecisionError, parse_decisions
from fuse_opt.passes.remarks import RefusedError, collect, is_collecting, pass_on, remark

WITHOUT, TWICE, EARLIER = "without", "twice", "earlier"
"""What may become of a pass, beside other options: it is left out, runs twice, or before the one that it comes after."""
ENTRY = "plan"
_NAME = "tuned-plan"
_DIGITS = 16


class PlanError(ValueError):
    """A plan that cannot be read; the text says what was expected."""


DROPPED, ADDED = "dropped", "added"
"""What may become of a decision, beside another choice."""
ABOUT_DECISIONS = " @"
"""What the text of a decision has, and that of a pass has not."""


@dataclass(frozen=True)
class Plan:
    """What is other than rules have it."""

    passes: Mapping[str, str] = field(default_factory=dict[str, str])
    """By pass, `#1` being its second run: `without`, `twice`, `earlier`, or options as in pipelines."""
    decisions: tuple[str, ...] = ()
    """Lines, of the passes of `steered`."""
    steered: tuple[str, ...] = ()
    """Passes that make these decisions and no other."""

    @classmethod
    def of(cls, made: Iterable[Decision], edits: Mapping[str, str]) -> Plan:
        """That of a program for which rules `made` decisions, with edits by passes or by what decisions are about."""
        passes = {label: change for label, change in edits.items() if ABOUT_DECISIONS not in label}
        told = {label: change for label, change in edits.items() if ABOUT_DECISIONS in label}
        steered = tuple(dict.fromkeys(label.partition(" ")[0].partition("#")[0] for label in told))
        lines: list[str] = []
        for decision in made:
            if decision.pass_name in steered:
                change = told.get(decision.subject)
                chosen = decision if change is None or change == DROPPED else replace(decision, choice=change)
                lines += [] if change == DROPPED else [str(chosen)]
        lines += [label for label, change in told.items() if change == ADDED]
        return cls(passes, tuple(lines), steered)

    def edited(self, given: Sequence[ModulePass]) -> list[ModulePass]:
        """The passes as the plan has them. Raises PlanError for one that is not there."""
        order = list(zip(pass_labels(given), given, strict=True))
        for label, change in self.passes.items():
            place = next((k for k, (name, _) in enumerate(order) if name == label), None)
            if place is None:
                raise PlanError(f"there is no pass '{label}' in the pipeline")
            if change == WITHOUT:
                del order[place]
            elif change == TWICE:
                order.insert(place, ("", order[place][1]))
            elif change == EARLIER:
                order.insert(max(place - 1, 0), order.pop(place))
            else:
                order[place] = label, _with_options(order[place][1], change)
        return [pass_ for _, pass_ in order]

    @contextmanager
    def steering(self) -> Generator[None]:
        """Has the passes of its body make the plan's decisions. Raises DecisionError for one that does not apply."""
        with replay_decisions(parse_decisions("\n".join(self.decisions), "tuned"), self.steered):
            yield

    def entry(self) -> dict[str, object]:
        """As plain values, for a file."""
        return {"passes": dict(self.passes), "steered": list(self.steered), "decisions": list(self.decisions)}


def pass_labels(passes: Sequence[ModulePass]) -> list[str]:
    """What a plan calls the passes of a pipeline: the second run of one has `#1` behind its name."""
    counts: dict[str, int] = {}
    labels: list[str] = []
    for pass_ in passes:
        run = counts[pass_.name] = counts.get(pass_.name, -1) + 1
        labels.append(f"{pass_.name}#{run}" if run else pass_.name)
    return labels


def _with_options(pass_: ModulePass, text: str) -> ModulePass:
    """The pass with options such as `strategy=dfs rows=true`. Raises PlanError."""
    kinds = {each.name.replace("_", "-"): each.name for each in fields(pass_)}
    changed: dict[str, object] = {}
    for word in text.split():
        name, _, value = word.partition("=")
        if name not in kinds:
            raise PlanError(f"pass '{pass_.name}' has no option '{name}'")
        before: object = getattr(pass_, kinds[name])
        changed[kinds[name]] = value == "true" if isinstance(before, bool) else type(before)(value)  # pyright: ignore
    return replace(cast("Any", pass_), **changed)


def program_key(module: ModuleOp) -> str:
    """By which a plan is known to be for a program: its text, names of values included, as decisions are about these."""
    return f"p:{hashlib.sha256(str(module).encode()).hexdigest()[:_DIGITS]}"


@dataclass(frozen=True)
class Kept:
    """The plan of a file."""

    key: str
    """Of the program that it was made for."""
    plan: Plan
    edits: Mapping[str, str]
    """What it has other than rules."""
    near: Mapping[str, tuple[str, ...]]
    """By edit of a decision, the ops that it is about and what was near them."""

    def fitting(self, made: Sequence[Decision], refused: Sequence[Decision]) -> tuple[Plan, list[str]]:
        """For a program in which rules decided so, the plan with those edits whose ops are there; and the other edits."""
        found, left = dict[str, str](), list[str]()
        for label, change in self.edits.items():
            near, run = self.near.get(label), label.partition(" ")[0]
            among = {each.subject: None for each in (refused if change == ADDED else made) if each.near == near}
            alike = [subject for subject in among if subject.partition(" ")[0] == run]
            if label in alike or len(alike) == 1:
                found[label if label in alike else alike[0]] = change
            else:
                left.append(label)
        return Plan.of(made, found), left


def kept_plan(path: str) -> Kept | None:
    """The plan that a file has; None without one. Raises PlanError."""
    if not path.endswith(".json"):
        return None
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return _entry(path, status.st_mtime_ns, status.st_size)


Run = Callable[[ModuleOp, Sequence[ModulePass]], None]


def run_planned(path: str, module: ModuleOp, passes: Sequence[ModulePass], run: Run, quietly: Run) -> bool:
    """
    Runs passes on a program as the plan that a file has for it says; whether it did. Where it does not fit, the module is as
    it was, and a remark says why. Decisions that somebody gives by hand come first. `quietly` runs passes that nobody watches.
    """
    if is_replaying():
        return False
    try:
        plan, problem = _plan_for(path, module, passes, quietly)
        chosen = [] if plan is None else plan.edited(passes)
    except (PlanError, DecisionError) as error:
        plan, problem, chosen = None, str(error), []
    if problem:
        remark(_NAME, module, "tuned-problem", problem, flip="fuse-tune --joint")
    if plan is None:
        return False
    before = module.clone()
    try:
        with collect() if is_collecting() else nullcontext([]) as remarks, plan.steering():
            run(module, chosen)
    except (DecisionError, RefusedError) as error:
        module.detach_region(module.body)
        module.add_region(before.detach_region(before.body))
        module.attributes = before.attributes
        remark(_NAME, module, "tuned-problem", f"{path}: its plan does not fit any more: {error}; rules decide")
        return False
    pass_on(remarks)
    about = json.dumps(dict(plan.passes)) if plan.passes else f"decisions of {', '.join(plan.steered)}"
    remark(_NAME, module, "tuned", f"its passes and decisions are those of {path}: {about}")
    return True


def _plan_for(path: str, module: ModuleOp, passes: Sequence[ModulePass], run: Run) -> tuple[Plan | None, str]:
    """The plan that a file has for a program before any pass, and a sentence about what it has for others. Raises PlanError."""
    if (kept := kept_plan(path)) is None:
        return None, ""
    if (found := program_key(module)) == kept.key:
        return kept.plan, ""
    another = f"{path}: its plan is for another program ({kept.key}, this one is {found})"
    if not kept.near:
        return None, f"{another}: rules decide"
    plan, left = kept.fitting(*Variables().run(_decided, module.clone(), passes, run))
    if not plan.steered:
        return None, f"{another}, which has none of the ops that its edits are about: rules decide"
    return plan, f"{another}: of its edits those are left out: {'; '.join(left)}" if left else ""


def _decided(module: ModuleOp, passes: Sequence[ModulePass], run: Run) -> tuple[Sequence[Decision], Sequence[Decision]]:
    """What rules decide about a program, and what they refuse."""
    refused: list[tuple[Decision, str]] = []
    with record_decisions(recorder=Recorder(refused, near=True)) as made:
        run(module, passes)
    return made, [decision for decision, _ in refused]


@lru_cache(maxsize=8)
def _entry(path: str, *changed: int) -> Kept | None:
    try:
        whole: object = json.loads(Path(path).read_text(encoding="utf-8", errors="replace"))
    except (ValueError, RecursionError, OSError):
        return None  # schedule-kernels says what is wrong with it
    entry = cast("dict[str, object]", whole).get(ENTRY) if isinstance(whole, dict) else None
    if not isinstance(entry, dict):
        return None
    given = cast("dict[str, Any]", entry)
    passes, decisions, steered = (given.get(name) for name in ("passes", "decisions", "steered"))
    if not (isinstance(passes, dict) and isinstance(decisions, list) and isinstance(steered, list)):
        raise PlanError(f"{path}: entry '{ENTRY}': expected passes, decisions and steered; run fuse-tune again")
    texts = {str(name): str(change) for name, change in cast("dict[str, object]", passes).items()}
    lines, names = cast("list[object]", decisions), cast("list[object]", steered)
    edits, near = (
        cast("dict[str, Any]", each if isinstance(each := given.get(name), dict) else {}) for name in ("edits", "near")
    )
    return Kept(
        str(given.get("key")),
        Plan(texts, tuple(map(str, lines)), tuple(map(str, names))),
        {label: str(change) for label, change in edits.items()},
        {label: tuple(map(str, ops)) for label, ops in near.items()},
    )
