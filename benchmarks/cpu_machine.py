"""What a reader of a benchmark has to know of the machine."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any


def machine_facts() -> dict[str, Any]:
    """CPU model, cores, caches, vector extensions, memory, load, kernel, compilers."""
    return {
        "cpu": _cpu_line("model name") or platform.processor(),
        "cpus": os.cpu_count(),
        "vectors": [name for name in ("avx2", "avx512f", "avx512_bf16", "asimd") if name in _flags()],
        "caches": _caches(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "huge_pages": _read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "load": [round(value, 2) for value in os.getloadavg()],
        "system": platform.platform(),
        "python": platform.python_version(),
        "compilers": {name: line for name in ("gcc", "g++", "clang") if (line := _first_line(name))},
    }


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _cpu_line(name: str) -> str:
    found = re.search(rf"^{name}\s*:\s*(.*)$", _read("/proc/cpuinfo"), re.MULTILINE)
    return found[1] if found else ""


def _flags() -> set[str]:
    return set((_cpu_line("flags") or _cpu_line("Features")).split())


def _caches() -> dict[str, str]:
    """Sizes by level and type, with the CPUs that share each."""
    found: dict[str, str] = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (_read(folder / name) for name in ("level", "type", "size"))
        found[f"L{level} {kind.lower()}"] = f"{size}, CPUs {_read(folder / 'shared_cpu_list')}"
    return found


def _first_line(command: str) -> str:
    if shutil.which(command) is None:
        return ""
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.partition("\n")[0]
