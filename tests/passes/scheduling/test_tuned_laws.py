"""With tuned files present every pass keeps the laws as without: between runs of the one that applies them."""

from __future__ import annotations

import json
import random
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

import pytest
from draws import FIRST
from ir_testing import apply, kernels, parse, text_of
from laws import OPTIMIZATIONS, Subject, pass_fault
from program_generator import dense_program, random_program

from fuse_opt.dialects.analysis.storage import functions_of
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.fused.knobs import KNOBS
from fuse_opt.passes.devices.this_machine import THIS_MACHINE, Machine
from fuse_opt.passes.scheduling.tuned_lookup import KernelKeys, is_tunable

HERE = Machine("d:here", "c:now")
BEFORE = "decompose,fuse-elementwise,fuse-row,wrap-kernels"
"""What makes kernels that have something to choose."""


@pytest.fixture(autouse=True)
def here() -> Generator[None]:
    token = THIS_MACHINE.set(lambda: HERE)
    yield
    THIS_MACHINE.reset(token)


def lines(text: str, passes: Sequence[str], rng: random.Random) -> Iterator[str]:
    """A random schedule for each kernel that a program has after passes: of any kind, with any entries that this may have."""
    kinds = sorted({kind for knob in KNOBS for kind in knob.kinds if knob.tries})
    for function in functions_of(apply(parse(text), [*passes, "schedule-kernels"])):
        keys = KernelKeys(function)
        for kernel in function.body.block.ops:
            if isinstance(kernel, KernelOp) and is_tunable(own := kernel.schedule_kind()):
                kind = own if rng.random() < 0.7 else rng.choice(kinds)
                settings: dict[str, object] = {"kind": kind}
                for knob in KNOBS:
                    if knob.tries and kind in knob.kinds and rng.random() < 0.5:
                        settings[knob.name] = rng.choice(knob.tries)
                found = {"v": 1, "key": keys.key(kernel, {}).key, "device": HERE.device, "code": HERE.code}
                yield json.dumps({**found, "state": "confirmed", "schedule": settings, "speedup": [1.1, 1.2, 1.3]})


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", OPTIMIZATIONS)
def test_pass_keeps_the_laws_beside_tuned_schedules(name: str, tmp_path: Path) -> None:
    seed = FIRST + OPTIMIZATIONS.index(name)
    module = apply(dense_program(seed) if seed % 2 else random_program(seed), BEFORE)
    text, rng = text_of(module), random.Random(seed)
    (file := tmp_path / "t.jsonl").write_text("\n".join([*lines(text, [], rng), *lines(text, [name], rng)]) + "\n")
    tuned = f'schedule-kernels{{tuned="{file}"}}'
    fault = pass_fault(Subject.of(text, seed), [tuned, name, tuned])
    assert not fault, f"(seed {seed}, {name}) {fault}\n{file.read_text()}"


def test_what_is_drawn_is_applied(tmp_path: Path) -> None:
    plain, applied = list[object](), list[object]()
    for seed in range(FIRST, FIRST + 6):
        text = text_of(apply(dense_program(seed), BEFORE))
        (file := tmp_path / f"{seed}.jsonl").write_text("\n".join(lines(text, [], random.Random(seed))) + "\n")
        for found, option in ((plain, ""), (applied, f'{{tuned="{file}"}}')):
            found += [kernel.schedule for kernel in kernels(apply(parse(text), f"schedule-kernels{option}"))]
    changed = sum(one != other for one, other in zip(plain, applied, strict=True))
    assert len(plain) > 6 and changed > len(plain) // 3, f"{changed} of {len(plain)}"
