"""What xDSL's own tools find of ours, through the entry point `xdsl.universe`: `graph`, `fused` and the passes.

Not `gpu`, and no pass that upstream has under the same name (canonicalize, cse, dce): xDSL merges the universes of an
environment and raises on a name that occurs twice, which would break every xDSL tool there.
"""

from __future__ import annotations

from xdsl.transforms import get_all_passes
from xdsl.universe import Universe

from fuse_opt.tools.compiler.registry import available_passes, own_dialects

_UPSTREAM_PASSES = get_all_passes()

UNIVERSE = Universe(
    all_dialects={name: factory for name, factory in own_dialects().items() if name != "gpu"},
    all_passes={name: factory for name, factory in available_passes().items() if name not in _UPSTREAM_PASSES},
)
