"""The laws of passes, as checks that say what is broken: tests and fuzzing ask the same ones.

Each check takes a program's text and passes and gives the kind of the fault, empty when there is none, so that the reducer
can keep it the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from guard_pages import Allocate, can_guard_pages, guarded
from ir_testing import (
    CONTEXT,
    Array,
    apply,
    assert_same_bits,
    evaluate,
    kernels,
    parse,
    random_arguments,
    text_of,
)
from moved_values import open_elements
from narrow_floats import decode, name_of
from program_generator import shuffled
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import Attribute
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import VerifyException

import fuse_opt
from fuse_opt.dialects.analysis.bare_ops import is_creation
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.passes.fusion.engine.worklist import FusionPass
from fuse_opt.passes.rewrite_pass import RewritePass
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE, make_passes
from fuse_opt.tools.compiler.registry import available_passes
from fuse_opt.tools.source.verification import verify

PASSES = sorted(available_passes())
CONVERSIONS = [name for name in PASSES if name.startswith("convert-")]
OPTIMIZATIONS = [name for name in PASSES if name not in CONVERSIONS]
REWRITES = [name for name in OPTIMIZATIONS if issubclass(available_passes()[name](), RewritePass)]
DECISIONS = [name for name in DEFAULT_PIPELINE if name in OPTIMIZATIONS and name not in REWRITES]
"""Passes that write about ops what they decide, in the order of the default pipeline."""
FUSIONS = [name for name in PASSES if issubclass(available_passes()[name](), FusionPass)]

ROUGHLY = {"float16": 2e-2, "bf16": 0.1, "f8E4M3FN": 0.25, "f8E5M2": 0.5, "float32": 1e-3, "float64": 1e-3}
"""Tolerances of compiled programs: sums are in another order there, and f64 may come from f32."""

MARK = "original"


@dataclass(frozen=True)
class Subject:
    """A program with arguments and its values on the reference, before any pass."""

    text: str
    arguments: list[Array]
    values: list[Array]

    @classmethod
    def of(cls, text: str, seed: int) -> Subject:
        """With NaN and infinities among the arguments for even seeds."""
        module = parse(text)
        arguments = random_arguments(module, seed, specials=seed % 2 == 0)
        return cls(text, arguments, evaluate(module, arguments))


@dataclass
class Work:
    """What checks have run."""

    passes: int = 0
    kernels: int = 0


def same_bits(module: ModuleOp, subject: Subject) -> None:
    """Raises AssertionError where a module's values are others than the subject's."""
    assert_same_bits(evaluate(module, subject.arguments), subject.values)


def pass_fault(
    subject: Subject,
    passes: Sequence[str],
    work: Work | None = None,
    generic: bool = False,
    same: Callable[[ModuleOp, Subject], None] = same_bits,
) -> str:
    """
    The law that a sequence breaks: every pass succeeds, verifies and is idempotent; at the end the values are the `same`,
    the text parses to itself (from the `generic` form, too, where asked), and another run prints the same.
    """
    module = parse(subject.text)
    work = Work() if work is None else work
    for number, pass_ in enumerate(make_passes(passes)):
        known = set(kernels(module))
        if fault := _applied(module, pass_):
            return fault
        work.passes += 1
        work.kernels += sum(kernel not in known for kernel in kernels(module))
        before = _state(module)
        if fault := _applied(module, pass_):
            return fault
        if _state(module) != before and _changes_its_text(subject.text, passes, number):
            return f"'{pass_.name}' is not idempotent"
    text = text_of(module)
    if text_of(_run(parse(subject.text), make_passes(passes))) != text:
        return "not deterministic"
    if not parses_to_itself(text):
        return "the text does not parse to itself"
    if generic and not generic_parses_to_itself(text):
        return "the generic text parses to another module"
    if text == subject.text:
        return ""  # its values are those of the subject
    try:
        same(module, subject)
    except AssertionError:
        return "values differ"
    return ""


@lru_cache(4096)
def parses_to_itself(text: str) -> bool:
    return text_of(parse(text)) == text


@lru_cache(4096)
def generic_parses_to_itself(text: str) -> bool:
    """Whether the module's generic form is read as the same module."""
    return text_of(parse(text_of(parse(text), generic=True))) == text


def _applied(module: ModuleOp, pass_: ModulePass) -> str:
    """The fault of one run of a pass."""
    try:
        pass_.apply(CONTEXT, module)
    except Exception as error:  # a fault is reported and reduced, whatever it is
        return f"'{pass_.name}' raises {type(error).__name__}"
    try:
        verify(module)
    except VerifyException:
        return f"does not verify after '{pass_.name}'"
    return ""


def _run(module: ModuleOp, passes: Sequence[ModulePass]) -> ModuleOp:
    for pass_ in passes:
        pass_.apply(CONTEXT, module)
    return module


def _state(module: ModuleOp) -> Sequence[object]:
    """What a pass that does nothing leaves equal; cheaper than the text, and never equal for two texts."""
    return [
        (op, tuple(op.operands), dict(op.properties), dict(op.attributes), [(r.type, r.name_hint) for r in op.results])
        for op in module.walk()
    ] + [(a, a.type, a.name_hint) for op in module.walk() for r in op.regions for b in r.blocks for a in b.args]


def _changes_its_text(text: str, passes: Sequence[str], number: int) -> bool:
    """Whether the pass of this number prints another text in a second run; it may put equal ops in the place of ops."""
    chosen = make_passes(passes)
    module = _run(parse(text), chosen[: number + 1])
    once = text_of(module)
    return text_of(_run(module, [chosen[number]])) != once


def grouping_fault(text: str, passes: Sequence[str], seeds: Sequence[int]) -> str:
    """
    Whether the kernels that fusion passes make depend on the order of ops. What stands before the first fusion pass runs
    before the ops are put in another topological order, that of a seed.
    """
    first = next((k for k, name in enumerate(passes) if name.startswith("fuse-")), len(passes))
    try:
        module = apply(parse(text), passes[:first]) if first else parse(text)
        for number, op in enumerate(op for op in module.walk() if isinstance(op, GraphOp)):
            op.attributes[MARK] = IntegerAttr(number, i64)
        wanted = partition(apply(module.clone(), passes[first:]))
        same = (partition(apply(shuffled(module, seed), passes[first:])) == wanted for seed in seeds)
        return "" if all(same) else "kernels depend on the order of ops"
    except Exception as error:  # a fault is reported and reduced, whatever it is
        return f"{type(error).__name__} is raised"


def partition(module: ModuleOp) -> set[frozenset[Attribute]]:
    """The marked ops of each kernel, without the constants of which every kernel has a copy of its own."""
    found: set[frozenset[Attribute]] = set()
    for kernel in kernels(module):
        found.add(frozenset(op.attributes[MARK] for op in kernel.ops() if not is_creation(op)))
    return found


def compiled_fault(subject: Subject, pipeline: Sequence[str] | None = None) -> str:
    """Whether a pipeline's C, the default one's, gives other values than the reference, roughly, or leaves its arrays."""
    return called_fault(fuse_opt.compile(subject.text, "cpu", pipeline), subject)


def called_fault(program: Any, subject: Subject) -> str:
    """Whether a compiled program gives other values than a subject's, roughly, or leaves its arrays."""
    results = program(*(array.copy() for array in subject.arguments))
    found: list[Array] = results if len(subject.values) > 1 else [results]
    return values_fault(found, subject) or _guarded_fault(program, subject, found)


def values_fault(found: Sequence[Array], subject: Subject) -> str:
    """In what values are others than a subject's, but for what last bits decide."""
    differs = roughly_differs(found, subject.values)
    if differs:  # rarely: it takes some runs of the reference
        module = parse(subject.text)
        is_open = open_elements(module, subject.arguments, evaluate(module, subject.arguments))
        differs = roughly_differs(found, subject.values, is_open)
    return differs


def roughly_differs(found: Sequence[Array], values: Sequence[Array], is_open: Sequence[Array] = ()) -> str:
    """In what arrays are others than values, by more than sums in another order are; but for elements that are open."""
    for number, (actual, expected) in enumerate(zip(found, values, strict=True)):
        if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
            return f"result {number} has another type"
        rtol = ROUGHLY.get(name_of(expected.dtype), 0)
        given, wanted = decode(actual), decode(expected)
        if is_open:
            given = given.copy()
            np.copyto(given, wanted, where=is_open[number])
        try:
            np.testing.assert_allclose(given, wanted, rtol=rtol, atol=rtol)
        except AssertionError as error:
            return f"result {number} differs: {error}"
    return ""


def _guarded_fault(program: Any, subject: Subject, expected: Sequence[Array]) -> str:
    """Whether bytes differ where arrays begin or end at pages that nobody may touch: what leaves them ends the process."""
    if not can_guard_pages:
        return ""
    for at_end in (True, False):
        with guarded() as allocate:
            arguments = [_at_guard(allocate, array, at_end) for array in subject.arguments]
            results = [_at_guard(allocate, array, at_end) for array in expected]
            program(*arguments, out=results)
            for number, (actual, other) in enumerate(zip(results, expected, strict=True)):
                if actual.tobytes() != other.tobytes():
                    return f"result {number} differs where arrays lie at pages that nobody may touch"
    return ""


def _at_guard(allocate: Allocate, array: Array, at_end: bool) -> Array:
    """A copy of an array; one whose elements are in another order of memory stays where its strides are right."""
    return allocate(array, at_end=at_end) if array.flags.c_contiguous else array.copy("K")
