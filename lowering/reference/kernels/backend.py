"""Backends of users: implementations that one file gives, under one name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Literal

from fuse_opt.dialects.implementation.chains import ChainOffer
from fuse_opt.dialects.implementation.offers import Pairs, PointwiseOffer, Threads
from fuse_opt.dialects.implementation.partitions import PartitionOffer, register_partition_offer
from fuse_opt.dialects.implementation.site import Cost, Machine, Saved, Site
from fuse_opt.dialects.implementation.subgraph import Subgraph
from fuse_opt.lowering.program import Run
from fuse_opt.lowering.reference.kernels.partitions import Build, register_partition_build
from fuse_opt.lowering.reference.kernels.registry import implementation


class Refused(Exception):
    """A backend's file raises it where the backend cannot be had here; says why."""


class Backend:
    """
    A set of implementations, each called `name.function`, for programs that are compiled with the backend by its name or
    its file. `licence` is that of the library behind it, in SPDX's words. Raises ValueError for a name that is none.
    """

    def __init__(self, name: str, licence: str = "") -> None:
        if not name.isidentifier() or name == "none":
            raise ValueError(f"backend '{name}': expected letters, digits and underscores, and another name than none")
        self.name = name
        self.licence = licence

    def implementation(
        self,
        op: str,
        *,
        accepts: Callable[[Site], str | None] | None = None,
        cost: Callable[[Site], Cost] | None = None,
        inplace: Pairs | Callable[[Site], Pairs] = (),
        epilogue: PointwiseOffer | ChainOffer | None = None,
        prologue: PointwiseOffer | None = None,
        numerics: Literal["strict", "fast"] = "strict",
        workspace: int | Callable[[Site], int] = 0,
        priority: int = 0,
        ignores: Sequence[int] | Callable[[Site], Sequence[int]] = (),
        features: Sequence[str] | Callable[[Site], Sequence[str]] = (),
        differentiable: bool = True,
        threads: Threads = "caller",
        saves: Callable[[Site, Saved], str | None] | None = None,
    ) -> Callable[[Run], Run]:
        """
        Registers a function `run(inputs, outputs, config)` for an op of a dialect: arrays in C order, results to be written
        in full, the op's properties by name. Floats of 16 bits and less come as NumPy has them, or else as f32.

        `accepts` answers None or a reason code, `cost` seconds by way of `Cost`; they see types and properties, never
        elements, and must answer alike for alike sites. Pairs (result, operand) of `inplace`, or of what a function says of the
        site, may be one array in a call.
        Where no cost is known, the higher `priority` comes first. A function with a `workspace`, bytes or a function of
        the site that says how many, gets an array of so many i8 as one more output.

        Of operands that it `ignores`, by number, it looks at shape and type alone: their elements may be gone. `features` are
        what the machine must have, by the names of its device file; one that is not `differentiable` has no part in training.
        A function whose library has threads of its own says `threads="exclusive"`: it is called when no loop of a program has
        the pool's, of any thread's, and those sleep until it returns. It must not set their number.

        `saves` answers None where it leaves what another op (`Saved`) makes of the same operands, such as statistics for a
        backward pass, or a reason code. They are outputs behind the op's results then, and `config["fused.saved"]` has a text
        of each.
        Raises ValueError for a name that is taken.
        """

        def register(run: Run) -> Run:
            name = f"{self.name}.{getattr(run, '__name__', op.rpartition('.')[2])}"
            return implementation(
                name,
                op,
                inplace=inplace,
                epilogue=epilogue,
                prologue=prologue,
                priority=priority,
                workspace=workspace,
                accepts=accepts,
                cost=cost,
                numerics=numerics,
                optional=True,
                ignores=ignores,
                features=features,
                differentiable=differentiable,
                threads=threads,
                saves=saves,
            )(run)

        return register

    def partition(
        self,
        *,
        accepts: Callable[[Site], str | None],
        review: Callable[[Subgraph], Collection[int] | None] | None = None,
        seconds: Callable[[Subgraph, Machine], float] | None = None,
        workspace: Callable[[Subgraph], int] | None = None,
        planned: bool = False,
        differentiable: bool = True,
    ) -> Callable[[Build], Build]:
        """
        Registers a function that builds the call of a part of a graph: `build(subgraph)` gives `run(inputs, outputs, config)`,
        with arrays as for implementations; with `workspace`, one of so many bytes is the last of the outputs;
        where values inside are `planned`, arrays for those of `subgraph.inside` come behind the results, in that order. Their
        memory is that of the program's plan: one that no later node reads may share bytes with one that is made later.

        `accepts` answers None or a reason code for an op, `review` the numbers of the nodes of a part to keep (None for all,
        none to decline), `seconds` what a call takes; parts that take longer than by other implementations are not made, nor
        are any in the forward part of training without `differentiable`.
        Raises ValueError where the backend has another such function, or wants a workspace and planned values.
        """

        def register(build: Build) -> Build:
            register_partition_offer(
                PartitionOffer(self.name, accepts, review, seconds, workspace, planned, differentiable)
            )
            register_partition_build(self.name, build)
            return build

        return register
