"""Products and convolutions by oneDNN, through its C library.

May import dialects/types, dialects/interfaces, dialects/implementation, lowering/program, runtime, runtime/host,
lowering/reference/kernels.
"""
