"""The stand-in for oneDNN as a library, and products that programs have run by it."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fuse_opt

Array = NDArray[Any]
SOURCE = Path(__file__).with_name("fake_onednn.c")
ELEMENTS = {"f": "f32", "i": "i32", "b": "i8", "B": "ui8"}


_FOLDER = tempfile.TemporaryDirectory(prefix="fake-onednn-")


@functools.cache
def _compiled() -> Path | None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    path = Path(_FOLDER.name) / "libfake.so"
    command = [compiler, "-O1", "-Wall", "-Werror", "-shared", "-fPIC", str(SOURCE), "-o", str(path), "-lm"]
    subprocess.run(command, check=True)
    return path


class FakeOneDnn:
    """A copy of the stand-in, which no other test has loaded; `say` is what it pretends."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        if (path := _compiled()) is None:
            pytest.skip("no C compiler builds the stand-in")
        self.path = Path(shutil.copy(path, folder / "libfake.so"))
        self._monkeypatch = monkeypatch
        monkeypatch.setenv("FUSE_OPT_ONEDNN", str(self.path))
        monkeypatch.setenv("FUSE_OPT_DEVICE", "cpu")  # it has all that the device of AVX-512 has

    def say(self, **values: int | str) -> None:
        """Such as `scratch=100` for FAKE_ONEDNN_SCRATCH."""
        for name, value in values.items():
            self._monkeypatch.setenv(f"FAKE_ONEDNN_{name.upper()}", str(value))

    def count(self, name: str) -> int:
        """Of `alive` handles, `primitives` made, `executions`."""
        return int(getattr(ctypes.CDLL(str(self.path)), f"fake_onednn_{name}")())


def product_text(a: Array, b: Array, shape: Sequence[int], config: Mapping[str, bool], tail: str = "") -> str:
    """A module of one product, with lines behind it that make %r of %0."""
    element = "i32" if a.dtype.kind in "iu" else "f32"
    x, w = ("x".join(map(str, (*array.shape, ELEMENTS[array.dtype.char]))) for array in (a, b))
    out = "x".join(map(str, (*shape, element)))
    flags = [f"{name} = true" for name, on in config.items() if on] + (["dtype = i32"] if element == "i32" else [])
    result = "%r" if tail else "%0"
    return (
        f"func.func @main(%x: tensor<{x}>, %w: tensor<{w}>) -> tensor<{out}> {{\n"
        f"  %0 = graph.matmul %x, %w {{{', '.join(flags)}}} : (tensor<{x}>, tensor<{w}>) -> tensor<{out}>\n"
        f"{tail}  func.return {result} : tensor<{out}>\n}}\n"
    )


def run_product(
    a: Array, b: Array, ta: bool = False, tb: bool = False, poison: bool = False, backend: str = "none,onednn"
) -> tuple[Array, Array, fuse_opt.CompiledProgram]:
    """What a program gives, what it has to give in f64 or i64, and the program."""
    lhs, rhs = (np.swapaxes(x, -1, -2) if turn else x for x, turn in ((a, ta), (b, tb)))
    wide = np.float64 if a.dtype.kind == "f" else np.int64
    expected = lhs.astype(wide) @ rhs.astype(wide)
    text = product_text(a, b, expected.shape, {"transpose_lhs": ta, "transpose_rhs": tb})
    program = fuse_opt.compile(text, backend=backend, poison=poison)
    return program(a, b), expected, program
