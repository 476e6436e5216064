"""What a record of cpu_peers.py says: ratios by round, shares of the limit, geometric means, as text."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Record = dict[str, Any]
Row = dict[str, Any]
OWN, FRESH, FAST, LIMIT = "fuse-opt", "fuse-opt-fresh", "fuse-opt-fast", "limit"
MAIN = tuple(f"W{k}" for k in range(1, 14))
NOISE = 1.1
"""A peer that is faster by less is not said to be faster."""


@dataclass(frozen=True)
class Ratio:
    """Of two rows' times, round by round."""

    least: float
    median: float
    most: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.least:.2f}-{self.most:.2f})"


def ratio(row: Row, slower: str, faster: str) -> Ratio | None:
    """How many times the time of one the other takes; None where one of them was not measured."""
    times = [row["peers"].get(name, {}).get("us") for name in (slower, faster)]
    if not all(times):
        return None
    found = [a / b for a, b in zip(*times, strict=False)]
    return Ratio(min(found), statistics.median(found), max(found))


def microseconds(row: Row, name: str) -> float | None:
    times = row["peers"].get(name, {}).get("us")
    return statistics.median(times) if times else None


def geomean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value]
    return math.exp(statistics.fmean(map(math.log, known))) if known else None


def peers_of(record: Record) -> list[str]:
    """The other compilers and packages, in the order of the run."""
    return [name for name in record["about"] if name not in (OWN, FRESH, FAST, LIMIT)]


def main_rows(record: Record, size: str) -> list[Row]:
    """W1 to W13 in f32 of a size; variants of a workload (W6s) with it."""
    return [r for r in record["rows"] if r["size"] == size and r["dtype"] == "f32" and base(r["workload"]) in MAIN]


def base(name: str) -> str:
    return name.rstrip("bhst")


def faster_peers(record: Record, own: str = OWN) -> list[tuple[Row, str, Ratio]]:
    """Where a peer took less time than ours by more than noise."""
    found: list[tuple[Row, str, Ratio]] = []
    for row in record["rows"]:
        for name in peers_of(record):
            of = ratio(row, name, own)
            if of is not None and of.median < 1 / NOISE:
                found.append((row, name, of))
    return found


def as_text(record: Record) -> str:
    """All tables."""
    lines = [*_head(record), ""]
    for size in dict.fromkeys(row["size"] for row in record["rows"]):
        lines += [*_table(record, size), ""]
    lines += [*_means(record), "", *_slower(record), "", *_first_calls(record), "", *_left_out(record)]
    lines += ["", *_wanted(record)]
    return "\n".join(lines).rstrip() + "\n"


def _head(record: Record) -> list[str]:
    machine = record["machine"]
    caches = "; ".join(f"{name} {size}" for name, size in machine["caches"].items())
    way = "slots as real-time threads" if record.get("realtime") else "slots at ordinary priority"
    return [
        f"cpu_peers.py, {record['date']}, {record['rounds']} rounds of {record['slot_ms']} ms, {way}",
        f"{machine['cpu']}, {machine['cpus']} CPUs, {' '.join(machine['vectors'])}; {caches}",
        f"{machine['memory_gib']} GiB; huge pages {machine['huge_pages']}; load {machine['load']} before, "
        f"{[round(value, 2) for value in record.get('load_after', ())]} after; {machine['system']}",
        f"python {machine['python']}; {'; '.join(machine['compilers'].values())}",
        "; ".join(f"{name} {text}" for name, text in record["versions"].items()),
        *(f"  {name:<15} {text}" for name, text in record["about"].items()),
        *record.get("notes", ()),
    ]


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _table(record: Record, size: str) -> list[str]:
    """Microseconds of ours and of the limit, then times of the peers as multiples of ours."""
    peers = peers_of(record)
    budget = record["size_bytes"].get(size)
    about = f", {budget >> 20} MiB of inputs and results" if budget else ""
    shown = ((OWN, "out="), (FRESH, "fresh"), (FAST, "fast"), (LIMIT, "limit"))
    lines = [f"{size}{about}: time of ours and of the limit in us; share of the limit; peers' time / ours (out=)"]
    heads = "".join(f"{title:>10}" for _, title in shown)
    lines.append(f"{'':<44}{heads}{'share':>9}" + "".join(f"{name:>15}" for name in peers))
    for row in (row for row in record["rows"] if row["size"] == size):
        times = "".join(f"{_cell(microseconds(row, name), '.1f'):>10}" for name, _ in shown)
        share = ratio(row, LIMIT, OWN)
        ratios = [ratio(row, name, OWN) for name in peers]
        cells = "".join(f"{_cell(r and r.median, '.2f'):>15}" for r in ratios)
        name = f"{row['workload']} {row['dtype']} {row['about']}"
        lines.append(f"{name:<44.43}{times}{_cell(share and share.median, '.0%'):>9}{cells}")
        spread = "".join(f"{f'{r.least:.2f}-{r.most:.2f}' if r else '':>15}" for r in ratios)
        reach = f"{share.least:.0%}-{share.most:.0%}" if share else ""
        lines.append(f"{'':<84}{reach:>9}{spread}")
    return lines


def _means(record: Record) -> list[str]:
    """Of the ratios of one round, and of the least times of all rounds."""
    peers, lines = peers_of(record), ["geometric means over W1-W13 in f32: peers' time / ours, and share of the limit"]
    lines.append(f"{'':<14}{'n':>4}" + "".join(f"{name:>15}" for name in (*peers, "share")))
    forms = [".2f"] * len(peers) + [".0%"]

    def line(title: str, rows: Sequence[Row], means: Sequence[float | None]) -> None:
        if any(means):
            cells = "".join(f"{_cell(m, form):>15}" for m, form in zip(means, forms, strict=True))
            lines.append(f"{title:<14}{len(rows):>4}{cells}")

    for size in record["size_bytes"]:
        rows = main_rows(record, size)
        for own, title in ((OWN, "out="), (FRESH, "fresh"), (FAST, "fast")):
            line(f"{size} {title}", rows, [mean_ratio(rows, name, own) for name in (*peers, LIMIT)])
        line(f"{size} least", rows, [geomean(_least_ratio(row, name) for row in rows) for name in (*peers, LIMIT)])
    lines.append(
        "(out=: program(*xs, out=ys); fresh: program(*xs); fast: math=fast; least: out=, of the least times of all rounds,"
    )
    lines.append(" which other work on the machine changes less)")
    return lines


def mean_ratio(rows: Sequence[Row], slower: str, faster: str) -> float | None:
    return geomean(r.median for row in rows if (r := ratio(row, slower, faster)))


def _least_ratio(row: Row, name: str) -> float | None:
    times = [row["peers"].get(n, {}).get("least_us") for n in (name, OWN)]
    return times[0] / times[1] if all(times) else None


def _slower(record: Record) -> list[str]:
    lines = [
        f"slower than a peer by more than {NOISE - 1:.0%} (peer's time / ours, out=; in parentheses min-max by round):"
    ]
    for row, name, of in faster_peers(record):
        lines.append(f"  {row['workload']:<4} {row['size']:<6}{name:<16}{of}")
    return lines if len(lines) > 1 else [lines[0], "  none"]


def _first_calls(record: Record) -> list[str]:
    """CPU seconds: wall times of compilers are those of a busy machine."""
    names = [n for n in record["about"] if n != LIMIT]
    lines = [
        "first call with cold caches, without imports: CPU seconds (wall seconds); a new process for each workload"
    ]
    lines.append(f"{'':<14}" + "".join(f"{name:>17}" for name in names))
    rows = record["rows"]
    for row in rows:
        cells = [row["peers"].get(name, {}) for name in names]
        texts = [f"{c['first_cpu_s']:.2f} ({c['first_s']:.2f})" if "first_s" in c else "-" for c in cells]
        lines.append(f"{row['workload']} {row['size']:<8}".ljust(14) + "".join(f"{text:>17}" for text in texts))
    for title, new in (("new process", True), ("warm process", False)):
        medians = [compile_seconds(record, name, new) for name in names]
        lines.append(f"{title:<14}" + "".join(f"{_cell(m, '.2f'):>17}" for m in medians))
    imports = [record["imports"].get(name, [None, None]) for name in names]
    texts = [f"{_cell(cpu, '.2f')} ({_cell(wall, '.2f')})" for wall, cpu in imports]
    lines.append(f"{'imports':<14}" + "".join(f"{text:>17}" for text in texts))
    return lines


def compile_seconds(record: Record, name: str, new_process: bool = False) -> float | None:
    """
    The median of CPU seconds until a first result over W1-W13 in f32: of the first size of each workload, which finds a
    new process, or of the others, for which the packages have already loaded all that they load late.
    """
    seen: set[str] = set()
    rows: list[Row] = []
    for row in (row for size in record["size_bytes"] for row in main_rows(record, size)):
        if (row["workload"] not in seen) == new_process:
            rows.append(row)
        seen.add(row["workload"])
    known = [s for row in rows if (s := row["peers"].get(name, {}).get("first_cpu_s")) is not None]
    return statistics.median(known) if known else None


def _left_out(record: Record) -> list[str]:
    lines = ["not measured:", *(f"  {name}: {why}" for name, why in record["skipped"].items())]
    reasons: dict[tuple[str, str], list[str]] = {}
    wrong: list[str] = []
    for row in record["rows"]:
        for name, entry in row["peers"].items():
            if "skipped" in entry:
                reasons.setdefault((name, entry["skipped"]), []).append(f"{row['workload']}/{row['size']}")
            if not entry.get("right", True):
                wrong.append(f"  {name} {row['workload']}/{row['size']}: {entry['error']:.1e} > {row['tolerance']:.0e}")
    lines += [f"  {name}: {why}: {' '.join(where)}" for (name, why), where in reasons.items()]
    errors = [
        entry["error"] for row in record["rows"] for n, entry in row["peers"].items() if n == OWN and "error" in entry
    ]
    most = f"; ours: at most {max(errors):.1e}" if errors else ""
    return [*lines, f"results beyond the tolerance of |got - wanted| / (1 + |wanted|){most}:", *(wrong or ["  none"])]


def _wanted(record: Record) -> list[str]:
    from cpu_goals import as_lines

    return as_lines(record)
