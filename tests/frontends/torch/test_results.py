"""What torch.compile hands out and leaves behind is what eager does: shapes, element types, aliases, arguments."""

import platform
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from torch_fuzz import difference, run
from torch_programs import Program, parsed_argument
from torch_testing import code, compiled, fuse_opt, torch
from torch_testing import fresh as fresh


def agree(arguments: Sequence[str], *lines: str, returned: Sequence[str] = (), owned: Sequence[str] = ()) -> None:
    """Compares a program with eager in all that a caller can see; an argument is "dtype extents layout grad"."""
    made = [parsed_argument(f"x{k}", text) for k, text in enumerate(arguments)]
    own = [parsed_argument(f"self.b{k}", text) for k, text in enumerate(owned)]
    for dynamic in (False, True):
        program = Program(tuple(made), tuple(own), lines, tuple(returned), dynamic, 7)
        wanted = run(program, None)
        assert wanted.error is None, wanted.error
        found = difference(run(program, fuse_opt, options={"strict": True}), wanted)
        assert found is None, f"{found}\n{program.shown()}"


def test_a_result_in_an_argument_has_its_own_shape():
    agree(["float32 3x4", "float32 12"], "x1.add_(1)", returned=["x0 * 2"])


@pytest.mark.parametrize("dtype", ["int32", "float32", "float64", "int8", "bfloat16"])
def test_a_result_in_an_argument_has_its_own_element_type(dtype: str):
    agree([f"{dtype} 12", "float32 12"], "x1.add_(1)", returned=["x0 * 2"])


def test_a_copy_of_a_written_argument_in_another_shape():
    agree(["float32 3x4"], "x0.add_(1)", returned=["x0.reshape(12).clone()"])


def test_a_result_whose_transpose_is_stored():
    agree(["float32 3x4"], "z = x0.t() * 2", "x0.copy_(z.t())", returned=["z"])


def test_buffers_of_modules():
    agree(
        ["float32 3x4"], "self.b0.add_(1)", returned=["x0 * 2", "self.b0.reshape(3, 4).clone()"], owned=["float32 12"]
    )
    training = ["float32 3x4 plain grad"]
    agree(training, "self.b0.add_(1)", returned=["x0 * 2", "self.b0.view(4, 3) + 1"], owned=["float32 12"])


def test_arguments_that_change_places():
    swap = ("z = x0.clone()", "x0.copy_(x1)", "x1.copy_(z)")
    agree(["float32 3x4", "float32 3x4"], *swap)
    agree(["float32 3x4", "float32 3x4 steps"], *swap, returned=["x1", "x0 + 1", "z"])
    agree(["float32 3x4", "int32 12"], "z = x0.clone()", "x0.copy_(x1.view(3, 4))", "x1.copy_(z.view(12))")


def test_three_arguments_change_places():
    turn = ("z = x0.clone()", "x0.copy_(x1)", "x1.copy_(x2)", "x2.copy_(z)")
    agree(["float32 3x3", "float32 3x3 transposed", "float32 3x3 steps"], *turn, returned=["x0.t()", "z"])


def test_an_argument_that_becomes_its_own_transpose():
    agree(["float32 3x3"], "x0.copy_(x0.t().clone())", returned=["x0", "x0 * 1"])
    agree(["complex64 3x3"], "x0.copy_(x0.t().clone())", returned=["x0", "x0.real + 1"])


def test_results_in_common():
    agree(
        ["float32 3x4"],
        "z = x0 * 2",
        "y = z.clone()",
        returned=["z", "z", "y", "z.t()", "z.reshape(-1)", "x0", "x0.t()"],
    )


def test_views_that_change_what_bytes_mean():
    agree(
        ["float32 3x4"],
        "z = x0 * 2",
        returned=["z.view(torch.int32)", "z.view(torch.int16).t()", "x0.view(torch.uint8)"],
    )
    agree(
        ["float32 3x4"], "z = (x0 * 2).view(torch.int32)", "x0.add_(1)", returned=["z", "z + 1", "x0.view(torch.int32)"]
    )
    agree(["complex64 2x3"], "x0.view(torch.int32).add_(0)")
    agree(["complex64 2x3"], "z = torch.view_as_real(x0 * 2)", "x0.mul_(2)", returned=["z[..., 1]", "z + 1"])


def test_offsets_that_count_from_the_beginning_of_a_storage():
    def function(x: Any) -> Any:
        return x.as_strided((2, 2), (1, 2), 1) + 1

    base, fast = torch.arange(40.0), compiled(function, options={"strict": True})
    for start in (3, 0, 8):
        x = base[start : start + 12].view(3, 4)
        torch.testing.assert_close(fast(x), function(x))


SIGNS: dict[str, Callable[[Any], Any]] = {
    "an argument's": lambda x: x.imag * 1.5,
    "conjugated": lambda x: x.conj().imag * 2,
    "of a transform": lambda x: torch.fft.fft(x).conj().imag + 1,
    "of a part": lambda x: x.conj().imag[1:].t() * 2,
    "handed out": lambda x: x.conj().imag,
    "stored": lambda x: x.real.copy_(x.conj().imag) + 1,
    "copied": lambda x: x.conj().imag.clone(),
    "turned back": lambda x: torch.view_as_real(x.conj().resolve_conj())[..., 1] * 2,
}


@pytest.mark.parametrize("name", SIGNS)
@pytest.mark.parametrize("conjugated", [False, True])
def test_signs_of_imaginary_parts(name: str, conjugated: bool):
    x = torch.randn(3, 4, dtype=torch.complex64)
    x, y = (x.clone().conj(), x.clone().conj()) if conjugated else (x.clone(), x.clone())
    found, wanted = compiled(SIGNS[name], options={"strict": True})(x), SIGNS[name](y)
    assert found.is_neg() == wanted.is_neg()
    torch.testing.assert_close(found.resolve_neg(), wanted.resolve_neg())
    torch.testing.assert_close(x.resolve_conj(), y.resolve_conj())


NOTHING_COMPUTED = [
    "x0.T",
    "x0.contiguous()",
    "x0.float()",
    "x0.as_strided((2, 2), (1, 2))",
    "x0[1:].expand(2, 2, 4)",
    "x0",
]


@pytest.mark.parametrize("text", NOTHING_COMPUTED)
def test_graphs_that_return_arguments_and_views_of_them(text: str):
    agree(["float32 3x4"], returned=[text])
    agree(["float32 3x4 plain grad"], returned=[text])


@pytest.mark.parametrize("text", ["x0 + 1", "x0 + x1", "x0.clone()", "torch.nn.functional.dropout(x0, 0.0) * 1"])
def test_backward_graphs_that_hand_tangents_through(text: str):
    agree(["float32 3x4 plain grad", "float32 3x4 plain grad"], returned=[text, "x1 + 2"])


def test_dropout_that_drops_nothing_gives_its_argument():
    agree(["float32 3x4"], "z = torch.nn.functional.dropout(x0[None], 0.0)", "z.fill_(2)")
    agree(["float32 3x4 plain grad"], returned=["torch.nn.functional.dropout(x0, 0.0)"])
    agree(["float32 3x4"], returned=["torch.nn.functional.dropout(x0, 0.3, training=False)", "x0 + 1"])


def test_a_graph_without_results():
    agree(["float32 3x4", "float32 3x4"], "x0.copy_(x1)")
    agree(["float32 3x4"], "x0.copy_(x0)", returned=["x0 + 0.5"])


def test_results_of_calls_are_read_where_they_are():
    agree(["float32 4x4"], "z, i = x0.sort(0)", "y = z * 1", returned=["y @ z", "z", "i + 1"])


def test_nothing_is_cloned_without_need(tmp_path: Any):
    def function(x: Any, y: Any) -> Any:
        x.add_(y)
        return y * 2

    text = code(function, tmp_path, torch.ones(3, 4), torch.ones(3, 4))
    assert "copy_" not in text and "clone" not in text


@pytest.mark.parametrize("dynamic", [False, True])
def test_memory_that_a_kernel_of_pytorch_gives_another_layout(dynamic: bool) -> None:
    """The gradient of a replicated padding is written with channels innermost, whatever memory it is given."""

    def padded() -> Any:
        return torch.nn.Sequential(torch.nn.BatchNorm2d(3), torch.nn.ReplicationPad2d(1))

    torch.manual_seed(0)
    x = torch.randn(2, 3, 5, 4).to(memory_format=torch.channels_last)
    weights = torch.randn(2, 3, 7, 6)
    gradients: list[Any] = []
    for module in (padded(), torch.compile(padded(), backend="fuse_opt", dynamic=dynamic, options={"strict": True})):
        given = x.clone().requires_grad_()
        (module(given) * weights).sum().backward()
        gradients.append((given.grad, *(parameter.grad for parameter in module.parameters())))
    for wanted, found in zip(*gradients, strict=True):
        torch.testing.assert_close(found, wanted)
        assert found.stride() == wanted.stride()


@pytest.mark.parametrize("training", [False, True])
def test_norms_of_batches_and_shuffles_lie_as_eager_lays_them_out(training: bool) -> None:
    """Found by random modules: what PyTorch's decompositions give lies as their argument does."""
    nn, inner = torch.nn, torch.channels_last
    for module, x in (
        (nn.BatchNorm1d(33), torch.randn(33, 5).t()),
        (nn.BatchNorm1d(4), torch.randn(3, 6, 4).transpose(1, 2)),
        (nn.BatchNorm2d(4), torch.randn(4, 2, 5, 6).transpose(0, 1)),
        (nn.BatchNorm2d(4), torch.randn(2, 4, 5, 6).to(memory_format=inner)),
        (nn.ChannelShuffle(2), torch.randn(2, 4, 5, 6).to(memory_format=inner)),
    ):
        module.train(training)
        results: list[Any] = []
        for call in (module, compiled(module, options={"strict": True})):
            given = x.detach().requires_grad_()
            y = call(given)
            (gradient,) = torch.autograd.grad(y, given, torch.ones_like(y))
            results.append((y, gradient))
        assert results[1][0].stride() == results[0][0].stride(), (module, x.stride())
        for wanted, found in zip(*results, strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_averages_of_images_whose_extents_are_symbols():
    """Their decompositions lay results out by extents, which are arguments of the graph, too (fuzz: network 10)."""
    agree(["float32 2x6x4x4 last"], returned=["torch.nn.functional.adaptive_avg_pool2d(x0, 1)"])
    agree(["float32 3x4x5x9", "float32 4"], returned=["torch.nn.functional.group_norm(x0, 2, x1, x1)"])


@pytest.mark.parametrize("argument", ["float32 2x7x8 last", "bfloat16 2x4x3x5 last grad", "float32 5x3 transposed"])
def test_logsigmoid_is_in_c_order(argument: str):
    agree([argument], returned=["torch.nn.functional.logsigmoid(x0)"])


@pytest.mark.parametrize("kind", ["float32 4x6 transposed", "bfloat16 2x4x6 last", "int64 6x4 transposed"])
def test_powers_of_numbers_are_in_c_order(kind: str):
    agree([kind], returned=["2 ** x0.abs()", "1.5 ** x0", "torch.ldexp(x0, x0)"])


@pytest.mark.parametrize("shape", ["-", "1x6", "4x6"])
def test_results_on_elements_are_in_the_order_of_all_operands(shape: str):
    """Not in that which tracing notes, or which a decomposition chooses."""
    agree(
        ["float32 4x6 transposed", f"float32 {shape}"],
        returned=[
            "torch.div(x0, x1 + 9, rounding_mode='floor')",
            "torch.copysign(x0, x1)",
            "torch.logical_and(x1, x0)",
            "torch.logaddexp(x1, x0)",
            "torch.heaviside(x1, x0)",
            "torch.xlogy(x1, x0.abs())",
        ],
    )


def test_booleans_that_are_added_at_indices_times_a_number():
    agree(["bool 4x6"], returned=["x0.index_add(-1, torch.tensor([1, 0]), x0[:, :2], alpha=2)"])


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="what eager makes of these numbers is the processor's"
)
@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32", "float64"])
def test_floats_beyond_narrow_integers_are_what_eager_makes_of_them(source: str):
    """Those that the wider type on the way holds wrap; those that it does not are 0, as NaN and infinities are."""
    numbers = [
        -1.5,
        127.9,
        128,
        255.9,
        256.7,
        -129,
        -300,
        32768,
        65537,
        -40000,
        2147483520,
        2147483648,
        3e9,
        -3e9,
        4294967301,
    ]
    numbers += [3000000001, 1e12, 9.2e18, -9.2e18, 1e19, -1e19, 1e20, float("inf"), -float("inf"), float("nan")]
    x = torch.tensor(numbers * 2, dtype=torch.float64).to(getattr(torch, source))
    for target in (torch.int8, torch.uint8, torch.int16):
        found = compiled(eval(f"lambda x: x.to({target})", {"torch": torch}))(x)
        assert found.dtype is target
        assert found.tolist() == x.to(target).tolist()
