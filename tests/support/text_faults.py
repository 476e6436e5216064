"""Faults in generated text, kernel by kernel: `--check-each` has to name each of them.

python tests/support/text_faults.py --faults 20 FILE.mlir...     # about a second and a half a fault
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from fuse_opt.lowering.emit.traced import trace_program
from fuse_opt.lowering.program import Program
from fuse_opt.tools.commands.measuring import example_inputs
from fuse_opt.tools.compiler.api import compile as compile_program
from fuse_opt.tools.watching.check_each import TARGETS, CheckedKernel, check_each

_SWAPS = ((r"(?<=[\w\])]) \+ (?=[\w(])", " - "), (r"(?<=[\w\])]) - (?=[\w(])", " + "), (r" \* ", " + "))
_NUMBERS = ((r"\b0\.5f", "0.25f"), (r"\b1\.0f", "1.5f"))
_INTEGERS = re.compile(r"for \(|long|\bint\b|size_t|#pragma|unsigned|\[[^\]]* [-+*] [^\]]*\]")
"""Lines that compute places: a fault there may write anywhere."""


def faulty_texts(text: str, kernel: str) -> list[str]:
    """The text with one change in the body of a kernel, where it computes with floats."""
    begin, end = _body(text, kernel)
    found: list[str] = []
    for line in re.finditer(r"[^\n]*\n", text[begin:end]):
        if _INTEGERS.search(line[0]):
            continue
        for pattern, other in (*_SWAPS, *_NUMBERS):
            for hit in re.finditer(pattern, line[0]):
                at = begin + line.start()
                found.append(text[: at + hit.start()] + other + text[at + hit.end() :])
    return found


def _body(text: str, kernel: str) -> tuple[int, int]:
    head = re.search(rf"void\s+(?:__launch_bounds__\([^)]*\)\s+)?{re.escape(kernel)}\([^)]*\)\s*\{{", text)
    assert head is not None, kernel
    depth = 0
    for position in range(head.end() - 1, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if not depth:
            return head.end(), position
    raise AssertionError(f"{kernel}: no end of its body")


def named_with(source: str, against: str, kernel: str, choice: random.Random) -> tuple[list[str], str] | None:
    """The kernels that are named where one has a fault, and its changed line; None where nothing of it can be changed."""
    program = compile_program(source, TARGETS[against])
    text = trace_program(program.module, None, TARGETS[against]).program.source
    if not (texts := faulty_texts(text, kernel)):
        return None
    changed = choice.choice(texts)
    line = next(b for a, b in zip(text.splitlines(), changed.splitlines(), strict=True) if a != b)
    named: list[str] = []

    def found(checked: CheckedKernel) -> bool:
        named.extend([] if checked.passed else [checked.traced.name])
        return checked.passed

    def faulty(each: Program) -> Program:
        return replace(each, source=changed, units=())

    arrays = program.signature.convert_inputs(example_inputs(source))
    with np.errstate(all="ignore"):
        check_each(program.module, None, arrays, against, found, faulty)
    return named, line.strip()


def generated_kernels(source: str, against: str) -> Iterator[str]:
    """The kernels of a program whose text is generated."""
    program = compile_program(source, TARGETS[against])
    traced = trace_program(program.module, None, TARGETS[against])
    yield from (each.name for each in traced.kernels if re.search(rf"\b{each.name}\(", traced.program.source))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+")
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    choice, right, made = random.Random(given.seed), 0, 0
    kernels = [
        (text, against, kernel)
        for file in given.files
        for text in [Path(file).read_text()]
        for against in TARGETS
        for kernel in generated_kernels(text, against)
    ]
    for number in range(given.faults):
        text, against, kernel = kernels[number % len(kernels)]
        if (found := named_with(text, against, kernel, choice)) is None:
            continue
        made, right = made + 1, right + (found[0] == [kernel])
        print(f"{against} {kernel}: {'named' if found[0] == [kernel] else f'NOT named, got {found[0]}'}: {found[1]}")
    print(f"{right} of {made} named")
    return 0 if right == made else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
