"""Exponentials of one argument in a loop: which become calls that share their work, and what these give."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from ir_testing import apply, parse, text_of
from lowered_programs import check, needs_compiler
from math_accuracy import BOUNDS, samples, ulps

from fuse_opt.lowering.emit import build_program
from fuse_opt.runtime.cpu.program import CpuProgram

DOCS = Path(__file__).resolve().parents[3] / "docs" / "c.md"
KINDS = {"f32": np.float32, "f64": np.float64}
SIZE = 8192

LINES = {
    "n": "graph.negative %x",
    "a": "graph.abs %x",
    "m": "graph.negative %a",
    "exp": "graph.exp %x",
    "exp_negated": "graph.exp %n",
    "exp_magnitude": "graph.exp %m",
    "expm1": "graph.expm1 %x",
    "tanh": "graph.tanh %x",
    "sigmoid": "graph.sigmoid %x",
    "sigmoid_negated": "graph.sigmoid %n",
}
"""By value: what it is of x, -x and -|x|."""
SIGNED = ("tanh", "sigmoid", "sigmoid_negated", "exp_magnitude", "exp", "exp_negated", "expm1")


def program(functions: tuple[str, ...], kind: str = "f32", math: str = "strict") -> str:
    """One kernel that gives each of the functions of its argument."""
    shape = f"tensor<{SIZE}x{kind}>"
    names = [*(name for name in "nam"), *functions]
    body = "\n".join(f"    %{name} = {LINES[name]} : ({shape}) -> {shape}" for name in names)
    given, kinds = ", ".join(f"%{name}" for name in functions), ", ".join([shape] * len(functions))
    results = ", ".join(f"%r{k}" for k in range(len(functions)))
    schedule = f'schedule = {{kind = "pointwise", math = "{math}"}}'
    return f"""func.func @main(%y: {shape}) -> ({kinds}) {{
  {results} = fused.kernel(%x = %y : {shape}) -> ({kinds}) attributes {{{schedule}}} {{
{body}
    fused.yield {given} : {kinds}
  }}
  func.return {results} : {kinds}
}}"""


def called(functions: tuple[str, ...], kind: str = "f32", math: str = "strict") -> list[str]:
    """The shared functions that the kernel's loop calls, in order."""
    loops = text_of(apply(parse(program(functions, kind, math)), ["convert-fused-to-loops"]))
    return re.findall(rf"call @fo_shared_(\w+)_{kind}\(", loops)


@pytest.mark.parametrize(
    ("functions", "calls"),
    [
        (("exp", "exp_negated"), ["exp", "exp_negated"]),
        (("exp_negated", "exp"), ["exp", "exp_negated"]),
        (("sigmoid", "exp_negated"), ["sigmoid_negated", "exp"]),
        (("sigmoid", "exp"), ["sigmoid", "exp"]),
        (("tanh", "exp_negated"), ["tanh", "exp"]),
        (("expm1", "exp_negated"), ["expm1", "exp_negated"]),
        (("tanh", "sigmoid"), ["nonpositive_tanh", "nonpositive_exp"]),
        (("exp_magnitude", "exp"), ["exp_magnitude", "exp"]),
        (("tanh", "sigmoid", "exp_negated"), ["tanh", "sigmoid_negated", "exp"]),
    ],
)
def test_functions_of_one_argument_share_their_work(functions: tuple[str, ...], calls: list[str]) -> None:
    assert called(functions) == calls
    assert called(functions, "f64") == calls


@pytest.mark.parametrize(
    "functions", [("exp",), ("tanh",), ("sigmoid", "sigmoid_negated"), ("sigmoid", "exp_magnitude")]
)
def test_one_function_is_left_alone(functions: tuple[str, ...]) -> None:
    """Sigmoids are made of the one exponential exp(-|x|)."""
    assert called(functions) == []


@pytest.mark.parametrize(
    ("functions", "narrow", "wide"),
    [
        (("exp", "exp_negated"), 0, 2),
        (("tanh", "exp"), 0, 2),
        (("tanh", "sigmoid", "exp_negated"), 0, 3),
        (("sigmoid", "exp_negated"), 0, 0),
        (("tanh", "sigmoid"), 2, 2),
        (("sigmoid", "exp"), 2, 2),
        (("expm1", "exp"), 2, 2),
    ],
)
def test_fast_functions_share_where_that_is_fewer_operations(
    functions: tuple[str, ...], narrow: int, wide: int
) -> None:
    """A sigmoid beside exp(-x) is made of it anyway."""
    assert len(called(functions, "f32", "fast")) == narrow
    assert len(called(functions, "f64", "fast")) == wide


def test_functions_of_two_arguments_are_left_alone() -> None:
    text = program(("exp", "tanh")).replace("graph.tanh %x", "graph.tanh %e")
    text = text.replace("    %tanh", f"    %e = graph.exp %x : (tensor<{SIZE}xf32>) -> tensor<{SIZE}xf32>\n    %tanh")
    assert "fo_shared" not in text_of(apply(parse(text), ["convert-fused-to-loops"]))


def test_an_exponential_of_one_group_may_be_the_argument_of_another() -> None:
    kind = f"tensor<{SIZE}xf32>"
    names = {"e": "exp %x", "s": "sigmoid %x", "m": "expm1 %x", "t": "tanh %e", "n": "exp %e"}
    body = "".join(f"    %{name} = graph.{what} : ({kind}) -> {kind}\n" for name, what in names.items())
    kinds = ", ".join([kind] * 4)
    text = f"""func.func @main(%y: {kind}) -> ({kinds}) {{
  %r:4 = fused.kernel(%x = %y : {kind}) -> ({kinds}) attributes {{schedule = {{kind = "pointwise"}}}} {{
{body}    fused.yield %s, %m, %t, %n : {kinds}
  }}
  func.return %r#0, %r#1, %r#2, %r#3 : {kinds}
}}"""
    loops = text_of(apply(parse(text), ["convert-fused-to-loops"]))
    assert parse(loops) is not None
    assert len(re.findall("call @fo_shared_", loops)) == 5


@needs_compiler
def test_arguments_stay_in_front_of_what_else_uses_them() -> None:
    text = """func.func @main(%x: tensor<7xf32>) -> (tensor<7xf32>, tensor<7xf32>) {
  %r = graph.log_sigmoid_backward %x, %x : (tensor<7xf32>, tensor<7xf32>) -> tensor<7xf32>
  %t = graph.tanh %x : (tensor<7xf32>) -> tensor<7xf32>
  func.return %r, %t : tensor<7xf32>, tensor<7xf32>
}"""
    passes = ["decompose", "fuse-elementwise", "fuse-siblings", "wrap-kernels"]
    check(text_of(apply(parse(text), passes)))


def test_nothing_of_the_sigmoid_is_left() -> None:
    loops = text_of(apply(parse(program(("sigmoid", "exp"))), ["convert-fused-to-loops"]))
    assert not re.search(r"math\.(absf|exp)|arith\.(cmpf|select|divf|negf)", loops)


@needs_compiler
@pytest.mark.parametrize("functions", [SIGNED, ("tanh", "sigmoid"), ("sigmoid", "tanh", "exp_negated")])
@pytest.mark.parametrize("kind", KINDS)
def test_results_are_within_the_bounds(kind: str, functions: tuple[str, ...]) -> None:
    """Special values, denormal arguments and denormal results included."""
    if np.finfo(np.longdouble).nmant <= np.finfo(KINDS[kind]).nmant:
        pytest.skip("long double is no wider than double here: no reference")
    every = samples(KINDS[kind], 2000, seed=3)
    widest = 104 if kind == "f32" else 745
    dense = np.random.default_rng(5).uniform(-widest, widest, SIZE).astype(KINDS[kind])
    x = np.concatenate([every, dense])[:: max(1, (every.size + SIZE) // SIZE)][:SIZE]
    results = CpuProgram(build_program(parse(program(functions, kind))))(x)
    with np.errstate(all="ignore"):
        wide = x.astype(np.longdouble)
        down = np.exp(-np.abs(wide))
        exact = {
            "exp": np.exp(wide),
            "exp_negated": np.exp(-wide),
            "exp_magnitude": down,
            "expm1": np.expm1(wide),
            "tanh": np.tanh(wide),
            "sigmoid": np.where(wide < 0, down, 1 + 0 * down) / (1 + down),
            "sigmoid_negated": np.where(wide > 0, down, 1 + 0 * down) / (1 + down),
        }
    for name, result in zip(functions, results, strict=True):
        bound = BOUNDS[f"fo_shared_{name}_{kind}"]
        assert np.max(ulps(result, exact[name])) <= bound, name


def test_the_documentation_states_the_bounds() -> None:
    _, _, table = DOCS.read_text(encoding="utf-8").partition("| function beside others of its argument |")
    rows = dict(re.findall(r"^\| (\w+) \| ([\d. |]+) \|$", table.partition("\n\n")[0], re.MULTILINE))
    assert list(rows) == ["exp", "expm1", "tanh", "sigmoid"]
    for name, bound in BOUNDS.items():
        if name.startswith("fo_shared_"):
            word, kind = re.findall(r"exp(?:m1)?|tanh|sigmoid", name)[0], list(KINDS).index(name[-3:])
            assert float(rows[word].split(" | ")[kind]) == bound, name
