"""Ops over parts of sparse values, and what ops on sparse values become over parts.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/graph/bases, dialects/graph/elementwise,
dialects/graph/creation, dialects/graph/movement, dialects/graph/reductions, dialects/graph/contractions.
"""
