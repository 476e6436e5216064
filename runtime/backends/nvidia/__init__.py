"""Calls of cuBLAS, cuBLASLt, cuDNN and cuSPARSE: products, convolutions, attention, norms.

May import dialects/types, dialects/interfaces, dialects/implementation, lowering/program, runtime, runtime/device,
lowering/reference/kernels.
"""
