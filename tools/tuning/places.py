"""Where programs are measured: this machine, or the machines of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from fuse_opt.passes.devices.this_machine import Machine
from fuse_opt.tools.tuning.search.candidates import Array, Site
from fuse_opt.tools.tuning.search.study import Bench


@dataclass(frozen=True)
class Place:
    """A machine, and how something is measured on it."""

    machine: Machine
    bench: Callable[[Site], Bench]
    seconds: Callable[[ModuleOp], float]
    """Of a call of a whole program by its defaults."""
    width: int = 1
    """Candidates that are made ready, or measured, side by side."""
    host: str | None = None
    """The device that programs for "cpu" are for there; that of this machine where it is None."""


@contextmanager
def places(
    cluster: str | None,
    threads: int,
    seed: int,
    told: Callable[[str], None],
    jobs: int = 1,
    arguments: Sequence[Array] | None = None,
) -> Generator[Sequence[Place]]:
    """
    This machine, where `jobs` candidates compile at a time and the program has the `arguments` that a person gave, or one for
    each fingerprint among the workers of a cluster. Raises ValueError where there is no such cluster, RuntimeError where there
    is no C compiler.
    """
    if cluster is None:
        yield [_here(threads, seed, jobs, arguments)]
        return
    from fuse_opt.tools.tuning.cluster import bench
    from fuse_opt.tools.tuning.cluster.group import connect, groups

    connection = connect(cluster, threads, told)
    try:
        yield [
            Place(
                group.machine,
                partial(bench.ClusterBench, group=group, seed=seed),
                partial(bench.seconds_of_program, group),
                bench.EACH * max(len(group.workers()), 1),  # none may be there just now: whoever asks waits for one
                group.host,
            )
            for group in groups(connection)
        ]
    finally:
        connection.close()


def on_device(source: ModuleOp, passes: Sequence[ModulePass], seed: int) -> Place:
    """The GPU that is there, for which the program is made from now on. Raises CudaUnavailable, RuntimeError."""
    from fuse_opt.passes.devices.gpu_attach_device import attach_found
    from fuse_opt.passes.devices.this_machine import machine_for
    from fuse_opt.runtime.device.driver import open_device
    from fuse_opt.tools.tuning.joint.program_site import ProgramSite
    from fuse_opt.tools.tuning.search.processes import ProcessBench
    from fuse_opt.tools.watching.machine import on_this_machine

    device = open_device()
    attach_found(source, device.name, device.figures())
    with on_this_machine():
        machine = machine_for(source)
    if machine is None:
        raise RuntimeError("tuning needs a C compiler, for a GPU too: the rest of a program is C")

    def bench(site: Site) -> ProcessBench:
        return ProcessBench(site, 1, seed)

    def seconds(module: ModuleOp) -> float:
        site = ProgramSite(module, passes, "-", "cuda")
        measuring = bench(site)
        try:
            return measuring.measure(site.default, 0, 1).seconds
        finally:
            measuring.close()

    return Place(machine, bench, seconds)


def _here(threads: int, seed: int, jobs: int = 1, arguments: Sequence[Array] | None = None) -> Place:
    from fuse_opt.tools.compiler.builders import require_c_compiler
    from fuse_opt.tools.tuning.search.processes import ProcessBench
    from fuse_opt.tools.tuning.search.sites import program_seconds
    from fuse_opt.tools.watching.machine import this_machine

    require_c_compiler()
    machine = this_machine()
    assert machine is not None
    return Place(
        machine,
        lambda site: ProcessBench(site, threads, seed, jobs=jobs),
        lambda module: program_seconds(module, threads, arguments),
        jobs,
    )
