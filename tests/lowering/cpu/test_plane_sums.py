"""Depthwise convolutions of images of any extents, by rows of registers: values, bits, and what lies around buffers."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from lowered_programs import as_list, needs_compiler
from narrow_vectors import compiled_for
from thread_counts import by_threads

import fuse_opt
from fuse_opt.lowering.cpu.convolution import loops

Array = np.ndarray[Any, Any]
GROUPS = 3
WINDOWS = {
    "3x3": ((3, 3), (1, 1), (1, 1, 1, 1)),
    "3x3 without zeros": ((3, 3), (1, 1), (0, 0, 0, 0)),
    "3x3 by twos": ((3, 3), (2, 2), (1, 1, 1, 1)),
    "3x3 by twos, behind": ((3, 3), (2, 2), (0, 0, 1, 1)),
    "5x5": ((5, 5), (1, 1), (2, 2, 2, 2)),
    "5x5 by twos": ((5, 5), (2, 2), (2, 2, 2, 2)),
    "7x7": ((7, 7), (1, 1), (3, 3, 3, 3)),
    "2x4 by rows": ((2, 4), (2, 1), (1, 0, 0, 3)),
    "4x3 by columns": ((4, 3), (1, 2), (2, 1, 1, 2)),
}
"""Windows, strides, and zeros around."""
SIZES = ((5, 7), (6, 8), (9, 9), (4, 16), (7, 17), (31, 5), (13, 40), (70, 67), (5, 130))


def program_text(name: str, more: str = "", result: str = "%1") -> str:
    (height, width), strides, pads = WINDOWS[name]
    kind, weight = f"tensor<?x{GROUPS}x?x?xf32>", f"tensor<{GROUPS}x1x{height}x{width}xf32>"
    options = f"pads = array<i64: {', '.join(map(str, pads))}>, strides = array<i64: {strides[0]}, {strides[1]}>"
    return f"""func.func @main(%x: {kind} {{graph.dims = ["b", "", "h", "w"]}}, %w: {weight},
    %bias: tensor<{GROUPS}x1x1xf32>) -> {kind} {{
  %1 = graph.conv %x, %w {{{options}, groups = {GROUPS} : i64}} : ({kind}, {weight}) -> {kind}
  {more}
  func.return {result} : {kind}
}}"""


BIAS = f"""%2 = graph.add %1, %bias : (tensor<?x{GROUPS}x?x?xf32>, tensor<{GROUPS}x1x1xf32>) -> tensor<?x{GROUPS}x?x?xf32>
  %3 = graph.relu %2 : (tensor<?x{GROUPS}x?x?xf32>) -> tensor<?x{GROUPS}x?x?xf32>"""


def arrays(name: str, batch: int, height: int, width: int) -> tuple[Array, ...]:
    rng = np.random.default_rng(2811)
    shapes = ((batch, GROUPS, height, width), (GROUPS, 1, *WINDOWS[name][0]), (GROUPS, 1, 1))
    return tuple(rng.standard_normal(shape).astype(np.float32) for shape in shapes)


def never(*_: object) -> bool:
    return False


@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize(
    ("name", "more"),
    [*((name, BIAS) for name in WINDOWS), *((name, "") for name in ("3x3", "5x5 by twos", "2x4 by rows"))],
    ids=[*WINDOWS, "3x3 alone", "5x5 by twos alone", "2x4 by rows alone"],
)
def test_sums_of_planes_are_those_of_copies(
    name: str, more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = program_text(name, more, "%3" if more else "%1")
    planes = [compiled_for(text, size, tmp_path) for size in ((32, 64) if more else (32,))]
    for program in planes:  # compiled at the first call
        program(*arrays(name, 1, *SIZES[0]))
    monkeypatch.setattr(loops, "reads_planes", never)
    copies = compiled_for(text, 64, tmp_path)
    for number, (height, width) in enumerate(SIZES):
        given = arrays(name, 1 + number % 2, height, width)
        with guarded() as allocate:
            found = as_list(planes[0](*(allocate(array, at_end=number % 2 == 0) for array in given)))[0]
            for program in (copies, *planes[1:]):
                assert found.tobytes() == as_list(program(*given))[0].tobytes(), (height, width)
        wanted = as_list(fuse_opt.evaluate(text, *given))[0]
        np.testing.assert_allclose(found, wanted, 2e-5, 2e-5, err_msg=f"{height} rows of {width}")
    assert all("fo_plane_f32_" in program.source for program in planes)
    assert "fo_plane_f32_" not in copies.source


@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("name", ["3x3", "3x3 by twos"])
def test_nothing_is_written_around_a_result(name: str, tmp_path: Path) -> None:
    program = compiled_for(program_text(name), 32, tmp_path)
    for number, (height, width) in enumerate(SIZES):
        given = arrays(name, 1, height, width)
        wanted = as_list(program(*given))[0]
        with guarded() as allocate:
            out = allocate(np.zeros_like(wanted), at_end=number % 2 == 0)
            program(*given, out=out)
            assert out.tobytes() == wanted.tobytes()


@needs_compiler
@pytest.mark.parametrize("name", ["3x3", "3x3 by twos", "5x5"])
def test_threads_change_no_bit(name: str, tmp_path: Path) -> None:
    program = compiled_for(program_text(name, BIAS, "%3"), 32, tmp_path)
    for batch, height, width in ((1, 70, 67), (5, 31, 5), (8, 13, 40), (2, 5, 130)):
        given = arrays(name, batch, height, width)
        assert len(set(by_threads(lambda given=given: as_list(program(*given))[0].tobytes()))) == 1, (height, width)


@needs_compiler
def test_zeros_around_an_image_are_multiplied(tmp_path: Path) -> None:
    x, weight, bias = arrays("3x3", 1, 9, 20)
    weight[1, 0, 0, 0] = np.inf
    text = program_text("3x3")
    found, wanted = (
        as_list(compiled_for(text, 32, tmp_path)(x, weight, bias))[0],
        as_list(fuse_opt.evaluate(text, x, weight, bias))[0],
    )
    assert np.isnan(wanted[0, 1, 0]).all()
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))


@needs_compiler
@pytest.mark.parametrize(
    "options", ["dilations = array<i64: 2, 2>, pads = array<i64: 2, 2, 2, 2>", "strides = array<i64: 3, 3>"]
)
def test_other_windows_are_copied(options: str, tmp_path: Path) -> None:
    kind, weight = "tensor<?x3x?x?xf32>", "tensor<3x1x3x3xf32>"
    text = f"""func.func @main(%x: {kind} {{graph.dims = ["b", "", "h", "w"]}}, %w: {weight}) -> {kind} {{
  %1 = graph.conv %x, %w {{{options}, groups = 3 : i64}} : ({kind}, {weight}) -> {kind}
  func.return %1 : {kind}
}}"""
    program, (x, given, _) = compiled_for(text, 32, tmp_path), arrays("3x3", 2, 11, 29)
    np.testing.assert_allclose(as_list(program(x, given))[0], as_list(fuse_opt.evaluate(text, x, given))[0], 2e-5, 2e-5)
    assert "fo_plane_f32_" not in program.source


@pytest.mark.sampled(7)
@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("flags", ["", "-mno-avx2"], ids=["vectors", "loops"])
@pytest.mark.parametrize("name", ["3x3", "3x3 by twos", "5x5", "5x5 by twos", "2x4 by rows", "4x3 by columns"])
def test_images_of_known_extents_are_read_where_they_lie(
    name: str, flags: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Windows of few taps, and of more where rows of positions fill vectors; compilers that lack a function make loops."""
    if flags and platform.machine() != "x86_64":
        pytest.skip("a flag of x86")
    monkeypatch.setenv("FUSE_OPT_CFLAGS", flags)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for height, width in ((9, 9), (13, 40)):
        given = arrays(name, 2, height, width)
        known = [f"tensor<{'x'.join(map(str, array.shape))}xf32>" for array in given]
        wanted = as_list(fuse_opt.evaluate(program_text(name), *given))[0]
        result = f"tensor<{'x'.join(map(str, wanted.shape))}xf32>"
        text = program_text(name).replace(' {graph.dims = ["b", "", "h", "w"]}', "")
        text = text.replace("-> tensor<?x3x?x?xf32>", f"-> {result}").replace(
            "return %1 : tensor<?x3x?x?xf32>", f"return %1 : {result}"
        )
        text = text.replace("tensor<?x3x?x?xf32>", known[0])
        program = compiled_for(text, 32, tmp_path)
        with guarded() as allocate:
            out = allocate(np.zeros_like(wanted), at_end=True)
            program(*(allocate(array, at_end=True) for array in given), out=out)
            np.testing.assert_allclose(out, wanted, 2e-5, 2e-5, err_msg=f"{height} rows of {width}")
        few = np.prod(WINDOWS[name][0]) <= 9
        fills = 4 * wanted.shape[3] >= 3 * (-(-wanted.shape[3] // 8) * 8) and max(WINDOWS[name][1]) == 1
        assert ("fo_plane_f32_" in program.source) == (few or fills)
