#!/usr/bin/env python3
"""Set up a checkout of fuse-opt and run its demo or its tests, with nothing but Python 3.11 or newer.

    python3 tools/bootstrap.py demo [ARGUMENT...]   # a first look: fuse, print and run a small program
    python3 tools/bootstrap.py test                 # linter, type checker, pytest and lit, then one summary

`test` also builds PyCUDA into `.venv/pycuda`, in the background, and runs with it on a stand-in for the CUDA driver.

The environment is `.venv` in the checkout. It is made on the first call, reused while pyproject.toml and the Python
stay the same, and made again when they change or when it no longer works. A `.venv` made by hand is installed into,
but never deleted. Exit status: 0 when all went well, 1 when something failed, 2 for wrong usage.
"""

import argparse
import ctypes
import functools
import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

if sys.version_info < (3, 11):  # noqa: UP036 - so this file must parse on older ones
    version = ".".join(map(str, sys.version_info[:3]))
    sys.exit(f"bootstrap: error: fuse-opt needs Python 3.11 or newer, and this is Python {version} ({sys.executable})")

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"
PYTHON = BIN / "python"
RECORD = VENV / "fuse-opt-bootstrap.json"
LOG = VENV / "fuse-opt-bootstrap.log"

REQUIRED = {
    "": (("xdsl", "numpy"), ("fuse-opt", "fuse-run")),
    "dev": (("pytest", "hypothesis", "mpmath", "xdist"), ("lit", "filecheck", "ruff", "pyright")),
}
"""By extra (`""`: the package itself): the modules and the commands that an environment must have."""


class BootstrapError(Exception):
    """Setting up failed for a reason that the user can act on; the message says it in one line."""


# What this machine offers.


@functools.cache
def find_c_compiler() -> str | None:
    """The command of a C compiler that builds a shared library against the C mathematics library here, if any."""
    candidates = [os.environ["CC"]] if os.environ.get("CC") else ["cc", "gcc", "clang"]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text("#include <math.h>\ndouble probe(double x) { return erf(x); }\n")
        for command in candidates:
            arguments = [*shlex.split(command), "-shared", "-fPIC", "-o", f"{folder}/probe.so", str(source), "-lm"]
            if _succeeds(arguments):
                return command
    return None


@functools.cache
def find_nvcc() -> str | None:
    """The path of an nvcc that compiles a kernel here, for which it needs a host compiler too, if any."""
    homes = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
    places = os.pathsep.join(f"{home}/bin" for home in homes if home)
    if (found := shutil.which("nvcc") or shutil.which("nvcc", path=places)) is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.cu")
        source.write_text("__global__ void probe() {}\n")
        command = [found, "-cubin", "-arch=sm_90", "-o", str(Path(folder, "probe.cubin")), str(source)]
        return found if _succeeds(command) else None


@functools.cache
def count_gpus() -> int:
    """How many CUDA devices the driver offers; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int(0)
        usable = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    except (OSError, AttributeError):
        return 0
    return count.value if usable else 0


def _succeeds(arguments: list[str]) -> bool:
    try:
        return subprocess.run(arguments, capture_output=True, timeout=60, stdin=subprocess.DEVNULL).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


# The environment.


class Record(NamedTuple):
    """What an earlier call noted about `.venv`."""

    made_here: bool
    """Whether this script created the environment, and so may delete it."""
    key: str
    """`environment_key()` at the last complete installation; empty while one is under way."""
    extras: list[str]
    """The keys of `REQUIRED` that it holds."""

    def write(self) -> None:
        RECORD.write_text(json.dumps(self._asdict(), indent=2) + "\n")


def read_record() -> Record | None:
    try:
        fields = cast(dict[str, Any], json.loads(RECORD.read_text()))
        return Record(bool(fields["made_here"]), str(fields["key"]), list(fields["extras"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def environment_key() -> str:
    """Changes when the environment must be installed afresh: other requirements, other Python, moved checkout."""
    facts = (ROOT.as_posix(), sys.version, sys.base_prefix)
    return hashlib.sha256("\0".join(facts).encode() + (ROOT / "pyproject.toml").read_bytes()).hexdigest()


def environment_fault(extras: list[str]) -> str | None:
    """Why `.venv` cannot be used with these extras; None when it can."""
    extras = [extra for extra in extras if extra in REQUIRED]
    modules = [module for extra in extras for module in REQUIRED[extra][0]]
    commands = [command for extra in extras for command in REQUIRED[extra][1]]
    probe = (
        "import sys, importlib, fuse_opt; assert sys.version_info >= (3, 11), 'its Python is older than 3.11';"
        f"[importlib.import_module(m) for m in {modules!r}]; print(fuse_opt.__file__)"
    )
    try:
        result = subprocess.run([str(PYTHON), "-I", "-c", probe], capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"its Python does not start: {error}"
    if result.returncode != 0:
        return last_line(result.stderr) or f"its Python ended with status {result.returncode}"
    if Path(result.stdout.strip()).resolve().parent != ROOT / "fuse_opt":
        return f"it holds another fuse_opt: {result.stdout.strip()}"
    missing = [command for command in commands if not os.access(BIN / command, os.X_OK)]
    return f"it lacks the command {missing[0]}" if missing else None


def ensure_environment(extra: str, beside: Callable[[], None] = lambda: None) -> None:
    """
    Makes `.venv` hold this checkout in editable mode with what `extra` names, doing nothing when it already does.
    `beside` is called once there is a Python with pip, before anything is installed.
    """
    record, key = read_record(), environment_key()
    current = record is not None and record.key == key and environment_fault(record.extras) is None
    if record and current and extra in record.extras:
        beside()
        return
    if record and record.made_here and not current:
        say("making .venv again: it is incomplete, broken, or made for other requirements or another Python")
        shutil.rmtree(VENV)
    if not os.path.lexists(VENV):
        create_environment()
    record = read_record() or Record(False, "", [])
    if not record.made_here:
        say("using the existing .venv, which this script did not make")
        if not _succeeds([str(PYTHON), "-m", "pip", "--version"]):
            raise BootstrapError(".venv has no working pip, and this script did not make it: remove or rename it")
    extras = sorted({"", extra, *(record.extras if current else ())})
    Record(record.made_here, "", extras).write()
    beside()
    install(extra)
    fault = environment_fault(extras)
    if fault is not None:
        raise BootstrapError(f".venv does not work after the installation: {fault}")
    Record(record.made_here, key, extras).write()


def create_environment() -> None:
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
        raise BootstrapError(
            f"{sys.executable} cannot make virtual environments (no venv or ensurepip): "
            f"install them (Debian, Ubuntu: apt install {package}) or use another Python"
        )
    import venv

    say(f"making .venv with Python {sys.version.split()[0]}")
    VENV.mkdir()
    Record(True, "", []).write()  # first: what an interrupted call leaves behind may be deleted by the next one
    try:
        venv.EnvBuilder(with_pip=True, symlinks=True).create(VENV)
    except subprocess.CalledProcessError as error:
        raise BootstrapError(f"pip could not be put into .venv (ensurepip ended with {error.returncode})") from error


def install(extra: str) -> None:
    target = f".[{extra}]" if extra else "."
    say(f"installing fuse-opt{target[1:]} and its requirements into .venv (once; it may take a minute)")
    command = [str(PYTHON), "-m", "pip", "install", "--no-input", "--editable", target]
    with LOG.open("w") as log:
        status = subprocess.run(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT).returncode
    if status == 0:
        return
    text = LOG.read_text(errors="replace")
    errors = [line.strip() for line in text.splitlines() if line.strip().startswith("ERROR:")]
    reason = errors[0].removeprefix("ERROR:").strip() if errors else last_line(text)
    offline = re.search(r"connection|name resolution|timed out|No matching distribution", text, re.IGNORECASE)
    hint = "; is the package index reachable from here?" if offline else ""
    raise BootstrapError(f"pip failed: {reason}{hint} (all it said: {LOG.relative_to(ROOT)})")


class PyCuda:
    """PyCUDA of the package index in `.venv/pycuda`, built in the background; there it is seen by tests that ask for it."""

    FOLDER = VENV / "pycuda"
    LIMIT = 400
    """Seconds that the build may take."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._missing: str | None = "its build was not started"

    def start(self) -> None:
        """Starts the build, which ends at once where it was done before."""
        command = [str(PYTHON), str(ROOT / "tests" / "support" / "fake_cuda" / "build.py"), "pycuda", str(self.FOLDER)]
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
        try:
            self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, **pipes)
        except OSError as error:
            self._missing = str(error)

    def missing(self) -> str | None:
        """Why there is no PyCUDA, once the build has ended; None where there is one."""
        process, self._process = self._process, None
        if process is not None:
            try:
                output, _ = process.communicate(timeout=self.LIMIT)
                self._missing = (last_line(output) or "its build failed") if process.returncode else None
            except subprocess.TimeoutExpired:
                process.kill()
                self._missing = f"its build took more than {self.LIMIT} seconds"
        return self._missing

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()


# The tests.


class Outcome(NamedTuple):
    """How one check ended."""

    name: str
    passed: bool | None
    """None: the check could not run here, which is not a failure."""
    detail: str
    said: tuple[str, ...] = ()
    """Lines about what was run, to be said again in the summary."""


ON_STAND_IN = "stand_in_driver"
"""The marker of tests that need PyCUDA, and therefore wait for its build."""


def cuda_layers(output: str) -> tuple[str, ...]:
    """What pytest said about the tests of the CUDA target: kernels, schedules, cases."""
    return tuple(re.findall(r"^cuda layer .*$", output, re.MULTILINE))


def run_streamed(command: list[str]) -> tuple[int, str]:
    """Runs a command with its output shown as it comes; returns the exit status and that output."""
    sys.stdout.flush()
    chunks: list[bytes] = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        output = process.stdout
        assert output is not None
        for chunk in iter(lambda: os.read(output.fileno(), 1 << 16), b""):
            chunks.append(chunk)
            sys.stdout.buffer.write(chunk)
            sys.stdout.flush()
    return process.returncode, b"".join(chunks).decode(errors="replace")


def run_ruff() -> Outcome:
    heading("ruff")
    status, output = run_streamed([str(BIN / "ruff"), "check", "--output-format=concise", "."])
    count = re.search(r"^Found .*", output, re.MULTILINE)
    return Outcome("ruff", status == 0, count[0] if count else last_line(output))


def run_pytest() -> Outcome:
    heading("pytest")
    # Each file in one process: what its tests share is made once. Files come in the order that tests/conftest.py gives them.
    spread = ["-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder"]
    chosen = ["-m", f"not {ON_STAND_IN}", *spread]
    status, output = run_streamed([str(PYTHON), "-m", "pytest", "-q", "-rs", "--durations=20", *chosen])
    return Outcome("pytest", status == 0, last_line(output).strip("= "), cuda_layers(output))


class Background:
    """Checks by name that run one after the other while pytest runs; each is shown in its turn when all have ended."""

    def __init__(self, checks: dict[str, Callable[[], tuple[Outcome, str]]]) -> None:
        self.checks = checks
        self.ended: dict[str, tuple[Outcome, str]] = {}
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        for name, check in self.checks.items():
            self.ended[name] = check()

    def results(self) -> list[Outcome]:
        self.thread.join()
        outcomes: list[Outcome] = []
        for name in self.checks:
            outcome, output = self.ended.get(name, (Outcome(name, False, "it was interrupted"), ""))
            heading(name)
            print(output.strip() or outcome.detail)
            outcomes.append(outcome)
        return outcomes


def run_captured(command: list[str], **options: Any) -> tuple[int, str]:
    """Runs a command in the background; returns the exit status and all it said, or why it does not start."""
    try:
        result = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **options
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, str(error)
    return result.returncode, result.stdout


def check_types() -> tuple[Outcome, str]:
    pyright = str(BIN / "pyright")
    # The node of the environment, by which pyright takes a seventh less time than by one of 2023: where it does not run, why.
    status, output = run_captured([pyright, "--version"], timeout=300)
    if status != 0:
        return Outcome("pyright", None, f"it does not start here: {last_line(output)}"), ""
    # Node looks for garbage in 16 MiB of new objects at a time, of which types are most: in 64 it takes a ninth less in all.
    room = " ".join(filter(None, (os.environ.get("NODE_OPTIONS"), "--max-semi-space-size=64")))
    status, output = run_captured([pyright, "--pythonpath", str(PYTHON)], env={**os.environ, "NODE_OPTIONS": room})
    return Outcome("pyright", status == 0, last_line(output)), output


def check_lit() -> tuple[Outcome, str]:
    status, output = run_captured([str(BIN / "lit"), "-sv", "test_lit"])
    counts = re.findall(r"^ +([A-Z][A-Za-z ]*?) *: *(\d+)", output, re.MULTILINE)
    detail = ", ".join(f"{n} {kind.lower()}" for kind, n in counts) or last_line(output)
    return Outcome("lit", status == 0, detail), output


def check_host_path(pycuda: PyCuda) -> tuple[Outcome, str]:
    """CUDA programs by the real PyCUDA, on a stand-in for the driver."""
    if (reason := pycuda.missing()) is not None:
        return Outcome("pycuda", None, f"there is none: {reason}"), ""
    status, output = run_captured(
        [str(PYTHON), "-m", "pytest", "-q", "-rs", "-m", ON_STAND_IN, "tests/runtime/cuda/test_program.py"]
    )
    return Outcome("pycuda", status == 0, last_line(output).strip("= "), cuda_layers(output)), output


def list_untested(pycuda: PyCuda) -> list[str]:
    """What the tests had to leave out because this machine lacks something."""
    gaps: list[str] = []
    if (reason := pycuda.missing()) is not None:
        gaps.append(f"CUDA programs on a stand-in for the driver: no PyCUDA: {reason}")
    if not find_c_compiler():
        gaps.append("kernels compiled for the CPU: no C compiler works here (set CC, or install gcc or clang)")
    if not find_nvcc():
        gaps.append("CUDA text compiled by nvcc: no nvcc works here")
    if not count_gpus():
        gaps.append("kernels run on a GPU: no CUDA device")
    elif not _succeeds([str(PYTHON), "-c", "import pycuda.driver"]):
        gaps.append("kernels run on a GPU: no PyCUDA (.venv/bin/pip install -e '.[cuda]')")
    if not shutil.which("mlir-opt-22"):
        gaps.append("printed modules checked by upstream MLIR: no mlir-opt-22 (Debian: apt install mlir-22-tools)")
    return gaps


def test(pycuda: PyCuda) -> int:
    """Runs every check, prints the summary, and returns the exit status."""
    ruff = run_ruff()
    background = Background(
        {"pyright": check_types, "lit": check_lit, "pycuda": functools.partial(check_host_path, pycuda)}
    )
    outcomes = [ruff, run_pytest(), *background.results()]
    words = {True: "passed", False: "FAILED", None: "not run"}
    heading("summary")
    for outcome in outcomes:
        print(f"{outcome.name:8} {words[outcome.passed]:8} {outcome.detail}")
    for line in sorted(line for outcome in outcomes for line in outcome.said):
        print(line)
    for gap in list_untested(pycuda):
        print(f"not tested: {gap}")
    failed = [outcome.name for outcome in outcomes if outcome.passed is False]
    print(f"result: {'FAILED: ' + ', '.join(failed) if failed else 'passed'}")
    return 1 if failed else 0


# The command line.


def say(text: str) -> None:
    print(f"bootstrap: {text}", flush=True)


def heading(text: str) -> None:
    print(f"\n== {text}", flush=True)


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def clean_process_environment() -> None:
    """Keeps settings of the caller's shell from reaching the environment's Python."""
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PIP_TARGET", "PIP_PREFIX"):
        os.environ.pop(name, None)
    os.environ["VIRTUAL_ENV"] = str(VENV)
    os.environ["PATH"] = os.pathsep.join((str(BIN), os.environ.get("PATH", os.defpath)))
    os.environ["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    os.environ["PIP_USER"] = "0"


def main() -> int:
    summary, _, details = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="bootstrap.py",
        description=summary,
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("action", choices=("demo", "test"))
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="for the demo")
    options = parser.parse_args()
    if options.action == "test" and options.arguments:
        parser.error(f"test takes no arguments: {' '.join(options.arguments)}")
    clean_process_environment()
    pycuda = PyCuda()
    try:
        if options.action == "test":
            ensure_environment("dev", beside=pycuda.start)
            return test(pycuda)
        ensure_environment("")
        return subprocess.run(
            [str(PYTHON), "-m", "fuse_opt.tools.commands.demo", *options.arguments], cwd=ROOT
        ).returncode
    except (BootstrapError, OSError) as error:
        print(f"bootstrap: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        pycuda.stop()


if __name__ == "__main__":
    sys.exit(main())
