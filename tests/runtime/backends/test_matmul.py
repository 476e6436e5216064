"""Products and convolutions on the shared pool against NumPy's, whatever the arrays, the threads and the BLAS are."""

import ctypes
import multiprocessing
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from blas_testing import TOLERANCE
from blas_testing import tasks as tasks
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fuse_opt.lowering.reference.kernels import convolution as library_convolution
from fuse_opt.runtime.backends import registry as libraries
from fuse_opt.runtime.backends.blas import convolution
from fuse_opt.runtime.backends.blas import direct_convolution as convolution_copies
from fuse_opt.runtime.backends.blas import matmul as blas
from fuse_opt.runtime.backends.blas import routines as numpy_blas
from fuse_opt.runtime.backends.blas.convolution import try_conv
from fuse_opt.runtime.backends.blas.matmul import try_matmul
from fuse_opt.runtime.backends.blas.task_sizes import TASK_WORK, choose_blocks
from fuse_opt.runtime.host import thread_pool

Array = NDArray[Any]

ORDERS = ("plain", "transposed", "strided", "reversed", "broadcast", "misaligned", "read-only")


@pytest.fixture
def four_threads() -> Iterator[None]:
    before = thread_pool.num_threads()
    thread_pool.set_num_threads(4)
    yield
    thread_pool.set_num_threads(before)


def random_array(rng: np.random.Generator, shape: Sequence[int], dtype: str, order: str = "plain") -> Array:
    """An array of random numbers whose memory lies as `order` says."""
    plain = np.asarray(rng.standard_normal(tuple(shape))).astype(dtype)
    match order:
        case "transposed" if len(shape) > 1:
            return np.ascontiguousarray(plain.swapaxes(-1, -2)).swapaxes(-1, -2)
        case "strided":
            return np.repeat(plain, 3, axis=-1)[..., ::3]
        case "reversed":
            return plain[..., ::-1]
        case "broadcast" if len(shape) > 1:
            return np.broadcast_to(plain[..., :1, :], plain.shape)
        case "misaligned":
            raw = np.empty(plain.nbytes + 1, np.uint8)[1:].view(np.uint8)
            raw[:] = np.frombuffer(plain.tobytes(), np.uint8)
            return np.ndarray(plain.shape, plain.dtype, raw.data)
        case "read-only":
            plain.flags.writeable = False
            return plain
        case _:
            return plain


def expected_product(a: Array, b: Array) -> Array:
    return np.einsum("...ij,...jk->...ik", a.astype(float), b.astype(float))


def assert_close(actual: Array, expected: Array, terms: int) -> None:
    tolerance = TOLERANCE[actual.dtype.char]
    np.testing.assert_allclose(actual.astype(float), expected, rtol=tolerance, atol=tolerance * max(1, terms) ** 0.5)


def assert_multiplies(a: Array, b: Array) -> None:
    expected = np.asarray(np.matmul(a.astype(float), b.astype(float)))
    out = np.full(expected.shape, 7, a.dtype)
    assert try_matmul([a, b], [out], {})
    assert_close(out, expected, a.shape[-1])


@settings(deadline=None, max_examples=300)
@given(
    stack=st.lists(st.integers(1, 4), max_size=3),
    dropped=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    ones=st.tuples(*[st.lists(st.booleans(), min_size=3, max_size=3)] * 2),
    extents=st.tuples(*[st.one_of(st.integers(0, 9), st.integers(1, 150))] * 3),
    orders=st.tuples(*[st.sampled_from(ORDERS)] * 2),
    dtype=st.sampled_from("efd"),
    seed=st.integers(0, 2**32),
)
def test_products_are_those_of_numpy(
    stack: list[int],
    dropped: tuple[int, int],
    ones: tuple[list[bool], ...],
    extents: tuple[int, int, int],
    orders: tuple[str, str],
    dtype: str,
    seed: int,
):
    m, k, n = extents
    rng = np.random.default_rng(seed)

    def operand(number: int, matrix: tuple[int, int]) -> Array:
        shape = [1 if one else extent for one, extent in zip(ones[number], stack, strict=False)][dropped[number] :]
        if not all(matrix) and orders[number] == "misaligned":
            return random_array(rng, (*shape, *matrix), dtype)
        return random_array(rng, (*shape, *matrix), dtype, orders[number])

    assert_multiplies(operand(0, (m, k)), operand(1, (k, n)))


@pytest.mark.parametrize("dtype", "efd")
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((5,), (5,)),
        ((5,), (3, 5, 2)),
        ((3, 2, 5), (5,)),
        ((0,), (0,)),
        ((0, 3), (3, 4)),
        ((2, 0), (0, 3)),
        ((0, 2, 3), (1, 3, 2)),
        ((1, 300), (300, 700)),
        ((700, 300), (300, 1)),
        ((6, 1, 40), (40, 30)),
        ((513, 127), (127, 1001)),
        ((8, 513), (513, 96)),
        ((2, 70, 600), (600, 50)),
        ((300, 257), (257, 17)),
        ((1000, 3, 3), (1000, 3, 3)),
    ],
)
@pytest.mark.usefixtures("four_threads")
def test_shapes_at_the_edges(a: tuple[int, ...], b: tuple[int, ...], dtype: str):
    rng = np.random.default_rng(0)
    for order in ("plain", "transposed", "strided"):
        assert_multiplies(random_array(rng, a, dtype, order), random_array(rng, b, dtype, order))


def test_one_row_times_a_repeated_matrix():
    rng = np.random.default_rng(1)
    a, b = random_array(rng, (1, 1, 7), "f"), random_array(rng, (7, 5), "f")
    assert_multiplies(a, np.broadcast_to(b, (4, 7, 5)))
    assert_multiplies(np.lib.stride_tricks.sliding_window_view(a.ravel(), 3)[:, None, :], b[:3])


@pytest.mark.parametrize("order", ["transposed", "strided", "misaligned"])
def test_result_may_be_a_view(order: str):
    rng = np.random.default_rng(2)
    a, b = random_array(rng, (3, 20, 30), "f"), random_array(rng, (30, 10), "f")
    out = random_array(rng, (3, 20, 10), "f", order)
    assert try_matmul([a, b], [out], {})
    assert_close(out, expected_product(a, b), 30)


def test_result_may_be_an_operand():
    a = np.random.default_rng(3).standard_normal((64, 64))
    expected = a @ a
    assert try_matmul([a, a], [a], {})
    assert_close(a, expected, 64)


def test_what_is_no_float_is_left_to_numpy():
    a = np.arange(6, dtype=np.int32).reshape(2, 3)
    out = np.empty((2, 2), np.int32)
    assert not try_matmul([a, a.T], [out], {})


@pytest.mark.parametrize("shape", [(3, 4), (2, 5), (1, 2, 4)])
def test_what_does_not_fit_is_left_to_numpy(shape: tuple[int, ...]):
    a, b = np.zeros((2, 3)), np.zeros((3, 4))
    out = np.full(shape, 7.0)
    assert not try_matmul([a, b], [out], {})
    assert (out == 7).all()


@given(extents=st.tuples(*[st.integers(1, 3000)] * 3), entries=st.integers(1, 100), threads=st.integers(1, 64))
def test_blocks_are_worth_a_task(extents: tuple[int, int, int], entries: int, threads: int):
    m, n, k = extents
    rows, columns = choose_blocks(m, n, k, entries, threads)
    assert 1 <= rows <= m and 1 <= columns <= n
    assert -(-m // rows) * -(-n // columns) <= max(1, 2 * 2 * m * n * k // TASK_WORK)


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """Shapes of x and weight, and the configuration."""
    axes = draw(st.integers(1, 3))
    several = st.lists(st.integers(1, 3), min_size=axes, max_size=axes).map(tuple)
    groups, channels, filters = draw(st.integers(1, 3)), draw(st.integers(0, 5)), draw(st.integers(1, 6))
    config: dict[str, Any] = {"groups": groups} if groups > 1 else {}
    window, strides, dilations = draw(several), draw(several), draw(several)
    pads = draw(st.lists(st.integers(0, 3), min_size=2 * axes, max_size=2 * axes).map(tuple))
    if draw(st.booleans()):
        config |= {"strides": strides, "dilations": dilations, "pads": pads}
    else:
        dilations = (1,) * axes
        pads = (0,) * 2 * axes
    least = [
        max(0, d * (w - 1) + 1 - pads[k] - pads[axes + k])
        for k, (d, w) in enumerate(zip(dilations, window, strict=True))
    ]
    extents = [low + draw(st.integers(0, (0, 600, 25, 8)[axes])) for low in least]
    samples = draw(st.integers(0, 3))
    return (samples, groups * channels, *extents), (groups * filters, channels, *window), config


def convolved(run: Callable[..., Any], x: Array, weight: Array, config: dict[str, Any]) -> Array:
    axes = x.ndim - 2
    strides, dilations = (config.get(name, (1,) * axes) for name in ("strides", "dilations"))
    pads = config.get("pads", (0,) * 2 * axes)
    extents = [
        (x.shape[2 + k] + pads[k] + pads[axes + k] - dilations[k] * (weight.shape[2 + k] - 1) - 1) // strides[k] + 1
        for k in range(axes)
    ]
    out = np.full((x.shape[0], weight.shape[0], *extents), 7, x.dtype)
    assert run([x, weight], [out], config) is not False
    return out


@settings(deadline=None, max_examples=300)
@given(case=convolutions(), dtype=st.sampled_from("efd"), order=st.sampled_from(ORDERS[:3]), seed=st.integers(0, 2**32))
def test_convolutions_are_those_of_the_library(
    case: tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], dtype: str, order: str, seed: int
):
    shape, window, config = case
    rng = np.random.default_rng(seed)
    x, weight = random_array(rng, shape, dtype, order), random_array(rng, window, dtype, order)
    expected = convolved(library_convolution.conv, x.astype(float), weight.astype(float), config)
    assert_close(convolved(try_conv, x, weight, config), expected, weight[:1].size)


@settings(deadline=None, max_examples=150)
@given(
    case=convolutions(),
    dtype=st.sampled_from("efd"),
    seed=st.integers(0, 2**32),
    share=st.sampled_from((0.0, 0.0, float("inf"))),
    copied=st.sampled_from((600, 3000, 256 << 10)),
    widest=st.sampled_from((3, 512)),
)
def test_windows_are_unfolded_or_not(
    case: tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]],
    dtype: str,
    seed: int,
    share: float,
    copied: int,
    widest: int,
):
    shape, window, config = case
    rng = np.random.default_rng(seed)
    x, weight = random_array(rng, shape, dtype), random_array(rng, window, dtype)
    expected = convolved(library_convolution.conv, x.astype(float), weight.astype(float), config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convolution_copies, "LEAST_SHARE", share)
        patch.setattr(convolution_copies, "COPIED_BYTES", copied)
        patch.setattr(convolution_copies, "WIDEST", widest)
        convolution.planned.cache_clear()
        found = convolved(try_conv, x, weight, config)
    convolution.planned.cache_clear()
    assert_close(found, expected, weight[:1].size)


@pytest.mark.parametrize(
    ("shape", "window", "config"),
    [
        ((1, 300, 7, 7), (300, 300, 3, 3), {"pads": (1, 1, 1, 1)}),
        ((3, 40, 20, 21), (36, 40, 3, 5), {"pads": (1, 2, 0, 1), "strides": (1, 2)}),
        ((2, 40, 31, 33), (24, 20, 3, 3), {"groups": 2, "strides": (2, 1)}),
        ((2, 64, 40, 40), (130, 64, 1, 1), {}),
        ((2, 64, 40, 40), (16, 64, 1, 1), {"strides": (2, 2)}),
        ((2, 32, 50, 50), (32, 1, 3, 3), {"groups": 32, "pads": (1, 1, 1, 1)}),
        ((1, 8, 5000), (16, 8, 9), {"pads": (4, 4)}),
        ((1, 4, 12, 20, 20), (8, 4, 3, 3, 3), {"dilations": (2, 1, 2)}),
    ],
)
@pytest.mark.usefixtures("four_threads")
def test_convolutions_of_many_tasks(shape: tuple[int, ...], window: tuple[int, ...], config: dict[str, Any]):
    rng = np.random.default_rng(4)
    x, weight = random_array(rng, shape, "f"), random_array(rng, window, "f")
    assert_close(
        convolved(try_conv, x, weight, config), convolved(library_convolution.conv, x, weight, config), weight[:1].size
    )


def test_convolutions_do_not_depend_on_the_number_of_threads():
    rng = np.random.default_rng(5)
    x, weight = random_array(rng, (2, 100, 30, 17), "f"), random_array(rng, (70, 100, 3, 3), "f")
    before, found = thread_pool.num_threads(), list[Array]()
    try:
        for count in (1, 2, 3, 7):
            thread_pool.set_num_threads(count)
            found.append(convolved(try_conv, x, weight, {"pads": (1, 1, 1, 1)}))
    finally:
        thread_pool.set_num_threads(before)
    assert all(np.array_equal(one, found[0]) for one in found)


def test_a_convolution_that_does_not_fit_is_left_to_others():
    x, weight = np.zeros((1, 2, 5, 5)), np.zeros((3, 2, 2, 2))
    out = np.full((1, 3, 5, 5), 7.0)
    assert not try_conv([x, weight], [out], {})
    assert not try_conv([x, weight], [out[:, :, :4, :4]], {"groups": 2})
    assert (out == 7).all()


def blas_threads() -> tuple[Callable[[], int], Callable[[int], None]]:
    """How many threads NumPy's BLAS uses, and the way to say so."""
    routines = numpy_blas.find_routines()
    assert routines is not None
    return (
        ctypes.CFUNCTYPE(ctypes.c_int)(routines.get_threads),
        ctypes.CFUNCTYPE(None, ctypes.c_int)(routines.set_threads),
    )


@pytest.mark.parametrize("count", [1, 2, 3])
def test_blas_keeps_its_number_of_threads(count: int):
    get, put = blas_threads()
    before = get()
    rng = np.random.default_rng(5)
    a, b = random_array(rng, (200, 200), "f"), random_array(rng, (2, 200, 200), "f")
    x, weight = random_array(rng, (2, 8, 20, 20), "f"), random_array(rng, (8, 8, 3, 3), "f")
    put(count)
    try:
        with ThreadPoolExecutor(6) as threads:
            jobs = [threads.submit(assert_multiplies, a, b) for _ in range(60)]
            jobs += [threads.submit(convolved, try_conv, x, weight, {}) for _ in range(60)]
            for job in jobs:
                job.result()
        assert get() == count
    finally:
        put(before)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_a_child_of_fork_can_multiply():
    rng = np.random.default_rng(6)
    a, b = random_array(rng, (300, 300), "f"), random_array(rng, (300, 300), "f")
    get, _ = blas_threads()
    before, stop = get(), threading.Event()

    def multiply() -> None:  # not by NumPy: OpenBLAS may hang in a fork while it uses its own threads
        out = np.empty_like(a)
        while not stop.is_set():
            assert try_matmul([a, b], [out], {})

    def child(queue: Any) -> None:
        count = get()
        assert_multiplies(a, b)
        queue.put(count)

    other = threading.Thread(target=multiply)
    other.start()
    try:
        context = multiprocessing.get_context("fork")
        for _ in range(5):
            queue = context.SimpleQueue()
            process = context.Process(target=child, args=(queue,))  # pyright: ignore[reportAttributeAccessIssue]
            process.start()
            process.join(60)
            assert process.exitcode == 0
            assert queue.get() == before
    finally:
        stop.set()
        other.join()


def default(inputs: Sequence[Array], outputs: Sequence[Array], config: Any) -> None:
    outputs[0].fill(-1)


def test_programs_get_the_routines_on_the_pool(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("FUSE_OPT_BLAS", raising=False)
    out = np.empty((2, 2), np.float32)
    a = np.ones((2, 2), np.float32)
    libraries.resolve("numpy.matmul", default)([a, a], [out], {})
    assert (out == 2).all()
    assert libraries.resolve("somebody.matmul", default) is default
    integers = np.ones((2, 2), np.int64)
    libraries.resolve("numpy.matmul", default)([integers, integers], [out], {})
    assert (out == -1).all()


def test_environment_chooses(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FUSE_OPT_BLAS", "numpy")
    assert libraries.resolve("numpy.matmul", default) is default
    monkeypatch.setenv("FUSE_OPT_BLAS", "pool")
    assert libraries.resolve("numpy.conv", default) is not default
    monkeypatch.setenv("FUSE_OPT_BLAS", "fast")
    with pytest.raises(ValueError, match="expected 'numpy' or 'pool'"):
        libraries.resolve("numpy.matmul", default)


class _Bare:
    """A library with none of the names."""


@pytest.fixture
def forgotten() -> Iterator[None]:
    blas.load_tasks.cache_clear()
    yield
    blas.load_tasks.cache_clear()


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("found", [None, _Bare()])
def test_without_a_blas_the_default_is_used(found: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(numpy_blas, "numpy_library", lambda: found)
    monkeypatch.setenv("FUSE_OPT_BLAS", "")
    assert libraries.resolve("numpy.matmul", default) is default
    monkeypatch.setenv("FUSE_OPT_BLAS", "pool")
    with pytest.warns(RuntimeWarning, match="no BLAS was found"):
        assert libraries.resolve("numpy.conv", default) is default
    a, out = np.ones((2, 2)), np.empty((2, 2))
    assert not try_matmul([a, a], [out], {})
    assert not convolution.try_conv([a[None], a[None]], [out[None]], {})


@pytest.mark.usefixtures("forgotten")
def test_without_a_compiler_the_default_is_used(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(blas, "find_c_compiler", lambda: None)
    assert libraries.resolve("numpy.matmul", default) is default
