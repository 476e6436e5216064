"""Random switches of who may run ops, among random passes: values stay as they are, on the reference and compiled.

    python tests/support/fuzz.py --backends --cases 1000

A case is a program of fuzz.py through random passes with switches of backends anywhere among them: those that come with the
project, oneDNN and a BLAS by a file of a user's where they are installed, and backends of whole ops and of parts of graphs. After
each pass the module, with what was decided about kernels, pairs and places, is verified. What comes out is then compiled, as
a pipeline of one's own, and run beside the reference's values.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from pathlib import Path

from ir_testing import CONTEXT, assert_same_bits, evaluate
from laws import Subject, Work, compiled_fault, pass_fault, roughly_differs
from xdsl.dialects.builtin import ModuleOp

from fuse_opt.dialects.fused import PartitionOp
from fuse_opt.dialects.implementation.offers import known_implementations
from fuse_opt.dialects.implementation.queries import implementation_counts
from fuse_opt.dialects.implementation.switch import allowed_backends
from fuse_opt.runtime.backends.registry import unavailable_backends
from fuse_opt.tools.compiler.backend_switch import UsageError, backend_passes
from fuse_opt.tools.reduce.search import isolated

ROOT = Path(__file__).resolve().parents[2]
OWN = ("fuse", "blas", "onednn")
"""Backends of the project beside `numpy`, which runs every op."""
READS_ZEROS = ("graph.conv_transpose", "graph.conv_backward_data")
"""Ops of which generated code multiplies zeros by weights, which infinite ones show."""
SECONDS = 120.0
"""After which a compiled program counts as one that hangs."""
FILES = (
    "examples/my_blas.py",
    "test_lit/passes/implementation/Inputs/composites.py",
    "test_lit/passes/implementation/Inputs/pointwise.py",
)
"""Backends by files; what they compute is not bit by bit what the reference does."""


@functools.cache
def foreign_backends() -> tuple[str, ...]:
    """The names of those of FILES that can be loaded here."""
    found: list[str] = []
    for file in FILES:
        try:
            (attach,) = backend_passes(f"none,{ROOT / file}")
        except UsageError:
            continue
        attach.apply(CONTEXT, module := ModuleOp([]))
        found += allowed_backends(module) or ()
    return tuple(found)


def random_switch(rng: random.Random) -> str:
    """A pass that changes who may run ops, or who does."""
    there = [name for name in (*OWN, *foreign_backends()) if name not in unavailable_backends()]
    kind = rng.random()
    if kind < 0.15:
        known = {name.partition(".")[0] for name in known_implementations()}
        wanted = rng.choice([name for name in (*there, "numpy") if name in known])
        return f"select-implementation{{prefer={wanted} numerics={rng.choice(['strict', 'fast'])}}}"
    if kind < 0.25:
        return "attach-backends{backends=reference}"
    words = ["none", "numpy"] if kind < 0.7 else []
    for name in rng.sample(there, rng.randint(1, len(there))):
        words.append(name if words or rng.random() < 0.6 else f"-{name}")
    return f"attach-backends{{backends={','.join(f'{chr(34)}{word}{chr(34)}' for word in words)}}}"


def switched(rng: random.Random, passes: Sequence[str]) -> tuple[str, ...]:
    """A sequence with one to three switches among its passes."""
    names = list(passes)
    for _ in range(rng.choice([1, 1, 2, 3])):
        names.insert(rng.randint(0, len(names)), random_switch(rng))
    return tuple(names)


def backends_fault(text: str, passes: Sequence[str], seed: int, work: Work | None = None) -> str:
    """The law that a sequence with switches breaks: those of all passes, and what is compiled gives the same values."""
    foreign_backends()
    zeros = any(name in text for name in READS_ZEROS)
    subject = Subject.of(text, seed | 1 if zeros else seed)  # without infinities for odd seeds
    fault = pass_fault(subject, passes, work, same=_same_values)
    return fault or isolated(lambda: _compiled_kind(subject, passes), SECONDS) or ""


def _compiled_kind(subject: Subject, passes: Sequence[str]) -> str:
    """The kind alone: the numbers change as the program does."""
    try:  # for a CPU, whatever the passes said
        return compiled_fault(subject, [name for name in passes if name != "gpu-attach-device"]).partition(":")[0]
    except Exception as error:  # a fault is reported and reduced, whatever it is
        return f"compiled: {type(error).__name__} is raised"


def _same_values(module: ModuleOp, subject: Subject) -> None:
    """Raises AssertionError: bits are compared but where a file's functions run."""
    names = list(implementation_counts(module))
    names += [op.backend.data for op in module.walk() if isinstance(op, PartitionOp)]
    found = evaluate(module, subject.arguments)
    if not any(name.partition(".")[0] in foreign_backends() for name in names):
        assert_same_bits(found, subject.values)
    elif fault := roughly_differs(found, subject.values):
        raise AssertionError(fault)
