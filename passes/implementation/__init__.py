"""The choice of what runs an op.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis,
dialects/implementation, passes, passes/decisions, passes/devices, passes/frozen, passes/fusion/engine, passes/simplify.
"""
