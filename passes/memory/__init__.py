"""In-place inference, orders for memory, plans.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis,
dialects/implementation, passes, passes/decisions, passes/memory/*.
"""
