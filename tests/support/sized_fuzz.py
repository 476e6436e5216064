"""Random programs over symbols through random passes, then compiled: one program, right at five sets of values.

    python tests/support/fuzz.py --sizes --cases 500

A case is a program of sized_programs.py. The laws of passes hold while sizes stand for numbers, and results are what they were
bit by bit at the least values of symbols, the largest, and others. What the same passes make of it is compiled once and run at
all of these beside the reference's values, with arrays at pages that nobody may touch. What needs numbers is refused, and is
no fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import Context
from dataclasses import dataclass

from backend_fuzz import READS_ZEROS
from ir_testing import evaluate
from laws import Subject, Work, called_fault, pass_fault, values_fault
from sized_programs import SizedSubject
from xdsl.dialects.builtin import ModuleOp

import fuse_opt
from fuse_opt.dialects.interfaces.shapes import sizes_asked_for
from fuse_opt.dialects.types.size import SizeRefusal
from fuse_opt.tools.compiler.specialization import SpecializedPrograms
from fuse_opt.tools.reduce.search import isolated

SECONDS = 120.0
"""After which a compiled program counts as one that hangs."""
REORDERING = ("open-windows",)
"""Passes after which sums, of which nobody promises an order, are in another one."""
REFUSED = "refused"
"""What a compiled case says of a program that needs numbers."""


@dataclass
class SizedWork(Work):
    """With how many programs were one for all values."""

    sized: int = 0


def sized_fault(text: str, passes: Sequence[str], seed: int, work: SizedWork | None = None) -> str:
    """The law that a sequence breaks on a program over symbols."""
    zeros = any(name in text for name in READS_ZEROS)
    subject = SizedSubject.of(text, seed | 1 if zeros else seed)  # without infinities for odd seeds
    first = Subject(text, subject.arguments[0], subject.results[0])
    work = SizedWork() if work is None else work
    with sizes_asked_for():
        same = _roughly if any(name in REORDERING for name in passes) else _same_bits
        fault = pass_fault(first, passes, work, same=lambda module, _: Context().run(same, subject, module))
    if fault:
        return "" if is_refusal(fault) else fault
    found = isolated(lambda: _compiled_kind(subject, passes), SECONDS) or ""
    work.sized += not found
    return "" if found == REFUSED else found


def _same_bits(subject: SizedSubject, module: ModuleOp) -> None:
    subject.same(module)


def _roughly(subject: SizedSubject, module: ModuleOp) -> None:
    """Raises AssertionError where results are others, by more than sums in another order are."""
    for arguments, results in zip(subject.arguments, subject.results, strict=True):
        if fault := values_fault(evaluate(module, arguments), Subject(subject.text, arguments, results)):
            raise AssertionError(fault)


def is_refusal(fault: str) -> bool:
    """Whether a pass said that it needs numbers."""
    kinds = [SizeRefusal]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return any(fault.endswith(f"raises {kind.__name__}") for kind in kinds)


def _compiled_kind(subject: SizedSubject, passes: Sequence[str]) -> str:
    """The kind alone, as the numbers change when the program does; REFUSED where there is no program for all values."""
    try:
        program = fuse_opt.compile(subject.text, "cpu", [name for name in passes if name != "gpu-attach-device"])
        native, shapes = program.native, tuple(array.shape for array in subject.arguments[0])
        if isinstance(native, SpecializedPrograms) and (native.sized is None or native.sized(shapes) is None):
            return REFUSED
        for arguments, results in zip(subject.arguments, subject.results, strict=True):
            if fault := called_fault(program, Subject(subject.text, arguments, results)):
                return f"compiled: {fault}".partition(" differs: ")[0]
        if isinstance(native, SpecializedPrograms) and native.made:
            return "compiled: more than one program"
    except Exception as error:  # a fault is reported and reduced, whatever it is
        return f"compiled: {type(error).__name__} is raised"
    return ""
