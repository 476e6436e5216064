"""Why kernels do not run by a kind is worked out once of those that are alike, and blames an op of each."""

from __future__ import annotations

import pytest
from ir_testing import parse

from fuse_opt.dialects.analysis.contractions import generated_products
from fuse_opt.dialects.analysis.contractions.generated_products import kind_problem
from fuse_opt.dialects.analysis.contractions.products import MATMUL, Product, product_of
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.shapes import sizes_asked_for

TEXT = """func.func @main(%x: X, %w: tensor<64x32xT>) -> (Y, Y) {
  %a = fused.kernel(%p = %x : X, %q = %w : tensor<64x32xT>) -> (Y) {
    %r = graph.matmul %p, %q : (X, tensor<64x32xT>) -> Y
    fused.yield %r : Y
  }
  %b = fused.kernel(%p = %x : X, %q = %w : tensor<64x32xT>) -> (Y) {
    %r = graph.matmul %p, %q : (X, tensor<64x32xT>) -> Y
    fused.yield %r : Y
  }
  func.return %a, %b : Y, Y
}"""
ANY = "tensor<?xEXTENTxT, #graph.shape<rows, EXTENT>>"


def kernels_of(dtype: str, type_: str) -> list[KernelOp]:
    given, made = (type_.replace("EXTENT", extent) for extent in ("64", "32"))
    text = TEXT.replace("X", given).replace("Y", made).replace("xT", f"x{dtype}")
    return [op for op in parse(text).walk() if isinstance(op, KernelOp)]


@pytest.fixture
def analysed(monkeypatch: pytest.MonkeyPatch) -> list[KernelOp]:
    """The kernels that are analysed."""
    found: list[KernelOp] = []

    def analyse(kernel: KernelOp) -> Product:
        found.append(kernel)
        return product_of(kernel)

    monkeypatch.setitem(generated_products._ANALYSES, MATMUL, analyse)  # pyright: ignore[reportPrivateUsage, reportArgumentType]
    monkeypatch.setattr(generated_products, "_PROBLEMS", {})
    return found


def test_each_of_alike_kernels_has_its_own_op_to_blame(analysed: list[KernelOp]) -> None:
    kernels = kernels_of("i64", "tensor<8xEXTENTxT>")
    for kernel in (*kernels, *kernels):
        problem = kind_problem(kernel, MATMUL)
        assert problem is not None and problem.code == "element-type"
        assert problem.op is kernel.block.first_op
    assert analysed == kernels[:1]


def test_what_is_asked_of_shapes_is_part_of_the_question(analysed: list[KernelOp]) -> None:
    (kernel, other) = kernels_of("f32", ANY)
    for each in (kernel, other):
        assert (problem := kind_problem(each, MATMUL)) is not None and problem.code == "dynamic-shape"
        with sizes_asked_for():
            assert kind_problem(each, MATMUL) is None
        with sizes_asked_for(long_rows=True):
            assert kind_problem(each, MATMUL) is None
    assert analysed == [kernel] * 3
