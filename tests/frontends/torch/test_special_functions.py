"""Special functions, distances, histograms and small convolutions of torch.compile, against mpmath and against eager."""

from collections.abc import Callable
from math import inf, nan
from typing import Any

# Functions of tensors, which have no types here, are lambdas.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false
import pytest
from torch_testing import check, compiled, external, torch
from torch_testing import fresh as fresh

from fuse_opt.frontends.torch.operators.special.coefficients import SERIES

mpmath: Any = pytest.importorskip("mpmath", reason="the references of special functions need mpmath")
mp: Any = mpmath.mp
special: Any = torch.special
functional: Any = torch.nn.functional
Reference = Callable[[Any], Any]


def grid(low: float, high: float, count: int = 60) -> list[float]:
    """Points on an interval, and as many that come near to its lower end."""
    generator = torch.Generator().manual_seed(1)
    plain = torch.rand(count, generator=generator, dtype=torch.float64)
    near = 10 ** (-8 * torch.rand(count, generator=generator, dtype=torch.float64))
    return (low + (high - low) * torch.cat([plain, near])).tolist()


def errors(given: Any, arguments: Any, reference: Reference, scale: Callable[[float, float], float]) -> float:
    """The largest error in epsilons of the type, by the scale of each value."""
    worst = 0.0
    for y, x in zip(given.double().tolist(), arguments.double().tolist(), strict=True):
        with mpmath.workdps(50):
            wanted = reference(mp.mpf(x))
            found = abs(mp.mpf(y) - wanted) / scale(x, abs(float(wanted))) / torch.finfo(given.dtype).eps
        worst = max(worst, float(found))
        assert worst == worst, x
    return worst


def size(x: float, y: float) -> float:
    return y


def amplitude(x: float, y: float) -> float:
    """That of a wave whose energy falls as 1 / x, or the value where that is larger."""
    return max(y, min(1.0, abs(x)) / max(1.0, abs(x)) ** 0.5)


def airy_scale(x: float, y: float) -> float:
    """Beyond the turning point the rounding of x turns the phase by x**(3/2) epsilons."""
    return max(y, 0.5 * max(1.0, abs(x) ** 1.25)) if x < 0 else y * max(1.0, x**1.5)


def scaled_k(order: int) -> Reference:
    return lambda x: mp.exp(x) * mp.besselk(order, x)


def quantile(p: Any) -> Any:
    if p > 0.5:
        return -quantile(1 - p)
    y = r = mp.sqrt(-2 * mp.log(p))
    for _ in range(60):
        below = mp.erfc(y / mp.sqrt(2)) / 2
        y += mp.log(below / p) * below * mp.sqrt(2 * mp.pi) * mp.exp(y * y / 2)
    return -y if r else r


FUNCTIONS: dict[str, tuple[Reference, tuple[float, float], Callable[[float, float], float]]] = {
    **{f"bessel_j{n}": (lambda x, n=n: mp.besselj(n, x), (0.0, 60.0), amplitude) for n in (0, 1)},
    **{f"bessel_y{n}": (lambda x, n=n: mp.bessely(n, x), (0.0, 60.0), amplitude) for n in (0, 1)},
    **{f"modified_bessel_i{n}": (lambda x, n=n: mp.besseli(n, x), (0.0, 80.0), size) for n in (0, 1)},
    **{f"modified_bessel_k{n}": (lambda x, n=n: mp.besselk(n, x), (0.0, 80.0), size) for n in (0, 1)},
    **{f"scaled_modified_bessel_k{n}": (scaled_k(n), (0.0, 900.0), size) for n in (0, 1)},
    "spherical_bessel_j0": (mpmath.sinc, (0.0, 30.0), lambda x, y: max(y, 1 / max(1.0, x))),
    "airy_ai": (mpmath.airyai, (-40.0, 12.0), airy_scale),
    "erfcx": (lambda x: mp.exp(x * x) * mp.erfc(x), (-5.0, 30.0), size),
    "ndtri": (quantile, (0.0, 1.0), size),
}
"""By name: the reference, where it is compared, and by what errors are measured."""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_functions_are_those_of_mpmath(name: str):
    reference, (low, high), scale = FUNCTIONS[name]
    x = torch.tensor(grid(low, high), dtype=torch.float64)
    narrow = x.float()
    narrow = narrow[(narrow > low) & (narrow < high)]
    if name in ("bessel_j1", "modified_bessel_i1"):
        x, narrow = torch.cat([x, -x]), torch.cat([narrow, -narrow])
    function = getattr(special, name)
    fast = compiled(lambda a, b: (function(a), function(b)))
    wide, short = fast(x, narrow)
    assert errors(wide, x, reference, scale) < 12
    assert errors(short, narrow, reference, scale) < 1


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_functions_at_edges_give_what_eager_gives(name: str):
    function = getattr(special, name)
    x = torch.tensor([0.0, -0.0, 1.0, -1.0, 1.25, inf, -inf, nan, 1e-30, -1e-30, -3.0, 200.0, 8.0, 2.0, -5.25, 2.125])
    assert external(check(lambda a, b: (function(a), function(b)), x, x.double(), tolerance=2e-5)) == {}


EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, float("inf"), -float("inf"), float("nan"), 1e-40, -3.7, 20.0]


def test_signs_are_those_of_eager_not_of_numpy():
    def function(x: Any, y: Any) -> Any:
        return x.sign(), torch.remainder(x, y), torch.remainder(x, -3), x.abs().sgn() + 1

    x = torch.tensor([edge for edge in EDGES if edge != 1e-40])  # eager's vectors overflow there
    arguments = (x.repeat_interleave(len(x)), x.repeat(len(x)))
    assert external(check(function, *arguments)) == {}
    for found, wanted in zip(compiled(function)(*arguments), function(*arguments), strict=True):
        known = ~wanted.isnan()
        assert (found.signbit() == wanted.signbit())[known].all()


@pytest.mark.parametrize("name", ["digamma", "erfinv", "special.i0e", "special.i1e"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_with_expansions_of_their_own(name: str, dtype: str):
    place: Any = torch
    for part in name.split("."):
        place = getattr(place, part)

    def function(x: Any) -> Any:
        return place(x) + 1

    x = torch.cat([torch.linspace(-0.99, 9.0, 301), torch.tensor(EDGES)]).to(getattr(torch, dtype))
    assert external(check(function, x)) == {}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_parts_of_floats(dtype: str):
    def function(x: Any, y: Any) -> Any:
        fraction, exponent = torch.frexp(x)
        return torch.signbit(x), torch.nextafter(x, y), fraction, exponent + 1

    x = torch.tensor(EDGES).to(getattr(torch, dtype))
    assert external(check(function, x, x.flip(0), tolerance=0)) == {}


def hurwitz(s: int, q: Any) -> Any:
    """By shifting q above zero."""
    steps = max(0, int(mp.ceil(-q)))
    return mp.zeta(s, q + steps) + mp.fsum((q + k) ** -s for k in range(steps))


@pytest.mark.parametrize("order", [1, 2, 3, 4, 9, 21, 100])
def test_polygamma(order: int):
    below = [x for x in grid(-6.0, 0.0) if abs(x - round(x)) > 0.02]
    x = torch.tensor([*grid(0.1, 6.0, 25), *below, -2.5, -0.5], dtype=torch.float64)
    wide, short = compiled(lambda a, b: (torch.polygamma(order, a), torch.polygamma(order, b)))(x, x.float())

    def reference(q: Any) -> Any:
        return (-1) ** (order + 1) * mp.factorial(order) * hurwitz(order + 1, q)

    def scale(q: float, y: float) -> float:
        """Below zero both sides' sums are of the size of that from zero on."""
        return y if q > 0 else max(y, 0.1 * float(mp.factorial(order)) * abs(q - round(q)) ** -(order + 1))

    assert errors(wide, x, reference, scale) < 12 + order
    kept = short.isfinite()
    assert errors(short[kept], x.float()[kept], reference, scale) < 1
    assert (short[~kept].double().abs() >= wide[~kept].abs()).all()  # beyond f32


def test_polygamma_at_edges():
    x = torch.tensor([0.0, -0.0, -1.0, -2.0, -7.0, inf, -inf, nan, 1e-30, 0.5, 1e30, -1.5])
    for order in (1, 2, 3):
        run = lambda a, b, n=order: (torch.polygamma(n, a), torch.polygamma(n, b))  # noqa: E731
        reports = check(run, x[x != -1.5] if order == 2 else x, x.double(), tolerance=1e-5)
        assert external(reports) == {}


def test_zeta():
    s = torch.tensor([1.001, 1.5, 2.0, 3.0, 4.5, 7.0, 20.0], dtype=torch.float64)[:, None]
    q = torch.tensor([*grid(0.0, 9.0, 12), 30.0, 1000.0], dtype=torch.float64)
    below = torch.tensor([-0.25, -1.5, -3.125, -8.75], dtype=torch.float64)
    for values in (q, below):
        orders = s if values is q else s[s == s.floor()][:, None]
        pairs = torch.stack(torch.broadcast_tensors(orders, values)).flatten(1)
        found = compiled(special.zeta)(*pairs)
        for order, x, y in zip(*pairs.tolist(), found.tolist(), strict=True):
            with mpmath.workdps(120):
                wanted = hurwitz(int(order), mp.mpf(x)) if x < 0 else mp.zeta(mp.mpf(order), mp.mpf(x))
            terms = max(abs(wanted), (x - round(x)) ** -order if x < 0 else 0)  # those on both sides of zero
            assert abs(y - wanted) <= 1e-14 * terms, (order, x)
    edges = torch.tensor([0.0, -0.0, -2.0, -1.5, inf, nan, 0.25, 3.0])
    orders = torch.tensor([-1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0])[:, None]
    assert external(check(special.zeta, orders, edges)) == {}
    assert external(check(lambda x: (special.zeta(2.0, x), special.zeta(x[1:4], 3)), edges)) == {}


@pytest.mark.parametrize("kind", "tuvw")
def test_chebyshev_polynomials_of_orders_that_are_data(kind: str):
    first = {"t": lambda x: x, "u": lambda x: 2 * x, "v": lambda x: 2 * x - 1, "w": lambda x: 2 * x + 1}[kind]

    def reference(x: Any, n: int) -> Any:
        before, now = mp.mpf(1), first(x)
        for _ in range(n):
            before, now = now, 2 * x * now - before
        return before if n >= 0 else 0

    x = torch.tensor([*grid(-1.0, 1.0, 20), *grid(1.0, 9.0, 10), -1 + 1e-12, -4.0, 0.0, 1.0, -1.0], dtype=torch.float64)
    n = torch.tensor([-1.5, -0.5, 0.0, 1.0, 2.75, 3.0, 8.0, 9.0, 12.0], dtype=torch.float64)[:, None]
    function, shifted = (getattr(special, f"{name}chebyshev_polynomial_{kind}") for name in ("", "shifted_"))
    found = compiled(lambda a, b: (function(a, b), shifted((a + 1) / 2, b)))(x, n)[0]
    for order, row in zip(n.flatten().tolist(), found.tolist(), strict=True):
        for a, y in zip(x.tolist(), row, strict=True):
            with mpmath.workdps(50):
                wanted = reference(mp.mpf(a), int(order))
            assert abs(y - wanted) <= 1e-14 * max(1, abs(wanted)), (a, order)
    narrow = compiled(function)(x.float(), n.float())
    wide = compiled(function)(x.float().double(), n)
    torch.testing.assert_close(narrow.double(), wide, rtol=1.2e-7, atol=1e-30)
    x = (x * 50).round().float() / 50  # near -1 and 1 eager is off by thousands of ULP
    run = lambda a, b: (function(a, b), shifted(a, b), function(a, 3), function(0.5, b))  # noqa: E731
    assert external(check(run, x, n.float(), tolerance=1e-3)) == {}
    edge = torch.tensor([inf, -inf, nan])
    assert external(check(function, edge, torch.tensor([-1.0, 0.0, 1.0])[:, None])) == {}


def test_series_are_those_of_the_fits():
    from fuse_opt.tools.develop.fit_special import FITS, coefficients

    assert FITS.keys() == SERIES.keys()
    for name in ("j0", "k1", "airy_below", "erfcx"):
        series = SERIES[name]
        mended = f"run: python -m fuse_opt.tools.develop.fit_special {name}, and put its row into coefficients.py"
        assert [float(word) for word in series.text.split()] == coefficients(FITS[name]), mended
        assert (series.lo, series.hi) == (float(FITS[name].lo), float(FITS[name].hi))


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0, 3.0, inf])
def test_distances(p: float):
    x, y = torch.randn(2, 1, 5, 7), torch.randn(3, 4, 7)
    x[0, 0, 1, 2] = y[0, 0, 0] = x[0, 0, 0, 0] = 0.25
    assert external(check(lambda a, b: torch.cdist(a, b, p=p), x, y, tolerance=1e-4)) == {}
    assert external(check(lambda a: functional.pdist(a, p=p), y[0], tolerance=1e-4)) == {}
    x[0, 0, 2, 1], y[0, 1, 1], y[1, 2, 3] = nan, inf, nan
    check(lambda a, b: (torch.cdist(a, b, p=p), functional.pdist(b[1], p=p)), x, y, tolerance=1e-4)


def test_distances_of_many_rows_are_products_as_in_eager():
    x = torch.randn(30, 4)
    operator = torch.ops.aten._cdist_forward
    found = external(check(lambda a: operator(a, a + 1, 2.0, None), x, tolerance=1e-3))
    assert found == {"aten._cdist_forward.default": 1}
    plain = check(lambda a: torch.cdist(a, a, compute_mode="donot_use_mm_for_euclid_dist"), x)
    assert external(plain) == {}
    assert external(check(lambda a: functional.pdist(a[:1] * 2), x)) == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_histograms(dtype: Any):
    x = torch.cat([torch.rand(500) * 12 - 1, torch.tensor([0.0, 10.0, nan, inf, -inf, 2.5, 10.001])]).to(dtype)
    x = torch.cat([x, torch.arange(0, 10.1, 0.1, dtype=dtype)])  # many on edges
    for bins, low, high in ((4, 0, 10), (100, 0, 10), (7, -0.3, 9.7), (1, 2, 3)):
        assert external(check(lambda a, n=bins, b=low, c=high: torch.histc(a, n, b, c), x, tolerance=0)) == {}
    found = external(check(lambda a: torch.histc(a, 5), x[:500]))
    assert found == {"aten.histc.default": 1}  # its bounds are those of the data


CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 4, 8), (6, 2, 3), {"stride": 3, "padding": 1, "groups": 2, "dilation": 2}),
    ((3, 9), (2, 3, 2), {"stride": 2}),
    ((1, 2, 5, 6), (3, 2, 3, 2), {"padding": (2, 1), "dilation": (2, 1)}),
    ((2, 2, 4, 4), (4, 1, 2, 3), {"groups": 2, "padding": "same"}),
    ((1, 1, 3, 4, 3), (2, 1, 2, 2, 2), {"stride": (1, 2, 1), "padding": 1}),
]
TRANSPOSED: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 3, 4), (3, 3, 3), {"stride": 2, "padding": 2, "output_padding": 1}),
    ((2, 2, 4), (2, 2, 4), {"stride": 3, "padding": 1, "output_padding": 2, "groups": 2, "dilation": 4}),
    ((1, 2, 3, 2), (2, 3, 2, 2), {"stride": (1, 2), "padding": (0, 1)}),
    ((1, 1, 2, 2, 3), (1, 2, 2, 1, 2), {"stride": (2, 1, 3)}),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("transposed", [False, True])
def test_small_convolutions_are_kernels(transposed: bool, dtype: Any):
    for extents, window, options in TRANSPOSED if transposed else CONVOLUTIONS:
        convolution = getattr(functional, f"conv{'_transpose' if transposed else ''}{len(window) - 2}d")
        outputs = window[1] * options.get("groups", 1) if transposed else window[0]
        x, w, b = (torch.randn(shape).to(dtype) for shape in (extents, window, (outputs,)))

        def function(x: Any, w: Any, b: Any, run: Any = convolution, given: Any = options) -> Any:
            return torch.relu(run(x * 2, w, b, **given)) + run(x, w, **given)

        torch._dynamo.reset()
        tolerance = 3e-2 if dtype is torch.bfloat16 else 1e-4
        assert external(check(function, x, w, b, tolerance=tolerance)) == {}


def test_convolutions_with_infinite_weights_and_integers():
    weight = torch.ones(1, 1, 3, 3)
    weight[0, 0, 0, 0] = inf
    function = functional.conv_transpose2d
    reports = check(lambda x, w: function(x, w, stride=2, padding=1), torch.ones(1, 1, 4, 4), weight)
    assert external(reports) == {}
    whole = torch.arange(12).reshape(1, 2, 6)
    assert external(check(lambda x, w: functional.conv1d(x, w, padding=1), whole, whole.reshape(2, 2, 3))) == {}


@pytest.mark.parametrize("transposed", [False, True])
def test_large_convolutions_are_generated_in_the_default_order_of_memory(transposed: bool):
    run = functional.conv_transpose2d if transposed else functional.conv2d
    x, w, b = torch.randn(2, 8, 16, 16), torch.randn(8, 8, 3, 3), torch.randn(8)

    def function(x: Any, w: Any, b: Any) -> Any:
        return torch.relu(run(x, w, b, padding=1))

    assert external(check(function, x, w, b, tolerance=1e-4)) == {}
    torch._dynamo.reset()
    last = x.to(memory_format=torch.channels_last)
    assert external(check(function, last, w, b, tolerance=1e-4)) == {"aten.convolution.default": 1}
    torch._dynamo.reset()
    assert external(check(lambda x, w: run(x, w, stride=2), x, w, tolerance=1e-4)) == {}


def test_batch_norm_with_update():
    x, weight, bias, mean, variance = torch.randn(3, 2, 4), *(torch.rand(2) for _ in range(4))
    operator = torch.ops.aten._batch_norm_with_update_functional
    reports = check(lambda *given: operator(*given, 0.1, 1e-5), x, weight, bias, mean, variance)
    assert external(reports) == {}
