"""What helpers do in other ways where vectors are shorter, or masked stores slow: the same, for every compiler and machine."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from c_printing import BUILDS, build_helpers

BUILDS_OF_ALL = [*BUILDS, pytest.param("cc", "-mavx2", id="vectors of 8, no f16")]


@pytest.mark.sampled(10)
@pytest.mark.parametrize("compiler, machine", BUILDS_OF_ALL)
@pytest.mark.parametrize("kind", ["ui8", "f16", "f32", "f64"])
def test_tiles_are_transposed(kind: str, compiler: str, machine: str, tmp_path: Path) -> None:
    """From any place to any place, and nothing beside the tile is written."""
    side, c = (
        8 if kind == "f64" else 16,
        {"ui8": "unsigned char", "f16": "short", "f32": "float", "f64": "double"}[kind],
    )
    text = f"""void turn(const {c} *from, long at, long step, {c} *to, long to_at, long to_step) {{
  fo_transpose_{kind}((const void *)from, at, step, (void *)to, to_at, to_step);
}}
"""
    turn = build_helpers([f"fo_transpose_{kind}"], text, compiler, machine, tmp_path).turn
    dtype = {"ui8": np.uint8, "f16": np.uint16, "f32": np.float32, "f64": np.float64}[kind]
    rng = np.random.default_rng(1)
    for at, step, to_at, to_step in ((0, side, 0, side), (3, 19, 5, 23), (7, 40, 1, 17)):
        source = rng.integers(0, 255, at + side * step).astype(dtype)
        target = np.full(to_at + side * to_step, 77, dtype)
        wanted = target.copy()
        rows = source[at : at + side * step].reshape(side, step)[:, :side]
        wanted[to_at:].reshape(side, to_step)[:, :side] = rows.T
        pointers = ctypes.c_void_p(source.ctypes.data), ctypes.c_void_p(target.ctypes.data)
        turn(
            pointers[0],
            ctypes.c_long(at),
            ctypes.c_long(step),
            pointers[1],
            ctypes.c_long(to_at),
            ctypes.c_long(to_step),
        )
        np.testing.assert_array_equal(target, wanted)


@pytest.mark.parametrize("compiler, machine", BUILDS_OF_ALL)
def test_the_last_vector_ends_where_the_loop_does(compiler: str, machine: str, tmp_path: Path) -> None:
    """Masked behind whole vectors, or whole in front of the end."""
    names = ["fo_repeated_place", "fo_repeated_bits"]
    text = "long place(long whole, long missing) { return fo_repeated_place(whole, missing); }\n"
    library = build_helpers(
        names, text + "long bits(long bits) { return fo_repeated_bits(bits); }\n", compiler, machine, tmp_path
    )
    library.place.restype = library.bits.restype = ctypes.c_long
    for count in (17, 31, 33, 91):
        whole, rest = count // 16 * 16, count % 16
        first = library.place(ctypes.c_long(whole), ctypes.c_long(16 - rest))
        bits = library.bits(ctypes.c_long((1 << rest) - 1 | 1 << 16))
        stored = [first + lane for lane in range(16) if bits >> lane & 1]
        assert stored[-1] == count - 1 and stored[0] in (whole, count - 16)
