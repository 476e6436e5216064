"""Frozen arguments of programs: what follows from them is computed once, and never from elements that are not there any more."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fuse_opt
from fuse_opt.runtime import frozen, prepared

Array = npt.NDArray[Any]

TEXT = """
func.func @f(%x: tensor<5x7xf32>, %w: tensor<7xf16> FROZEN, %g: tensor<7xf32> FROZEN) -> tensor<5x7xf32> {
  %0 = graph.astype %w {dtype = f32} : (tensor<7xf16>) -> tensor<7xf32>
  %1 = graph.exp %g : (tensor<7xf32>) -> tensor<7xf32>
  %2 = graph.multiply %x, %0 : (tensor<5x7xf32>, tensor<7xf32>) -> tensor<5x7xf32>
  %3 = graph.add %2, %1 : (tensor<5x7xf32>, tensor<7xf32>) -> tensor<5x7xf32>
  func.return %3 : tensor<5x7xf32>
}
"""
MARKED, PLAIN = TEXT.replace("FROZEN", "{graph.frozen}"), TEXT.replace(" FROZEN", "")


def arrays() -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(1)
    x, w, g = rng.standard_normal((5, 7)), rng.standard_normal(7), rng.standard_normal(7)
    return x.astype(np.float32), w.astype(np.float16), g.astype(np.float32)


def value(x: Array, w: Array, g: Array) -> Array:
    return x * w.astype(np.float32) + np.exp(g)


def check(got: Array, *given: Array) -> None:
    np.testing.assert_allclose(got, value(*given), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("text", [MARKED, PLAIN])
@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_calls_take_the_arguments_that_are_left(text: str, target: str):
    program = fuse_opt.compile(text, target)
    x, w, g = arrays()
    check(program(x, w, g), x, w, g)
    check(program.freeze({1: w})(x, g), x, w, g)
    check(program.freeze({"g": g})(x), x, w, g)
    out = np.empty_like(x)
    assert program(x, out=out) is out
    check(out, x, w, g)
    with pytest.raises(TypeError, match="takes 1 argument beside 2 that are frozen, got 3"):
        program(x, w, g)
    check(program.unfreeze()(x, w, g), x, w, g)


def test_what_follows_from_them_is_computed_once(monkeypatch: pytest.MonkeyPatch):
    counted: list[int] = []
    once: Callable[..., Any] = prepared.PreparedProgram.prepared

    def count(program: prepared.PreparedProgram, *given: Any) -> Any:
        counted.append(1)
        return once(program, *given)

    monkeypatch.setattr(prepared.PreparedProgram, "prepared", count)
    program = fuse_opt.compile(MARKED)
    assert program.stats.prepared_bytes == 2 * 4 * 7
    x, w, g = arrays()
    program.freeze({1: w, 2: g})
    for _ in range(3):
        check(program(x), x, w, g)
    assert len(counted) == 1
    other = w + np.float16(1)
    check(program.freeze({1: other})(x), x, other, g)
    assert len(counted) == 2


def test_numpy_arrays_are_read_only_while_they_are_bound():
    program = fuse_opt.compile(MARKED)
    x, w, g = arrays()
    check(program.freeze({1: w, 2: g})(x), x, w, g)
    with pytest.raises(ValueError, match="read-only"):
        w[0] = 5
    check(program(x), x, w, g)
    program.unfreeze()
    w[0] = 5
    check(program.freeze({1: w, 2: g})(x), x, w, g)


VIEWS: list[Callable[[Array], Array]] = [
    lambda memory: memory[:7],
    lambda memory: memory.reshape(2, 7)[0],
    lambda memory: memory[::2],
    lambda memory: np.frombuffer(memory, np.float16, 7),
]


@pytest.mark.parametrize("take", VIEWS)
def test_a_view_of_what_others_write_to_is_compared_in_each_call(take: Callable[[Array], Array]):
    program = fuse_opt.compile(MARKED)
    x, w, g = arrays()
    memory = np.concatenate([w, w])
    given = take(memory)
    check(program.freeze({1: given, 2: g})(x), x, given, g)
    for change in range(3):
        memory += np.float16(change)
        check(program(x), x, given, g)


def test_what_is_a_view_for_no_other_reason_than_its_shape_is_read_only():
    program = fuse_opt.compile(MARKED)
    x, w, g = arrays()
    given = np.stack([w, w])[0]
    check(program.freeze({1: given, 2: g})(x), x, w, g)
    assert not given.flags.writeable
    program.unfreeze()
    assert given.flags.writeable


def test_memory_that_nobody_writes_to_is_not_compared():
    program = fuse_opt.compile(MARKED)
    x, w, g = arrays()
    given = np.frombuffer(w.tobytes(), np.float16).reshape(7, 1)[:, 0]
    check(program.freeze({1: given, 2: g})(x), x, w, g)
    both = np.stack([w, w])
    assert [bool(frozen.Bound(array).version()) for array in (given, both, both[:1])] == [False, False, True]


def test_programs_share_what_they_compute_from_the_same_arrays():
    text = MARKED.replace("exp", "tanh")
    first, second = fuse_opt.compile(text), fuse_opt.compile(text.replace("5x7", "6x7"))
    x, w, g = arrays()
    before = len(prepared._shared)  # pyright: ignore[reportPrivateUsage]
    first.freeze({1: w, 2: g})(x)
    second.freeze({1: w, 2: g})(np.zeros((6, 7), np.float32))
    assert len(prepared._shared) == before + 1  # pyright: ignore[reportPrivateUsage]
    other = w + np.float16(1)
    second.freeze({1: other})(np.zeros((6, 7), np.float32))
    np.testing.assert_allclose(first(x), x * w.astype(np.float32) + np.tanh(g), rtol=1e-5, atol=1e-6)
    first.unfreeze()
    w[:] = 0
    np.testing.assert_allclose(first.freeze({1: w, 2: g})(x), np.broadcast_to(np.tanh(g), x.shape), rtol=1e-5)


def test_an_array_that_two_programs_bind_is_read_only_for_both():
    first, second = fuse_opt.compile(MARKED), fuse_opt.compile(MARKED)
    _, w, g = arrays()
    first.freeze({1: w, 2: g})
    second.freeze({1: w})
    first.unfreeze()
    assert not w.flags.writeable and g.flags.writeable
    del second
    assert w.flags.writeable
    g.flags.writeable = False
    first.freeze({2: g}).unfreeze()
    assert not g.flags.writeable  # as it was before


def test_what_was_written_by_another_way_is_seen_after_refresh():
    program = fuse_opt.compile(MARKED)
    x, w, g = arrays()
    before = w[:]
    program.freeze({1: w, 2: g})(x)
    before[:] = 3
    program.refresh()
    check(program(x), x, w, g)


def test_tensors_that_count_writes_are_looked_at_in_each_call():
    torch = pytest.importorskip("torch")
    program = fuse_opt.compile(MARKED)
    x, w, g = arrays()
    weight = torch.nn.Parameter(torch.from_numpy(w.copy()))
    program.freeze({1: weight, 2: torch.from_numpy(g)})
    check(program(x), x, w, g)
    with torch.no_grad():
        weight.mul_(2)
    check(program(x), x, 2 * w, g)
    weight.data = torch.from_numpy(w - 1)
    check(program(x), x, w - 1, g)
    with torch.inference_mode():
        uncounted = torch.ones(7)
    with pytest.raises(TypeError, match="argument 2 .*counts how often"):
        program.freeze({2: uncounted})


def test_an_array_in_another_order_is_copied_once():
    text = "func.func @f(%x: tensor<4x3xf32> {graph.frozen}) -> tensor<4x3xf32> {\n func.return %x : tensor<4x3xf32>\n}"
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    program = fuse_opt.compile(text).freeze({0: x.T})
    np.testing.assert_array_equal(program(), x.T)
    x += 1
    np.testing.assert_array_equal(program(), x.T)


@pytest.mark.parametrize(
    "given, message",
    [
        ({3: 0.0}, "no argument 3; there are: 0 \\('x'\\), 1 \\('w'\\), 2 \\('g'\\)"),
        ({"h": 0.0}, "no argument 'h'"),
        ({2: np.zeros(8, np.float32)}, "argument 2 .*expected float32 \\[7\\], got shape \\[8\\]"),
        ({2: np.zeros(7)}, "argument 2 .*got an array of float64"),
        ({2: [0.0] * 7}, "argument 2 .*got list, which does not say when its elements change"),
    ],
)
def test_what_cannot_be_bound_is_named(given: dict[int | str, Any], message: str):
    program = fuse_opt.compile(MARKED)
    with pytest.raises((TypeError, ValueError), match=message):
        program.freeze(given)
    x, w, g = arrays()
    check(program(x, w, g), x, w, g)


def test_donated_arguments_are_not_bound():
    program = fuse_opt.compile(PLAIN.replace("%x: tensor<5x7xf32>", "%x: tensor<5x7xf32> {graph.donated}"))
    with pytest.raises(ValueError, match="argument 0 .*donated: calls overwrite it"):
        program.freeze({0: arrays()[0]})


def test_unknown_extents():
    program = fuse_opt.compile(MARKED.replace("5x7", "?x7"))
    x, w, g = arrays()
    check(program(x, w, g), x, w, g)
    program.freeze({1: w, 2: g})
    for _ in range(2):
        for rows in (5, 2, 5):
            check(program(x[:rows]), x[:rows], w, g)
        w = w + np.float16(1)
        program.freeze({1: w})
    with pytest.raises(ValueError, match="argument 0"):
        program(x[0])
    with pytest.raises(TypeError, match="takes 1 argument beside 2 that are frozen, got 2"):
        program(x, x)
    assert program.stats.prepared_bytes == 2 * 4 * 7


def test_threads_share_a_program():
    program = fuse_opt.compile(MARKED)
    x, w, g = arrays()
    torch = pytest.importorskip("torch")
    weight = torch.from_numpy(w.copy())
    program.freeze({1: weight, 2: g})
    begin = threading.Barrier(4)

    def run(seed: int) -> None:
        mine = x + np.float32(seed)
        begin.wait()
        for _ in range(200):
            check(program(mine), mine, w, g)

    for _ in range(3):  # each first call finds another version
        weight.mul_(1)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(run, range(4)))


def test_poisoned_programs_prepare_too():
    x, w, g = arrays()
    check(fuse_opt.compile(MARKED, poison=True).freeze({1: w, 2: g})(x), x, w, g)
