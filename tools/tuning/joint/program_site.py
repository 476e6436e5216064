"""A whole program as what is tuned: its candidates are plans, and all else is as for a kernel."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from fuse_opt.dialects.analysis.kernel_key import KernelKey
from fuse_opt.dialects.fused import RECOMPUTED
from fuse_opt.lowering.program import LibraryCall, Program
from fuse_opt.lowering.reference.interpreter import entry_function
from fuse_opt.tools.compiler.api import evaluate
from fuse_opt.tools.compiler.pipeline import run_pipeline
from fuse_opt.tools.compiler.registry import make_context
from fuse_opt.tools.steering.tuned_plan import ENTRY, Plan, program_key
from fuse_opt.tools.tuning.joint.edits import Baseline, baseline, changes
from fuse_opt.tools.tuning.joint.recomputation import recomputations
from fuse_opt.tools.tuning.search.candidates import Candidate, Site, Target, build
from fuse_opt.tools.tuning.search.race import LEAST_PAIRS
from fuse_opt.tools.watching.bounds import allowed_in_function

Array = np.ndarray[Any, Any]


class ProgramSite(Site):
    """A program of known extents, tuned as a whole."""

    def __init__(
        self,
        module: ModuleOp,
        passes: Sequence[ModulePass],
        place: str,
        target: Target = "c",
        inputs: Sequence[Array] | None = None,
    ) -> None:
        """`passes` make it a program for the CPU; the module stays as it is."""
        key = program_key(module)
        super().__init__("the program", KernelKey(key, key), module, place=place, target=target, inputs=inputs)
        self.passes = passes
        self._modules: dict[Candidate, str] = {}
        self._again: dict[str, int] = {}
        """By the text of a candidate: ops of its program that are computed again."""

    @classmethod
    def rebuilt(cls, name: str, module: ModuleOp, default: Candidate) -> Site:
        """What measures the program where all that passes make of it arrives ready made."""
        return ProgramSite(module, (), "-")

    @cached_property
    def baseline(self) -> Baseline:
        """What rules make of it. Raises what passes raise."""
        return baseline(self.module, self.passes)

    def plan(self, candidate: Candidate) -> Plan:
        """The plan of a candidate."""
        return self.baseline.plan(candidate.settings)

    def entry(
        self, edits: Mapping[str, str | int], speedup: Sequence[float], about: Mapping[str, object]
    ) -> dict[str, object]:
        """What a tuned file has of a plan that was confirmed; `about` are figures of its objective."""
        figures = {"speedup": [round(each, 4) for each in speedup], "pairs": LEAST_PAIRS, **about}
        plan = self.baseline.plan(edits)
        return {ENTRY: {"key": self.key.key, "edits": dict(edits), **plan.entry(), **figures}}

    def planned(self, candidate: Candidate) -> ModuleOp:
        """The program after the passes of a candidate. Raises what passes raise, and DecisionError."""
        module, plan = self.module.clone(), self.plan(candidate)
        with plan.steering():
            run_pipeline(module, plan.edited(self.passes), make_context())
        return module

    def program(self, candidate: Candidate) -> Program:
        """The program of a candidate. Raises what passes and lowering raise."""
        if candidate not in self._programs:
            module = self.planned(candidate)
            self._programs[candidate], self._modules[candidate] = build(module, self.target), str(module)
            self._again[candidate.text] = sum(RECOMPUTED in op.attributes for op in module.walk())
        return self._programs[candidate]

    def again(self, edits: Mapping[str, str | int]) -> int:
        """How many ops are computed again in the program with these edits, as far as it was made."""
        return self._again.get(Candidate.of(edits).text, 0)

    def text(self, candidate: Candidate) -> str:
        """Of the text, the calls of libraries, and where all values lie."""
        return hashlib.sha256("\n".join(_described(self.program(candidate))).encode()).hexdigest()[:32]

    def sent(self, candidate: Candidate) -> Program | str:
        """The program, or where it calls libraries, whose routines do not travel, the module after all passes as text."""
        program = self.program(candidate)
        return self._modules[candidate] if _calls_libraries(program) else program

    def changes(self, same_bits: bool) -> Iterator[Candidate]:
        """Single edits of what rules have it."""
        return changes(self.baseline, same_bits)

    def recomputations(self) -> Iterator[Candidate]:
        """Edits that have values computed again in place of keeping them. Raises what passes raise."""
        return recomputations(self.module, self.passes)

    def reference(self, arrays: Sequence[Array]) -> list[Array]:
        """What the reference gives for arguments."""
        found = evaluate(self.module, *arrays)
        return list(cast("tuple[Array, ...]", found)) if isinstance(found, tuple) else [found]

    def allowed(self, arrays: Sequence[Array], expected: Sequence[Array], got: Sequence[Array]) -> list[Array]:
        """How far each element of each result may be from what the reference gives."""
        return allowed_in_function(entry_function(self.module, None), arrays, expected)


def _calls_libraries(program: Program) -> bool:
    called = any(isinstance(step, LibraryCall) for step in program.steps)
    return called or (program.prepare is not None and _calls_libraries(program.prepare.program))


def _described(program: Program) -> Iterator[str]:
    """All that makes a program another one."""
    yield program.source
    yield repr((program.buffers, program.results, program.arena_bytes))
    for step in program.steps:
        if isinstance(step, LibraryCall):
            yield repr((step.implementation, step.operation, step.inputs, step.outputs, dict(step.config)))
        else:
            yield repr(step)
    if program.prepare is not None:
        yield from _described(program.prepare.program)
