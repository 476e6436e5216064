"""The command `fuse-pack`: places the buffers of a CSV file in one arena and prints what came out as a line of JSON."""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from fuse_opt.passes.memory.packing.packing import STRATEGIES, Buffer, Problem, Solution, pack
from fuse_opt.tools.commands.command import Parser, run_command

OK, FAILED = 0, 1
_DESCRIPTION = "Places buffers in one arena and prints what came out as a line of JSON."
_EPILOG = """\
The file has columns id, lower, upper and size, as the instances of MiniMalloc and idealloc have, and may have
offset, where a number pins a buffer. A buffer lives in the steps from lower up to, but not including, upper.
Exit status: 0 placed, 1 the file was refused or the capacity not reached, 2 wrong usage.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    return run_command("fuse-pack", _main, argv)


def _main(arguments: Sequence[str]) -> int:
    given = _make_parser().parse_args(arguments)
    try:
        return _run(given)
    except OSError as error:
        print(f"fuse-pack: error: cannot open '{error.filename}': {error.strerror}", file=sys.stderr)
    except (MemoryError, ValueError) as error:
        print(f"fuse-pack: error: {error}", file=sys.stderr)
    return FAILED


def _make_parser() -> argparse.ArgumentParser:
    parser = Parser("fuse-pack", _DESCRIPTION, _EPILOG)
    add = parser.add_argument
    add("file", metavar="FILE.csv", help="the buffers; - for standard input")
    add("--capacity", type=_positive, metavar="N", help="bytes there are: stop at the first placement that fits")
    add("--strategy", choices=STRATEGIES, default="auto", metavar="S", help=f"one of {', '.join(STRATEGIES)}")
    add("--alignment", type=_positive, default=1, metavar="N", help="multiples for offsets and sizes (default: 1)")
    add("--nodes", type=_positive, metavar="N", help="limit of the exact search, in placements tried")
    add("--time-limit", type=_seconds, metavar="SECONDS", help="abort the exact search then; answers may vary")
    add("--no-native", action="store_true", help="search in Python even where a C compiler works")
    add("--solution", metavar="FILE", help="write the buffers with their offsets there, as CSV")
    return parser


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19) or not int(text):
        raise argparse.ArgumentTypeError(f"expected a positive whole number, got '{text[:40]}'")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a positive number of seconds, got '{text[:40]}'")
    return seconds


def _run(given: argparse.Namespace) -> int:
    from fuse_opt.tools.compiler.native_packing import compiled_packing

    rows = read_rows(given.file)
    problem = Problem(tuple(row.buffer for row in rows), given.alignment)
    start = time.perf_counter()
    with nullcontext() if given.no_native else compiled_packing():
        solution = pack(problem, given.strategy, capacity=given.capacity, nodes=given.nodes, seconds=given.time_limit)
    print(json.dumps(_summary(solution, time.perf_counter() - start)))
    if given.solution is not None:
        _write(given.solution, rows, solution)
    if given.capacity is not None and solution.arena > given.capacity:
        print(f"fuse-pack: error: {_missed(given.capacity, solution)}", file=sys.stderr)
        return FAILED
    return OK


def _summary(solution: Solution, seconds: float) -> dict[str, object]:
    return {
        "arena": solution.arena,
        "lower_bound": solution.lower_bound,
        "gap": round(solution.gap, 6),
        "optimal": solution.optimal,
        "method": solution.method,
        "seconds": round(seconds, 3),
    }


def _missed(capacity: int, solution: Solution) -> str:
    if solution.lower_bound > capacity:
        return f"capacity of {capacity} bytes cannot be met: {solution.lower_bound} are alive at once"
    known = "the least possible is" if solution.optimal else "the least found within the limits is"
    return f"capacity of {capacity} bytes was not met: {known} {solution.arena}"


@dataclass(frozen=True)
class Row:
    """One line of the file: its name and what it says."""

    name: str
    buffer: Buffer


def read_rows(file: str) -> list[Row]:
    """The buffers of a CSV file, `-` for standard input. Raises OSError, and ValueError naming the file and the line."""
    name = "<stdin>" if file == "-" else file
    raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        return list(_parse(csv.reader(raw.decode("utf-8-sig").splitlines(), strict=True)))
    except UnicodeDecodeError:
        raise ValueError(f"{name}: expected text in UTF-8") from None
    except (csv.Error, ValueError) as error:
        raise ValueError(f"{name}: {error}") from None


def _parse(lines: Iterable[list[str]]) -> Iterable[Row]:
    columns: list[str] | None = None
    for number, line in enumerate(lines, 1):
        cells = [cell.strip() for cell in line]
        if not any(cells):
            continue
        if columns is None:
            columns = cells
            if missing := {"id", "lower", "upper", "size"} - set(columns):
                raise ValueError(
                    f"line {number}: expected columns id, lower, upper, size; no {', '.join(sorted(missing))}"
                )
            continue
        if len(cells) != len(columns):
            raise ValueError(f"line {number}: expected {len(columns)} cells, got {len(cells)}")
        row = dict(zip(columns, cells, strict=True))
        start, stop, size = (_number(row[column], column, number) for column in ("lower", "upper", "size"))
        pin = _number(row["offset"], "offset", number) if row.get("offset") else None
        try:
            Problem((Buffer(size, start, stop, pin),), 1)
        except ValueError as error:
            raise ValueError(f"line {number}: {str(error).removeprefix('buffer 0 ')}") from None
        yield Row(row["id"], Buffer(size, start, stop, pin))
    if columns is None:
        raise ValueError("expected a line with the columns id, lower, upper, size; the file is empty")


def _number(text: str, column: str, line: int) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        raise ValueError(f"line {line}: expected a whole number as {column}, got '{text[:40]}'")
    return int(text)


def _write(path: str, rows: Sequence[Row], solution: Solution) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("id", "lower", "upper", "size", "offset"))
        for row, offset in zip(rows, solution.offsets, strict=True):
            writer.writerow((row.name, row.buffer.start, row.buffer.stop, row.buffer.size, offset))


if __name__ == "__main__":
    sys.exit(main())
