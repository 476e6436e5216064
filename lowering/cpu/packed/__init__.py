"""Rows that are shorter than a vector, several of them in one.

May import dialects/types, dialects/interfaces, dialects/fused, dialects/analysis, lowering, lowering/kernel,
lowering/loops, lowering/cpu, lowering/cpu/stages.
"""
