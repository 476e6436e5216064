"""The NumPy interpreter.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis,
dialects/graph/sparse, lowering, lowering/program, lowering/reference/kernels.
"""
