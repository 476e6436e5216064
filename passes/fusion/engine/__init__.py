"""Groups, legality, limits, costs, decisions and their replay; knows no rule.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis, passes,
passes/devices.
"""

from fuse_opt.dialects.analysis.loop_body import member_ops
from fuse_opt.passes.fusion.engine.cost_model import Estimate, elements, estimate, total_work
from fuse_opt.passes.fusion.engine.group_graph import GroupGraph, Rule
from fuse_opt.passes.fusion.engine.groups import Group
from fuse_opt.passes.fusion.engine.limits import Refusal
from fuse_opt.passes.fusion.engine.replay import limit_fuel, record_decisions, replay_decisions
from fuse_opt.passes.fusion.engine.replay_text import Decision, DecisionError, format_decisions, parse_decisions
from fuse_opt.passes.fusion.engine.rule_checks import is_internal, refuse_loss, refuse_recompute, refuse_results
from fuse_opt.passes.fusion.engine.worklist import FusionPass

__all__ = [
    "Decision",
    "DecisionError",
    "Estimate",
    "FusionPass",
    "Group",
    "GroupGraph",
    "Refusal",
    "Rule",
    "elements",
    "estimate",
    "format_decisions",
    "is_internal",
    "limit_fuel",
    "member_ops",
    "parse_decisions",
    "record_decisions",
    "refuse_loss",
    "refuse_recompute",
    "refuse_results",
    "replay_decisions",
    "total_work",
]
