"""Where programs are measured: this machine, or the machines of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from xdsl.dialects.builtin import ModuleOp

from fuse_opt.passes.devices.this_machine import Machine
from fuse_opt.tools.tuning.search.candidates import Site
from fuse_opt.tools.tuning.search.study import Bench


@dataclass(frozen=True)
class Place:
    """A machine, and how something is measured on it."""

    machine: Machine
    bench: Callable[[Site], Bench]
    seconds: Callable[[ModuleOp], float]
    """Of a call of a whole program by its defaults."""
    width: int = 1
    """Candidates that are measured side by side."""


@contextmanager
def places(cluster: str | None, threads: int, seed: int, told: Callable[[str], None]) -> Generator[Sequence[Place]]:
    """
    This machine, or one for each fingerprint among the workers of a cluster. Raises ValueError where there is no such cluster,
    RuntimeError where there is no C compiler.
    """
    if cluster is None:
        yield [_here(threads, seed)]
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
                bench.EACH * len(group.workers()),
            )
            for group in groups(connection)
        ]
    finally:
        connection.close()


def _here(threads: int, seed: int) -> Place:
    from fuse_opt.tools.compiler.builders import require_c_compiler
    from fuse_opt.tools.tuning.search.processes import ProcessBench
    from fuse_opt.tools.tuning.search.sites import program_seconds
    from fuse_opt.tools.watching.machine import this_machine

    require_c_compiler()
    machine = this_machine()
    assert machine is not None
    return Place(
        machine,
        lambda site: ProcessBench(site, threads, seed),
        lambda module: program_seconds(module, threads),
    )
