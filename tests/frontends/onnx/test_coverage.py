"""docs/onnx.md stays true: its records exist, and it names every ONNX operator once."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from fuse_opt.dialects.graph import GRAPH
from fuse_opt.frontends.onnx import supported_operators

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "onnx.md").read_text()
MICROSOFT = "Covered of com.microsoft"
NAME = re.compile(r"`([^`]*)`")


def table_rows(heading: str) -> list[list[str]]:
    """The cells of the rows of all tables under a second-level heading, without the tables' own headings."""
    (section,) = [part for part in TEXT.split("\n## ") if part.startswith(heading + "\n")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return [row for row in rows if not row[0].startswith(("operator", "---"))]


def operators() -> list[str]:
    groups = [row[0].split(", ") for row in (*table_rows("Covered"), *table_rows("Not covered"))]
    return [name for group in groups for name in group]


def test_records_exist() -> None:
    known = {op.name.removeprefix("graph.") for op in GRAPH.operations}
    for operator, handlers, differs in (*table_rows("Covered"), *table_rows(MICROSOFT)):
        named = NAME.findall(handlers)
        assert named or handlers.startswith("none"), f"{operator} names no record"
        assert {*named, *NAME.findall(differs)} <= known, f"{operator} names what is no record"


def test_covered_operators_are_those_of_the_importer() -> None:
    for heading, domain in (("Covered", ""), (MICROSOFT, "com.microsoft")):
        listed = sorted(name for row in table_rows(heading) for name in row[0].split(", "))
        assert listed == supported_operators(domain), "write each operator that has a handler into docs/onnx.md"


def test_no_operator_is_named_twice() -> None:
    assert [name for name, count in Counter(operators()).items() if count > 1] == []


def test_every_operator_is_named() -> None:
    defs = pytest.importorskip("onnx.defs")
    opset = int(re.findall(r"\(opset (\d+)\)", TEXT)[0])
    if defs.onnx_opset_version() < opset:
        pytest.skip(f"the page is about opset {opset}, this onnx knows {defs.onnx_opset_version()}")
    assert defs.onnx_opset_version() == opset, "docs/onnx.md is about an older opset: add what is new"
    wanted = sorted({schema.name for schema in defs.get_all_schemas() if schema.domain == ""})
    assert sorted(operators()) == wanted, (
        "name each operator of ONNX once in docs/onnx.md, also one that is not covered"
    )
