"""Starts the tools of the tests without importing them anew: a server forks a process for each call.

    python preloaded.py serve DESCRIPTOR                 # of a listening socket, until the standard input ends
    python -IS preloaded.py call SOCKET TOOL [ARG...]

A call has a process, arguments, files, a directory and an environment of its own, and its exit status is the tool's;
only what importing leaves behind is there already. The tests of `driver` run the installed commands.
"""

from __future__ import annotations

import _socket  # what a call needs of `socket`, which takes as long to import as Python takes to start
import os
import sys

MODULES = {"fuse-opt": "fuse_opt.tools.commands.fuse_opt_main", "filecheck": "filecheck.main"}
USED = (
    *(f"fuse_opt.dialects.{name}" for name in ("graph", "fused", "gpu")),
    *(f"fuse_opt.tools.commands.{name}" for name in ("driver", "models")),
    *(f"fuse_opt.tools.compiler.{name}" for name in ("backend_switch", "native_packing")),
    "fuse_opt.tools.source.verification",
    "fuse_opt.tools.targets.target_mlir",
    "fuse_opt.tools.watching.machine",
    "fuse_opt.passes.fusion.engine",
    "fuse_opt.lowering.reference.kernels",
    "fuse_opt.runtime.backends.registry",
)
"""What most calls import."""
LENGTH = 4
"""Bytes of the number in front of a message."""


def start() -> str:
    """A folder of commands that call a new server, which ends, and removes the folder, after this process and its forks."""
    import shlex
    import socket
    import subprocess
    import tempfile

    folder = tempfile.mkdtemp(prefix="fuse-opt-lit-")
    path = os.path.join(folder, "socket")
    for tool in MODULES:
        command = shlex.join([sys.executable, "-IS", os.path.abspath(__file__), "call", path, tool])
        with open(os.path.join(folder, tool), "w", opener=lambda name, flags: os.open(name, flags, 0o755)) as file:
            file.write(f'#!/bin/sh\nexec {command} "$@"\n')
    lasting, _ = os.pipe()  # the end to write to stays open as long as this process and its forks
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        command = [sys.executable, os.path.abspath(__file__), "serve", str(listener.fileno())]
        subprocess.Popen(command, stdin=lasting, pass_fds=[listener.fileno()])
    os.close(lasting)
    return folder


def call(path: str, words: list[str]) -> int:
    """Has the server run a tool on this process's files; returns its exit status."""
    variables = [f"{name}={value}" for name, value in os.environ.items()]
    data = "\0".join([str(len(words)), *words, os.getcwd(), *variables]).encode("utf-8", "surrogateescape")
    files = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    server.connect(path)
    length = len(data).to_bytes(LENGTH, sys.byteorder)
    server.sendmsg([length], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
    server.sendall(data)
    answer = server.recv(1)
    return answer[0] if answer else 139  # it died


def serve(descriptor: int) -> None:
    """Answers calls until the standard input ends, which is when nobody holds its other end any more."""
    import gc
    import select
    import shutil
    import signal
    import socket
    from importlib import import_module

    for name in (*USED, *MODULES.values()):
        import_module(name)
    gc.collect()
    gc.freeze()  # or each call looks at all of it again, and writes into memory that it shares with the server
    gc.set_threshold(200_000, 20, 100)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # calls that have ended leave nothing behind
    with socket.socket(fileno=descriptor) as listener:
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os._exit(answer(connection))
            connection.close()
        shutil.rmtree(os.path.dirname(listener.getsockname()))


def answer(connection: _socket.socket) -> int:
    """In a process of its own: takes over files, directory and environment of the caller, and runs the tool."""
    import socket

    header, files, _, _ = socket.recv_fds(connection, LENGTH, 3)
    length = int.from_bytes(header, sys.byteorder)
    data = b""
    while len(data) < length:
        data += connection.recv(length - len(data))
    count, *words = data.decode("utf-8", "surrogateescape").split("\0")
    arguments, (folder, *variables) = words[: int(count)], words[int(count) :]
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    # Streams of its own: those of the server remember whether its files could be sought in.
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variable.split("=", 1) for variable in variables)
    status = run(arguments)
    connection.sendall(bytes([status & 255]))
    return status


def run(arguments: list[str]) -> int:
    """The tool's `main`, as the installed command calls it."""
    sys.argv = arguments
    try:
        sys.exit(sys.modules[MODULES[arguments[0]]].main())
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
        status = 1
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return status


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    else:
        sys.exit(call(sys.argv[2], sys.argv[3:]))
