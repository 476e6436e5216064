"""Patterns of a person's own, as PDL or Python.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis, dialects/graph,
passes, passes/fusion/engine.
"""
