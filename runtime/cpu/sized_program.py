"""Programs for a range of extents on the CPU: one object, programs for numbers, and calls of compiled code for any."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fuse_opt.lowering.program import Program
from fuse_opt.runtime.cpu.program import CpuProgram, load_object
from fuse_opt.runtime.cpu.sized_calls import SizedCalls, can_call
from fuse_opt.runtime.host.program_call import Call
from fuse_opt.runtime.orders import Orders


class SizedCpuProgram:
    """A program for a range of extents: one object, the programs of it that calls ask for, and calls of compiled code."""

    def __init__(
        self,
        program: Program,
        at: Callable[[Mapping[str, int]], Program],
        named: Callable[[Mapping[str, int]], Mapping[str, int]] = dict,
        usual: Mapping[str, int] | None = None,
    ) -> None:
        """
        Compiles its text; `at` gives what it is where symbols have these values, as `usual` ones, `named` the values of all
        symbols of the record. Raises `CompileError`.
        """
        self.program, self.named = program, named
        """With sizes in the place of numbers."""
        self._at, self._layout = at, program.sizes
        self._object = load_object(program, at=None if usual is None else partial(at, usual))
        self._calls: SizedCalls | None = None
        self._lock = threading.Lock()

    @property
    def counts(self) -> dict[str, Any]:
        """What compiling it took, as in the statistics of its programs."""
        _, counts, seconds = self._object
        return {"compiled": counts.misses, "cached": counts.hits, "compile_s": seconds}

    def at(self, values: Mapping[str, int], any_extents: bool = False) -> CpuProgram:
        """That for these extents, or bound to memory for `any_extents`. Raises what the record's evaluation raises."""
        return CpuProgram(self._at(values), object_=self._object, any_extents=any_extents)

    def calls(self, like: CpuProgram) -> SizedCalls | None:
        """
        Calls of any extents by compiled code, with a frame that does not run; None where Python has a part in runs. `like` is a
        program that `at` has made.
        """
        with self._lock:
            if self._calls is None and self._layout is not None and can_call(self._layout):
                self._calls = like.sized_calls(self._layout)
            elif self._calls is not None and self._calls.is_busy:
                self._calls.add_frame()
            return self._calls

    def last(self) -> CpuProgram | None:
        """The program for the extents of the last call by compiled code."""
        found = None if self._calls is None else self._calls.last()
        return None if found is None else self.at(found)

    def forget_last(self) -> None:
        """The last call was another program's."""
        if self._calls is not None:
            self._calls.forget_last()


class AnyExtents:
    """A program for any extents, called by compiled code alone: `direct` is NotImplemented where that does not take arrays."""

    def __init__(self, calls: SizedCalls, like: Program) -> None:
        """`like` is the program for some extents."""
        self.program = like
        orders = Orders.of(like)
        self.direct: Call = calls.call if orders is None else partial(orders.taken, calls.call)

    def taken(self, arrays: Sequence[Any], out: Any) -> Any:
        """As a call where compiled code takes the arrays as they are; else NotImplemented."""
        return self.direct(tuple(arrays), out)
