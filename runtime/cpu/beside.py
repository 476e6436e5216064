"""What programs need beside their own text, compiled at the same time: each compiler is a process that somebody waits for."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from threading import Thread

from fuse_opt.lowering.program import LibraryCall, Program
from fuse_opt.runtime.cpu.native_calls import native_call


@contextmanager
def compiled_beside(
    program: Program, at: Callable[[], Program] | None, load: Callable[[Program], object]
) -> Generator[None]:
    """
    While the body compiles a program, another thread compiles what makes its calls of libraries compiled code's, and `load`s the
    program that prepares its arguments. `at` gives the program with numbers where it has sizes.
    """
    if program.prepare is None and not any(isinstance(step, LibraryCall) for step in program.steps):
        yield
        return

    def build() -> None:
        with suppress(Exception):  # what fails fails again where it is asked for, by somebody who is told
            if program.prepare is not None:
                load(program.prepare.program)
            _bind_calls(program if at is None else at())

    thread = Thread(target=build, name="fuse_opt calls")
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _bind_calls(program: Program) -> None:
    """To memory that is nowhere."""
    table = (ctypes.c_void_p * max(len(program.buffers), 1))()
    for step in program.steps:
        if isinstance(step, LibraryCall):
            native_call(step, ctypes.addressof(table))
