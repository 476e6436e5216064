"""Products by each implementation of the CPU, of each of its types: extents, offsets, guard zones, threads, twice."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
import pytest
from graph_op_table import Array, converted, wide

import fuse_opt
from fuse_opt.runtime.backends.blas import matmul as blas
from fuse_opt.runtime.backends.onednn.library import find_library
from fuse_opt.runtime.host.thread_pool import num_threads, set_num_threads

EXTENTS = (0, 1, 3, 7, 13, 14, 15, 31, 32, 33, 197, 513)
RESULTS = {"f32": "f32", "f64": "f64", "f16": "f16", "bf16": "bf16", "i8": "i32", "ui8": "i32"}
"""By element type of the left operand; the right one of bytes is i8."""
TAKEN = {
    "fuse.matmul": tuple(RESULTS),
    "numpy.matmul": tuple(RESULTS),
    "blas.matmul": ("f32", "f64"),
    "onednn.matmul": ("f32", "i8", "ui8"),
}
SPACING = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}
DRAWS = 4
GUARD = 64


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = num_threads()
    yield
    set_num_threads(before)


def is_here(name: str) -> bool:
    return {"blas": blas.load_tasks() is not None, "onednn": not isinstance(find_library(), str)}.get(
        name.partition(".")[0], True
    )


def guarded(array: Array, offset: int) -> tuple[Array, Array]:
    """A copy that begins so many elements into memory of its own, and that memory, with something else around it."""
    memory = np.full(offset + array.size + GUARD, 77, array.dtype)
    inside = memory[offset : offset + array.size].reshape(array.shape)
    inside[...] = array
    return inside, memory


def text_of(name: str, dtype: str, extents: tuple[int, int, int], turned: tuple[bool, bool]) -> str:
    m, n, k = extents
    a, b = (f"{k}x{m}" if turned[0] else f"{m}x{k}"), (f"{n}x{k}" if turned[1] else f"{k}x{n}")
    left, right = f"tensor<{a}x{dtype}>", f"tensor<{b}x{'i8' if dtype == 'ui8' else dtype}>"
    flags = [f"transpose_{side} = true" for side, on in zip(("lhs", "rhs"), turned, strict=True) if on]
    flags += ["dtype = i32"] if RESULTS[dtype] == "i32" else []
    config = ", ".join([*flags, f'use_implementation = "{name}"'])
    out = f"tensor<{m}x{n}x{RESULTS[dtype]}>"
    return (
        f"func.func @main(%a: {left}, %b: {right}) -> {out} {{\n"
        f"  %0 = graph.matmul %a, %b {{{config}}} : ({left}, {right}) -> {out}\n  func.return %0 : {out}\n}}"
    )


def operands(
    rng: np.random.Generator, dtype: str, extents: tuple[int, int, int], turned: tuple[bool, bool]
) -> list[Array]:
    m, n, k = extents
    shapes = (k, m) if turned[0] else (m, k), (n, k) if turned[1] else (k, n)
    if RESULTS[dtype] == "i32":
        kinds = (np.uint8 if dtype == "ui8" else np.int8), np.int8
        limits = [(np.iinfo(kind).min, np.iinfo(kind).max + 1) for kind in kinds]
        return [rng.integers(*limit, s).astype(kind) for limit, s, kind in zip(limits, shapes, kinds, strict=True)]
    return [converted(rng.standard_normal(s), dtype) for s in shapes]


def check(
    name: str, dtype: str, extents: tuple[int, int, int], turned: tuple[bool, bool], rng: np.random.Generator
) -> bool:
    """Whether it takes such a product; of one that it takes all is right."""
    text = text_of(name, dtype, extents, turned)
    try:
        program = fuse_opt.compile(text, backend="onednn" if name.startswith("onednn") else None)
    except fuse_opt.InputError as error:
        reason = str(error).partition("refuses it: ")[2].partition(";")[0]
        assert reason, error
        is_machine = name.startswith("onednn") and reason.startswith(("implementation-", "saturates", "needs-"))
        assert 0 in extents or is_machine, (name, dtype, extents, turned, reason)
        return False
    a, b = operands(rng, dtype, extents, turned)
    given = [guarded(array, int(rng.integers(16)))[0] for array in (a, b)]
    lhs, rhs = (wide(x).T if turn else wide(x) for x, turn in zip((a, b), turned, strict=True))
    expected, magnitudes = lhs @ rhs, np.abs(lhs) @ np.abs(rhs)
    bits = set[bytes]()
    for count in (1, 1, 2, 3, 8):
        set_num_threads(count)
        out, memory = guarded(np.zeros(expected.shape, np.asarray(program(*given)).dtype), int(rng.integers(16)))
        before = memory.copy()
        program(*given, out=out)
        found = wide(out)
        if RESULTS[dtype] == "i32":
            np.testing.assert_array_equal(found, expected)
        else:
            sums = SPACING["f64" if dtype == "f64" else "f32"] * max(extents[2], 1) * magnitudes
            assert (np.abs(found - expected) <= sums + SPACING[dtype] * np.abs(expected)).all(), (
                extents,
                turned,
                count,
            )
        bits.add(out.tobytes())
        out[...] = before[before.size - GUARD - out.size :][: out.size].reshape(out.shape)
        assert memory.tobytes() == before.tobytes(), "something beside the result was written"
    assert len(bits) == 1 or name == "blas.matmul", "a BLAS is cut by threads, as docs/implementations.md says"
    return True


@pytest.mark.sampled(12)
@pytest.mark.parametrize("dtype", RESULTS)
@pytest.mark.parametrize("name", TAKEN)
def test_products(name: str, dtype: str) -> None:
    if not is_here(name):
        pytest.skip(f"no library for {name}")
    rng: Any = np.random.default_rng([*TAKEN].index(name) * 10 + [*RESULTS].index(dtype))
    taken = 0
    for draw in range(DRAWS):
        while prod(extents := tuple(int(n) for n in rng.choice(EXTENTS[draw > 0 :], 3))) > 1e7:
            pass
        turned = (False, False) if draw == 1 else (bool(rng.integers(2)), bool(rng.integers(2)))
        m, n, k = extents
        if dtype not in TAKEN[name]:
            with pytest.raises(fuse_opt.InputError, match=f'"{name}" refuses it: (dtype|empty|needs-)'):
                fuse_opt.compile(
                    text_of(name, dtype, (m, n, k), turned), backend="onednn" if "onednn" in name else None
                )
            return
        taken += check(name, dtype, (m, n, k), turned, rng)
    assert taken or name == "onednn.matmul"
