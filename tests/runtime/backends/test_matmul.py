"""Products by NumPy's BLAS on the shared pool against NumPy's, whatever the shapes, the threads and the BLAS are."""

import ctypes
import multiprocessing
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import blas_testing
import numpy as np
import pytest
from blas_testing import Array, assert_close
from blas_testing import tasks as tasks
from hypothesis import given, settings
from hypothesis import strategies as st

import fuse_opt
from fuse_opt.lowering.emit import build_program
from fuse_opt.runtime.backends.blas import matmul as blas
from fuse_opt.runtime.backends.blas import routines as numpy_blas
from fuse_opt.runtime.backends.blas.task_sizes import TASK_WORK, choose_blocks
from fuse_opt.runtime.cpu.program import CpuProgram
from fuse_opt.runtime.host import thread_pool
from fuse_opt.tools.compiler.pipeline import UsageError

PRODUCT = """func.func @main(%a: tensor<{m}x{k}x{t}>, %b: tensor<{k}x{n}x{t}>) -> tensor<{m}x{n}x{t}> {{
  %0 = graph.matmul %a, %b : (tensor<{m}x{k}x{t}>, tensor<{k}x{n}x{t}>) -> tensor<{m}x{n}x{t}>
  func.return %0 : tensor<{m}x{n}x{t}>
}}"""


@pytest.fixture
def four_threads() -> Iterator[None]:
    before = thread_pool.num_threads()
    thread_pool.set_num_threads(4)
    yield
    thread_pool.set_num_threads(before)


def random_array(rng: np.random.Generator, shape: Sequence[int], dtype: str) -> Array:
    return np.asarray(rng.standard_normal(tuple(shape))).astype(dtype)


def assert_multiplies(a: Array, b: Array, transposed: tuple[bool, bool] = (False, False)) -> None:
    config = {f"transpose_{side}hs": True for side, swap in zip("lr", transposed, strict=True) if swap}
    x, y = (each.swapaxes(-1, -2) if swap else each for each, swap in zip((a, b), transposed, strict=True))
    expected = np.asarray(np.matmul(x.astype(float), y.astype(float)))
    assert_close(blas_testing.run("matmul", (a, b), expected.shape, config), expected, x.shape[-1])


@settings(deadline=None, max_examples=100)
@given(
    stack=st.lists(st.integers(1, 4), max_size=3),
    dropped=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    ones=st.tuples(*[st.lists(st.booleans(), min_size=3, max_size=3)] * 2),
    extents=st.tuples(*[st.one_of(st.integers(0, 9), st.integers(1, 150))] * 3),
    transposed=st.tuples(st.booleans(), st.booleans()),
    dtype=st.sampled_from("fd"),
    seed=st.integers(0, 2**32),
)
def test_products_are_those_of_numpy(
    stack: list[int],
    dropped: tuple[int, int],
    ones: tuple[list[bool], ...],
    extents: tuple[int, int, int],
    transposed: tuple[bool, bool],
    dtype: str,
    seed: int,
):
    m, k, n = extents
    rng = np.random.default_rng(seed)

    def operand(number: int, matrix: tuple[int, int]) -> Array:
        shape = [1 if one else extent for one, extent in zip(ones[number], stack, strict=False)][dropped[number] :]
        return random_array(rng, (*shape, *(matrix[::-1] if transposed[number] else matrix)), dtype)

    assert_multiplies(operand(0, (m, k)), operand(1, (k, n)), transposed)


@pytest.mark.parametrize("dtype", "fd")
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
    assert_multiplies(random_array(rng, a, dtype), random_array(rng, b, dtype))


@given(extents=st.tuples(*[st.integers(1, 3000)] * 3), entries=st.integers(1, 100), threads=st.integers(1, 64))
def test_blocks_are_worth_a_task(extents: tuple[int, int, int], entries: int, threads: int):
    m, n, k = extents
    rows, columns = choose_blocks(m, n, k, entries, threads)
    assert 1 <= rows <= m and 1 <= columns <= n
    assert -(-m // rows) * -(-n // columns) <= max(1, 2 * 2 * m * n * k // TASK_WORK)


def test_what_is_no_float_of_its_is_refused_by_name():
    for element, reason in (("i32", "dtype"), ("f16", "dtype"), ("bf16", "dtype")):
        text = PRODUCT.format(m=2, k=3, n=4, t=element).replace(
            "graph.matmul %a, %b", 'graph.matmul %a, %b {use_implementation = "blas.matmul"}'
        )
        with pytest.raises(fuse_opt.InputError, match=f"refuses it: {reason}"):
            fuse_opt.compile(text)


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
    a, b = random_array(rng, (200, 200), "f"), random_array(rng, (200, 200), "f")
    wanted = a.astype(float) @ b.astype(float)
    program = fuse_opt.compile(PRODUCT.format(m=200, k=200, n=200, t="f32"), pipeline=blas_testing.PIPELINE)
    put(count)
    try:
        with ThreadPoolExecutor(6) as threads:
            for job in [threads.submit(program, a, b) for _ in range(120)]:
                assert_close(job.result(), wanted, 200)
        assert get() == count
    finally:
        put(before)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_a_child_of_fork_can_multiply():
    rng = np.random.default_rng(6)
    a, b = random_array(rng, (300, 300), "f"), random_array(rng, (300, 300), "f")
    program = fuse_opt.compile(PRODUCT.format(m=300, k=300, n=300, t="f32"), pipeline=blas_testing.PIPELINE)
    expected = program(a, b)
    get, _ = blas_threads()
    before, stop = get(), threading.Event()

    def multiply() -> None:  # not by NumPy: OpenBLAS may hang in a fork while it uses its own threads
        while not stop.is_set():
            program(a, b)

    def child(queue: Any) -> None:
        count = get()
        assert np.array_equal(program(a, b), expected)
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


class _Bare:
    """A library with none of the names."""


@pytest.fixture
def forgotten() -> Iterator[None]:
    blas.load_tasks.cache_clear()
    yield
    blas.load_tasks.cache_clear()


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("found", [None, _Bare()])
def test_without_a_blas_it_is_no_choice(found: Any, monkeypatch: pytest.MonkeyPatch):
    module = fuse_opt.optimize(PRODUCT.format(m=5, k=6, n=7, t="f64"), f"{blas_testing.PIPELINE},unfused")
    monkeypatch.setattr(numpy_blas, "numpy_library", lambda: found)
    a, b = np.ones((5, 6)), np.ones((6, 7))
    program = fuse_opt.compile(PRODUCT.format(m=5, k=6, n=7, t="f64"), backend="-fuse")
    assert program.implementations == {"numpy.matmul": 1}
    assert (program(a, b) == 6).all()
    with pytest.raises(UsageError, match="backend 'blas' cannot be used here: NumPy multiplies by something else"):
        fuse_opt.compile(PRODUCT.format(m=5, k=6, n=7, t="f64"), backend="blas")
    with pytest.raises(
        RuntimeError, match=r"'graph.matmul' of tensor<5x6xf64>, .* by 'blas.matmul', but .*backend='-blas'"
    ):
        CpuProgram(build_program(module))


CORETYPE = """
import ctypes, os, sys
import numpy as np
import fuse_opt
from fuse_opt.passes.remarks import collect
from fuse_opt.runtime.backends.blas.routines import numpy_library
library = numpy_library()
describe = next(f for name in ("scipy_openblas_get_corename64_", "scipy_openblas_get_corename", "openblas_get_corename64_",
    "openblas_get_corename") if (f := getattr(library, name, None)) is not None)
describe.argtypes, describe.restype = [], ctypes.c_char_p
with collect() as remarks:
    program = fuse_opt.compile(sys.argv[1], backend="none,blas,numpy")
a, b = np.random.default_rng(0).standard_normal((2, 96, 96)).astype("f4")
np.testing.assert_allclose(program(a, b), a @ b, rtol=1e-4, atol=1e-4)
print(describe().decode(), os.environ["OPENBLAS_CORETYPE"], program.implementations, *map(str, remarks), sep="\\n")
"""


def test_the_kernels_that_a_person_chose_for_a_blas_are_its_own() -> None:
    """NumPy's library is the one that is called, so its environment counts; the remark has the rate that costs are made of."""
    if blas.load_tasks() is None or platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("no OpenBLAS in NumPy, or another processor")
    text = PRODUCT.format(m=96, n=96, k=96, t="f32")
    environment = {**os.environ, "OPENBLAS_CORETYPE": "Haswell"}
    run = subprocess.run(
        [sys.executable, "-c", CORETYPE, text], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    core, kept, implementations, *remarks = run.stdout.splitlines()
    assert (core, kept, implementations) == ("Haswell", "Haswell", "{'blas.matmul': 1}")
    (selected,) = [line for line in remarks if "[select-implementation] selected" in line]
    assert float(selected.rpartition("gops=")[2]) > 0
