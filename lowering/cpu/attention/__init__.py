"""Attention: two products as tiles in registers, with rows of scores between them that stay in a cache.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis,
dialects/analysis/contractions, lowering, lowering/program, lowering/kernel, lowering/loops, lowering/c/headers,
lowering/cpu, lowering/cpu/stages, lowering/cpu/matmul, lowering/cpu/matmul/tilings.
"""
