"""The fusion rules, one a file, and their undoing.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis,
dialects/analysis/contractions, dialects/implementation, dialects/graph, passes, passes/decisions, passes/devices,
passes/fusion/*.
"""
