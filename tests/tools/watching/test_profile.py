"""Profiles: bytes are those of the statistics, spans nest, the report is one page of its own, the program stays as it is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_printing import needs_cc
from html_pages import read

import fuse_opt
from fuse_opt.lowering.emit.c import build_program
from fuse_opt.lowering.program import Segment
from fuse_opt.runtime.cpu.noted import NotedProgram
from fuse_opt.runtime.host.thread_pool import num_threads, set_num_threads
from fuse_opt.tools.commands.fuse_run_main import main

PROGRAM = """
func.func @net(%x: tensor<5x7xf32>, %w: tensor<7x9xf32>) -> tensor<9x5xf32> {
  %h = graph.matmul %x, %w : (tensor<5x7xf32>, tensor<7x9xf32>) -> tensor<5x9xf32>
  %a = graph.softmax %h {axis = 1 : i64} : (tensor<5x9xf32>) -> tensor<5x9xf32>
  %s = graph.cumulative_sum %a {axis = 1 : i64} : (tensor<5x9xf32>) -> tensor<5x9xf32>
  %t = graph.permute_dims %s {axes = array<i64: 1, 0>} : (tensor<5x9xf32>) -> tensor<9x5xf32>
  func.return %t : tensor<9x5xf32>
}
"""
NUMBER = (int, float)
EVENTS: dict[str, dict[str, Any]] = {
    "X": {"ts": NUMBER, "dur": NUMBER, "args": dict, "cat": str, "tid": int},
    "C": {"ts": NUMBER, "args": dict},
    "M": {"args": dict, "tid": int},
}
"""By phase what the Trace Event Format asks of an event, beside a name and a process."""
NAMES = {"process_name", "thread_name"}
"""Of metadata."""


@needs_cc
def test_trace_of_a_program() -> None:
    program = fuse_opt.compile(PROGRAM)
    text, stats = program.source, program.stats
    arrays = [np.ones((5, 7), np.float32), np.ones((7, 9), np.float32)]
    found = program.profile(*arrays, repeat=3)
    assert sum(kernel.bytes_read for kernel in found.kernels) == stats.bytes_read
    assert sum(kernel.bytes_written for kernel in found.kernels) == stats.bytes_written
    assert program.source == text and program.stats == stats
    trace = json.loads(json.dumps(found.trace([("canonicalize", 1e-3), ("C compiler", 0.2)])))
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert_format(trace)
    rows = {(span["pid"], span["tid"]) for span in spans}
    for row in rows:
        assert_nested([span for span in spans if (span["pid"], span["tid"]) == row])
    for kernel in found.kernels:
        on_threads = [span for span in spans if span["tid"] >= 100 and span["name"] == kernel.name]
        whole = next(span for span in spans if span["tid"] < 100 and span["name"] == kernel.name)
        assert len(on_threads) == len(kernel.pieces) == whole["args"]["pieces"]
        assert min(span["ts"] for span in on_threads) == whole["ts"]
        assert all(span["ts"] + span["dur"] <= whole["ts"] + whole["dur"] + 1e-3 for span in on_threads)
    assert {span["name"] for span in spans if span["pid"] == 1} >= {kernel.name for kernel in found.kernels}
    assert [span["name"] for span in spans if span["pid"] == 2] == ["canonicalize", "C compiler"]
    with pytest.raises(ValueError, match="target 'reference'"):
        fuse_opt.compile(PROGRAM, "reference").profile(*arrays)


@needs_cc
def test_pieces_are_all_tasks_of_a_loop() -> None:
    """On threads of any number, and whichever of them came in time."""
    rows = 3000
    text = f"""
    func.func @rows(%x: tensor<{rows}x17xf32>) -> tensor<{rows}x17xf32> {{
      %a = graph.softmax %x {{axis = 1 : i64}} : (tensor<{rows}x17xf32>) -> tensor<{rows}x17xf32>
      func.return %a : tensor<{rows}x17xf32>
    }}"""
    x = np.random.default_rng(0).standard_normal((rows, 17), np.float32)
    program, before = fuse_opt.compile(text), num_threads()
    noted = NotedProgram(build_program(program.module))
    try:
        for threads in (1, 3):
            set_num_threads(threads)
            assert (noted(x) == program(x)).all()
            tasks = sorted(piece.tasks for piece in noted.pieces)
            assert [first for first, _ in tasks] == [0, *(end for _, end in tasks[:-1])]
            (launch,) = [
                launch for step in noted.program.steps if isinstance(step, Segment) for launch in step.launches
            ]
            assert tasks[-1][1] == launch.tasks and {piece.step for piece in noted.pieces} == {0}
            assert {piece.thread for piece in noted.pieces} <= set(range(threads))
            assert noted.pieces[0].started >= 0 and noted.pieces[-1].ended <= noted.seconds
    finally:
        set_num_threads(before)


@needs_cc
def test_prepared_arguments_and_unknown_extents() -> None:
    """What prepares is a part of calls until weights are bound; of sizes it is the program for all of them."""
    text = """
    func.func @net(%x: tensor<?x7xf32>, %w: tensor<7x9xf32> {graph.frozen}) -> tensor<?x9xf32> {
      %v = graph.exp %w : (tensor<7x9xf32>) -> tensor<7x9xf32>
      %h = graph.matmul %x, %v : (tensor<?x7xf32>, tensor<7x9xf32>) -> tensor<?x9xf32>
      func.return %h : tensor<?x9xf32>
    }"""
    x, w = np.ones((5, 7), np.float32), np.ones((7, 9), np.float32)
    program = fuse_opt.compile(text)
    found = program.profile(x, w, repeat=1)
    assert [kernel.prepares for kernel in found.kernels] == [True, False]
    assert [kernel.operations > 0 and bool(kernel.pieces) for kernel in found.kernels] == [True, True]
    assert found.kernels[0].end <= found.kernels[1].start
    assert found.kernels[1].operations == 2 * 5 * 7 * 9
    bound = program.freeze({1: w}).profile(x, repeat=1)
    assert [kernel.name for kernel in bound.kernels] == [found.kernels[1].name]
    assert (bound.kernels[0].bytes_read, bound.kernels[0].bytes_written) == (4 * (35 + 63), 4 * 45)
    with pytest.raises(TypeError, match="takes 1 argument"):
        program.profile(x, w)


def assert_format(trace: dict[str, Any]) -> None:
    """The object form, with events of the phases that are used as Perfetto's importer takes them."""
    assert trace["displayTimeUnit"] in ("ms", "ns") and isinstance(trace["otherData"], dict)
    named: set[tuple[int, int]] = set()
    for event in trace["traceEvents"]:
        fields = {"ph": str, "name": str, "pid": int, **EVENTS[event["ph"]]}
        assert event.keys() == fields.keys(), event
        assert all(isinstance(event[name], kind) for name, kind in fields.items()), event
        assert event.get("ts", 0) >= 0 and event.get("dur", 0) >= 0
        if event["ph"] == "C":
            assert event["args"] and all(isinstance(value, NUMBER) for value in event["args"].values())
        if event["ph"] == "M":
            assert event["name"] in NAMES and isinstance(event["args"]["name"], str)
            named.add((event["pid"], event["tid"]))
    assert {(event["pid"], event["tid"]) for event in trace["traceEvents"] if event["ph"] == "X"} <= named


def assert_nested(spans: list[dict[str, Any]]) -> None:
    for one in spans:
        for other in spans:
            begin, end = max(one["ts"], other["ts"]), min(one["ts"] + one["dur"], other["ts"] + other["dur"])
            inside = end - begin >= min(one["dur"], other["dur"]) - 1e-6
            assert end <= begin + 1e-6 or inside, (one, other)


@needs_cc
def test_report_and_trace_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, trace, report = (tmp_path / name for name in ("net.mlir", "trace.json", "report.html"))
    source.write_text(PROGRAM)
    assert main([str(source), "--profile", str(trace), "--report", str(report), "--repeat", "2"]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0].split()[:3] == ["kernel", "us", "median"] and "roofline of device" in said
    names = {event["name"] for event in json.loads(trace.read_text())["traceEvents"]}
    assert {"fuse-row", "C compiler", "live arena bytes"} <= names
    page = read(text := report.read_text())
    sections = [attributes["id"] for tag, attributes in page.tags if tag == "section"]
    assert sections == ["f0", "times", "plans"] == [link[1:] for link in page.values("href") if link != "data:,"][:3]
    assert {"Graph", "Arena over time", "Kernels", "Roofline", "Kernels by time"} <= set(page.texts["h3"])
    assert page.texts["h1"] == [str(source)] and len(list((tmp_path / "report-plans").iterdir())) > 0
    numbers = re.findall(r"<circle[^>]*/><text[^>]*>(\d+)</text>", text)
    rows = re.findall(r'<tr><th scope="row">(\d+)</th>', text)
    assert sorted(numbers) == sorted(rows) and len(set(numbers)) >= 2, (
        "each point has its number, and each number its row"
    )
    drawn = text[text.index('<section id="times">') :]
    colours = set(re.findall(r'(?:fill|stroke|style|color)="([^"]*)"', drawn[: drawn.index("</main>")]))
    assert colours <= {"none", "currentColor"}, "nothing is told by a colour"
    assert main([str(source), "--profile", str(trace), "--target", "cuda"]) == 2
