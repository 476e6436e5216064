"""The demo: programs fused and unfused, beside NumPy and PyTorch, checked, with what every stage did to them.

`python -m fuse_opt.tools.commands.demo [FILE...] [--repeat N] [--without-torch]`; without a FILE it takes five examples.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuse_opt.tools.commands.command import Parser, run_command

if TYPE_CHECKING:
    from fuse_opt.tools.commands.demo_tables import Row
    from fuse_opt.tools.commands.measuring import Call
    from fuse_opt.tools.compiler.compiled_program import CompiledProgram
    from fuse_opt.tools.compiler.signature import Array

OK, FAILED = 0, 1
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SHOWN = ("layernorm_residual", "softmax", "adam_step", "gated_unit", "transformer_block")
_SECONDS = 1.5
"""After which a program is timed no more often than needed."""
_DESCRIPTION = "Compiles programs with and without fusion, checks and times them, and shows what every stage did."


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the demo; returns 1 when a result is not that of the reference, or a program is refused."""
    return run_command("demo", _main, argv)


def _main(arguments: Sequence[str]) -> int:
    parser = Parser("demo", _DESCRIPTION)
    add = parser.add_argument
    add("files", metavar="FILE", nargs="*", type=Path, help=f"programs (default: the examples {', '.join(SHOWN)})")
    add("--repeat", metavar="N", type=int, default=9, help="timed calls of each variant at most (default: 9)")
    add("--without-torch", action="store_true", help="leave PyTorch out where it is installed")
    given = parser.parse_args(arguments)
    files: list[Path] = given.files or [EXAMPLES / f"{name}.mlir" for name in SHOWN]
    for file in files:
        if not file.is_file():
            parser.error(f"no such file: {file}")
    from fuse_opt.tools.source.diagnostics import InputError

    try:
        return _run(files, max(given.repeat, 1), not given.without_torch)
    except InputError as error:
        print(error, file=sys.stderr)
    except (OSError, ValueError) as error:
        print(f"demo: error: {error}", file=sys.stderr)
    return FAILED


def _run(files: Sequence[Path], repeat: int, with_torch: bool) -> int:
    from fuse_opt.tools.commands import demo_tables

    rows = [_examine(path, repeat, with_torch) for path in files]
    print("\n".join((*demo_tables.decisions(rows), "", *demo_tables.times(rows, repeat), "")))
    print("\n".join((*demo_tables.stages(files[-1]), "")))
    print("\n".join(demo_tables.checks(rows)))
    return OK if all(row.is_right for row in rows) else FAILED


def _examine(path: Path, repeat: int, with_torch: bool) -> Row:
    from fuse_opt.lowering.emit import build_program
    from fuse_opt.tools.commands.demo_tables import Row
    from fuse_opt.tools.commands.measuring import example_inputs, largest_difference, take_turns, tolerance
    from fuse_opt.tools.compiler.api import compile as compile_program
    from fuse_opt.tools.compiler.api import evaluate, optimize

    unfused, fused = compile_program(path, pipeline="unfused"), compile_program(path)
    inputs = example_inputs(path, seed=0)
    expected: Any = evaluate(path, *inputs)
    calls = _calls(path.stem, unfused, fused, inputs, with_torch)
    errors = {name: largest_difference(_prepared(call), expected) for name, call in calls.items()}
    return Row(
        name=path.stem,
        source=optimize(path, ()),
        primitives=optimize(path, "decompose"),
        module=fused.module,
        # What was decided does not depend on whether a C compiler is here to carry it out.
        unfused=build_program(unfused.module).stats,
        fused=build_program(fused.module).stats,
        compile_seconds=getattr(fused.stats, "compile_s", None) or 0.0,
        # Each has run once by now, to be checked.
        times=take_turns(calls, repeat, warmup=0, limit=_SECONDS) if fused.source else {},
        errors=errors,
        allowed=tolerance(fused),
    )


def _calls(
    name: str, unfused: CompiledProgram, fused: CompiledProgram, inputs: Sequence[Array], with_torch: bool
) -> dict[str, Call]:
    """What is timed, each on arguments of its own: plain NumPy, PyTorch where it is installed, and the programs."""
    from fuse_opt.tools.commands.demo_baselines import numpy_function, torch_function
    from fuse_opt.tools.commands.measuring import Call, fresh_arguments, restore_arguments

    functions: dict[str, Callable[..., Any] | None] = {
        "NumPy": numpy_function(name),
        "torch eager": torch_function(name) if with_torch else None,
        "unfused": unfused,
        "fused": fused,
    }
    calls: dict[str, Call] = {}
    for variant, function in functions.items():
        if function is not None:
            given = fresh_arguments(fused, inputs)
            calls[variant] = Call(partial(function, *given), partial(restore_arguments, fused, given, inputs))
    return calls


def _prepared(call: Call) -> Any:
    call.prepare()
    return call.run()


if __name__ == "__main__":
    sys.exit(main())
