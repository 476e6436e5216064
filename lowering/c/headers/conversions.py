"""The text of conversions of floats that NumPy has no type for, which runtimes compile with their own C."""

from __future__ import annotations

from fuse_opt.lowering.c.headers.functions import c_helpers


def c_conversions() -> str:
    """The C text of `fo_widen_f16`, `fo_narrow_f16`, `fo_bf16_to_f32` and `fo_f32_to_bf16`, as generated programs have it."""
    return c_helpers(["fo_widen_f16", "fo_narrow_f16", "fo_bf16_to_f32", "fo_f32_to_bf16"])
