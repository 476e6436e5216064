"""What depends on frozen arguments alone: computed once, by a second function.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis,
dialects/analysis/contractions, dialects/implementation, dialects/graph/movement, passes, passes/decisions,
passes/devices.
"""
