"""Makes a program and a pipeline that fail together as small as it can, and prints them."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fuse_opt.tools.commands.command import Parser, run_command

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

OK, REFUSED = 0, 1
_SECONDS = 120.0
_DESCRIPTION = "Makes a program and a pipeline that fail together as small as it can, and prints them."
_EPILOG = """\
A program fails when a pass raises, when it does not verify after a pass (dominance and memory plans are checked,
too), when the text that a pass leaves is not read back as it is, or when values differ from the reference's on
random inputs by more than `fuse-run --check` allows. What is left out must keep the failure as it was: its kind, its
pass, the place that raised.

The program goes to stdout below the line `// fuse-opt -p "..."` that shows its pipeline; what fails, and how much was
left out, goes to stderr. Exit status: 0 when a failure was reduced or nothing fails, 1 when the input was refused,
2 wrong usage.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    return run_command("reduce", _main, argv)


def _make_parser() -> argparse.ArgumentParser:
    parser = Parser("python -m fuse_opt.tools.reduce", _DESCRIPTION, _EPILOG)
    add = parser.add_argument
    add("file", metavar="FILE", help="the program, a text that verifies; - for standard input")
    add("-p", "--passes", metavar="PIPELINE", default="default", help="the passes (default: the default pipeline)")
    add(
        "--target",
        choices=("reference", "cpu"),
        default="reference",
        help="what computes the values after the passes: the reference, op by op, or compiled C, of which a crash is a "
        "failure, too (default: reference)",
    )
    add("--idempotent", action="store_true", help="a pass that changes the text when it runs again fails, too")
    add("--function", metavar="NAME", help="which function is run (default: the only one, or main)")
    add("--seed", type=int, default=0, metavar="N", help="of the random inputs (default: 0)")
    add("--trials", type=int, default=2000, metavar="N", help="programs tried at most (default: 2000)")
    return parser


def _main(arguments: list[str]) -> int:
    parser = _make_parser()
    given = parser.parse_args(arguments)
    if given.trials < 0 or given.seed < 0:
        parser.error("--trials and --seed: expected 0 or more")
    from fuse_opt.tools.compiler.pipeline import UsageError, make_passes
    from fuse_opt.tools.source.diagnostics import InputError

    try:
        passes = [str(pass_.pipeline_pass_spec()) for pass_ in make_passes(given.passes)]
        return _reduce(
            given.file, passes, Failing(given.target, given.idempotent, given.function, given.seed), given.trials
        )
    except UsageError as error:
        parser.error(str(error))
    except InputError as error:
        print(error, file=sys.stderr)
    except OSError as error:
        print(f"reduce: error: cannot read '{given.file}': {error.strerror or error}", file=sys.stderr)
    return REFUSED


def _reduce(file: str, passes: Sequence[str], failing: Failing, trials: int) -> int:
    from pathlib import Path

    from fuse_opt.tools.reduce.search import reduce_failure
    from fuse_opt.tools.source.parsing import decode

    name = "<stdin>" if file == "-" else file
    text = decode(sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes(), name)
    count = failing.check_input(text, name)
    found = reduce_failure(text, passes, failing, trials)
    if found is None:
        print(f"nothing fails: {count} ops under {len(passes)} passes", file=sys.stderr)
        return OK
    print(f'// fuse-opt -p "{",".join(found.passes)}"')
    print(found.text, end="")
    stop = f"; stopped by --trials={trials}, more may go" if found.exhausted else ""
    print(
        f"{found.kind}: from {count} ops and {len(passes)} passes to {found.ops} and {len(found.passes)} "
        f"in {found.trials} trials{stop}",
        file=sys.stderr,
    )
    return OK


@dataclass(frozen=True)
class Failing:
    """Whether a program fails under passes, and how; called as `reduction.Fails`."""

    target: str = "reference"
    """What computes the values: "reference", or "cpu" for compiled C."""
    idempotent: bool = False
    """A pass that changes the text when it runs again fails."""
    function: str | None = None
    seed: int = 0

    def check_input(self, text: str, name: str) -> int:
        """The number of ops of a program that can be read, verified and run on the reference. Raises InputError."""
        from xdsl.utils.exceptions import DiagnosticException

        from fuse_opt.lowering.errors import EvaluationError
        from fuse_opt.tools.commands.measuring import example_inputs
        from fuse_opt.tools.compiler.api import evaluate
        from fuse_opt.tools.compiler.registry import make_context
        from fuse_opt.tools.reduce.edits import droppable
        from fuse_opt.tools.source.diagnostics import InputError, located_error
        from fuse_opt.tools.source.parsing import parse_module
        from fuse_opt.tools.source.verification import verify

        module = parse_module(text, name, make_context())
        try:
            verify(module)
            evaluate(module, *example_inputs(module, self.seed, self.function), function=self.function)
        except InputError:
            raise
        except (DiagnosticException, EvaluationError, TypeError, ValueError) as error:
            raise located_error(error, name, module) from error
        return len(droppable(module))

    def __call__(self, text: str, passes: Sequence[str]) -> str | None:
        from fuse_opt.tools.reduce.search import isolated

        if self.target == "reference":
            return self.fault(text, passes)
        return isolated(lambda: self.fault(text, passes), _SECONDS)

    def fault(self, text: str, passes: Sequence[str]) -> str | None:
        """The kind of failure, in this process."""
        from fuse_opt.tools.compiler.pipeline import apply_pass, make_passes
        from fuse_opt.tools.compiler.registry import make_context
        from fuse_opt.tools.source.parsing import parse_module
        from fuse_opt.tools.source.verification import OpVerifyError, verify

        context = make_context()
        module = parse_module(text, "<reduction>", context)
        for pass_ in make_passes(passes):
            for again in (False, True)[: 1 + self.idempotent]:
                before = _text(module) if again else ""
                try:
                    apply_pass(pass_, context, module)
                    verify(module)
                except OpVerifyError:
                    return f"the program does not verify after '{pass_.name}'"
                except Exception as error:  # whatever it is, it is the failure that is looked for
                    return f"'{pass_.name}' raises {_raised(error)}"
                if again and _text(module) != before:
                    return f"'{pass_.name}' is not idempotent"
            if not _is_read_back(module):
                return f"the text after '{pass_.name}' is not read back as it is"
        return self._wrong_values(text, passes, module)

    def _wrong_values(self, text: str, passes: Sequence[str], module: ModuleOp) -> str | None:
        from fuse_opt.tools.commands.measuring import check_against_reference, example_inputs, tolerance
        from fuse_opt.tools.compiler.api import compile as compile_program
        from fuse_opt.tools.compiler.api import evaluate

        try:
            inputs = example_inputs(text, self.seed, self.function)
            evaluate(text, *inputs, function=self.function)
        except Exception:  # the candidate means nothing on the reference
            return None
        try:
            if self.target == "reference":
                program = compile_program(module, "reference", None, self.function)
            else:
                program = compile_program(text, self.target, passes, self.function)
            error = check_against_reference(text, program, inputs, self.function)
        except Exception as error:
            return f"running the program raises {_raised(error)}"
        return None if error <= tolerance(program) else "values differ from the reference's"


def _raised(error: Exception) -> str:
    """The exception's type and the function that raised it: a message may name what is left out."""
    frames = traceback.extract_tb(error.__traceback__)
    return type(error).__name__ + (f" in {frames[-1].name}" if frames else "")


def _text(module: ModuleOp) -> str:
    from fuse_opt.tools.reduce.search import module_text

    return module_text(module)


def _is_read_back(module: ModuleOp) -> bool:
    from fuse_opt.tools.compiler.registry import make_context
    from fuse_opt.tools.source.diagnostics import InputError
    from fuse_opt.tools.source.parsing import parse_module

    once = _text(module)
    try:
        return _text(parse_module(once, "<reduction>", make_context())) == once
    except InputError:
        return False


if __name__ == "__main__":
    sys.exit(main())
