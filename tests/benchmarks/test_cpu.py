"""The benchmark of the CPU: workloads are what they say, its tables and plot can be made, its filters refuse politely."""

from __future__ import annotations

import ctypes
import random
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import cpu_goals
import cpu_peers
import cpu_report
import numpy as np
import pytest
from cpu_functions import Expression, NumExpr, Numpy
from cpu_peer_base import typed_inputs
from cpu_peer_process import largest_error, slot
from cpu_plot import as_svg
from cpu_workloads import Case, as_tuple, cases, choose
from odd_workloads import KERNELS, Draw

import fuse_opt
from fuse_opt.lowering.program.float_formats import widen

TINY = [case for case in cases({"L2": 1 << 15}) if case.size != "fixed"]


def reference(case: Case, inputs: list[Any]) -> list[Any]:
    wide = [a if a.dtype == np.bool_ else a.astype(np.float64) for a in inputs]
    return list(as_tuple(case.workload.body(Numpy(), *wide)))


@pytest.mark.parametrize("case", [c for c in TINY if c.dtype == "f32"], ids=lambda c: c.name)
def test_programs_compute_the_reference(case: Case) -> None:
    inputs = case.inputs()
    wanted = reference(case, inputs)
    found = as_tuple(fuse_opt.evaluate(case.workload.text(), *inputs))
    assert largest_error(list(found), wanted) <= case.tolerance


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", range(3))
@pytest.mark.parametrize("name", ("MOD", "P16", "ROPE", "SIN", "SUM0", "SUM1", "W1bk", "W2c", "W6l"))
def test_kernels_at_odd_sizes_compute_the_reference(name: str, kind: int) -> None:
    drawn = [KERNELS[name].sized(Draw(random.Random(seed), kind, 1 << 15)) for seed in (1, 1)]
    assert drawn[0].shapes == drawn[1].shapes
    case = Case(drawn[0], "L2")
    inputs = case.inputs()
    found = fuse_opt.compile(drawn[0].text())(*typed_inputs(case, inputs))
    numbers = [np.asarray(each, np.float32) if case.dtype == "f32" else widen(each) for each in as_tuple(found)]
    assert largest_error(numbers, reference(case, inputs)) <= case.tolerance


def test_every_workload_has_every_size_or_one() -> None:
    names = {name: {c.size for c in cases() if c.name == name} for name in (c.name for c in cases())}
    assert {f"W{k}" for k in range(1, 16)} <= set(names)
    assert {frozenset(sizes) for sizes in names.values()} == {
        frozenset(("L2", "L3", "DRAM")),
        frozenset(("L2",)),
        frozenset(("fixed",)),
    }


@pytest.mark.parametrize("name", ["W2t", "W3", "W7"])
def test_expressions_of_numexpr_mean_the_same(name: str) -> None:
    case = next(c for c in TINY if c.name == name)
    inputs, functions = case.inputs(), NumExpr()
    names = [f"a{k}" for k in range(len(inputs))]
    made = as_tuple(case.workload.body(functions, *(Expression(functions, n) for n in names)))
    values = dict(zip(names, inputs, strict=True)) | functions.constants
    found = [eval(e.text, {"where": np.where, "tanh": np.tanh, "sqrt": np.sqrt}, values) for e in made]
    assert largest_error(found, reference(case, inputs)) <= case.tolerance
    assert all(array.dtype == np.float32 for array in found)


def test_a_slot_counts_calls() -> None:
    calls: list[int] = []
    found = slot(lambda: calls.append(1), 0.001)
    assert 1 <= found["calls"] < len(calls) and 0 <= found["least"] <= found["us"]


def test_an_error_is_relative_beyond_one() -> None:
    assert largest_error([np.array([1.0, 202.0])], [np.array([1.0, 200.0])]) == pytest.approx(2 / 201)
    with pytest.raises(ValueError, match="shapes"):
        largest_error([np.zeros(2)], [np.zeros(3)])


def record() -> dict[str, Any]:
    """Two rounds: the second is slower for everyone; `xla` is twice as fast as ours at DRAM."""

    def entry(us: float, **more: Any) -> dict[str, Any]:
        return {"us": [us, 2 * us], "least_us": us, "first_s": 0.2, "first_cpu_s": 0.1, "error": 1e-7, **more}

    def row(workload: str, size: str, **times: float) -> dict[str, Any]:
        peers = {name.replace("_", "-"): entry(us) for name, us in times.items()}
        return {"workload": workload, "size": size, "about": "a <chain>", "dtype": "f32", "shapes": [[4]], "bytes": 32,
                "tolerance": 1e-4, "load": 0.1, "peers": peers}  # fmt: skip

    broken = row("W4", "L2", fuse_opt=10.0, fuse_opt_fresh=10.0, limit=5.0, inductor=40.0)
    broken["peers"]["xla"] = {"skipped": "no such kernel"}
    broken["peers"]["inductor"] |= {"right": False, "error": 0.5}
    return {
        "date": "2026-01-02", "rounds": 2, "slot_ms": 60, "realtime": True, "size_bytes": {"L2": 1 << 21, "DRAM": 1 << 27},
        "machine": {"cpu": "a CPU", "cpus": 4, "vectors": ["avx2"], "caches": {"L2": "1 MiB"}, "memory_gib": 8.0,
                    "huge_pages": "madvise", "load": [0.1], "system": "Linux", "python": "3.11", "compilers": {"gcc": "gcc 12"}},
        "about": {n: f"what {n} is" for n in ("fuse-opt", "fuse-opt-fresh", "limit", "inductor", "xla", "ort")},
        "versions": {"torch": "2"}, "skipped": {"ort": "no module"}, "imports": {"xla": [0.5, 0.4]},
        "rows": [row("W1", "L2", fuse_opt=10.0, fuse_opt_fresh=12.0, limit=2.0, inductor=160.0, xla=20.0), broken,
                 row("W1", "DRAM", fuse_opt=100.0, fuse_opt_fresh=100.0, limit=90.0, inductor=500.0, xla=50.0)],
    }  # fmt: skip


def test_ratios_are_those_of_one_round() -> None:
    row = record()["rows"][0]
    row["peers"]["inductor"]["us"] = [100.0, 600.0]
    assert cpu_report.ratio(row, "inductor", "fuse-opt") == cpu_report.Ratio(10.0, 20.0, 30.0)
    assert cpu_report.ratio(row, "ort", "fuse-opt") is None


def test_the_text_says_what_was_measured() -> None:
    text = cpu_report.as_text(record())
    assert "inductor W4/L2: 5.0e-01 > 1e-04" in text
    assert "xla: no such kernel: W4/L2" in text and "ort: no module" in text
    assert "W1   DRAM  xla             0.50 (0.50-0.50)" in text
    means = {" ".join(words[:2]): words[2:] for words in map(str.split, text.splitlines()) if len(words) == 7}
    assert means["L2 out="] == ["2", "8.00", "2.00", "-", "32%"]
    assert means["L2 fresh"] == ["2", "7.30", "1.67", "-", "29%"]
    assert means["DRAM least"] == ["1", "5.00", "0.50", "-", "90%"]


def test_goals_are_reached_or_missed() -> None:
    lines = cpu_goals.as_lines(record())
    assert "  reached Inductor as shipped at L2: 8.00 (wanted >= 6.00)" in lines
    assert "  reached Inductor as shipped at DRAM: 5.00 (wanted >= 4.50)" in lines
    assert "  MISSED  share of the limit at DRAM: 90% (wanted >= 95%)" in lines
    assert any("MISSED  W1-W13" in line and ": 1 " in line for line in lines)


def test_the_plot_is_a_picture_of_all_rows() -> None:
    root = ET.fromstring(as_svg(record()))
    texts = [element.text or "" for element in root.iter() if element.tag.endswith("text")]
    assert {"a <chain>", "W1 f32", "W4 f32", "inductor", "32%", "90%"} <= set(texts)
    dots = [element for element in root.iter() if element.tag.endswith("circle")]
    assert len(dots) == 3 + 5 + 4  # the legend, the rows, the means


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--workloads", "W1,W99"], "unknown workload 'W99'; expected one of W1, "),
        (["--sizes", "L9"], "unknown size 'L9'; expected one of L2, L3, DRAM, fixed"),
        (["--peers", "tvm"], "unknown peer 'tvm'; expected one of fuse-opt, "),
        (["--python", "xla=/no/such"], "--python xla=/no/such: expected NAME=PATH of an interpreter, got no file"),
    ],
)
def test_wrong_names_are_told_in_a_line(arguments: list[str], told: str, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["cpu_peers.py", *arguments])
    assert cpu_peers.main() == 2
    said = capsys.readouterr().err
    assert said.startswith("cpu_peers: error: ") and told in said and said.count("\n") == 1


def test_filters_choose() -> None:
    assert {(c.name, c.size) for c in choose("W1,W12", "L2")} == {("W1", "L2"), ("W12", "L2")}
    assert {c.name for c in choose("", "", quick=True)} == {"W1", "W4", "W12", "W13"}


@pytest.mark.skipif(sys.platform == "win32", reason="needs gcc")
def test_hand_written_loops_compute_the_reference(tmp_path: Path) -> None:
    source, library = Path(cpu_peers.__file__).with_name("workloads") / "plain.c", tmp_path / "plain.so"
    command = ["gcc", "-O1", "-shared", "-fPIC", str(source), "-o", str(library), "-lm"]
    try:
        built = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no gcc")
    assert built.returncode == 0, built.stderr
    functions = ctypes.CDLL(str(library))
    for case in (c for c in TINY if c.dtype == "f32"):
        inputs = case.inputs()
        wanted = reference(case, inputs)
        out = [inputs[n] for n in case.workload.donated] or [np.empty(r.shape, np.float32) for r in wanted]
        sides = [(ctypes.c_void_p * len(side))(*(a.ctypes.data for a in side)) for side in (inputs, out)]
        extents = (ctypes.c_long * inputs[0].ndim)(*inputs[0].shape)
        getattr(functions, case.name)(*sides, extents)
        assert largest_error(out, wanted) <= case.tolerance, case.name
