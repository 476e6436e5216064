"""A bench whose processes are on other machines: turns of several candidates go to workers side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects.builtin import ModuleOp

from fuse_opt.lowering.program import Program
from fuse_opt.tools.tuning.cluster import tasks
from fuse_opt.tools.tuning.cluster.group import Group, WorkerDied
from fuse_opt.tools.tuning.search.candidates import Candidate, Site
from fuse_opt.tools.tuning.search.race import Asked
from fuse_opt.tools.tuning.search.study import Measured, TrialFailed

_LOOK = -3
"""The turn of a last look, which has no pairs."""
EACH = 4
"""Candidates side by side for each worker, so that none waits for what another one has still to do."""


class ClusterBench:
    """Measures candidates of one site on the workers of one machine; pairs are never split between two."""

    def __init__(self, site: Site, group: Group, seed: int) -> None:
        self._site, self._group = site, group
        self._sent = tasks.SentSite(type(site), site.name, str(site.module), site.default, seed, group.cluster.threads)

    def measure(self, candidate: Candidate, turn: int, pairs: int) -> Measured:
        """Raises TrialFailed, and ClusterLost."""
        ((_, found),) = self.together([(candidate, turn, pairs)])
        if isinstance(found, TrialFailed):
            raise found
        return found

    def look_again(self, candidate: Candidate) -> str:
        """Raises TrialFailed, and ClusterLost."""
        return self.measure(candidate, _LOOK, 0).unchecked

    def together(self, asked: Sequence[Asked]) -> Iterator[tuple[Asked, Measured | TrialFailed]]:
        """What came of each, as it comes. Raises ClusterLost."""
        default = self._site.sent(self._site.default)
        programs = [self._site.sent(candidate) for candidate, _, _ in asked]
        given = [
            (tasks.Task(self._sent, default, candidate, program, turn, pairs),)
            for (candidate, turn, pairs), program in zip(asked, programs, strict=True)
        ]
        sources = [_texts(default, program) for program in programs]
        for number, answer in self._group.run(tasks.measured, given, sources):
            if isinstance(answer, WorkerDied):
                answer = "crash: worker died"
            yield asked[number], TrialFailed(answer) if isinstance(answer, str) else answer

    def close(self) -> None:
        """Has the workers end the processes."""
        self._group.tell(tasks.closed, [self._sent])


def _texts(*programs: Program | str) -> list[str]:
    """The C texts that another machine may compile, of all or of none: what calls libraries or is of several parts may not."""
    plain = [each for each in programs if not isinstance(each, str) and not each.units and each.prepare is None]
    return [each.source for each in plain] if len(plain) == len(programs) else []


def seconds_of_program(group: Group, module: ModuleOp) -> float:
    """The least time of a call of a whole program by its defaults. Raises RuntimeError, and ClusterLost."""
    ((_, answer),) = group.run(tasks.seconds_of_program, [(str(module), group.cluster.threads)])
    if isinstance(answer, WorkerDied):
        raise RuntimeError("the program ended the worker that was to time it")
    return answer
