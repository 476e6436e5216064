"""The NumPy interpreter.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, lowering, lowering/program,
lowering/reference/kernels.
"""
