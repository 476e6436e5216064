"""Algebra, common subexpressions, dead code, decomposition, shapes.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis, dialects/graph,
dialects/graph/movement, passes.
"""
