"""Rounding to f16 and bf16 in registers, and f16 by the block: the same bits as conversions one by one."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from ir_testing import apply, parse, text_of

from fuse_opt.lowering.c_support import c_helpers
from fuse_opt.runtime.c_compiler import find_c_compiler
from fuse_opt.runtime.disk_cache import DiskCache


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_rounding_is_narrowing_and_widening(kind: str) -> None:
    compiler = find_c_compiler()
    if compiler is None:
        pytest.skip("no working C compiler")
    names = [f"fo_round_{kind}", f"fo_f32_to_{kind}", f"fo_{kind}_to_f32"]
    text = (
        c_helpers(names)
        + f"""
void both(long n, const float *x, float *y, float *z) {{
  for (long i = 0; i < n; i++) {{
    y[i] = fo_round_{kind}(x[i]);
    z[i] = fo_{kind}_to_f32(fo_f32_to_{kind}(x[i]));
  }}
}}
"""
    )
    both = ctypes.CDLL(str(compiler.compile_shared(text, DiskCache()))).both
    halves = np.arange(1 << 16, dtype=np.uint32)
    near = (halves << 16).view(np.float32), np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    patterns = np.random.default_rng(1).integers(0, 1 << 32, 1 << 18, dtype=np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        ties = [(v.astype(np.float64) * (1 + d)).astype(np.float32) for v in near for d in (2**-11, 2**-9, 3 * 2**-12)]
    x = np.concatenate([*near, *ties, patterns])
    y, z = np.empty_like(x), np.empty_like(x)
    both(ctypes.c_long(x.size), *(ctypes.c_void_p(a.ctypes.data) for a in (x, y, z)))
    np.testing.assert_array_equal(y, z)
    np.testing.assert_array_equal(np.signbit(y[y == y]), np.signbit(z[y == y]))
    if kind == "f16":
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(y, x.astype(np.float16).astype(np.float32))


def test_only_what_is_stored_becomes_narrow() -> None:
    kind = "tensor<64xf16>"
    module = parse(
        f"""
func.func @main(%x: {kind}) -> {kind} {{
  %r = fused.kernel(%a = %x : {kind}) -> ({kind}) {{
    %0 = graph.exp %a : ({kind}) -> {kind}
    %1 = graph.sqrt %0 : ({kind}) -> {kind}
    %2 = graph.exp %1 : ({kind}) -> {kind}
    fused.yield %2 : {kind}
  }}
  func.return %r : {kind}
}}
"""
    )
    text = text_of(apply(module, ["convert-fused-to-loops"]))
    assert text.count("call @fo_round_f16(") == 2


BUILDS = [
    pytest.param("cc", "-march=native", id="native"),
    pytest.param("cc", "-mf16c", id="vectors of 8"),
    pytest.param("cc", "", id="one by one"),
    pytest.param("clang", "-march=native", id="clang"),
]


@pytest.mark.parametrize("compiler, machine", BUILDS)
def test_blocks_of_halves_are_halves(compiler: str, machine: str, tmp_path: Path) -> None:
    """Every half and many floats, from odd places on; the bits of a NaN are the machine's choice."""
    if machine == "-mf16c" and platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("an instruction set of x86-64")
    if shutil.which(compiler) is None:
        pytest.skip(f"no C compiler {compiler!r} on this machine")
    source, target = tmp_path / "blocks.c", tmp_path / "blocks.so"
    source.write_text(
        c_helpers(["fo_widen_f16", "fo_narrow_f16"])
        + """
void blocks(long n, const unsigned short *h, const float *x, float *wide, unsigned short *narrow) {
  fo_widen_f16(h, 1, wide, 2, 65535);
  fo_narrow_f16(x, 3, narrow, 4, n);
}
"""
    )
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-std=gnu11", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, *machine.split(), str(source), "-o", str(target)], check=True)
    patterns = np.random.default_rng(2).integers(0, 1 << 32, (1 << 17) + 7, dtype=np.uint32).view(np.float32)
    halves = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(all="ignore"):
        middle = ((halves.view(np.float16).astype(np.float64) + np.roll(halves.view(np.float16), 1)) / 2).astype(
            np.float32
        )
        x = np.concatenate([patterns, middle, np.nextafter(middle, np.float32(0)), [np.float32(65520)]])
        expected = x.astype(np.float16)
    wide, narrow = np.zeros(1 << 18, np.float32), np.zeros(x.size + 8, np.uint16)
    arrays = [ctypes.c_void_p(a.ctypes.data) for a in (halves, x, wide, narrow)]
    ctypes.CDLL(str(target)).blocks(ctypes.c_long(x.size - 3), *arrays)
    np.testing.assert_array_equal(wide[2 : 2 + 65535], halves.view(np.float16)[1:].astype(np.float32))
    got = narrow.view(np.float16)[4 : x.size + 1]
    np.testing.assert_array_equal(got, expected[3:])
    number = ~np.isnan(got)
    np.testing.assert_array_equal(got.view(np.uint16)[number], expected[3:].view(np.uint16)[number])
    assert not wide[2 + 65535 :].any()
    assert not narrow[x.size + 1 :].any()


@pytest.mark.parametrize("size, calls", [(300, 3), (5000, 3)])
def test_neighbours_are_converted_by_the_block(size: int, calls: int) -> None:
    """Two loads and a store of neighbours; what all elements share, and what is turned, is left as it is."""
    kind = f"tensor<{size}xf16>"
    module = parse(f"""
func.func @main(%x: {kind}, %y: {kind}, %c: tensor<f16>) -> {kind} {{
  %r = fused.kernel(%a = %x : {kind}, %b = %y : {kind}, %s = %c : tensor<f16>) -> ({kind}) {{
    %0 = graph.add %a, %s : ({kind}, tensor<f16>) -> {kind}
    %1 = graph.multiply %0, %b : ({kind}, {kind}) -> {kind}
    fused.yield %1 : {kind}
  }}
  func.return %r : {kind}
}}
""")
    text = text_of(apply(module, ["convert-fused-to-loops"]))
    assert text.count("call @fo_widen_f16(") + text.count("call @fo_narrow_f16(") == calls
    assert text.count("memref.load %s[") == 1
