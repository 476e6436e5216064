"""Groups, legality, limits, costs, decisions and their replay; knows no rule.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis, passes,
passes/devices.
"""
