"""Convolutions as tiles of sums in registers: how they are cut, and where windows find their elements.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis,
dialects/analysis/contractions, lowering, lowering/program, lowering/kernel, lowering/loops, lowering/c/headers,
lowering/cpu, lowering/cpu/matmul.
"""
