"""Ways to compute values of a program again, as edits of the pass that does it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import partial

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from fuse_opt.passes.recompute.rematerialize import RematerializePass
from fuse_opt.passes.recompute.trials import Trials
from fuse_opt.passes.remarks import RefusedError
from fuse_opt.tools.compiler.pipeline import run_pipeline
from fuse_opt.tools.compiler.registry import make_context
from fuse_opt.tools.steering.tuned_plan import pass_labels
from fuse_opt.tools.tuning.joint.edits import spelt
from fuse_opt.tools.tuning.search.candidates import Candidate

WAYS = 8
"""That are tried at most."""


def recomputations(module: ModuleOp, passes: Sequence[ModulePass]) -> Iterator[Candidate]:
    """
    Those of which none has both fewer bytes and less to compute again than another: that of the fewest bytes first, then that of
    the most, and those between them last, so that whoever stops early knows some of all. Nothing where no pass computes values
    again, or none plans. Raises what passes raise.
    """
    given = {label: each for label, each in zip(pass_labels(passes), passes, strict=True) if _is_of_recomputation(each)}
    if len(given) != 1:
        return
    ((label, before),) = given.items()
    try:
        trials = Trials(module, passes, partial(run_pipeline, ctx=make_context()))
    except RefusedError:
        return
    whole = trials.of().arena
    front = [trial for trial in trials.front(WAYS) if trial.arena < whole]
    for trial in map(front.__getitem__, spread(len(front))):
        after = next(filter(_is_of_recomputation, trial.passes))
        words = [
            f"{each.name.replace('_', '-')}={spelt(getattr(after, each.name))}"
            for each in fields(RematerializePass)
            if getattr(after, each.name) != getattr(before, each.name)
        ]
        yield Candidate.of({label: " ".join(words)}, False)


def spread(count: int) -> list[int]:
    """Numbers below a count: the last, the first, and then each time what is in the middle between known ones."""
    found, between = dict.fromkeys((count - 1, 0) if count else ()), [(0, count - 1)]
    for low, high in between:
        middle = (low + high) // 2
        if low < middle < high:
            found[middle] = None
            between += [(low, middle), (middle, high)]
    return list(found)


def _is_of_recomputation(pass_: ModulePass) -> bool:
    return isinstance(pass_, RematerializePass)
