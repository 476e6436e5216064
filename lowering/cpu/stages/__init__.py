"""Stages of a pass as loop nests, and the accumulators of their reductions.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/analysis, lowering, lowering/kernel,
lowering/loops.
"""
