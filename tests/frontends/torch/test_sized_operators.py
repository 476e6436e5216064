"""Operators on tensors of any extents as code of one program: eager's values and gradients at all of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from fuse_opt.frontends.torch.backend import collect_reports, fuse_opt  # noqa: E402

F: Any = torch.nn.functional
EXTENTS = ((2, 3, 7, 9), (3, 3, 2, 5), (2, 3, 31, 2), (5, 3, 16, 64))
"""Few at first: loops that take several elements at a time have a rest then."""


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def check(
    call: Callable[..., Any],
    training: bool,
    external: tuple[str, ...] = (),
    extents: Any = EXTENTS,
    channels: bool = True,
) -> None:
    """One program for each graph, with these calls of PyTorch's kernels; numbers of `channels` may be those of all calls."""
    fast = torch.compile(call, backend=fuse_opt, dynamic=True, options={"strict": True})
    with collect_reports() as reports:
        for each in extents:
            x = torch.randn(each)
            x[..., 0] = x[..., -1]  # equal ones are anywhere
            given = x.clone().requires_grad_(training)
            if channels:
                torch._dynamo.mark_static(given, 1)
            wanted = call(plain := x.clone().requires_grad_(training))
            torch.testing.assert_close(found := fast(given), wanted, rtol=1e-4, atol=1e-5, check_stride=True)
            if training and wanted.requires_grad:
                seed = torch.randn_like(wanted)
                for y in (found, wanted):
                    y.backward(seed)
                torch.testing.assert_close(given.grad, plain.grad, rtol=1e-4, atol=1e-5)
    assert len(reports.graphs) == 1 + training, "\n".join(map(str, reports.graphs))
    assert {name for graph in reports.graphs for name in graph.counts.external} == set(external)


POSITIONS: dict[str, Callable[[Any], Any]] = {
    "argmax": lambda x: torch.argmax(x * 2, 2) + 1,
    "argmin": lambda x: torch.argmin(x * 2, -1, keepdim=True) + 1,
    "of all": lambda x: torch.argmax(x * 2) + 1,
}


@pytest.mark.parametrize("kind", POSITIONS)
def test_positions_of_extremes(kind: str):
    check(POSITIONS[kind], training=False)


FLOATS: dict[str, Callable[[Any], Any]] = {
    "batch norm": lambda x: F.batch_norm(x * 2, torch.zeros(3), torch.ones(3), training=True),
    "instance norm": lambda x: F.instance_norm(x * 2) + 1,
    "standard deviation": lambda x: torch.std(x * 2, 2) + 1,
    "nearest": lambda x: F.interpolate(x * 2, size=(7, 9)) + 1,
    "bilinear": lambda x: F.interpolate(x * 2, size=(7, 9), mode="bilinear") + 1,
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", FLOATS)
def test_floats_that_python_computes_from_extents(kind: str, training: bool):
    """Shares, counts less one and steps between positions: the program computes them itself."""
    check(FLOATS[kind], training)


def test_floats_that_a_call_of_pytorchs_and_the_program_take():
    """Python computes those that a kernel of PyTorch's is given."""

    def scaled(x: Any) -> Any:
        share = 1.0 / x.shape[2]
        return torch.add(torch.tanh(x), x, alpha=share) * share + share

    check(scaled, training=False, external=("aten.add.Tensor", "sym_float", "truediv"))


PADS: dict[str, Callable[[Any], Any]] = {
    "behind": lambda x: F.pad(x * 2, (0, -x.shape[3] % 4)) + 1,
    "a number before": lambda x: F.pad(x * 2, (1, 0, 2, -x.shape[2] % 8), value=3.0) + 1,
    "around": lambda x: F.pad(x * 2, (x.shape[2] // 2, x.shape[3] // 2)) + 1,
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", PADS)
def test_pads_of_any_extents(kind: str, training: bool):
    """Up to a multiple, as in models of windows; gradients take away what was added."""
    check(PADS[kind], training)


MOVED: dict[str, Callable[[Any], Any]] = {
    "rolled": lambda x: torch.roll(x * 2, (x.shape[2] // 2, -1), (2, 3)) + 1,
    "rolled back": lambda x: torch.roll(x * 2, (-x.shape[2] // 2, 1 - x.shape[3]), (2, 3)) + 1,
    "rolled as a whole": lambda x: torch.roll(x * 2, x.shape[3]) + 1,
    "counted down": lambda x: x * torch.arange(x.shape[3], 0, -1) + torch.arange(x.shape[2], x.shape[2] + x.shape[3]),
}


@pytest.mark.parametrize("kind", MOVED)
def test_numbers_of_extents_that_say_where_elements_go(kind: str):
    check(MOVED[kind], training=kind == "rolled")


def test_what_may_go_round_more_than_once_is_one_call_of_pytorchs():
    def far(x: Any) -> Any:
        return torch.roll(x * 2, 40, 3) + 1

    check(far, training=False, external=("aten.roll.default",))


def windows(x: Any) -> Any:
    """Of 2x2, as Swin has them."""
    batch, channels, rows, columns = x.shape
    parts = (x * 2).view(batch, channels, rows // 2, 2, columns // 2, 2).permute(0, 2, 4, 1, 3, 5)
    return parts.reshape(-1, channels, 4).softmax(-1)


PARTS: dict[str, Callable[[Any], Any]] = {
    "windows": windows,
    "group norm": lambda x: F.group_norm(x * 2, 2) + 1,
    "shuffle": lambda x: F.pixel_shuffle(x * 2, 2) + 1,
    "unshuffle": lambda x: F.pixel_unshuffle(x * 2, 2) + 1,
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", PARTS)
def test_extents_that_are_cut_into_parts(kind: str, training: bool):
    """Guards say that parts are whole: they divide extents, also where a product of several says so."""
    check(PARTS[kind], training, extents=((2, 8, 4, 6), (3, 12, 8, 10), (2, 16, 34, 4), (5, 8, 6, 64)), channels=False)


def test_views_that_only_pytorch_can_make():
    def turned(x: Any) -> Any:
        pairs = torch.stack([torch.sin(x), torch.cos(x)], -1)
        return torch.view_as_real(torch.view_as_complex(pairs) * 1j).tanh()

    names = ("aten.clone.default", "aten.view_as_complex.default", "aten.mul.Tensor", "aten.view_as_real.default")
    check(turned, training=False, external=names)


def test_gradients_by_weights_of_images_of_any_extents_are_pytorchs():
    """Also of the first layer, whose input has no gradient: its sums asked for a program for each set of extents."""
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, 2, 1), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3, groups=8))
    fast = torch.compile(module, backend=fuse_opt, dynamic=True, options={"strict": True})
    with collect_reports() as reports:
        for extents in ((2, 3, 16, 21), (3, 3, 29, 18), (2, 3, 9, 40)):
            x = torch.randn(extents)
            found, wanted = (
                torch.autograd.grad((call(x) ** 2).sum(), list(module.parameters())) for call in (fast, module)
            )
            for ours, theirs in zip(found, wanted, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
    forward, backward = reports.graphs
    assert not forward.counts.external
    assert backward.counts.external == {"aten.convolution_backward.default": 2}


def halves(x: Any) -> Any:
    first, second = (x * 2).chunk(2, 2)
    return first * second.mean()


SPLIT: dict[str, Callable[[Any], Any]] = {
    "halves": halves,
    "parts of sizes": lambda x: torch.cat([y * k for k, y in enumerate((x * 2).split([1, x.shape[3] - 1], 3))], 3),
    "overlapping windows": lambda x: (x * 2).unfold(2, 3, 2) + 1,
    "windows of the last axis": lambda x: (x * 2).unfold(-1, 3, 1).tanh(),
    "joined": lambda x: torch.cat([x * k for k in range(7)], 2) + 1,
    "stacked": lambda x: torch.stack([x * k for k in range(8)], -1) + 1,
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", SPLIT)
def test_parts_of_any_extents(kind: str, training: bool):
    check(SPLIT[kind], training, extents=((2, 3, 7, 9), (3, 3, 6, 8), (2, 3, 31, 10), (5, 3, 16, 64)))


@pytest.mark.parametrize("of", [2, 3])
def test_parts_that_are_returned_are_views_of_one_tensor(of: int):
    def parts(x: Any) -> Any:
        return (x * 2).chunk(of, 2)

    fast = torch.compile(parts, backend=fuse_opt, dynamic=True, options={"strict": True})
    for extents in ((2, 3, 7, 9), (3, 3, 13, 5), (2, 3, 31, 4)):
        found, wanted = fast(x := torch.randn(extents)), parts(x)
        assert len({part.untyped_storage().data_ptr() for part in found}) == 1
        for ours, theirs in zip(found, wanted, strict=True):
            torch.testing.assert_close(ours, theirs, check_stride=True)
            assert ours.storage_offset() == theirs.storage_offset()


def test_products_so_far_and_their_gradients():
    """The gradient asks whether any element of a row is 0; PyTorch itself takes the extent of such rows as a number."""
    extents = ((2, 3, 7, 9), (3, 3, 6, 9), (5, 3, 16, 9))

    def product(x: Any) -> Any:
        return torch.cumprod(halves(x), 3) + 1

    check(product, training=True, extents=extents)


@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_of_truth_values(name: str):
    def both(x: Any) -> Any:
        value, place = getattr(x > 0, name)(3)
        return value * 2 + place * 3

    check(both, training=False)


def test_quotients_of_extents_by_several_of_one():
    """`h * h // (2 * h)` is `h // 2`, as of windows that are cut off a square."""

    def folded(x: Any) -> Any:
        return (x * 2).view(x.shape[0], -1, 2 * x.shape[2]).transpose(1, 2) + 1

    check(folded, training=True, extents=((3, 1, 8, 8), (2, 1, 10, 10), (5, 1, 32, 32)), channels=False)


def test_a_call_of_pytorchs_reads_what_is_made_from_nothing():
    """It lies behind the places of the arena, whose end follows from extents, too."""

    def summed(x: Any) -> Any:
        return torch.logcumsumexp(torch.zeros_like(x), 2) + torch.logcumsumexp(x * 2, 2)

    check(summed, training=False, external=("aten.logcumsumexp.default",))


@pytest.mark.parametrize("options", [(3, 2, 1), (2, 2), (3, 1, 1, 2), ((3, 2), (2, 1), (1, 0), 1, True)])
def test_where_the_largest_elements_of_windows_are(options: tuple[Any, ...]):
    """Indices in images of any extents, of the first of equal elements and of NaN; PyTorch's kernel adds gradients there."""

    def both(x: Any) -> Any:
        rows = torch.arange(x.shape[2])[:, None]
        marked = torch.where(rows == 1, math.nan, torch.where(rows == 4, -math.inf, x * 2))
        largest, places = F.max_pool2d(marked, *options, return_indices=True)
        return largest.nan_to_num(9, neginf=-9) + places

    extents = ((2, 3, 16, 17), (3, 3, 9, 12), (2, 3, 31, 8), (5, 3, 11, 64))
    check(both, training=True, external=("aten.max_pool2d_with_indices_backward.default",), extents=extents)


REFUSED: dict[str, Callable[[Any], Any]] = {
    "quotient": lambda x: x * (1.0 / (x.shape[2] - 5)),
    "quotient of a quotient": lambda x: x.mean() * (1.0 / (x.shape[1] / (x.shape[2] - 5))),
    "power": lambda x: x * (x.shape[2] - 5) ** -1,
    "read by a call": lambda x: x + x.shape[1] / (x.shape[2] - 5),
    "behind a store": lambda x: x.add_(1) * (1.0 / (x.shape[2] - 5)),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_numbers_that_python_refuses_at_some_extents(kind: str):
    """AOTAutograd makes a division of tensors of `1.0 / (n - 5)`, which gives infinity at 5."""
    call = REFUSED[kind]
    fast = torch.compile(call, backend=fuse_opt, dynamic=True)
    for extent in (7, 8, 5, 5, 9):
        plain = torch.randn(2, 3, extent)
        given = plain.clone()
        if extent == 5:
            with pytest.raises(ZeroDivisionError):
                call(plain)
            with pytest.raises(ZeroDivisionError):
                fast(given)
        else:
            torch.testing.assert_close(fast(given), call(plain))
        torch.testing.assert_close(given, plain)
