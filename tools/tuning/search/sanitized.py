"""
A winner once more, as C that checks every address that it reads or writes. The sanitizer's library has to be loaded before all
others, so this runs in a Python of its own: `python -m fuse_opt.tools.tuning.search.sanitized FILE`.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from fuse_opt.runtime.cpu.program import CpuProgram
from fuse_opt.runtime.host.c_compiler import find_c_compiler
from fuse_opt.runtime.host.thread_pool import limit_threads
from fuse_opt.tools.compiler.builders import whole_program
from fuse_opt.tools.tuning.search.measuring_child import Trial, built, compiles_with, results_of
from fuse_opt.tools.tuning.search.study import TrialFailed

FLAGS = ("-fsanitize=address",)
LIBRARY = "libasan.so"
_FOUND, _UNUSABLE = 66, 67
"""Exit statuses: of the sanitizer, and where the compiler makes no such programs."""
_OPTIONS = f"detect_leaks=0:exitcode={_FOUND}:allocator_may_return_null=1"
_FIRST = "LD_PRELOAD"
"""Tells the loader of Linux what comes before all else."""
_FAULT = re.compile(r"ERROR: AddressSanitizer:? (\S+)")


def why_unchecked(trial: Trial, seconds: float) -> str:
    """Runs a trial's candidate so; why it could not be done, empty where it was. Raises TrialFailed for what it found."""
    if (library := _library()) is None:
        return f"its addresses were not checked: the compiler has no {LIBRARY}"
    (file := Path(trial.results) / "trial.pickle").write_bytes(pickle.dumps(trial))
    environment = {**os.environ, _FIRST: library, "ASAN_OPTIONS": _OPTIONS}
    command = [sys.executable, "-m", __name__, str(file)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise TrialFailed(f"hang: no answer within {seconds:.0f} s where addresses are checked") from None
    if done.returncode == 0:
        return ""
    if fault := _FAULT.search(done.stderr):
        raise TrialFailed(f"crash: AddressSanitizer: {fault[1]}")
    if done.returncode == _UNUSABLE:
        return f"its addresses were not checked: the compiler refuses {' '.join(FLAGS)}"
    (*_, last) = ["it said nothing", *done.stderr.splitlines()]
    return f"its addresses were not checked: Python ended with status {done.returncode} under {LIBRARY}: {last}"


def _library() -> str | None:
    """The library that goes before all others; None for a compiler that has none to share."""
    if (compiler := find_c_compiler()) is None:
        return None
    asked = [compiler.path, f"-print-file-name={LIBRARY}"]
    path = Path(subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip())
    return str(path.resolve()) if path.is_absolute() and path.exists() else None


def _run(trial: Trial) -> int:
    """Calls the candidate with arrays that lie between forbidden bytes, and has results written to such."""
    kept = {name: value for name, value in os.environ.items() if name != _FIRST}
    os.environ.clear()  # the library is loaded: compilers do without it
    os.environ |= kept
    if not compiles_with(FLAGS):
        return _UNUSABLE
    limit_threads(trial.threads)
    sent = trial.candidate
    program = whole_program(built(sent, trial.target) if isinstance(sent, str) else sent, CpuProgram)
    for files in trial.inputs:
        arrays = [np.load(file) for file in files]
        found = results_of(program(*map(np.array, arrays)))
        program(*map(np.array, arrays), out=[np.zeros_like(array) for array in found])
    return 0


if __name__ == "__main__":
    sys.exit(_run(pickle.loads(Path(sys.argv[1]).read_bytes())))
