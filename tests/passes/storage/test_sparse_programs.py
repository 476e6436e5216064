"""Random programs that mix storage kinds: the reference, passes in any order, and compiled, against dense NumPy."""

from __future__ import annotations

import os
from typing import Any, cast

import numpy as np
import pytest
from ir_testing import apply, evaluate, parse, text_of
from laws import DECISIONS, OPTIMIZATIONS, Subject, pass_fault
from lowered_programs import as_list, needs_compiler
from sparse_programs import Array, SparseProgram, dense_of

import fuse_opt

MULTIPLIER = float(os.environ.get("FUSE_OPT_FUZZ_CASES", "1"))
FIRST = int(os.environ.get("FUSE_OPT_FUZZ_FIRST", "0"))
SEEDS = range(FIRST, FIRST + int(40 * MULTIPLIER))
COMPILED = range(FIRST, FIRST + int(12 * MULTIPLIER))
ORDERS = range(FIRST, FIRST + int(12 * MULTIPLIER))


def compare(program: SparseProgram, results: list[Any]) -> None:
    for given, expected in zip(results, program.results, strict=True):
        dense = dense_of(expected.shape, cast("tuple[Array, ...]", given)) if isinstance(given, tuple) else given
        np.testing.assert_allclose(
            dense, expected, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(expected).max(initial=0)))
        )


def test_reference() -> None:
    for seed in SEEDS:
        program = SparseProgram(seed)
        compare(program, as_list(fuse_opt.evaluate(program.text, *program.arguments)))


@needs_compiler
def test_compiled() -> None:
    """Every temporary dense copy stands in the IR: none is left for the run to make."""
    for seed in COMPILED:
        program = SparseProgram(seed)
        compiled = fuse_opt.compile(program.text, pipeline="unfused" if seed % 2 else None)
        compare(program, as_list(compiled(*program.arguments)))
        left = [
            line for line in text_of(compiled.module).splitlines() if "#graph." in line and "graph.part" not in line
        ]
        assert not left, "values of storage kinds are left"


def subject(seed: int) -> Subject:
    """The program's text with its parts as arguments, before `lower-storage`."""
    program = SparseProgram(seed)
    module = parse(program.text)
    signature = fuse_opt.compile(module, target="reference").signature
    arrays = [
        a for value, given in zip(signature.arguments, program.arguments, strict=True) for a in value.arrays(given)
    ]
    return Subject(text_of(module), arrays, evaluate(module, arrays))


@pytest.mark.parametrize("lowered", [False, True])
def test_passes_in_any_order_keep_the_laws(lowered: bool) -> None:
    for seed in ORDERS:
        rng = np.random.default_rng(seed)
        given = subject(seed)
        if lowered:
            text = text_of(apply(parse(given.text), "assign-storage,lower-storage"))
            given = Subject(text, given.arguments, given.values)
        names = [str(name) for name in rng.choice([n for n in OPTIMIZATIONS if n not in DECISIONS], 6)]
        passes = [*names[:3], "assign-storage", *names[3:]]
        assert not pass_fault(given, passes), (seed, passes)
