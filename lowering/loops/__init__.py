"""Transforms of loops.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis, lowering,
lowering/program, lowering/kernel, lowering/c/headers.
"""
