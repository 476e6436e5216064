"""The fusion rules that `compile` and `fuse-to-fixpoint` run, in order; a new rule is named here and nowhere else."""

from __future__ import annotations

FUSION_RULES: tuple[str, ...] = (
    "fuse-attention-gradient",
    "fuse-attention",
    "fuse-injective",
    "fuse-elementwise",
    "fuse-epilogue",
    "fuse-row",
    "fuse-siblings",
)
"""Names of passes of this package."""

SECOND_ROUND: tuple[str, ...] = ("fuse-elementwise", "fuse-injective")
"""Those that find more once the others have run: what stopped them may be inside of a kernel now."""
