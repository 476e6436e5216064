"""Steering of passes that choose something about an op at a time: the same few questions for each of them.

    with choosing(self.name, module) as choices:
        for op in ...:
            if choices.replays:
                wanted = [parsed(told) for told in choices.told(op)]  # what a file says, and no other
            if choices.take(op, "what is chosen"):                    # noted, and paid for with fuel
                ...                                                   # written

What is not taken stays as if the pass had not run, or as plain as can be.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from xdsl.ir import Block, Operation, SSAValue

from fuse_opt.dialects.analysis.bare_ops import bare_source, is_creation
from fuse_opt.passes.decisions.steering import Steering, Step, steer
from fuse_opt.passes.decisions.text import Decision
from fuse_opt.passes.remarks import remark

BEFORE = "before"
"""The word of a decision that moves an op."""


class Choices:
    """What one run of a pass may choose."""

    def __init__(self, pass_name: str, steering: Steering | None) -> None:
        self._pass_name = pass_name
        self._steering = steering
        self._told: dict[Operation, list[Step]] = {}
        self._open: dict[Step, None] = {}
        """Decisions that nobody has asked for yet."""
        if steering is not None and steering.steps is not None:
            for step in (step for steps in steering.steps.values() for step in steps):
                if not step.decision.choice and step.decision.word != BEFORE:
                    raise step.decision.error("expected '=' and what is chosen")
                self._told.setdefault(_in_block(step), []).append(step)
                self._open[step] = None

    @property
    def replays(self) -> bool:
        """Whether a file says what is chosen, so that no rule does."""
        return self._steering is not None and self._steering.steps is not None

    @property
    def is_asked(self) -> bool:
        """Whether anybody counts, notes or gives decisions."""
        return self._steering is not None

    @property
    def is_out_of_fuel(self) -> bool:
        """Whether no further decision may be made."""
        return self._steering is not None and self._steering.exhausted() is not None

    def told(self, op: Operation) -> list[Step]:
        """What a file says about an op of a block, or about what is in it."""
        steps = self._told.get(op, [])
        for step in steps:
            self._open.pop(step, None)
        return steps

    def told_one(self, op: Operation, choice: str) -> Step | None:
        """What a file says about an op of which one thing can be chosen. Raises DecisionError for another."""
        found = None
        for found in self.told(op):
            if found.decision.choice != choice:
                raise found.decision.choice_error(f"expected '{choice}', got '{found.decision.choice}'")
        return found

    def says(self, op: Operation, choice: str) -> bool:
        """Whether a file chooses exactly this for an op of a block."""
        steps = [step for step in self._told.get(op, []) if step.decision.choice == choice]
        for step in steps:
            self._open.pop(step, None)
        return bool(steps)

    def told_in(self, block: Block) -> list[Step]:
        """All that a file says about ops of a block, in its order."""
        found = [] if self._steering is None or self._steering.steps is None else self._steering.steps.get(block, [])
        for step in found:
            self._open.pop(step, None)
        return found

    def take(
        self, op: Operation, choice: str, *, value: SSAValue | None = None, inner: Operation | None = None
    ) -> bool:
        """
        Whether there is fuel for choosing this about an op of a block; notes it then. `value` is one of its results that it is
        about, `inner` an op in it, by which a kernel is called.
        """
        source = inner if value is None else bare_source(value).owner
        return self._take(op, choice, lambda steering: steering.describe([_named(steering, op, source)], (), choice))

    def take_before(self, op: Operation, other: Operation) -> bool:
        """Whether there is fuel for moving an op of a block before another one; notes it then."""

        def described(steering: Steering) -> Decision | None:
            return steering.describe([_named(steering, op)], [_named(steering, other)], "", BEFORE)

        return self._take(op, f"before '{other.name}'", described)

    def _take(self, op: Operation, choice: str, describe: Callable[[Steering], Decision | None]) -> bool:
        if (steering := self._steering) is None:
            return True
        if (limit := steering.exhausted()) is not None:
            message = (
                f"left as it was, not {choice}: the fuel for {limit} decision{'' if limit == 1 else 's'} is used up"
            )
            remark(self._pass_name, op, "fuel", message, flip="more fuel", fuel=limit)
            return False
        steering.made(describe(steering))
        return True

    def finish(self) -> None:
        """Raises DecisionError for the first decision about an op of which the pass chooses nothing."""
        for step in self._open:
            raise step.decision.error(
                f"'{self._pass_name}' has nothing to choose about {step.decision.ops[0]} in this program",
                step.decision.ops[0],
            )


def result_word(op: Operation, index: int) -> str:
    """How a choice calls a result of a kernel: by nothing where the op by which the kernel is called gives that one alone."""
    made = [bare_source(value).owner for value in op.results]
    source = made[index]
    alone = isinstance(source, Operation) and source is not op and not is_creation(source) and made.count(source) == 1
    return "" if alone else f"result {index} "


def result_meant(step: Step, op: Operation, number: str | None) -> int:
    """The result of a kernel that a choice is about. Raises DecisionError."""
    made = [bare_source(value).owner for value in op.results]
    found = [index for index, source in enumerate(made) if source is step.ops[0]] if number is None else [int(number)]
    if len(found) != 1 or found[0] >= len(made):
        ref = step.decision.ops[0]
        message = f"expected a result of its kernel, named as 'result N': {ref} gives {len(found)} of {len(made)}"
        raise step.decision.choice_error(message)
    return found[0]


@contextmanager
def choosing(pass_name: str, module: Operation) -> Generator[Choices]:
    """What a run of a pass may choose; at the end nothing that a file says may be left over. Raises DecisionError."""
    choices = Choices(pass_name, steer(pass_name, module, None))
    yield choices
    choices.finish()


def _named(steering: Steering, op: Operation, source: Operation | Block | None = None) -> Operation:
    """The op by which decisions call an op of a block: `source` where that is in it, else the last one in it."""
    named = steering.recorder.numbering.named.get(op) if steering.recorder is not None else None
    if not named:
        return op
    return next((one for one in named if one is source), named[-1])


def _in_block(step: Step) -> Operation:
    """The op of the function's block that is named, or that holds what is named."""
    op = step.ops[0]
    while op.parent is not step.block and (parent := op.parent_op()) is not None:
        op = parent
    return op
