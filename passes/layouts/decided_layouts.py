"""Layouts as decisions: which of the best ones are taken, or what a file says in place of them."""

from __future__ import annotations

from fuse_opt.passes.decisions.choices import Choices
from fuse_opt.passes.layouts.choices import Variable
from fuse_opt.passes.layouts.layout_problem import LayoutProblem


def decided(problem: LayoutProblem, choices: Choices) -> list[int]:
    """By variable, the alternative that is taken; that of row-major order where nothing is decided. Raises DecisionError."""
    wanted = [_told(variable, choices) for variable in problem.variables] if choices.replays else problem.solved()
    if not choices.is_asked:
        return wanted
    found: list[int] = []
    for variable, number in zip(problem.variables, wanted, strict=True):
        plain = variable.choices.plain
        if number != plain and not choices.take(variable.ops[0], variable.choices.text(number)):
            number = plain
        found.append(number)
    return found


def _told(variable: Variable, choices: Choices) -> int:
    texts = [variable.choices.text(number) for number in range(len(variable.alternatives))]
    number = variable.choices.plain
    for decision in (step.decision for step in choices.told(variable.ops[0])):
        if (text := decision.choice.replace(" ", "")) not in texts:
            raise decision.choice_error(f"expected one of {', '.join(texts)}, got '{decision.choice}'")
        number = texts.index(text)
    return number
