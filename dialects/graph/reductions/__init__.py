"""Reductions, statistics, sorting and scans, and the base of composites.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/graph/bases, dialects/graph/elementwise,
dialects/graph/creation, dialects/graph/movement.
"""
