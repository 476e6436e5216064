"""Random functions under torch.compile(backend="fuse_opt"), judged by eager PyTorch; every fault reduced, with its seed.

    python tests/support/torch_fuzz.py --cases 2000 --seed 0 --processes 2 [--networks | --mixes | --wide | --sizes | --positions]

Values, shapes, strides, element types, what aliases what, arguments after the call, gradients, `requires_grad`, and that
later calls change no earlier result. Compiled with `strict`: what is left to PyTorch is an exception, unless PyTorch's own
`aot_eager` fails on it, too (then it is run again without `strict`). Odd seeds round f16 and bf16 as eager does; of the others
what has such floats among its values is compared as these are. Every fourth has arguments that begin one element behind where
their memory does.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any

import reduction
from torch_as_traced import AS_TRACED
from torch_mixes import random_mix, wide_mix
from torch_networks import random_network
from torch_positions import random_positions
from torch_programs import Program, random_program
from torch_sizes import any_size
from torch_testing import fuse_opt, torch

TOLERANCES = {"float16": 2e-2, "bfloat16": 6e-2, "float32": 2e-4, "float64": 1e-7, "complex64": 2e-4}
SHARE = 25
"""Cases that a process takes at once."""


@dataclass
class Outcome:
    """All that a caller can see of some calls."""

    facts: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    values: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    error: str | None = None


def run(program: Program, backend: Any, **options: Any) -> Outcome:
    """What the program's calls give and do."""
    torch._dynamo.reset()
    torch.manual_seed(program.seed)
    outcome = Outcome()
    module = program.module()
    call = module
    if backend is not None:
        call = torch.compile(module, backend=backend, dynamic=program.dynamic, fullgraph=True, **options)
    kept: list[tuple[str, Any, Any]] = []
    try:
        for number in range(1 + max(1, len(program.sizes))):
            _call(program, module, call, number, outcome, kept)
        for name, result, before in kept:
            outcome.values.append((f"{name} at the end", _plain(result)))
            outcome.values.append((f"{name} then", before))
    except Exception as error:
        outcome.error = f"{type(error).__name__}: {error}"
    return outcome


def _call(
    program: Program, module: Any, call: Any, number: int, outcome: Outcome, kept: list[tuple[str, Any, Any]]
) -> None:
    inputs = program.inputs(number)
    own = [*module.parameters(), *module.buffers()]
    results = list(call(*inputs))
    for k, result in enumerate(results):
        name = f"result {k} of call {number}"
        outcome.facts.append((f"{name}: what it is", _facts(result)))
        outcome.values.append((name, _plain(result)))
    outcome.facts.append((f"call {number}: what aliases what", _aliases([*inputs, *own], results)))
    for k, value in enumerate([*inputs, *own]):
        outcome.values.append((f"argument {k} after call {number}", _memory(value)))
    losses = [r.double().sum() * (k + 1) for k, r in enumerate(results) if r.requires_grad and not r.is_complex()]
    if losses:
        torch.stack(losses).sum().backward()
    for k, value in enumerate([*inputs, *own]):
        gradient = value.grad if value.is_leaf else None
        outcome.facts.append((f"call {number}: gradient {k} is there", gradient is not None))
        if gradient is not None:
            outcome.values.append((f"gradient {k} after call {number}", _plain(gradient)))
    shared = {value.untyped_storage().data_ptr() for value in own}
    for k, result in enumerate(results):
        if result.untyped_storage().data_ptr() not in shared:
            kept.append((f"result {k} of call {number}", result, _plain(result)))


def _facts(value: Any) -> tuple[Any, ...]:
    strides = (
        tuple(s if n != 1 else 0 for n, s in zip(value.shape, value.stride(), strict=True)) if value.numel() else ()
    )
    return (value.dtype, tuple(value.shape), strides, value.requires_grad, value.is_conj(), value.is_neg())


def _aliases(arguments: Sequence[Any], results: Sequence[Any]) -> list[tuple[Any, ...]]:
    """By result, the first argument or result whose storage it has, and where in it it begins."""
    first: dict[int, str] = {}
    for k, value in enumerate(arguments):
        if value.untyped_storage().nbytes():
            first.setdefault(value.untyped_storage().data_ptr(), f"argument {k}")
    found: list[tuple[Any, ...]] = []
    for k, value in enumerate(results):
        if not value.untyped_storage().nbytes() or not value.numel():
            found.append(("nothing",))
            continue
        owner = first.setdefault(value.untyped_storage().data_ptr(), f"result {k}")
        same = next((f"is argument {n}" for n, a in enumerate(arguments) if a is value), "")
        found.append((owner, value.storage_offset() if owner.startswith("argument") else "", same))
    return found


def _plain(value: Any) -> Any:
    return value.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def _memory(value: Any) -> Any:
    """All bytes of a tensor's storage, as its elements."""
    storage = value.detach().untyped_storage()
    return torch.empty(0, dtype=value.dtype).set_(storage, 0, (storage.nbytes() // value.dtype.itemsize,)).clone()


def difference(found: Outcome, wanted: Outcome, least: float = 0.0) -> str | None:
    """The first difference from eager, of floats by more than `least` and what their type allows; None where there is none."""
    if found.error is not None:
        return f"exception: {found.error}"
    for (name, a), (_, b) in zip(found.facts, wanted.facts, strict=True):
        if a != b:
            return f"{name}: {a}, expected {b}"
    for (name, a), (_, b) in zip(found.values, wanted.values, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{name}: {tuple(a.shape)} {a.dtype}, expected {tuple(b.shape)} {b.dtype}"
        own = TOLERANCES.get(str(a.dtype).removeprefix("torch."))
        tolerance = 0 if own is None else max(own, least)
        if not torch.allclose(a.to(_wide(a)), b.to(_wide(b)), rtol=tolerance, atol=tolerance, equal_nan=True):
            return f"{name}: {a.tolist()}, expected {b.tolist()}"
    return None


def _wide(value: Any) -> Any:
    return torch.complex128 if value.is_complex() else torch.float64 if value.is_floating_point() else torch.int64


def fault(program: Program) -> tuple[str | None, str | None]:
    """What is wrong with the compiled program; and why it is left to PyTorch, where `aot_eager` cannot take it either."""
    wanted = run(program, None)
    if wanted.error is not None:
        return None, "eager refuses it"
    rounds, least = {"emulate_precision_casts": bool(program.seed % 2)}, 0.0 if program.seed % 2 else _narrow(wanted)
    ours = run(program, fuse_opt, options={"strict": True, **rounds})
    found = difference(ours, wanted, least)
    if found is None:
        return None, None
    theirs = run(program, "aot_eager")
    others = difference(theirs, wanted)
    if others is None and "what it is" in found and difference(ours, run(program, AS_TRACED), least) is None:
        return None, "aot_eager: strides are others than its graph says"
    if others is None or (theirs.error is None and (found := difference(ours, theirs, least)) is not None):
        return found, None
    again = difference(run(program, fuse_opt, options=rounds), wanted, least)
    if again is None or not others.startswith("exception") or again == others:  # of Dynamo, before any backend
        return None, f"aot_eager: {others}"
    return again, None


def _narrow(wanted: Outcome) -> float:
    """The tolerance of the narrowest floats that arguments and results have; 0 where there are none."""
    names = {str(value.dtype).removeprefix("torch.") for _, value in wanted.values}
    return max((TOLERANCES[name] for name in names & {"float16", "bfloat16"}), default=0.0)


def reduced(program: Program, text: str) -> tuple[Program, str]:
    """A smaller program with a fault of the same kind."""
    return reduction.reduced(program, text, lambda smaller: fault(smaller)[0])


@dataclass
class Summary:
    """What was run, and what was found."""

    cases: int = 0
    lines: int = 0
    differences: int = 0
    exceptions: int = 0
    left: Counter[str] = field(default_factory=Counter[str])
    reports: list[str] = field(default_factory=list[str])
    seconds: float = 0.0

    def add(self, other: Summary) -> None:
        self.cases += other.cases
        self.lines += other.lines
        self.differences += other.differences
        self.exceptions += other.exceptions
        self.left += other.left
        self.reports += other.reports

    def line(self) -> str:
        return (
            f"torch fuzz: {self.cases} cases, {self.lines} lines, {self.differences} differences, {self.exceptions} "
            f"exceptions, {self.left.total()} left out as PyTorch's own compiler differs from eager, {self.seconds:.1f} s"
        )


PROGRAMS = {
    "any": random_program,
    "networks": random_network,
    "mixes": random_mix,
    "wide": wide_mix,
    "sizes": any_size,
    "positions": random_positions,
}
_KINDS = {
    "networks": "of operations that networks are made of",
    "mixes": "of mixed types, indices, random numbers, writes",
    "wide": "the same of tensors that fill vectors and blocks",
    "sizes": "networks and mixes for all sizes, called with large, odd, single and no elements",
    "positions": "of indices, orders, running totals, rolls and windows, half of them for all sizes",
}


def offset(program: Program) -> Program:
    """The same with plain arguments one element behind where their memory begins, which is no multiple of a register."""
    layouts = {"plain": "offset"}
    moved = (replace(a, layout=layouts.get(a.layout, a.layout)) for a in program.arguments)
    return replace(program, arguments=tuple(moved))


def check_cases(seeds: Sequence[int], reduce: bool = True, kind: str = "any") -> Summary:
    torch.set_num_threads(1)
    torch._logging.set_logs(all=50)
    summary = Summary()
    for seed in seeds:
        program = PROGRAMS[kind](seed)
        program = offset(program) if seed % 4 == 3 else program
        summary.cases += 1
        summary.lines += len(program.lines)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            text, why = fault(program)
            if why is not None:
                if "exception" not in why:
                    print(f"seed {seed} left out: {why[:160]}", file=sys.stderr, flush=True)
                summary.left[" ".join(why.split())[:160]] += 1
            if text is None:
                continue
            if reduce:
                program, text = reduced(program, text)
        if text.startswith("exception"):
            summary.exceptions += 1
        else:
            summary.differences += 1
        summary.reports.append(f"seed {seed}: {text[:700]}\n{program.shown()}")
        print(summary.reports[-1], flush=True)
    return summary


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Random functions compiled for PyTorch, judged by eager.")
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    kinds = parser.add_mutually_exclusive_group()
    for name, text in _KINDS.items():
        kinds.add_argument(f"--{name}", dest="kind", action="store_const", const=name, help=text)
    parser.set_defaults(kind="any")
    options = parser.parse_args(given)
    seeds = range(options.seed, options.seed + options.cases)
    shares = [seeds[k : k + SHARE] for k in range(0, len(seeds), SHARE)]
    summary, started = Summary(), time.perf_counter()
    if options.processes == 1:
        for share in shares:
            summary.add(check_cases(share, kind=options.kind))
    else:
        with ProcessPoolExecutor(options.processes) as pool:
            for part in pool.map(check_cases, shares, repeat(True), repeat(options.kind)):
                summary.add(part)
                print(f"... {summary.cases} of {options.cases}", file=sys.stderr, flush=True)
    summary.seconds = time.perf_counter() - started
    for why, count in summary.left.most_common():
        print(f"  {count} x {why}")
    print(summary.line())
    return 1 if summary.differences or summary.exceptions else 0


if __name__ == "__main__":
    sys.exit(main())
