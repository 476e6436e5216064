"""Ops without a tensor to read: constants, ranges, random numbers.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/graph/bases.
"""
