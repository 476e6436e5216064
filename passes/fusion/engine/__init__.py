"""Groups, legality, limits and costs; knows no rule.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis, passes,
passes/decisions, passes/devices.
"""

from fuse_opt.dialects.analysis.loop_body import member_ops
from fuse_opt.passes.fusion.engine.cost_model import Estimate, elements, estimate, total_work
from fuse_opt.passes.fusion.engine.group_graph import GroupGraph, Rule
from fuse_opt.passes.fusion.engine.groups import Group
from fuse_opt.passes.fusion.engine.limits import Refusal
from fuse_opt.passes.fusion.engine.rule_checks import is_internal, refuse_loss, refuse_recompute, refuse_results
from fuse_opt.passes.fusion.engine.worklist import FusionPass

__all__ = [
    "Estimate",
    "FusionPass",
    "Group",
    "GroupGraph",
    "Refusal",
    "Rule",
    "elements",
    "estimate",
    "is_internal",
    "member_ops",
    "refuse_loss",
    "refuse_recompute",
    "refuse_results",
    "total_work",
]
