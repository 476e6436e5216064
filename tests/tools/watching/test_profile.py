"""Profiles: bytes are those of the statistics, spans nest, the report is one page of its own, the program stays as it is."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_printing import needs_cc

import fuse_opt
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
EVENTS = {"X": {"ts", "dur", "args", "cat", "tid"}, "C": {"ts", "args"}, "M": {"args", "tid"}}


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
    for event in trace["traceEvents"]:
        assert EVENTS[event["ph"]] <= event.keys() and {"name", "pid"} <= event.keys()
    assert_nested([span for span in spans if span["pid"] == 1])
    assert {span["name"] for span in spans if span["pid"] == 1} >= {kernel.name for kernel in found.kernels}
    assert [span["name"] for span in spans if span["pid"] == 2] == ["canonicalize", "C compiler"]
    with pytest.raises(ValueError, match="target 'reference'"):
        fuse_opt.compile(PROGRAM, "reference").profile(*arrays)


def assert_nested(spans: list[dict[str, Any]]) -> None:
    for one in spans:
        for other in spans:
            begin, end = max(one["ts"], other["ts"]), min(one["ts"] + one["dur"], other["ts"] + other["dur"])
            inside = end - begin >= min(one["dur"], other["dur"]) - 1e-6
            assert end <= begin + 1e-6 or inside, (one, other)


class Page(HTMLParser):
    """Open elements and what a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.fetched += [v for k, v in attrs if k in ("src", "href") and v and not v.startswith(("#", "data:"))]
        if tag not in ("meta", "link", "br", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@needs_cc
def test_report_and_trace_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, trace, report = (tmp_path / name for name in ("net.mlir", "trace.json", "report.html"))
    source.write_text(PROGRAM)
    assert main([str(source), "--profile", str(trace), "--report", str(report), "--repeat", "2"]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0].split()[:3] == ["kernel", "us", "median"] and "roofline of device" in said
    names = {event["name"] for event in json.loads(trace.read_text())["traceEvents"]}
    assert {"fuse-row", "C compiler", "live arena bytes"} <= names
    page = Page()
    page.feed(report.read_text())
    assert not page.open and not page.fetched and page.seen.count("svg") >= 2 and "table" in page.seen
    assert "Roofline" in report.read_text()
    assert main([str(source), "--profile", str(trace), "--target", "cuda"]) == 2
