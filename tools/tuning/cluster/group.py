"""The workers of a cluster: who is there, which of them are the same machine, and what is asked of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeAlias

from fuse_opt.passes.devices.this_machine import Machine
from fuse_opt.runtime.host.cross_compiling import Elsewhere
from fuse_opt.tools.tuning.cluster import tasks
from fuse_opt.tools.watching.machine import code_checksum

LIBRARY = "distributed"
Client: TypeAlias = Any
Future: TypeAlias = Any
"""Of the library, which does not say what types it has and need not be there."""
MEASURE, COMPILE = "measure", "compile"
"""Resources that workers announce."""
CONNECT_SECONDS = 10
LOST_SECONDS = 30.0
"""How long a race waits for a worker of its machine when the last one is gone."""
_LOOK_SECONDS = 1.0
_RETRIES = 2
"""How often what died with its worker is asked again."""


class ClusterLost(RuntimeError):
    """Nobody is left who could go on; what is finished is in the records."""


class WorkerDied(Exception):
    """A task ended several workers, or each time the only one."""


@dataclass
class Cluster:
    """A connection to a scheduler; to be closed."""

    address: str
    client: Client
    threads: int
    told: Callable[[str], None]
    known: dict[str, tasks.Described | None] = field(default_factory=dict[str, "tasks.Described | None"])
    """By address of a worker that measures, its machine; None for one that cannot take part."""

    def resources(self) -> Mapping[str, Mapping[str, float]]:
        """What each worker that is there announces, by address. Raises ClusterLost."""
        if self.client.status != "running":
            raise ClusterLost(f"--cluster: the scheduler at {self.address} is gone: start it, and this again to go on")
        workers: Mapping[str, Any] = self.client.scheduler_info(n_workers=-1)["workers"]
        return {address: each["resources"] for address, each in workers.items()}

    def look(self) -> None:
        """Asks workers that came what they are."""
        new = [a for a, has in self.resources().items() if has.get(MEASURE, 0) > 0 and a not in self.known]
        if not new:
            return
        found: Mapping[str, Any] = self.client.run(tasks.described, self.threads, workers=new, on_error="return")
        for address, answer in found.items():
            if isinstance(answer, OSError):
                continue  # it went while it was asked, and comes back with another address, if at all
            problem = _problem(answer)
            if problem:
                self.told(f"warning: worker {address} takes no part: {problem}")
            self.known[address] = None if problem else answer

    def with_resource(self, name: str) -> list[str]:
        """The workers that announce it."""
        return sorted(address for address, has in self.resources().items() if has.get(name, 0) > 0)

    def close(self) -> None:
        """Ends the connection; the cluster stays."""
        self.client.close()


def _problem(answer: object) -> str:
    if answer is None:
        return "it has no C compiler"
    if not isinstance(answer, tasks.Described):
        return f"{answer}".partition("\n")[0]
    if answer.machine.code != code_checksum():
        return f"it has another version of this project ({answer.machine.code}, here {code_checksum()})"
    return ""


def connect(address: str, threads: int, told: Callable[[str], None]) -> Cluster:
    """The cluster of a scheduler, with its workers known. Raises ValueError where there is none to measure with."""
    try:
        library = import_module(LIBRARY)
    except ModuleNotFoundError:
        raise ValueError("--cluster needs dask.distributed: pip install 'fuse-opt[tune-cluster]'") from None
    for name in [name for name in logging.root.manager.loggerDict if name.startswith(LIBRARY)]:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what is lost is said here
    try:
        client = library.Client(address, timeout=CONNECT_SECONDS)
    except (OSError, TimeoutError, ValueError) as error:
        raise ValueError(
            f"--cluster: no scheduler answers at '{address}' within {CONNECT_SECONDS} s ({_first_line(error)}): "
            "start one (dask scheduler), or mend the address, as in tcp://HOST:8786"
        ) from None
    cluster = Cluster(address, client, threads, told)
    try:
        cluster.look()
        if not groups(cluster):
            raise ValueError(
                f"--cluster: {len(cluster.resources())} workers at {address}, none that can measure: "
                f'expected one started with --resources "{MEASURE}=1"'
            )
    except BaseException:
        cluster.close()
        raise
    return cluster


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def groups(cluster: Cluster) -> list[Group]:
    """The machines that measure, each with the workers that are the same, in the order of fingerprints."""
    found = {answer.machine: answer for answer in cluster.known.values() if answer is not None}
    order = sorted(found, key=lambda machine: machine.device)
    return [Group(cluster, machine, found[machine].compiler, found[machine].host) for machine in order]


@dataclass
class _Asked:
    """A task under way: what it is of, and the workers that may run it, and compile for it."""

    number: int
    measuring: Sequence[str]
    compiling: Sequence[str]


@dataclass
class Group:
    """The workers of a cluster that are one machine."""

    cluster: Cluster
    machine: Machine
    compiler: Elsewhere | None
    host: str
    """The device that its programs for "cpu" are for."""

    def workers(self) -> list[str]:
        """Those that are there."""
        measuring, known = self.cluster.with_resource(MEASURE), self.cluster.known
        return [each for each in measuring if (found := known.get(each)) is not None and found.machine == self.machine]

    def run(
        self, function: Callable[..., Any], given: Sequence[tuple[Any, ...]], sources: Sequence[Sequence[str]] = ()
    ) -> Iterator[tuple[int, Any]]:
        """
        What a function of each gives on a worker, as it comes, with its number; WorkerDied in place of it where it ended every
        one. C texts of `sources` are compiled by others first, where others do that. Raises ClusterLost.
        """
        self.cluster.look()
        waiting: dict[Future, _Asked] = {}
        tries = [0] * len(given)

        def ask(number: int) -> None:
            future, asked = self._submitted(function, given[number], sources[number] if sources else (), number)
            waiting[future] = asked

        for number in range(len(given)):
            ask(number)
        while waiting:
            try:
                done: set[Future] = import_module(LIBRARY).wait(list(waiting), _LOOK_SECONDS, "FIRST_COMPLETED").done
            except TimeoutError:
                done = set()
            for future in done:
                yield waiting.pop(future).number, self._answer(future)
            for future in [] if done else self._stranded(waiting):
                number = waiting.pop(future).number
                future.cancel()
                tries[number] += 1
                if tries[number] > _RETRIES:
                    yield number, WorkerDied()
                else:
                    ask(number)

    def tell(self, function: Callable[..., None], *given: Any) -> None:
        """Runs a function on every worker, when it has nothing else to do; nobody waits for it."""
        client = self.cluster.client
        for worker in self.workers():
            future = client.submit(function, *given, workers=[worker], resources={MEASURE: 1}, pure=False)
            import_module(LIBRARY).fire_and_forget(future)

    def _submitted(
        self, function: Callable[..., Any], given: tuple[Any, ...], sources: Sequence[str], number: int
    ) -> tuple[Future, _Asked]:
        client, measuring = self.cluster.client, self._waited_for()
        compiling = self.cluster.with_resource(COMPILE) if sources and self.compiler is not None else []
        objects = [
            client.submit(tasks.compiled, source, self.compiler, workers=compiling, resources={COMPILE: 1})
            for source in (sources if compiling else ())
        ]
        future = client.submit(function, *given, *objects, workers=measuring, resources={MEASURE: 1}, pure=False)
        return future, _Asked(number, measuring, compiling)

    def _answer(self, future: Future) -> Any:
        try:
            return future.result()
        except import_module(LIBRARY).KilledWorker:
            return WorkerDied()

    def _stranded(self, waiting: Mapping[Future, _Asked]) -> list[Future]:
        """What nobody who is there may run any more."""
        there = self.cluster.resources().keys()

        def gone(addresses: Sequence[str]) -> bool:
            return bool(addresses) and there.isdisjoint(addresses)

        return [future for future, asked in waiting.items() if gone(asked.measuring) or gone(asked.compiling)]

    def _waited_for(self) -> list[str]:
        """The workers of this machine, waited for where none is there. Raises ClusterLost."""
        end = time.monotonic() + LOST_SECONDS
        while not (found := self.workers()):
            if time.monotonic() > end:
                raise ClusterLost(
                    f"--cluster: no worker that measures is left of device {self.machine.device}: what is finished is kept; "
                    "start one, and this again to go on"
                )
            time.sleep(_LOOK_SECONDS)
            self.cluster.look()
        return found
