"""Patterns of a person's own, as PDL or Python.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis, dialects/graph,
passes, passes/fusion/engine.
"""

from fuse_opt.dialects.analysis.loop_body import member_ops
from fuse_opt.passes.fusion.engine.group_graph import Group, GroupGraph, Refusal

__all__ = ["Group", "GroupGraph", "Refusal", "member_ops"]
