"""Decisions of passes as data: recorded, applied again, counted; knows no pass.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis, passes.
"""

from fuse_opt.passes.decisions.steering import Steering, limit_fuel, record_decisions, replay_decisions, steer
from fuse_opt.passes.decisions.text import Decision, DecisionError, format_decisions, parse_decisions

__all__ = [
    "Decision",
    "DecisionError",
    "Steering",
    "format_decisions",
    "limit_fuel",
    "parse_decisions",
    "record_decisions",
    "replay_decisions",
    "steer",
]
