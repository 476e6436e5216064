"""How values lie in memory: a choice over the whole graph, and fewer conversions.

May import dialects/types, dialects/interfaces, dialects/fused, dialects/analysis, dialects/implementation,
dialects/graph, passes, passes/decisions, passes/devices.
"""
