"""The command `fuse-tune`: measures what passes would guess, and writes it as text. Nothing else measures."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fuse_opt.tools.commands.command import BACKEND_HELP, Parser, run_command

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from fuse_opt.tools.tuning.dispatch_times import SiteTimes

OK, FAILED = 0, 1
_DESCRIPTION = "Measures on this machine what passes would guess, and writes it as text."
_EPILOG = """\
fuse-tune dispatch runs every distinct product, convolution and other opaque op of a program by each
implementation that takes it, alone, in turns: the lower quartile of nine times, with operands in caches
(and, for people, from memory). The table steers choices as select-implementation=table=FILE, or for all
programs as $FUSE_OPT_DISPATCH_TABLE.
fuse-tune calibrate writes the figures of this machine that the cost model computes with (bandwidths, rates,
caches, what a kernel costs), in about ten seconds: for device=FILE of passes, or for all as $FUSE_OPT_DEVICE.
Exit status: 0 fine, 1 the program was refused or cannot be compiled, 2 wrong usage.
"""
WHAT = ("dispatch", "calibrate")
_SETTINGS = ("OPENBLAS_", "MKL_", "OMP_", "DNNL_", "ONEDNN_")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    return run_command("fuse-tune", _main, argv)


def _main(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] not in WHAT:
        return _tune(arguments)
    parser = _make_parser()
    given = parser.parse_args(arguments)
    if given.threads is not None and given.threads < 1:
        parser.error(f"argument --threads: expected 1 or more, got {given.threads}")
    if (given.file is None) == (given.what == "dispatch"):
        parser.error(f"{given.what}: expected {'a FILE' if given.file is None else f'no FILE, got {given.file}'}")
    return _reported(parser, lambda: _calibrate(given) if given.what == "calibrate" else _run(given))


def _tune(arguments: Sequence[str]) -> int:
    from fuse_opt.tools.tuning.tune_command import check_usage, run, tune_parser

    parser = tune_parser()
    given = parser.parse_args(arguments)
    check_usage(parser, given)
    return _reported(parser, lambda: run(given))


def _reported(parser: argparse.ArgumentParser, run: Callable[[], int]) -> int:
    """The status of a run; what is refused is said in one line."""
    from fuse_opt.tools.commands.driver import UnreadableError
    from fuse_opt.tools.compiler.pipeline import UsageError
    from fuse_opt.tools.source.diagnostics import InputError

    try:
        return run()
    except UsageError as error:
        parser.error(str(error))
    except InputError as error:
        print(error, file=sys.stderr)
    except OSError as error:
        print(f"fuse-tune: error: '{error.filename}': {error.strerror}", file=sys.stderr)
    except (MemoryError, RuntimeError, UnreadableError, ValueError) as error:
        print(f"fuse-tune: error: {error}", file=sys.stderr)
    return FAILED


def _make_parser() -> argparse.ArgumentParser:
    parser = Parser("fuse-tune", _DESCRIPTION, _EPILOG)
    parser.usage = (
        "fuse-tune dispatch FILE [-o TABLE] [option]...\n       fuse-tune calibrate [-o FILE.toml] [--threads N]"
    )
    add = parser.add_argument
    add("what", choices=WHAT, help="what is measured: implementations of opaque ops, or the machine")
    add("file", metavar="FILE", nargs="?", help="the program, MLIR text or an .onnx model; - for standard input")
    add("-o", "--output", metavar="FILE", help="where the table goes (default: standard output)")
    add("--threads", type=int, metavar="N", help="threads of a program (default: 1, for calibrate all)")
    add("--backend", metavar="NAME,-NAME,FILE.py", help=BACKEND_HELP)
    add("--numerics", choices=("strict", "fast"), default="strict", help="which implementations are measured")
    add("--extents", metavar="NAME=N,...", default="", help="what unknown extents of an ONNX model are")
    return parser


def _run(given: argparse.Namespace) -> int:
    from fuse_opt.tools.commands.driver import write_text
    from fuse_opt.tools.compiler.api import limit_threads
    from fuse_opt.tools.compiler.backend_switch import host_device
    from fuse_opt.tools.compiler.builders import require_c_compiler
    from fuse_opt.tools.tuning.dispatch_times import measure_sites

    require_c_compiler()
    given.threads = given.threads or 1
    limit_threads(given.threads)
    lines = [json.dumps(_header(given))]
    for found in measure_sites(_kernels(given), given.numerics, given.threads == 1, host_device()):
        lines += _lines(found)
        best = min(found.warm, key=lambda name: found.warm[name], default="nothing")
        print(f"fuse-tune: {found.site}: {best}", file=sys.stderr)
    write_text("".join(f"{line}\n" for line in lines), given.output)
    return OK


def _calibrate(given: argparse.Namespace) -> int:
    from fuse_opt.passes.devices.device import HOST, device_text, find_device
    from fuse_opt.runtime.host.thread_pool import num_threads
    from fuse_opt.tools.commands.driver import write_text
    from fuse_opt.tools.compiler.api import limit_threads
    from fuse_opt.tools.compiler.builders import require_c_compiler
    from fuse_opt.tools.tuning.calibration import calibrated

    require_c_compiler()
    if given.threads is not None:
        limit_threads(given.threads)
    threads = num_threads()
    said = ", ".join(f"{name}={value}" for name, value in _settings().items()) or "none of OPENBLAS_*, MKL_*, OMP_*"
    comment = f"This machine ({_machine()}), measured on {threads} threads by fuse-tune calibrate; environment: {said}."
    write_text(device_text(calibrated(find_device(HOST), threads), comment), given.output)
    return OK


def _settings() -> dict[str, str]:
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(_SETTINGS)}


def _machine() -> str:
    """The processor's name, as Linux or Python know it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _kernels(given: argparse.Namespace) -> ModuleOp:
    """The program as it is where implementations are chosen. Raises InputError, and ValueError where extents are unknown."""
    from fuse_opt.lowering.reference.interpreter import entry_function
    from fuse_opt.runtime.backends.registry import load_problem, unavailable_backends
    from fuse_opt.tools.commands.models import is_model, parse_extents, read_model, text_or_path
    from fuse_opt.tools.compiler.api import load
    from fuse_opt.tools.compiler.backend_switch import backend_passes, with_host_device
    from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE, make_passes, run_pipeline
    from fuse_opt.tools.compiler.registry import make_context
    from fuse_opt.tools.compiler.specialization import is_dynamic
    from fuse_opt.tools.source.located import located

    if is_model(given.file):
        source = module = read_model(given.file, parse_extents(given.extents), None, 4).module
    else:
        module = load(source := text_or_path(given.file))
    before = DEFAULT_PIPELINE[: DEFAULT_PIPELINE.index("select-implementation")]
    passes = [*backend_passes(given.backend, unavailable_backends(), load_problem), *make_passes(before)]
    passes = with_host_device(passes)
    with located(source, module):
        if is_dynamic(entry_function(module, None)):
            raise ValueError(f"{given.file}: expected known extents of arguments, got `?`: times are of shapes")
        run_pipeline(module, passes, make_context())
    return module


def _header(given: argparse.Namespace) -> dict[str, object]:
    from fuse_opt import __version__
    from fuse_opt.dialects.implementation.cost_table import HEADER, VERSION

    return {
        HEADER: VERSION,
        "fuse-opt": __version__,
        "machine": platform.processor() or platform.machine(),
        "threads": given.threads,
        "environment": _settings(),
    }


def _lines(found: SiteTimes) -> list[str]:
    rows = [
        {
            "site": found.site,
            "implementation": name,
            "seconds": float(f"{seconds:.4g}"),
            "cold": float(f"{found.cold[name]:.4g}"),
        }
        for name, seconds in found.warm.items()
    ]
    return [json.dumps(row) for row in rows]


if __name__ == "__main__":
    sys.exit(main())
