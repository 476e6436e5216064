"""The NumPy interpreter.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis, lowering,
lowering/program, lowering/reference/kernels.
"""
