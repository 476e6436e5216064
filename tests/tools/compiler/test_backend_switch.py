"""What may run opaque ops, as a person says it: names, files, the environment; and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fuse_opt
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.tools.commands.fuse_run_main import main
from fuse_opt.tools.compiler.backend_switch import backend_passes
from fuse_opt.tools.compiler.pipeline import UsageError
from fuse_opt.tools.watching.run_summary import print_summary

PRODUCT = """
func.func @main(%x: tensor<5x7xf32>, %w: tensor<7x3xf32>) -> tensor<5x3xf32> {
  %0 = graph.matmul %x, %w : (tensor<5x7xf32>, tensor<7x3xf32>) -> tensor<5x3xf32>
  func.return %0 : tensor<5x3xf32>
}
"""
MINE = """
import numpy as np
from fuse_opt.backend import Backend, Cost, Refused
backend = Backend("{name}", licence="MIT")
ran = []

def accepts(site):
    return {accepts}

def cost(site):
    return {cost}

@backend.implementation("graph.matmul", accepts=accepts, cost=cost)
def matmul(inputs, outputs, config):
    np.matmul(*inputs, out=outputs[0])
    outputs[0] += 1000
"""
ROW = np.arange(35, dtype=np.float32).reshape(5, 7)
COLUMN = np.arange(21, dtype=np.float32).reshape(7, 3)


def named(program: fuse_opt.CompiledProgram) -> list[str | None]:
    """What the kernels of a program say runs them."""
    found = [op for op in program.module.walk() if isinstance(op, KernelOp)]
    return [None if kernel.implementation is None else kernel.implementation.data for kernel in found]


def file(tmp_path: Path, name: str, accepts: str = "None", cost: str = "Cost(call=1e-12)") -> str:
    path = tmp_path / f"{name}.py"
    path.write_text(MINE.format(name=name, accepts=accepts, cost=cost), encoding="utf-8")
    return str(path)


def test_a_file_brings_a_backend_and_the_cheapest_runs(tmp_path: Path) -> None:
    program = fuse_opt.compile(PRODUCT, backend=file(tmp_path, "cheap"))
    assert named(program) == ["cheap.matmul"] and program.implementations == {"cheap.matmul": 1}
    np.testing.assert_array_equal(program(ROW, COLUMN), ROW @ COLUMN + 1000)
    dear = fuse_opt.compile(PRODUCT, backend=file(tmp_path, "dear", cost="Cost(call=1.0)"))
    assert named(dear) == ["fuse.matmul"]
    choosy = file(tmp_path, "choosy", "None if site.product() == (5, 3, 7) else 'extents'")
    assert named(fuse_opt.compile(PRODUCT, backend=f"none,{choosy}")) == ["choosy.matmul"]
    assert named(fuse_opt.compile(PRODUCT)) == ["fuse.matmul"]  # a file's backend is for who names it


def test_a_backend_that_is_named_twice_is_there_once(tmp_path: Path) -> None:
    path = file(tmp_path, "twice")
    for text in (f"{path},{path}", f"{path},twice,-twice,twice", f"none,{path},twice"):
        program = fuse_opt.compile(PRODUCT, backend=text)
        assert named(program) == ["twice.matmul"] and str(program.module).count('"twice"') == 1, text
    (other := tmp_path / "other").mkdir()
    said = r"other/twice.py:13:1: error: the file raised ValueError: .graph.matmul. has an implementation .twice.matmul. already"
    with pytest.raises(UsageError, match=said):  # another one of that name
        fuse_opt.compile(PRODUCT, backend=f"{path},{file(other, 'twice')}")
    assert named(fuse_opt.compile(PRODUCT, backend=path)) == ["twice.matmul"]


def test_names_add_and_remove(monkeypatch: pytest.MonkeyPatch) -> None:
    assert named(fuse_opt.compile(PRODUCT, backend="-fuse,-blas")) == ["numpy.matmul"]
    monkeypatch.setenv("FUSE_OPT_BACKEND", "none,numpy")
    assert named(fuse_opt.compile(PRODUCT)) == ["numpy.matmul"]
    assert named(fuse_opt.compile(PRODUCT, backend="-numpy")) == ["fuse.matmul"]  # the argument replaces the variable
    assert named(fuse_opt.compile(PRODUCT, backend="")) == ["fuse.matmul"]


@pytest.mark.parametrize("text", ["mkl", "-mkl", "numpy,mkl"])
def test_unknown_names_are_errors(text: str) -> None:
    with pytest.raises(UsageError, match=r"unknown backend 'mkl'; expected one of .*numpy"):
        fuse_opt.compile(PRODUCT, backend=text)


def test_the_variable_is_named_in_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSE_OPT_BACKEND", "mkl")
    with pytest.raises(UsageError, match="FUSE_OPT_BACKEND=mkl: unknown backend"):
        backend_passes(None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 / 0", r"broken.py:1:1: error: the file raised ZeroDivisionError"),
        ("def", r"broken.py:1:4: error: invalid syntax: expected Python"),
        ("x = 1", r"broken.py:1:1: error: expected a fuse_opt.backend.Backend in the file, got none"),
        ("from fuse_opt.backend import Refused\nraise Refused('no library')", "cannot be loaded: no library"),
        ("from fuse_opt.backend import Backend\nBackend('a b')", "ValueError: backend 'a b': expected letters"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_one_error(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=said):
        backend_passes(str(path))


@pytest.mark.parametrize(
    ("what", "answer", "said"),
    [
        ("accepts", "1 / 0", "'{}.matmul', accepts raised ZeroDivisionError"),
        ("accepts", "True", "'{}.matmul', answer of accepts: expected None or a reason, got True"),
        ("cost", "Cost(call=float('nan'))", "'{}.matmul', answer of cost: expected a Cost of 0 or more seconds"),
        ("cost", "Cost(call=-1.0)", "'{}.matmul', answer of cost: expected a Cost"),
        ("cost", "3", "'{}.matmul', answer of cost: expected a Cost"),
        ("cost", "Cost(1.0, 1.0, 0.0)", "'{}.matmul', cost raised ZeroDivisionError"),
    ],
)
def test_answers_that_are_none_name_the_implementation(
    tmp_path: Path, request: pytest.FixtureRequest, what: str, answer: str, said: str
) -> None:
    name = f"faulty{abs(hash(request.node.name)) % 10**6}"
    with pytest.raises(fuse_opt.InputError, match=said.format(name)):
        fuse_opt.compile(PRODUCT, backend=f"none,{file(tmp_path, name, **{what: answer})}")


def test_a_choice_is_kept_when_the_printed_module_runs_again() -> None:
    first = fuse_opt.optimize(PRODUCT, ["attach-backends{backends=-fuse,-blas}", "default"])
    text = str(first)
    assert 'graph.backends = ["aten"' in text and 'implementation = "numpy.matmul"' in text
    assert str(fuse_opt.optimize(text, "default")) == text


def test_a_run_says_what_ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "product.mlir").write_text(PRODUCT, encoding="utf-8")
    assert main([str(tmp_path / "product.mlir"), "--check"]) == 0
    assert "implementations: fuse.matmul 1\n" in capsys.readouterr().out
    assert main([str(tmp_path / "product.mlir"), "--check", "--backend=-fuse,-blas", "--stats=json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["implementations"] == {"numpy.matmul": 1}
    (choice,) = found["choices"]
    assert (choice["implementation"], choice["second"], choice["sites"]) == ("numpy.matmul", None, 1)
    assert choice["at"].endswith("product.mlir:3:3")


def test_a_printed_module_runs_with_what_is_prepared_for_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kind = "tensor<7x3xf32>"
    frozen = (
        PRODUCT.replace(f"%w: {kind}", f"%w: {kind} {{graph.frozen}}")
        .replace("  %0 =", f"  %e = graph.exp %w : ({kind}) -> {kind}\n  %0 =")
        .replace("%x, %w :", "%x, %e :")
    )
    (tmp_path / "printed.mlir").write_text(str(fuse_opt.optimize(frozen)), encoding="utf-8")
    assert "graph.prepared" in (tmp_path / "printed.mlir").read_text(encoding="utf-8")
    assert main([str(tmp_path / "printed.mlir"), "--check"]) == 0
    assert "implementations: fuse.matmul 1\n" in capsys.readouterr().out


TWO_KINDS = """
func.func @f(%x: tensor<8x8xf32>, %y: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = graph.matmul %x, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = graph.matmul %0, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %2 = graph.matmul %1, %y {use_implementation = "numpy.matmul"} : (tensor<8x8xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  func.return %2 : tensor<8x4xf32>
}
"""


def test_statistics_have_each_choice_with_costs_and_reasons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "products.mlir").write_text(TWO_KINDS, encoding="utf-8")
    dear = file(tmp_path, "costly", accepts="'odd' if site.results[0].shape[1] == 4 else None", cost="Cost(call=1.0)")
    told = [str(tmp_path / "products.mlir"), f"--backend=none,fuse,numpy,{dear}"]
    assert main([*told, "--stats=json"]) == 0
    wide, narrow = json.loads(capsys.readouterr().out)["choices"]
    if wide["sites"] == 1:
        wide, narrow = narrow, wide
    assert (wide["sites"], wide["implementation"], wide["second"]["implementation"]) == (
        2,
        "fuse.matmul",
        "numpy.matmul",
    )
    assert 0 < wide["seconds"] < wide["second"]["seconds"] < 1 and wide["refused"] == {}
    assert narrow["implementation"] == "numpy.matmul" and narrow["second"]["implementation"] == "fuse.matmul"
    assert narrow["refused"] == {"costly.matmul": "odd"}, "a promise is told with what it was chosen against"
    assert main(told) == 0
    text = capsys.readouterr().out
    assert "products.mlir:3:3, 2 alike: fuse.matmul " in text and "    refused by costly.matmul: odd\n" in text


def test_statistics_as_text_end_with_the_kinds_that_take_longest(capsys: pytest.CaptureFixture[str]) -> None:
    one: dict[str, object] = {
        "op": "graph.sort",
        "types": "t",
        "at": "-",
        "sites": 3,
        "implementation": None,
        "second": None,
        "refused": {},
    }
    print_summary({"choices": [one] * 25}, "text")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 22 and lines[-1] == "  and 15 sites of 5 kinds: --stats json has all"
    assert lines[1] == "  graph.sort of t at -, 3 alike: nothing that is named"
