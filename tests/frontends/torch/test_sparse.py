"""Functions of sparse tensors of PyTorch as programs, judged by eager."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from lowered_programs import needs_compiler

torch: Any = pytest.importorskip("torch")
from fuse_opt.frontends.torch.sparse import SparseAdam, compile_sparse  # noqa: E402

pytestmark = [needs_compiler, pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")]


def matrix(rows: int = 24, columns: int = 24) -> Any:
    dense = torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows))
    return torch.where(dense.abs() > 1.2, dense, 0).to_sparse_csr()


A, X, SQUARE, TALL = matrix(), torch.randn(24, 5), torch.randn(24, 24), torch.randn(5, 24)
FUNCTIONS: dict[str, tuple[Callable[..., Any], Any]] = {
    "products": (lambda a, x, y: torch.relu(a @ x) + torch.sparse.mm(a, x) + a.t() @ x + (y @ a).t(), (A, X, TALL)),
    "accumulated": (lambda a, x: torch.sparse.addmm(x, a, x, beta=0.5, alpha=2) + (a @ x[:, 0])[:, None], (A, X)),
    "values": (lambda a: torch.tanh(torch.sin(a) * 3) * a, (A,)),
    "union": (lambda a, b: a + torch.relu(b), (A, A * -2)),
    "with dense": (lambda a, y: a * y, (A, SQUARE)),
    "sampled": (lambda a, x, y: torch.sparse.sampled_addmm(a, x, y, beta=0.5), (A, X, TALL)),
    "dense": (lambda a: a.to_dense() + a.sum(), (A,)),
}


def dense(value: Any) -> Any:
    return value if value.layout == torch.strided else value.to_dense()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_layouts_are_those_of_eager(name: str) -> None:
    function, given = FUNCTIONS[name]
    compiled: Any = compile_sparse(function, strict=True)
    found, wanted = compiled(*given), function(*given)
    assert found.layout == wanted.layout
    torch.testing.assert_close(dense(found), dense(wanted), rtol=1e-4, atol=1e-4)
    assert [program.fallbacks for program in compiled.programs()] == [(0, 0)]


def test_a_graph_network_has_gradients() -> None:
    w, b = torch.randn(5, 7, requires_grad=True), torch.randn(7, requires_grad=True)

    def network(a: Any, x: Any, w: Any, b: Any) -> Any:
        return a @ torch.relu(a @ (x @ w) + b)

    compiled: Any = compile_sparse(network, strict=True)
    for call in (network, compiled):
        call(A, X, w, b).square().sum().backward()
    for value in (w, b):
        half = torch.autograd.grad(network(A, X, w, b).square().sum(), value)[0]
        torch.testing.assert_close(value.grad, 2 * half, rtol=1e-4, atol=1e-3)
    assert [program.fallbacks for program in compiled.programs()] == [(0, 0)] * 2


def test_a_table_of_embeddings_gets_a_gradient_of_rows() -> None:
    layer, ids, dy = torch.nn.Embedding(40, 6, sparse=True), torch.tensor([[3, 9], [3, 0]]), torch.randn(2, 2, 6)
    compiled: Any = compile_sparse(layer, strict=True)
    compiled(ids).backward(dy)
    found: Any = layer.weight.grad
    layer.weight.grad = None
    layer(ids).backward(dy)
    wanted: Any = layer.weight.grad
    assert found.layout == torch.sparse_coo
    assert found._indices().tolist() == [[0, 3, 9]]
    torch.testing.assert_close(found.to_dense(), wanted.to_dense())


def test_a_step_writes_to_its_table_in_place() -> None:
    def step(w: Any, ids: Any, dy: Any) -> Any:
        leaf = w.detach().requires_grad_()
        with torch.enable_grad():
            (rows,) = torch.autograd.grad(torch.nn.functional.embedding(ids, leaf, sparse=True), [leaf], dy)
        w.add_(rows, alpha=-0.5)
        return w

    compiled: Any = compile_sparse(step, strict=True)
    tables, ids, dy = [torch.full((40, 6), -0.0) for _ in range(2)], torch.tensor([3, 9, 3]), torch.randn(3, 6)
    before = tables[0]._version
    for call, table in zip((compiled, step), tables, strict=True):
        assert call(table, ids, dy).data_ptr() == table.data_ptr()
    assert tables[0]._version > before
    torch.testing.assert_close(*tables)
    assert torch.equal(torch.signbit(tables[0]), torch.signbit(tables[1]))
    assert [program.fallbacks for program in compiled.programs()] == [(0, 0)]


def test_room_for_entries_grows_and_other_types_are_other_programs() -> None:
    compiled: Any = compile_sparse(lambda a, x: a @ x, strict=True)
    for a in (A, A + torch.eye(24).to_sparse_csr(), A.double()):
        x = X.to(a.dtype)
        torch.testing.assert_close(compiled(a, x), a @ x, rtol=1e-4, atol=1e-4)
    assert len(compiled.programs()) == 2


@pytest.mark.parametrize("columns", [[2, 0], [1, 1]])
def test_a_matrix_that_is_no_pattern_is_left_to_pytorch(columns: list[int]) -> None:
    a = torch.sparse_csr_tensor(
        torch.tensor([0, 2, 2]), torch.tensor(columns), torch.tensor([1.0, 2.0]), (2, 3), check_invariants=False
    )
    good, x = torch.eye(2, 3).to_sparse_csr(), torch.arange(6.0).reshape(3, 2)
    compiled: Any = compile_sparse(lambda a, x: a @ x)
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match=r"leaves a call to PyTorch, as it has no pattern: .*call \w+\(\)"):
            torch.testing.assert_close(compiled(a, x), a @ x)
        torch.testing.assert_close(compiled(good, x), good @ x)
    with pytest.raises(ValueError, match="indices: "):
        compile_sparse(lambda a, x: a @ x, strict=True)(a, x)


class _Dropped(torch.nn.Module):
    def forward(self, a: Any, x: Any) -> Any:
        return torch.nn.functional.dropout(a @ x, 0.5, self.training)


@pytest.mark.filterwarnings("ignore:fuse_opt leaves")
def test_a_module_that_is_trained_is_another_function() -> None:
    module = _Dropped().eval()
    compiled: Any = compile_sparse(module)
    for mode in (False, True, False):
        module.train(mode)
        results: list[Any] = []
        for call in (compiled, module):
            torch.manual_seed(3)
            results.append(call(A, X))
        torch.testing.assert_close(*results)
        assert bool((results[0] == 0).float().mean() > 0.3) == mode
    assert len(compiled.programs()) == 1


def test_products_under_autocast_are_other_programs() -> None:
    def product(a: Any, x: Any) -> Any:
        return a.to_dense() @ x

    compiled: Any = compile_sparse(product)
    for enabled in (False, True, False):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            found, wanted = compiled(A, X), product(A, X)
        assert found.dtype == (torch.bfloat16 if enabled else torch.float32)
        torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_element_types_that_numpy_lacks(dtype: Any) -> None:
    a, x = A.to(dtype), X.to(dtype).requires_grad_()
    compiled: Any = compile_sparse(lambda a, x: torch.relu(a.to_dense() @ x), strict=True)
    found = compiled(a, x)
    found.sum().backward()
    wanted = torch.relu(a.to_dense() @ x)
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(x.grad, torch.autograd.grad(wanted.sum(), x)[0], rtol=2e-2, atol=2e-2)
    steps: list[Any] = []
    for kind in (SparseAdam, torch.optim.SparseAdam):
        table = torch.nn.Embedding(9, 4, sparse=True, _weight=torch.linspace(-1, 1, 36, dtype=dtype).reshape(9, 4))
        table(torch.tensor([1, 5, 1])).sum().backward()
        kind(table.parameters(), lr=0.25).step()
        steps.append(table.weight.detach())
    torch.testing.assert_close(*steps, rtol=2e-2, atol=2e-2)


def test_sparse_adam_is_that_of_pytorch() -> None:
    """Ids that occur twice, varying numbers of them, a compiled model, and a schedule of rates; state may be exchanged."""
    layers = [
        torch.nn.Embedding(30, 4, sparse=True, _weight=torch.linspace(-1, 1, 120).reshape(30, 4)) for _ in range(2)
    ]
    optimizers = [
        kind(layer.parameters(), lr=0.25)
        for kind, layer in zip((SparseAdam, torch.optim.SparseAdam), layers, strict=True)
    ]
    dy = torch.randn(4, 4)
    for number, ids in enumerate([[1, 5, 1, 9], [5], [29, 0, 29]]):
        for layer, optimizer in zip(layers, optimizers, strict=True):
            optimizer.zero_grad()
            run: Any = torch.compile(layer, backend="fuse_opt") if number == 0 and layer is layers[0] else layer
            run(torch.tensor(ids)).backward(dy[: len(ids)])
            optimizer.param_groups[0]["lr"] = 0.25 / (number + 1)
            version = layer.weight._version
            optimizer.step()
            assert layer.weight._version > version
        torch.testing.assert_close(layers[0].weight, layers[1].weight, rtol=1e-5, atol=1e-6)
    optimizers[1].load_state_dict(optimizers[0].state_dict())


def test_gradient_descent_of_pytorch_on_gradients_of_rows() -> None:
    """PyTorch's SGD takes the gradients of a compiled layer: sorted rows, each once, where eager's come again."""
    layers = [
        torch.nn.Embedding(30, 4, sparse=True, _weight=torch.linspace(-1, 1, 120).reshape(30, 4)) for _ in range(2)
    ]
    calls: list[Any] = [compile_sparse(layers[0], strict=True), layers[1]]
    steps = [torch.optim.SGD(layer.parameters(), lr=0.25) for layer in layers]
    dy = torch.randn(4, 4)
    for ids in ([1, 5, 1, 9], [5], [29, 0, 29]):
        for layer, call, optimizer in zip(layers, calls, steps, strict=True):
            optimizer.zero_grad()
            call(torch.tensor(ids)).backward(dy[: len(ids)])
            assert layer.weight.grad is not None and layer.weight.grad.layout == torch.sparse_coo
            optimizer.step()
        torch.testing.assert_close(layers[0].weight, layers[1].weight, rtol=1e-6, atol=1e-6)


def test_what_has_no_program_steps_as_in_pytorch() -> None:
    table, other = torch.nn.Embedding(6, 2, sparse=True), torch.nn.Parameter(torch.ones(3, 2, 2))
    optimizer = SparseAdam([table.weight, other], lr=0.5)
    before = table.weight.detach().clone()
    table(torch.tensor([1, 1])).sum().backward()
    other.grad = torch.sparse_coo_tensor([[2]], torch.ones(1, 2, 2), (3, 2, 2))
    gradient = table.weight.grad
    assert optimizer.step(lambda: torch.tensor(3.0)) == 3
    assert (table.weight.detach() != before).any(1).tolist() == [False, True, False, False, False, False]
    assert (other.detach() != 1).any(2).any(1).tolist() == [False, False, True]
    assert table.weight.grad is gradient


@pytest.mark.parametrize(
    ("function", "given", "why"),
    [
        (lambda a, x: torch.sparse.mm(a, x), (A.to_sparse_coo(), X), "to_sparse_csr"),
        (lambda a: a.t(), (A,), "sparse_csc"),
        (lambda a: a @ SQUARE, (A,), "give it as one|convert all Tensors"),
        (lambda x: (x[0].mul_(2), x[0] + 1)[1], (torch.ones(3, 3),), "no argument|a view"),
    ],
)
def test_what_is_left_to_pytorch_runs_with_one_warning(function: Any, given: Any, why: str) -> None:
    compiled: Any = compile_sparse(function)
    with pytest.warns(RuntimeWarning, match=f"leaves a function to PyTorch.*({why})"):
        found = compiled(*given)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        compiled(*given)
    assert found.shape == function(*given).shape
    with pytest.raises(Exception, match=why):
        compile_sparse(function, strict=True)(*given)
    with pytest.raises(TypeError, match="expected tensors"):
        compiled(2)
