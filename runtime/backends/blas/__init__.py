"""Products and convolutions over NumPy's BLAS, by tasks of the pool.

May import lowering/program, lowering/c/headers, runtime, runtime/host.
"""
