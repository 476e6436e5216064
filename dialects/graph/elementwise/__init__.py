"""Ops on elements: arithmetic, comparisons, bits, math, activations.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/graph/bases.
"""
