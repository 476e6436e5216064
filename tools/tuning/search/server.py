"""The process that those which measure are started from: it imports what they need while the command imports its own."""

from __future__ import annotations

import multiprocessing
from multiprocessing.forkserver import ensure_running

_PACKAGE = __name__.rpartition(".")[0]
_NEEDED = (f"{_PACKAGE}.measuring_child", f"{_PACKAGE.partition('.')[0]}.tools.compiler.api")


def start_server() -> None:
    """Has the process begin to import; nobody waits for it."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(list(_NEEDED))
    ensure_running()
