"""What dispatch, layouts and storage refuse: each names the op and the place, what was expected, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import fuse_opt
from fuse_opt.dialects.implementation.offers import forget_backend
from fuse_opt.tools.compiler import backend_switch

PRODUCT = """func.func @main(%x: tensor<5x7xf32>, %w: tensor<7x3xf32>) -> tensor<5x3xf32> {{
  %0 = graph.matmul %x, %w {attributes}: (tensor<5x7xf32>, tensor<7x3xf32>) -> tensor<5x3xf32>
  func.return %0 : tensor<5x3xf32>
}}"""


def exp(type_: str) -> str:
    return f"""func.func @main(%x: {type_}) -> {type_} {{
  %0 = graph.exp %x : ({type_}) -> {type_}
  func.return %0 : {type_}
}}"""


def wanted(name: str, element: str = "f32") -> str:
    return PRODUCT.format(attributes=f'{{use_implementation = "{name}"}} ').replace("f32", element)


SORT = """func.func @main(%x: tensor<4x5xf32, #graph.order<1, 0>>) -> tensor<4x5xf32, #graph.order<1, 0>> {
  %0 = graph.sort %x {axis = -1 : i64} : (tensor<4x5xf32, #graph.order<1, 0>>) -> tensor<4x5xf32, #graph.order<1, 0>>
  func.return %0 : tensor<4x5xf32, #graph.order<1, 0>>
}"""
UNEQUAL = """func.func @main(%x: tensor<4xf32> {graph.donated}) -> tensor<4xf64> {
  %0 = fused.kernel(%a = %x : tensor<4xf32>) -> (tensor<4xf64>) attributes {must_inplace} {
    %1 = graph.astype %a {dtype = f64} : (tensor<4xf32>) -> tensor<4xf64>
    fused.yield %1 : tensor<4xf64>
  }
  func.return %0 : tensor<4xf64>
}"""
NOT_CONVEX = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %p:2 = fused.partition(%a = %x : tensor<4xf32>, %b = %q : tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
      attributes {backend = "mine", memory = "private"} {
    %0 = graph.exp %a : (tensor<4xf32>) -> tensor<4xf32>
    %1 = graph.tanh %b : (tensor<4xf32>) -> tensor<4xf32>
    fused.yield %0, %1 : tensor<4xf32>, tensor<4xf32>
  }
  %q = graph.negative %p#0 : (tensor<4xf32>) -> tensor<4xf32>
  func.return %p#1 : tensor<4xf32>
}"""
TURNED = """module attributes {graph.backends = ["numpy"]} {
  func.func @main(%x: tensor<4x4xf32, #graph.order<1, 0>>, %w: tensor<4x4xf32>) -> tensor<4x4xf32> {
    %0 = graph.matmul %x, %w : (tensor<4x4xf32, #graph.order<1, 0>>, tensor<4x4xf32>) -> tensor<4x4xf32>
    func.return %0 : tensor<4x4xf32>
  }
}"""
ONEDNN = "attach-backends{backends=onednn},default"
FROZEN = exp("tensor<4xf32>").replace("%x: tensor<4xf32>", "%x: tensor<4xf32> {graph.donated, graph.frozen}")
CASES: dict[str, tuple[str, str, str]] = {
    "unknown encoding": (
        exp('tensor<4x4xf32, "csr">'),
        "",
        "'graph.exp' .*which would be ignored; remove it, or register",
    ),
    "op without orders": (SORT, "", "'graph.sort' .*in row-major order.*convert it before by graph.to_layout"),
    "no permutation": (
        exp("tensor<4x4xf32, #graph.order<0, 0>>"),
        "",
        "'#graph.order': expected each of the axes 0 to 1",
    ),
    "order of a rank": (exp("tensor<4x4xf32, #graph.order<0, 2, 1>>"), "", "'graph.exp' .*expected an order of 2 axes"),
    "negative capacity": (
        exp("tensor<4x4xf32, #graph.csr<capacity = -1>>"),
        "",
        "expected a capacity of 0 or more, got -1",
    ),
    "no capacity": (
        exp("tensor<4x4xf32, #graph.csr>"),
        "",
        "'#graph.csr' states how many entries it has room for, as in <capacity = 100>",
    ),
    "empty capacity": (exp("tensor<4x4xf32, #graph.csr<>>"), "", "'#graph.csr' states how many entries"),
    "fallback forbidden": (
        TURNED,
        "wrap-kernels,select-implementation{forbid-fallback}",
        "'graph.matmul' is run by the reference: .*fallbacks are forbidden; run assign-layouts",
    ),
    "csr of rank 3": (
        exp("tensor<4x4x4xf32, #graph.csr<capacity = 3>>"),
        "",
        "'graph.exp' .*a matrix .* graph.reshape it",
    ),
    "unknown name": (
        wanted("mkl.matmul"),
        "default",
        '"mkl.matmul" is not among what is allowed.*remove the directive',
    ),
    "refusing": (wanted("onednn.matmul", "f64"), ONEDNN, '"onednn.matmul" refuses it: dtype; remove the directive'),
    "fast under strict": (wanted("onednn.matmul_fast"), ONEDNN, '"onednn.matmul_fast" refuses it: numerics; remove'),
    "unequal bytes": (UNEQUAL, "infer-inplace", "must_inplace cannot be kept.*%x has 16 bytes, the result has 32"),
    "partition not convex": (NOT_CONVEX, "", "'fused.partition' operand 1: the value is used before its definition"),
    "frozen and donated": (FROZEN, "plan-memory", "'main', argument 0 is donated and frozen.*remove one of the two"),
}


@pytest.mark.parametrize("name", CASES)
def test_rejections(name: str) -> None:
    text, passes, said = CASES[name]
    with pytest.raises(fuse_opt.InputError, match=said) as error:
        fuse_opt.optimize(text, passes or ())
    assert "<string>:" in str(error.value)


FILE = """
from fuse_opt.backend import Backend, Cost
nan = float("nan")

@Backend("odd").implementation("graph.sort", priority=9, {said})
def sort(inputs, outputs, config): ...

backend = Backend("odd")
"""
ROWS = """func.func @main(%x: tensor<4x5xf32>) -> tensor<4x5xf32> {
  %0 = graph.sort %x {axis = -1 : i64} : (tensor<4x5xf32>) -> tensor<4x5xf32>
  func.return %0 : tensor<4x5xf32>
}"""


@pytest.fixture
def odd() -> Iterator[None]:
    yield
    forget_backend("odd")
    backend_switch.forget_files()


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("accepts=lambda site: 1 / 0", "'odd.sort', accepts raised ZeroDivisionError: division by zero"),
        ("accepts=lambda site: False", "'odd.sort', answer of accepts: expected None or a reason, got False"),
        ("cost=lambda site: site.no_such", "'odd.sort', cost raised AttributeError"),
        ("cost=lambda site: 1e-6", "'odd.sort', answer of cost: expected a Cost of 0 or more seconds, got 1e-06"),
        ("cost=lambda site: Cost(call=nan)", "'odd.sort', answer of cost: expected a Cost of 0 or more seconds"),
        ("cost=lambda site: Cost(call=-1)", "'odd.sort', answer of cost: expected a Cost of 0 or more seconds"),
        ("workspace=lambda site: site.nbytes // 0", "'odd.sort', workspace raised ZeroDivisionError"),
        ("workspace=lambda site: nan", "'odd.sort', answer of workspace: expected a whole number of bytes"),
        ("workspace=lambda site: -1", "'odd.sort', answer of workspace: expected a whole number of bytes"),
        ("features=lambda site: 3", "'odd.sort', features raised TypeError"),
        ("features=[8]", "'odd.sort', answer of features: expected names of features, got"),
    ],
)
def test_a_backend_that_gives_no_answer(odd: None, tmp_path: Path, said: str, message: str) -> None:
    path = tmp_path / "odd.py"
    path.write_text(FILE.format(said=said), encoding="utf-8")
    backend_switch.backend_passes(str(path))
    with pytest.raises(fuse_opt.InputError, match=message) as error:
        fuse_opt.optimize(ROWS, "attach-backends{backends=odd},wrap-kernels,select-implementation")
    assert "<string>:2:" in str(error.value)
