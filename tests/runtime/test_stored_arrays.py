"""Sparse arguments: what is taken, what is refused before anything runs, and what comes back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuse_opt

CSR = "tensor<3x4xf32, #graph.csr<capacity = 5>>"
ROWS = "tensor<3x4xf32, #graph.row_sparse<capacity = 2>>"
INDPTR, INDICES = np.array([0, 2, 2, 4], np.int32), np.array([0, 3, 1, 2], np.int32)
VALUES = np.array([1, np.nan, 0, -np.inf], np.float32)


def identity(type_: str) -> Any:
    body = f"  %0 = graph.relu %a : ({type_}) -> {type_}\n  func.return %0 : {type_}"
    return fuse_opt.compile(f"func.func @main(%a: {type_}) -> {type_} {{\n{body}\n}}", target="reference")


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ((INDPTR, INDICES), TypeError, "a tuple \\(indptr, indices, values\\)"),
        (np.zeros((3, 4), np.float32), TypeError, "stored as csr with a capacity of 5"),
        ((INDPTR, INDICES, VALUES.astype(float)), TypeError, "got elements of float64"),
        ((INDPTR[:-1], INDICES, VALUES), ValueError, "expected 4 elements"),
        ((INDPTR, INDICES, VALUES[1:]), ValueError, "expected shape \\[4\\]"),
        ((np.array([0, 2, 1, 4]), INDICES, VALUES), ValueError, "that do not fall"),
        ((np.array([0, 2, 2, 3]), INDICES, VALUES), ValueError, "from 0 to 4"),
        ((np.array([0, 3, 2, 4], np.uint32), np.arange(4), VALUES), ValueError, "that do not fall"),
        ((np.array([0, 4_000_000_000, 4, 4], np.uint32), np.arange(4), VALUES), ValueError, "that do not fall"),
        ((np.array([0, 2**63, 4, 4], np.uint64), np.arange(4), VALUES), ValueError, "that do not fall"),
        ((INDPTR, np.array([0, 4, 1, 2]), VALUES), ValueError, "4 at 1 is out of range; expected 0 <= index < 4"),
        ((INDPTR, np.array([0, -1, 1, 2]), VALUES), ValueError, "-1 at 1 is out of range"),
        ((INDPTR, np.array([3, 0, 1, 2]), VALUES), ValueError, "sort_indices"),
        ((INDPTR, np.array([0, 3, 1, 1]), VALUES), ValueError, "occurs twice; call sum_duplicates"),
        (
            (np.array([0, 2, 4, 6]), np.array([0, 1] * 3), np.zeros(6, np.float32)),
            ValueError,
            "6 entries, but a capacity of 5",
        ),
    ],
)
def test_refused(given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        identity(CSR)(given)


def test_tuples_come_back_without_the_room_behind() -> None:
    indptr, indices, values = identity(CSR)((INDPTR, INDICES, VALUES))
    np.testing.assert_array_equal(indptr, INDPTR)
    np.testing.assert_array_equal(indices, INDICES)
    np.testing.assert_array_equal(values, np.array([1, np.nan, 0, 0], np.float32))  # a stored zero stays


def test_the_last_of_a_row_may_be_larger_than_the_first_of_the_next() -> None:
    full = (np.array([0, 1, 3, 5]), np.array([3, 0, 1, 0, 3]), np.ones(5, np.float32))
    np.testing.assert_array_equal(identity(CSR)(full)[1], full[1])


def test_row_sparse_tuples() -> None:
    given = (np.array([0, 2]), np.ones((2, 4), np.float32))
    indices, values = identity(ROWS)(given)
    np.testing.assert_array_equal(indices, given[0])
    np.testing.assert_array_equal(values, given[1])
    with pytest.raises(ValueError, match="3 entries, but a capacity of 2"):
        identity(ROWS)((np.arange(3), np.ones((3, 4), np.float32)))


def test_scipy() -> None:
    sparse = pytest.importorskip("scipy.sparse", reason="SciPy is optional")
    given = sparse.csr_matrix((VALUES, INDICES, INDPTR), shape=(3, 4))
    found = identity(CSR)(given)
    assert found.format == "csr" and found.shape == (3, 4)
    with pytest.raises(TypeError, match="tocsr"):
        identity(CSR)(given.tocoo())
    with pytest.raises(ValueError, match=r"got shape \[4, 3\]"):
        identity(CSR)(given.T.tocsr())


def test_capacity_is_exceeded_in_the_run() -> None:
    dense = "tensor<3x4xf32>"
    body = f"  %0 = graph.to_storage %x : ({dense}) -> {CSR}\n  func.return %0 : {CSR}"
    text = f"func.func @main(%x: {dense}) -> {CSR} {{\n{body}\n}}"
    for target in ("reference", "cpu"):
        program = fuse_opt.compile(text, target=target)
        with pytest.raises(ValueError, match="6 entries, but a capacity of 5"):
            program(np.array([[1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0]], np.float32))
        found = program(np.array([[1, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0]], np.float32))
        assert found[0].tolist() == [0, 3, 5, 5]


def test_frozen() -> None:
    dense = "tensor<4x2xf32>"
    text = f"""func.func @main(%a: {CSR}, %x: {dense}) -> tensor<3x2xf32> {{
  %0 = graph.matmul %a, %x : ({CSR}, {dense}) -> tensor<3x2xf32>
  func.return %0 : tensor<3x2xf32>
}}"""
    x, given = np.arange(8, dtype=np.float32).reshape(4, 2), (INDPTR, INDICES, np.ones(4, np.float32))
    program = fuse_opt.compile(text)
    expected = program(given, x)
    np.testing.assert_array_equal(program.freeze({"a": given})(x), expected)
    assert program.unbound == (1,)


@pytest.mark.parametrize("name", ["bf16", "f16", "f64"])
def test_element_types_of_pytorch(name: str) -> None:
    """NumPy has none for some of them."""
    torch: Any = pytest.importorskip("torch")
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64}[name]
    dense = torch.tensor([[1.5, 0, -2, 0], [0, 0, 0, 0], [0, -0.25, 0, 4]], dtype=dtype)
    found = identity(CSR.replace("f32", name))(dense.to_sparse_csr())
    assert found.layout == torch.sparse_csr and torch.equal(found.to_dense(), torch.relu(dense))
    rows = torch.sparse_coo_tensor(torch.tensor([[2, 0]]), dense[[2, 0]], size=(3, 4))
    found = identity(ROWS.replace("f32", name))(rows)
    assert found.layout == torch.sparse_coo and torch.equal(found.to_dense(), torch.relu(dense))


@pytest.mark.parametrize(
    ("indptr", "indices", "message"),
    [
        ([0, 2, 4, 6], [0, 1] * 3, "6 entries, but a capacity of 5"),
        ([0, 2, 2, 4], [0, 4, 1, 2], "4 at 1 is out of range"),
        ([0, 2, 2, 4], [3, 0, 1, 2], "sort_indices"),
        ([0, 2, 2, 4], [0, 3, 1, 1], "occurs twice"),
        ([0, 2, 1, 4], [0, 1, 2, 3], "that do not fall"),
    ],
)
def test_patterns_of_pytorch_are_looked_at(indptr: list[int], indices: list[int], message: str) -> None:
    """PyTorch makes a tensor of any indices where it is not told to look at them."""
    torch: Any = pytest.importorskip("torch")
    given = torch.sparse_csr_tensor(
        torch.tensor(indptr), torch.tensor(indices), torch.ones(len(indices)), size=(3, 4), check_invariants=False
    )
    with pytest.raises(ValueError, match=message):
        identity(CSR)(given)


def test_pytorch_gets_what_it_gave() -> None:
    """Infinities, NaN and zeros that are stored, a capacity met and not met, and layouts that are of another kind."""
    torch: Any = pytest.importorskip("torch")
    for indptr, indices in ((INDPTR, INDICES), (np.array([0, 3, 3, 5]), np.array([0, 1, 3, 1, 2]))):
        values = torch.tensor([1, np.nan, 0, np.inf, 2][: indices.size], dtype=torch.float32)
        given = torch.sparse_csr_tensor(torch.tensor(indptr), torch.tensor(indices), values, size=(3, 4))
        found = identity(CSR)(given)
        assert found.layout == torch.sparse_csr
        for part in ("crow_indices", "col_indices", "values"):
            np.testing.assert_array_equal(getattr(found, part)().numpy(), getattr(given, part)().numpy())
    with pytest.raises(TypeError, match="to_sparse_csr"):
        identity(CSR)(given.to_sparse_coo())
    with pytest.raises(TypeError, match="torch.sparse_coo with one sparse dimension"):
        identity(ROWS)(given)
    with pytest.raises(ValueError, match="3 entries, but a capacity of 2"):
        identity(ROWS)(torch.sparse_coo_tensor(torch.tensor([[0, 1, 2]]), torch.ones(3, 4), size=(3, 4)))


def test_scipy_has_no_rows_of_its_own() -> None:
    sparse = pytest.importorskip("scipy.sparse", reason="SciPy is optional")
    with pytest.raises(TypeError, match="give \\(indices, values\\)"):
        identity(ROWS)(sparse.csr_matrix((VALUES, INDICES, INDPTR), shape=(3, 4)))
