"""Products and convolutions over NumPy's BLAS, by tasks of the pool.

May import dialects/implementation, lowering/program, lowering/c/headers, runtime, runtime/host,
lowering/reference/kernels.
"""
