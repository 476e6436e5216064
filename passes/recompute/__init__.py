"""What is computed again in place of being kept, and what for.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis,
dialects/implementation, passes, passes/decisions, passes/devices, passes/fusion/engine, passes/implementation,
passes/memory/packing, passes/scheduling, passes/recompute/splitting.
"""
