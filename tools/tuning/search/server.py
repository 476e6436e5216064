"""The process that those which measure are started from: it imports what they need while the command imports its own."""

from __future__ import annotations

import multiprocessing
from multiprocessing.forkserver import ensure_running

_PACKAGE = __name__.rpartition(".")[0]
_RUNS = f"{_PACKAGE}.measuring_child"
_COMPILES = f"{_PACKAGE.partition('.')[0]}.tools.compiler.api"


def start_server(compiles: bool = False) -> None:
    """
    Has the process begin to import; nobody waits for it. What compiles texts of programs takes as long again: others than those
    that call libraries arrive ready made, so that few runs need it.
    """
    multiprocessing.get_context("forkserver").set_forkserver_preload([_RUNS, *([_COMPILES] if compiles else [])])
    ensure_running()
