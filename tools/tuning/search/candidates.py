"""What may be tried for a kernel: schedules of entries that are legal for it, as programs of the kernel alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from fuse_opt.dialects.analysis.kernel_key import KernelKey
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.lowering.program import Program
from fuse_opt.lowering.reference.interpreter import entry_function, evaluate_op
from fuse_opt.passes.devices.device import HOST, find_device
from fuse_opt.passes.recompute.known_ops import value_bytes
from fuse_opt.passes.scheduling.processor_entries import processor_entries
from fuse_opt.passes.scheduling.tuned_lookup import is_tunable
from fuse_opt.passes.scheduling.tuned_schedules import Settings, entries_of, schedule_of
from fuse_opt.tools.commands.measuring import example_inputs
from fuse_opt.tools.compiler.pipeline import make_passes, run_pipeline
from fuse_opt.tools.compiler.registry import make_context
from fuse_opt.tools.watching.bounds import allowed_differences

Array = np.ndarray[Any, Any]
Target: TypeAlias = Literal["c", "cuda"]
"""The language of programs."""

_PIPELINE = "infer-inplace,plan-memory,bulk-launches"
_DIGITS = 32
_SAME_ORDER = ("pointwise", "tile")
"""Kinds between which nothing is computed in another order."""


@dataclass(frozen=True)
class Candidate:
    """A schedule, as plain values."""

    text: str
    """JSON with its entries in order: equal ones are one candidate."""
    same_bits: bool
    """Whether all that it changes promises that results stay as they are, bit for bit."""

    @classmethod
    def of(cls, settings: Settings, same_bits: bool = True) -> Candidate:
        return cls(json.dumps({name: settings[name] for name in sorted(settings)}), same_bits)

    @property
    def settings(self) -> dict[str, str | int]:
        return json.loads(self.text)


@dataclass
class Site:
    """A kernel of a program that stands by itself, with its default schedule."""

    name: str
    key: KernelKey
    module: ModuleOp
    """A function of it alone."""
    words: Mapping[str, str] = field(default_factory=dict[str, str])
    """Entries that all its schedules have, as they were asked for."""
    default: Candidate = field(default_factory=lambda: Candidate("{}", True))
    place: str = "-"
    count: int = 1
    """How many kernels of the program are the same."""
    target: Target = "c"
    """The language of its programs."""
    inputs: Sequence[Array] | None = None
    """What it is measured on, where a person gave arrays; else numbers are drawn."""
    device: str = HOST
    """Of which schedules of other kinds have the processor's entries."""

    _programs: dict[Candidate, Program] = field(default_factory=dict[Candidate, Program], repr=False)

    @classmethod
    def rebuilt(cls, name: str, module: ModuleOp, default: Candidate) -> Site:
        """What measures a site where its programs arrive ready made."""
        return Site(name, KernelKey("", ""), module, default=default)

    @cached_property
    def kernel(self) -> KernelOp:
        return next(op for op in self.module.walk() if isinstance(op, KernelOp))

    @cached_property
    def nbytes(self) -> int:
        """About what it reads and writes."""
        block = entry_function(self.module, None).body.block
        given = block.last_op.operands if block.last_op is not None else ()
        return sum(value_bytes(value) or 0 for value in (*block.args, *given))

    def program(self, candidate: Candidate) -> Program:
        """The program of a candidate. Raises what lowering raises."""
        if candidate in self._programs:
            return self._programs[candidate]
        module = self.module.clone()
        kernel = next(op for op in module.walk() if isinstance(op, KernelOp))
        kernel.schedule = schedule_of({**candidate.settings, **self.words})
        run_pipeline(module, make_passes(f"schedule-kernels,{_PIPELINE}"), make_context())
        self._programs[candidate] = found = build(module, self.target)
        return found

    def text(self, candidate: Candidate) -> str:
        """By which programs of candidates are told apart: equal ones are compiled once. Raises what lowering raises."""
        return text_key(self.program(candidate))

    def sent(self, candidate: Candidate) -> Program | str:
        """What a process that measures the candidate is given. Raises what lowering raises."""
        return self.program(candidate)

    def changes(self, same_bits: bool) -> Iterator[Candidate]:
        """What is tried: the default with one thing changed; with `same_bits` what promises to keep them alone."""
        return single_changes(self, same_bits)

    def arguments(self, seed: int) -> list[Array]:
        """What it is measured on."""
        return example_inputs(self.module, seed) if self.inputs is None else list(self.inputs)

    @cached_property
    def given(self) -> str:
        """A checksum of what a person gave, by which measurements on that are told from others; "" where numbers are drawn."""
        if self.inputs is None:
            return ""
        digest = hashlib.sha256()
        for array in self.inputs:
            digest.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
        return digest.hexdigest()[:_DIGITS]

    def reference(self, arrays: Sequence[Array]) -> list[Array]:
        """What the reference gives for arguments."""
        return cast("list[Array]", evaluate_op(self.kernel, arrays))

    def allowed(self, arrays: Sequence[Array], expected: Sequence[Array], got: Sequence[Array]) -> list[Array]:
        """How far each element of each result may be from what the reference gives."""
        return allowed_differences(self.kernel, arrays, expected, got)

    def kinds(self) -> list[str]:
        """The kinds of schedules that can run it, its default's first."""
        from fuse_opt.passes.scheduling.schedule_kernels import SCHEMES

        own = str(self.default.settings["kind"])
        return [own, *(kind for kind in SCHEMES if kind != own and is_tunable(kind) and not SCHEMES[kind](self.kernel))]


def build(module: ModuleOp, target: Target) -> Program:
    """The program of a module that passes have made ready. Raises what lowering raises."""
    from fuse_opt.lowering import emit  # imports much that who goes on behind records does without

    return emit.build_program(module) if target == "c" else emit.build_cuda_program(module)


def text_key(program: Program) -> str:
    """By which programs are the same: compiling another one would give the same machine code."""
    return hashlib.sha256(program.source.encode()).hexdigest()[:_DIGITS]


def single_changes(site: Site, same_bits: bool) -> Iterator[Candidate]:
    """The default with one entry changed, entry by entry, then the other kinds; with `same_bits` those alone that promise it."""
    own, *others = site.kinds()
    base = site.default.settings
    for name, knob in entries_of(site.target).items():
        if own in knob.kinds and (knob.same_bits or not same_bits):
            for value in knob.tries:
                yield Candidate.of({**base, name: value}, knob.same_bits)
    device = find_device(site.device)
    for kind in others:
        same = own in _SAME_ORDER and kind in _SAME_ORDER
        if same or not same_bits:
            yield Candidate.of({"kind": kind, **processor_entries(kind, device)}, same)
