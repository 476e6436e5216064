"""Random programs whose values lie in random orders: every law holds, and compiled programs give the reference's values."""

from __future__ import annotations

import random

import numpy as np
import pytest
from draws import draws
from fuzz import program_of, random_sequence
from ir_testing import parse, text_of
from laws import Subject, compiled_fault, pass_fault
from random_orders import with_orders

from fuse_opt.lowering.program.float_formats import computed

CASES = draws(4)
COMPILED = draws(3)


def encoded_program(seed: int) -> tuple[str, str, int]:
    """The program of a seed as it is, and with orders; how many values have one."""
    module = program_of(seed)
    plain = text_of(module)
    count = with_orders(module, seed)
    text = text_of(module)
    parse(text)
    return plain, text, count


def test_orders_change_no_value_and_keep_the_laws() -> None:
    encoded = 0
    for seed in CASES:
        plain, text, count = encoded_program(seed)
        subject, expected = Subject.of(text, seed), Subject.of(plain, seed).values
        for actual, value in zip(subject.values, expected, strict=True):
            got, wanted = computed(actual), computed(value)
            assert np.array_equal(got, wanted, equal_nan=wanted.dtype.kind == "f"), f"seed {seed}"
        fault = pass_fault(subject, random_sequence(random.Random(f"orders {seed}")))
        assert not fault, f"seed {seed}: {fault}"
        encoded += count
    assert encoded >= len(CASES) // 2


@pytest.mark.parametrize("seed", COMPILED)
def test_compiled_programs_give_the_values_of_the_reference(seed: int) -> None:
    subject = Subject.of(encoded_program(seed)[1], seed)
    assert not compiled_fault(subject)
