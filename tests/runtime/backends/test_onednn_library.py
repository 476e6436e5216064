"""Products by the oneDNN of the wheel, against those in f64; skipped without it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from onednn_testing import Array, run_product

from fuse_opt.runtime.backends.onednn.library import find_library, load_library
from fuse_opt.runtime.backends.onednn.trial import multiplies
from fuse_opt.runtime.host.thread_pool import num_threads, set_num_threads

pytestmark = pytest.mark.skipif(isinstance(find_library(), str), reason="oneDNN is not installed")
EXTENTS = (1, 3, 7, 13, 16, 31, 33, 197)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = num_threads()
    yield
    set_num_threads(before)


def numbers(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def assert_near(found: Array, expected: Array, depth: int) -> None:
    tolerance = 1e-5 * max(1, depth) ** 0.5
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_products_of_many_extents(ta: bool, tb: bool) -> None:
    rng = np.random.default_rng(7)
    for _ in range(10):
        m, n, k = (int(rng.choice(EXTENTS)) for _ in range(3))
        found, expected, program = run_product(
            numbers(*((k, m) if ta else (m, k))), numbers(*((n, k) if tb else (k, n))), ta, tb
        )
        assert program.implementations == {"onednn.matmul": 1}
        assert_near(found, expected, k)


@pytest.mark.parametrize(
    "shapes", [((18, 197, 64), (18, 64, 197)), ((3, 2, 5, 9), (2, 9, 4)), ((2, 1, 5, 9), (1, 3, 9, 4))]
)
def test_stacks(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    found, expected, _ = run_product(numbers(*shapes[0]), numbers(*shapes[1]))
    assert_near(found, expected, shapes[0][-1])


@pytest.mark.parametrize("shape", [(591, 384, 384), (4, 768, 2304)])
def test_bits_do_not_depend_on_runs_nor_on_threads(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    a, b = numbers(m, k), numbers(k, n)
    bits = set[bytes]()
    for count in (1, 2, 3, 8):
        set_num_threads(count)
        found, expected, program = run_product(a, b)
        assert_near(found, expected, k)
        bits |= {found.tobytes(), np.asarray(program(a, b)).tobytes()}
    assert len(bits) == 1


def test_bytes_where_the_machine_sums_them_exactly() -> None:
    exact = multiplies(load_library(), "ui8", "i8", "i32")
    a, b = np.full((8, 64), 255, np.uint8), np.full((64, 8), -128, np.int8)
    found, expected, program = run_product(a, b, backend="none,onednn,numpy")
    np.testing.assert_array_equal(found, expected)
    assert program.implementations == {"onednn.matmul" if exact else "numpy.matmul": 1}


def test_what_was_in_the_result_is_overwritten() -> None:
    a, b = numbers(20, 30), numbers(30, 10)
    _, expected, program = run_product(a, b)
    out = np.full((20, 10), np.nan, np.float32)
    program(a, b, out=out)
    assert_near(out, expected, 30)


FORK = """
import os, sys
import numpy as np
import fuse_opt
from fuse_opt.runtime.host.thread_pool import set_num_threads
set_num_threads(2)
text = '''func.func @main(%x: tensor<256x256xf32>) -> tensor<256x256xf32> {
  %0 = graph.matmul %x, %x : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  func.return %0 : tensor<256x256xf32>
}'''
program = fuse_opt.compile(text, backend="none,onednn")
x = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
first = program(x)
if (child := os.fork()) == 0:
    os._exit(0 if np.array_equal(program(x), first) else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_of_fork_is_not_left_waiting() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=120, env=environment)
