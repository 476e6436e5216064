"""NumPy functions of opaque ops: what they compute.

May import dialects/types, dialects/interfaces, dialects/implementation, lowering, lowering/program.
"""

from fuse_opt.dialects.implementation.offers import registering

with registering():
    from fuse_opt.lowering.reference.kernels import convolution, extern, indexing, matmul, sorting, sparse
    from fuse_opt.lowering.reference.kernels.registry import Implementation, find_implementation, implementation

__all__ = [
    "Implementation",
    "convolution",
    "extern",
    "find_implementation",
    "implementation",
    "indexing",
    "matmul",
    "sorting",
    "sparse",
]
