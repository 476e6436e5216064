"""Choices by measured times: tables that hold, that hold in part, that are damaged, and that are not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fuse_opt
from fuse_opt.dialects.implementation.cost_table import read_cost_table
from fuse_opt.passes.remarks import collect
from fuse_opt.tools.compiler.backend_switch import with_dispatch_table
from fuse_opt.tools.compiler.pipeline import make_passes, parse_pipeline

TEXT = """
func.func @main(%a: tensor<64x64xf32>, %b: tensor<64x64xf32> {graph.frozen}) -> tensor<64x64xf32> {
  %0 = graph.matmul %a, %b : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  func.return %0 : tensor<64x64xf32>
}
"""
SITE = "graph.matmul(64x64xf32, 64x64xf32!) -> 64x64xf32"
NAMES = ("fuse.matmul", "numpy.matmul", "blas.matmul", "blas.matmul_epilogue")
HEADER = '{"fuse-opt-dispatch-table": 1}'


def table(path: Path, times: dict[str, object], *more: str, site: str = SITE) -> Path:
    rows = [json.dumps({"site": site, "implementation": name, "seconds": time}) for name, time in times.items()]
    file = path / "times.jsonl"
    file.write_text("\n".join((HEADER, *rows, *more)) + "\n")
    return file


def chosen(file: Path | str) -> tuple[str, dict[str, object]]:
    pipeline = f'wrap-kernels,select-implementation{{table="{file}"}}'
    with collect() as remarks:
        module = fuse_opt.optimize(TEXT, pipeline)
    numbers = next(dict(remark.numbers) for remark in remarks if remark.code == "selected")
    return next(name for name in NAMES if f'implementation = "{name}"' in str(module)), dict(numbers)


def test_the_fastest_is_taken(tmp_path: Path) -> None:
    times: dict[str, object] = {
        "fuse.matmul": 2e-5,
        "numpy.matmul": 9e-6,
        "blas.matmul": 4e-5,
        "blas.matmul_epilogue": 5e-5,
    }
    name, numbers = chosen(table(tmp_path, times))
    assert name == "numpy.matmul"
    assert (
        numbers["measured_us"] == 9.0 and numbers["second"] == "fuse.matmul" and numbers["second_measured_us"] == 20.0
    )


def test_less_than_five_percent_do_not_overturn_the_estimate(tmp_path: Path) -> None:
    near: dict[str, object] = dict(zip(NAMES, (1.04e-5, 1e-5, 1.1e-5, 1.1e-5), strict=True))
    assert chosen(table(tmp_path, near))[0] == "fuse.matmul"
    far: dict[str, object] = dict(zip(NAMES, (1.06e-5, 1e-5, 1.1e-5, 1.1e-5), strict=True))
    assert chosen(table(tmp_path, far))[0] == "numpy.matmul"


def test_sites_of_which_only_some_were_measured_go_by_estimates(tmp_path: Path) -> None:
    name, numbers = chosen(table(tmp_path, {"numpy.matmul": 1e-9}))
    assert name == "fuse.matmul" and "measured_us" not in numbers
    every: dict[str, object] = dict(zip(NAMES, (9e-5, 1e-5, 2e-5, 2e-5), strict=True))
    assert chosen(table(tmp_path, every, site=SITE.replace("!", "")))[0] == "fuse.matmul"  # frozen there, and not here


@pytest.mark.parametrize(
    "line",
    ["{", "[]", '{"site": 1}', json.dumps({"site": SITE, "implementation": "fuse.matmul", "seconds": -1}), "[" * 9999],
)
def test_a_damaged_line_is_left_out_with_one_warning(tmp_path: Path, line: str) -> None:
    times: dict[str, object] = dict(zip(NAMES, (2e-5, 1e-5, 2e-5, 2e-5), strict=True))
    file = table(tmp_path, times, line, line)
    with pytest.warns(UserWarning, match=r"a line was left out: .*times.jsonl:6: expected an object.* \(and 1 more\)"):
        assert chosen(file)[0] == "numpy.matmul"


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    (file := tmp_path / "x.jsonl").write_text("{}\n")
    with pytest.raises(fuse_opt.InputError, match=r"x.jsonl:1:1: error: expected a first line with"):
        chosen(file)
    with pytest.raises(fuse_opt.InputError, match="nowhere.jsonl': No such file"):
        chosen(tmp_path / "nowhere.jsonl")


def test_tables_of_the_same_text_are_equal(tmp_path: Path) -> None:
    first = read_cost_table(table(tmp_path, {"fuse.matmul": 1e-5}))
    assert first == read_cost_table(table(tmp_path, {"fuse.matmul": 1e-5}))
    assert first != read_cost_table(table(tmp_path, {"fuse.matmul": 2e-5}))


def test_the_environment_names_a_table_where_no_pass_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times: dict[str, object] = dict(zip(NAMES, (9e-5, 9e-5, 9e-5, 1e-5), strict=True))
    file = table(tmp_path, times)
    monkeypatch.setenv("FUSE_OPT_DISPATCH_TABLE", str(file))
    program = fuse_opt.compile(TEXT)
    assert program.implementations == {"blas.matmul_epilogue": 1} or program.target == "reference"
    given = with_dispatch_table(parse_pipeline('select-implementation{table="other.jsonl"}'))
    assert [getattr(each, "table", None) for each in given] == ["other.jsonl"]
    tables = [getattr(each, "table", None) for each in with_dispatch_table(make_passes(None))]
    assert [found for found in tables if found is not None] == [str(file)]
