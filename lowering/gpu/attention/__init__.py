"""Attention on GPUs: one pass over the keys, with a running maximum.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis,
dialects/analysis/contractions, dialects/gpu, lowering, lowering/program, lowering/kernel, lowering/loops, lowering/gpu.
"""
