"""Graphs with symbols for extents: one program for all lengths, with eager's values and gradients."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from torch_block import Block  # noqa: E402

from fuse_opt.dialects.types.size import Size  # noqa: E402
from fuse_opt.frontends.torch.backend import collect_reports, fuse_opt  # noqa: E402
from fuse_opt.frontends.torch.codegen import sized_call  # noqa: E402
from fuse_opt.frontends.torch.fx.symbols import extent_of  # noqa: E402
from fuse_opt.runtime.host.c_compiler import find_c_compiler  # noqa: E402


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def check_lengths(
    module: Any, width: int, lengths: tuple[int, ...], programs: int, axes: int = 1, **options: Any
) -> Any:
    """Values, and gradients, of eager at all lengths, by so many programs for each graph; gives the reports."""
    fast = torch.compile(module, backend=fuse_opt, **options)
    with collect_reports() as reports:
        for length in lengths:
            x = torch.randn(*[2] * (axes - 1), length, width, requires_grad=True)
            slow_x = x.detach().clone().requires_grad_()
            y, expected = fast(x), module(slow_x)
            torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)
            seed = torch.randn_like(y)
            (found,), (wanted,) = torch.autograd.grad(y, [x], seed), torch.autograd.grad(expected, [slow_x], seed)
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert len(reports.graphs) == 2 * programs, "\n".join(map(str, reports.graphs))
    return reports.graphs


class Halves(torch.nn.Module):
    """Its gradient takes half of a length, and the length as a number, but no tensor that has it."""

    def forward(self, x: Any) -> Any:
        return torch.relu(torch.nn.functional.avg_pool1d(x.mT, 2))


def test_a_symbol_that_no_tensor_has_as_an_extent_by_itself():
    """Graphs of `s floordiv 2` are one program, also where nothing may be left to PyTorch."""
    check_lengths(Halves(), 3, (10, 15, 31, 512), programs=1, axes=2, dynamic=True, options={"strict": True})


def test_a_mlp_of_a_length_that_turns_out_to_vary():
    """PyTorch compiles the first length, the second one as a symbol, and 1 apart."""
    module = torch.nn.Sequential(torch.nn.Linear(8, 24), torch.nn.GELU(), torch.nn.Linear(24, 4))
    graphs = check_lengths(module, 8, (5, 7, 1, 2, 127, 512, 7), programs=3)
    assert [bool(graph.symbols) for graph in graphs] == [False, False, True, True, False, False]


def test_a_transformer_block():
    graphs = check_lengths(Block(), 16, (7, 2, 13, 61), programs=1, axes=2, dynamic=True)
    assert all(graph.symbols for graph in graphs)


def test_expressions_of_extents():
    seen: list[Any] = []

    def look(graph_module: Any, inputs: Any) -> Any:
        seen.extend(value for value in inputs if isinstance(value, torch.SymInt))
        n = seen[0]
        found = [extent_of(value) for value in (2 * n, n * n - 1, (n + 3) // 4, n % 4, torch.sym_max(n, 8))]
        symbol = extent_of(n)
        assert isinstance(symbol, Size) and found[0] == 2 * symbol and found[1] == symbol * symbol - 1
        assert [entry.evaluate({str(n): 10}) for entry in found if isinstance(entry, Size)] == [20, 99, 3, 2, 10]
        return graph_module

    def following(x: Any) -> Any:
        return x + 1

    torch.compile(following, backend=look, dynamic=True)(torch.randn(6, 6)[:5])
    assert seen


def test_an_axis_that_is_marked_as_dynamic():
    module = torch.nn.Sequential(torch.nn.Linear(8, 24), torch.nn.GELU())
    fast = torch.compile(module, backend=fuse_opt)
    with collect_reports() as reports, torch.no_grad():
        for length in (5, 7, 2, 131, 7):
            torch._dynamo.mark_dynamic(x := torch.randn(length, 8), 0)
            torch.testing.assert_close(fast(x), module(x), rtol=1e-5, atol=1e-6)
    assert [len(graph.symbols) for graph in reports.graphs] == [1]


def test_calls_in_turn_of_rows_that_are_short_and_long():
    """The text for short rows gives calls to the one for all, where frames are other ones, and takes those that follow."""

    def normalised(x: Any) -> Any:
        return torch.softmax(torch.cummax(x, 0).values, -1) * 2

    fast = torch.compile(normalised, backend=fuse_opt, dynamic=True)
    with collect_reports() as reports, torch.no_grad():
        for length in (100, 20011, 3, 16411, 100):
            x = torch.randn(3, length)
            torch.testing.assert_close(fast(x), normalised(x), rtol=1e-4, atol=1e-6)
    assert len(reports.graphs) == 1 and "aten.cummax" in str(reports.graphs[0])


PRODUCTS_OF_SIZES: dict[str, Callable[[Any, Any], Any]] = {
    "columns": lambda a, b: (a @ b.mT).relu(),
    "terms": lambda a, b: a @ b.mT @ b,
    "softcap": lambda a, b: torch.softmax(torch.tanh(a @ b.mT / 50) * 50, -1) @ b,
    "bias": lambda a, b: torch.baddbmm(a[:, :, :1], a, b.mT, alpha=0.5),
}


@pytest.mark.parametrize("kind", PRODUCTS_OF_SIZES)
def test_products_of_any_columns_and_terms(kind: str):
    fast = torch.compile(call := PRODUCTS_OF_SIZES[kind], backend=fuse_opt, dynamic=True)
    with collect_reports() as reports, torch.no_grad():
        for batch, rows, columns in ((3, 40, 60), (2, 7, 130), (5, 129, 3), (4, 3, 17), (3, 40, 60)):
            a, b = torch.randn(batch, rows, 32), torch.randn(batch, columns, 32)
            found, wanted = fast(a, b), call(a, b)
            assert found.stride() == wanted.stride()
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert len(reports.graphs) == 1 and not reports.graphs[0].counts.external


def test_gradients_by_weights_of_any_batch_are_torchs():
    """Sums over the rows of a batch, which it computes sooner; what is around them is not."""
    v, w = torch.nn.Linear(7, 32), torch.nn.Linear(7, 48)

    def call(x: Any) -> Any:
        return (v(x).mT @ w(x)).tanh()

    fast = torch.compile(call, backend=fuse_opt, dynamic=True)
    with collect_reports() as reports, torch.no_grad():
        for rows in (300, 5, 77):
            x = torch.randn(rows, 7)
            torch.testing.assert_close(fast(x), call(x), rtol=1e-4, atol=1e-4)
    assert "faster for 32 times 48" in str(reports.graphs[0])


def test_what_goes_wrong_beside_a_refusal_leaves_the_graph_to_pytorch(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object, **__: object) -> Any:
        raise RuntimeError("no such register")

    monkeypatch.setattr("fuse_opt.tools.compiler.api.compile_sized", fail)
    fast = torch.compile(torch.nn.functional.gelu, backend=fuse_opt, dynamic=True)
    x = torch.randn(6, 3)
    with (
        collect_reports() as reports,
        pytest.warns(RuntimeWarning, match="leaves a graph to PyTorch.*no such register") as said,
    ):
        for _ in range(2):
            torch.testing.assert_close(fast(x), torch.nn.functional.gelu(x), rtol=0, atol=0)
    assert not reports.graphs and len([one for one in said if "no such register" in str(one.message)]) == 1


def test_a_call_whose_workspace_lies_behind_the_arena():
    """Reads at positions are calls from Python in a graph with symbols: what follows from the arena's bytes is known, too."""

    def rows(x: Any) -> Any:
        found = x[torch.zeros(2, dtype=torch.long)]
        spread = found.flip(-1).unsqueeze(0).expand(3, *found.shape)
        return torch.cat([spread, spread], 0) * 2, found

    compiled = torch.compile(rows, backend="fuse_opt", dynamic=True)
    for extents in ((5, 2), (3, 4)):
        for got, wanted in zip(compiled(x := torch.randn(extents)), rows(x), strict=True):
            torch.testing.assert_close(got, wanted, rtol=0, atol=0)


def test_convolutions_of_images_of_any_extents():
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(16, 8, 3, stride=2),
    ).eval()
    fast = torch.compile(module, backend=fuse_opt, dynamic=True)
    with collect_reports() as reports, torch.no_grad():
        for batch, height, width in ((2, 20, 31), (3, 17, 12), (2, 64, 140)):
            x = torch.randn(batch, 3, height, width)
            torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-5)
    (graph,) = reports.graphs
    assert graph.symbols and not graph.counts.external, str(graph)


@pytest.mark.parametrize(
    "pool",
    [
        torch.nn.MaxPool2d(3, 2, ceil_mode=True),
        torch.nn.MaxPool2d(3, 2, 1, dilation=2, ceil_mode=True),
        torch.nn.AvgPool2d(3, 2, 1, ceil_mode=True),
        torch.nn.AvgPool2d((2, 3), 2, (0, 1), ceil_mode=True, count_include_pad=False),
    ],
    ids=str,
)
def test_pools_of_images_of_any_extents_whose_last_windows_reach_beyond(pool: Any):
    fast = torch.compile(pool, backend=fuse_opt, dynamic=True, options={"strict": True})
    with collect_reports() as reports:
        for extents in ((7, 9), (12, 8), (5, 6), (10, 11), (6, 33)):
            x = torch.randn(2, 3, *extents)
            torch.testing.assert_close(fast(x), pool(x), rtol=1e-5, atol=1e-6)
    (graph,) = reports.graphs
    assert len(graph.symbols) == 4 and not graph.counts.external, str(graph)


def numbers(x: Any) -> Any:
    rows, columns = x.shape
    whole = (x * 10).to(torch.int32)
    return (
        x * rows + columns // 2,
        x.sum(0) / rows,
        x / rows**0.5,
        whole + rows * columns,
        whole.to(torch.uint8) + rows,
        torch.where(x > 0.5, rows, x),
        x.clamp(max=rows),
        x.to(torch.float16) * rows,
        whole > rows,
        x.add(x, alpha=rows),
        torch.full((rows,), columns) + 1,
    )


@pytest.mark.parametrize("target", ["cpu", "emulated"])
def test_arithmetic_with_the_numbers_of_extents(target: str):
    """They are code of the program: `graph.full` of a size."""
    if target == "emulated" and shutil.which("g++") is None:
        pytest.skip("CUDA C is emulated by g++")
    options = {"strict": True, "target": target, "emulate_precision_casts": True}
    fast = torch.compile(numbers, backend=fuse_opt, dynamic=True, options=options)
    with collect_reports() as reports:
        for shape in ((5, 3), (300, 9), (33, 777)):
            x = torch.rand(shape)
            found, wanted = fast(x), numbers(x)
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
            assert [each.dtype for each in found] == [each.dtype for each in wanted]
    (graph,) = reports.graphs
    assert len(graph.symbols) == 2 and not graph.counts.external, str(graph)


def test_the_number_of_an_extent_among_small_kernels_that_are_packed():
    """A part of a pack takes numbers of the call, as a kernel by itself does."""

    def few(x: Any) -> tuple[Any, ...]:
        return torch.full((3,), x.shape[0]) + 1.5, torch.arange(2).float() * 0.5 + x.shape[1], x + 1

    fast = torch.compile(few, backend=fuse_opt, dynamic=True, options={"strict": True})
    with collect_reports() as reports:
        for shape in ((5, 3), (300, 9)):
            x = torch.rand(shape)
            torch.testing.assert_close(fast(x), few(x), rtol=0, atol=0)
    (graph,) = reports.graphs
    assert len(graph.symbols) == 2, str(graph)


def test_a_norm_of_batches_with_channels_innermost_in_training():
    """Of the usual extents its rows are longer than the text for short ones takes: one for all is compiled at once."""

    def normalised(x: Any) -> Any:
        y = torch.nn.functional.batch_norm(x, None, None, training=True)
        return y.contiguous(memory_format=torch.channels_last)

    fast = torch.compile(normalised, backend=fuse_opt, dynamic=True, options={"strict": True})
    with collect_reports() as reports:
        for shape in ((2, 3, 4, 5), (6, 5, 70, 70), (3, 2, 9, 4)):
            x = torch.randn(shape).mT
            torch.testing.assert_close(fast(x), normalised(x), rtol=1e-4, atol=1e-5)
    (graph,) = reports.graphs
    assert graph.symbols, str(graph)


def test_a_graph_all_of_whose_symbols_are_known_by_guards():
    """It has the number of a symbol as an argument, but computes with none of them."""

    def changed(x: Any, y: Any) -> Any:
        x.mul_(2)
        torch.nn.functional.pad(y, (-1, 0))
        return x + 1

    fast = torch.compile(changed, backend=fuse_opt, dynamic=True, options={"strict": True})
    for length in (4, 2, 6, 2):
        x, y = torch.randn(1), torch.randn(1).expand(length)
        wanted, kept = changed(x.clone(), y), x * 2
        torch.testing.assert_close((fast(x, y), x), (wanted, kept), rtol=0, atol=0)


def test_gradients_of_a_part_whose_extent_is_above_0_only_from_some_length_on():
    """The backward graph has the length as a number alone, of which the function says the range that its program is for."""

    def part(x: Any) -> Any:
        return x.chunk(2, 1)[1]

    fast = torch.compile(part, backend=fuse_opt, dynamic=True, options={"strict": True})
    for length in (4, 6, 3, 9, 7):
        found, wanted = (torch.randn(2, length, 3, requires_grad=True) for _ in range(2))
        for x, call in ((found, fast), (wanted, part)):
            torch.autograd.backward((y := call(x)), torch.arange(y.numel()).view(y.shape).float())
        torch.testing.assert_close(found.grad, wanted.grad, rtol=0, atol=0)


def shuffled(x: Any) -> Any:
    return torch.nn.functional.channel_shuffle(x, 2)


def normalised(x: Any) -> Any:
    return torch.nn.functional.batch_norm(x, None, None, training=True)


def unpooled(x: Any) -> Any:
    places = torch.arange(x[0, 0].numel()).view(x.shape[2:])
    return torch.nn.functional.max_unpool2d(x, places.expand(x.shape), 2)


@pytest.mark.parametrize("of_images", [shuffled, normalised, unpooled])
def test_results_of_images_of_any_extents_lie_as_in_eager(of_images: Any):
    fast = torch.compile(of_images, backend=fuse_opt, dynamic=True, options={"strict": True})
    for extents in ((2, 6, 4, 4), (3, 4, 8, 6)):
        plain = torch.randn(extents)
        for x in (plain.to(memory_format=torch.channels_last), plain, plain.mT):
            found, wanted = fast(x), of_images(x)
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5, check_stride=True)


def test_numbers_of_extents_that_would_be_computed_again():
    """They are in every kernel that reads them: decisions do not name them."""

    def sampled(x: Any, grid: Any) -> Any:
        return torch.nn.functional.grid_sample(x, grid, align_corners=False, padding_mode="border")

    fast = torch.compile(sampled, backend=fuse_opt, dynamic=True, options={"strict": True})
    for side in (5, 9):
        x, grid = torch.randn(2, 3, side, side + 1), torch.rand(2, 4, side, 2) * 2.2 - 1.1
        torch.testing.assert_close(fast(x, grid), sampled(x, grid), rtol=1e-4, atol=1e-5)


def test_a_number_of_python_that_only_values_have():
    def scaled(x: Any, factor: int) -> Any:
        return x * factor + 1

    fast = torch.compile(scaled, backend=fuse_opt, dynamic=True, options={"strict": True})
    with collect_reports() as reports:
        for factor in (2, 3, 7):
            x = torch.randn(4, 3)
            torch.testing.assert_close(fast(x, factor), scaled(x, factor), rtol=0, atol=0)
    (graph,) = reports.graphs
    assert len(graph.symbols) == 3, str(graph)


def test_the_state_of_random_numbers_that_is_kept_for_a_checkpoint():
    """PyTorch takes its length for a symbol, which no argument has: such graphs are compiled for each set of extents."""
    dropped = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.4), torch.nn.ReLU())

    def saved(x: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(dropped, x, use_reentrant=False)

    fast = torch.compile(saved, backend=fuse_opt, dynamic=True, options={"strict": True})
    for rows in (3, 5):
        found, wanted = (torch.ones(rows, 4, requires_grad=True) for _ in range(2))
        for x, call in ((found, fast), (wanted, saved)):
            torch.manual_seed(1)
            call(x).sum().backward()
        torch.testing.assert_close(found.grad, wanted.grad, rtol=1e-5, atol=1e-6)


POSITIONS = {
    "gather": "x.gather(1, i) + y",
    "shared": "x.gather(1, i[:1].expand(len(x), -1)) * 2",
    "take": "x.take(i)",
    "index": "x[:, i[0]] + y",
    "scatter": "x.scatter(1, i, y)",
    "scatter_add": "x.scatter_add(1, i, y).relu()",
    "index_put": "x.t().index_put((i[0],), y.t(), accumulate=True)",
    "cumsum": "x.cumsum(1) + x.cumsum(0)",
    "bucketize": "torch.bucketize(x, y.flatten().sort()[0])",
}
"""Functions of x, positions along its rows, and values."""


def positions(kind: str) -> Any:
    return eval(f"lambda x, i, y: {POSITIONS[kind]}", {"torch": torch, "len": len})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("kind", POSITIONS)
def test_positions_in_arrays_of_any_extents(kind: str, dtype: Any):
    """In turn of small and larger ones, as frames of one are taken for the other."""
    call, atol = positions(kind), 0.02 if dtype is torch.float16 else 1e-4
    fast = torch.compile(call, backend=fuse_opt, dynamic=True)
    for rows, columns in ((3, 5), (40, 301), (7, 9), (41, 300), (3, 5)):
        x, y = torch.randn(rows, columns).to(dtype), torch.randn(rows, columns).to(dtype)
        i = torch.rand(rows, columns).argsort(1)
        torch.testing.assert_close(fast(x, i, y), call(x, i, y), rtol=1e-2, atol=atol)


def test_positions_that_are_out_of_range_in_arrays_of_any_extents():
    fast = torch.compile(positions("gather"), backend=fuse_opt, dynamic=True)
    x = torch.randn(6, 50)
    for last in (49, 50):
        i = torch.full((6, 50), last)
        if last < 50:
            torch.testing.assert_close(fast(x, i, x), x.gather(1, i) + x)
        else:
            with pytest.raises(IndexError, match="index 50 .* out of range for axis 1 of extent 50"):
                fast(x, i, x)


@pytest.mark.parametrize("kind", [kind for kind in POSITIONS if kind != "bucketize"])
def test_positions_in_arrays_of_any_extents_are_looked_up_without_python(kind: str, monkeypatch: pytest.MonkeyPatch):
    if find_c_compiler() is None:
        pytest.skip("no C compiler")

    def library_step(step: Any) -> Any:
        raise AssertionError(f"{step.implementation} is run from Python")

    monkeypatch.setattr(sized_call, "library_step", library_step)
    fast = torch.compile(positions(kind), backend=fuse_opt, dynamic=True, options={"strict": True})
    for rows, columns in ((3, 5), (4, 30)):
        x, i = torch.randn(rows, columns), torch.rand(rows, columns).argsort(1)
        torch.testing.assert_close(fast(x, i, x), positions(kind)(x, i, x))


SLICES = {
    "ends": "a.diff(dim=1)",
    "steps": "a[::2, ::3] * 2",
    "begin": "a[:, :4] * 2",
    "end": "a[-3:].exp()",
    "of_sizes": "a[: b.shape[0] - 1, 1:] * 2",
    "half": "a[b.shape[1] // 2 :] + 1",
    "inner": "a[:, -5:-2] * 2",
    "summed": "a[::3].sum()",
    "columns": "a[:, ::2].t() * 2",
    "last": "a[:, -1].exp()",
    "neighbours": "a[:, 1:-1] - a[:, 2:]",
    "boxes": "(a[1:-1, 2:] * b[2:, 1:-1]).t() + 1",
    "last_but_one": "a[:, -2] + b[-2]",
    "repeated": "a[:1].repeat(b.shape[0], 2) + 1",
    "repeated_in_front": "a.repeat(b.shape[1] // 2, 1, 1) * 2",
}


@pytest.mark.parametrize("kind", SLICES)
def test_slices_of_any_extents(kind: str):
    """No view of them is PyTorch's, for which what reads it would be, too; values, shapes and strides are eager's."""
    call = eval(f"lambda a, b: {SLICES[kind]}")
    fast = torch.compile(call, backend=fuse_opt, dynamic=True, options={"strict": True})
    with collect_reports() as reports:
        for n in (50, 31, 9, 8, 7, 50):
            a, b = torch.randn(n, n), torch.randn(n, n)
            found, wanted = fast(a, b), call(a, b)
            assert found.stride() == wanted.stride()
            torch.testing.assert_close(found, wanted)
    assert reports.graphs[0].symbols and not reports.graphs[0].counts.external


UPDATES = {
    "columns": "c[:, 1:] += 1",
    "steps": "c[1:, ::2] = b[1:, ::2]",
    "scaled": "c[:-1].mul_(2)",
    "last": "c[-1] = b[0]",
    "rows": "c[: b.shape[0] - 1] = b[1:]",
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("kind", UPDATES)
def test_parts_that_are_written_to_are_not_pytorchs(kind: str, dynamic: bool):
    """Neither what `copy_` gives, which has the gaps of the part, nor what puts it there."""
    names: dict[str, Any] = {}
    exec(f"def update(a, b):\n    c = a * 2\n    {UPDATES[kind]}\n    return c.exp(), c", names)
    fast = torch.compile(names["update"], backend=fuse_opt, dynamic=dynamic, options={"strict": True})
    with collect_reports() as reports:
        for n in (20, 9) if dynamic else (20,):
            a, b = torch.randn(n, n), torch.randn(n, n)
            for found, wanted in zip(fast(a, b), names["update"](a, b), strict=True):
                assert found.stride() == wanted.stride()
                torch.testing.assert_close(found, wanted)
    assert not reports.graphs[0].counts.external and bool(reports.graphs[0].symbols) == dynamic
