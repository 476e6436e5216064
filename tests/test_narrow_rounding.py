"""Rounding to f16 and bf16 in registers is narrowing and widening, and takes their place between the ops of a kernel."""

from __future__ import annotations

import ctypes

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
