"""Implementations of opaque ops on the CPU, over NumPy and so over the BLAS that it carries.

An implementation fills given output arrays: the planner owns the memory. Registering one is a decorated function; those
of the modules beside this one register themselves when the package is imported. The reference evaluator uses the same,
so opaque ops agree on every CPU target by construction.

What an implementation raises reaches the caller of the program as it is: `IndexError` for an index out of range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Literal

import numpy as np

from fuse_opt.dialects.implementation.chains import ChainOffer
from fuse_opt.dialects.implementation.offers import (
    Offer,
    Pairs,
    Platform,
    PointwiseOffer,
    Threads,
    find_offer,
    offers_of,
    register_offer,
)
from fuse_opt.dialects.implementation.site import Cost, LayoutRow, Saved, Site
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.types.encodings import EncodingPart
from fuse_opt.lowering.program import Array, Config, Run
from fuse_opt.lowering.program.float_formats import by_values


@dataclass(frozen=True)
class Implementation:
    """A way to run an opaque op: `run(inputs, outputs, config)` writes every element of each output."""

    name: str
    op: str
    run: Run
    """For arrays of every element type that the op accepts."""
    takes_workspace: bool = False
    """Whether `run` gets bytes to work in as one more output, where its offer asks for some."""
    by_python: bool = True
    """Whether `run` does it; else compiled code alone does, and the reference runs the op's decomposition."""

    def workspace_bytes(self, op: OpaqueOp) -> int:
        """What its offer asks for to run an op. Raises BackendFault."""
        offer = find_offer(self.op, self.name)
        return 0 if offer is None else offer.workspace_bytes(Site.of(op))


_REGISTRY: dict[tuple[str, str], Implementation] = {}


def implementation(
    name: str,
    op: str,
    moves: bool = False,
    *,
    inplace: Pairs | Callable[[Site], Pairs] = (),
    epilogue: PointwiseOffer | ChainOffer | None = None,
    prologue: PointwiseOffer | None = None,
    priority: int = 0,
    workspace: int | Callable[[Site], int] = 0,
    accepts: Callable[[Site], str | None] | None = None,
    cost: Callable[[Site], Cost] | None = None,
    numerics: Literal["strict", "finite", "fast"] = "strict",
    optional: bool = False,
    ignores: Sequence[int] | Callable[[Site], Sequence[int]] = (),
    features: Sequence[str] | Callable[[Site], Sequence[str]] = (),
    differentiable: bool = True,
    sized: bool = False,
    threads: Threads = "caller",
    saves: Callable[[Site, Saved], str | None] | None = None,
) -> Callable[[Run], Run]:
    """Registers a function as the implementation `name` of op `op`, and what it offers to passes.

    It gets floats that NumPy has no type for as f32, and its results are rounded to them; one that `moves` elements, and
    looks at them with nothing but what `narrow_floats` has for it, gets them as they are. NumPy warns of nothing in it.

    `inplace` lists the pairs (result, operand) that may be one array when it is called, or says them of a site. An `epilogue`
    or a `prologue` says that pointwise ops run well next to it; they are code of their own, which a runtime may run by parts.
    `accepts` says why it does not run an op, `cost` what it takes, for select-implementation; `numerics="fast"` that it is not
    within the op's bound, and to be chosen on demand only; an `optional` one is there where its backend is asked for. It reads
    nothing of operands that it `ignores`, needs `features` of the machine, and is for inference alone unless `differentiable`.
    With `threads="exclusive"` the pool's threads have nothing to do while it runs, as it has some of its own.
    What it `saves` are results of other ops of the same operands, which it writes as further outputs where `config` says so.
    One that is `sized` says the same of arrays of any extents, and runs for those of each call.
    With a `workspace`, bytes or a function that says how many, it gets an array of so many i8 as one more output, to
    work in: memory that the planner has given to it for the call.
    Raises ValueError where the op has another one of that name.
    """
    offer = Offer(
        op,
        name,
        inplace,
        epilogue,
        prologue,
        priority,
        workspace,
        accepts=accepts,
        cost=cost,
        optional=optional,
        numerics=numerics,
        ignores=ignores if callable(ignores) else tuple(ignores),
        features=features if callable(features) else tuple(features),
        differentiable=differentiable,
        sized=sized,
        threads=threads,
        saves=saves,
    )

    def register(run: Run) -> Run:
        quiet = np.errstate(all="ignore")(run)
        register_offer(offer)
        _REGISTRY[op, name] = Implementation(name, op, quiet if moves else by_values(quiet), offer.takes_workspace)
        return run

    return register


def native_implementation(
    name: str,
    like: str | None,
    op: str,
    accepts: Callable[[Site], str | None],
    cost: Callable[[Site], Cost],
    epilogue: PointwiseOffer | ChainOffer | None = None,
    workspace: int | Callable[[Site], int] = 0,
    optional: bool = False,
    probe: Callable[[Site], str | None] | None = None,
    split: bool = False,
    numerics: Literal["strict", "finite", "fast"] = "strict",
    priority: int | None = None,
    platform: Platform = "cpu",
    chained: bool = False,
    features: tuple[str, ...] | Callable[[Site], Sequence[str]] = (),
    captured: bool = True,
    layouts: Callable[[Site], Sequence[LayoutRow]] | None = None,
    pack: Callable[[Site], Mapping[int, EncodingPart]] | None = None,
    differentiable: bool = True,
    saves: Callable[[Site, Saved], str | None] | None = None,
    sized: bool = False,
    run: Callable[[Run], Run] | None = None,
) -> None:
    """
    Registers what compiled code calls for what the implementation `like` of the op computes, with the same pairs in place;
    the reference runs that one instead, or without a word the op's decomposition. Its tasks get the address of a `workspace`, and
    are several where it is to be `split`; what `probe` says of this machine is asked when it has been chosen, and then `pack` how
    it would have operands that never change. One of the platform "cuda" is called by the runtime of devices, with their
    addresses; a `chained` one with a chain behind its op alone, one that is not `captured` outside of CUDA graphs.
    Of calls whose extents no program knows, Python calls what `run` makes of the implementation that it is like.
    """
    offer = Offer(op, name) if like is None else next(offer for offer in offers_of(op) if offer.name == like)
    if priority is None:
        priority = offer.priority - (epilogue is not None)
    register_offer(
        replace(
            offer,
            name=name,
            accepts=accepts,
            cost=cost,
            epilogue=epilogue,
            priority=priority,
            native=True,
            like=like or "",
            workspace=workspace,
            optional=optional,
            probe=probe,
            split=split,
            numerics=numerics,
            platform=platform,
            chained=chained,
            features=features,
            captured=captured,
            layouts=layouts,
            pack=pack,
            differentiable=differentiable,
            saves=saves,
            sized=sized,
        )
    )
    own = Implementation(name, op, _not_by_python, by_python=False) if like is None else _REGISTRY[op, like]
    _REGISTRY[op, name] = replace(own, name=name, takes_workspace=False, run=own.run if run is None else run(own.run))


def _not_by_python(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """Of an op whose meaning is its decomposition, which the reference runs, and compiled code a library's function."""
    raise RuntimeError("what compiled code alone calls was called by Python; report this")


def find_implementation(op: str, name: str | None = None) -> Implementation | None:
    """The implementation called `name` of an op, or its default one; None when there is none."""
    offer = find_offer(op, name)
    return None if offer is None else _REGISTRY.get((op, offer.name))


def in_single(run: Run) -> Run:
    """The routine with f16 given to it as f32, and its results rounded once."""
    half, single = np.dtype(np.float16), np.dtype(np.float32)

    @wraps(run)
    def wide(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
        outs = [np.empty(out.shape, single) if out.dtype == half else out for out in outputs]
        run([array.astype(single) if array.dtype == half else array for array in inputs], outs, config)
        for out, value in zip(outputs, outs, strict=True):
            if value is not out:
                out[...] = value

    return wide
