"""Bases of families of ops.

May import dialects/types, dialects/scalar, dialects/interfaces.
"""
