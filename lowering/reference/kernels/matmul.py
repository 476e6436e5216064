"""Matrix products over np.matmul."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fuse_opt.lowering.program import Array, Config
from fuse_opt.lowering.reference.kernels.config import integer
from fuse_opt.lowering.reference.kernels.costs import product_cost
from fuse_opt.lowering.reference.kernels.registry import implementation, in_single


@implementation("numpy.matmul", "graph.matmul", cost=product_cost, sized=True)
@in_single
def matmul(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """np.matmul; half precision is computed in single and rounded once. Transposed operands are views."""
    (out,) = outputs
    a, b = (each if each.dtype == out.dtype else each.astype(out.dtype) for each in inputs)
    a = a.swapaxes(-1, -2) if integer(config, "transpose_lhs") else a
    b = b.swapaxes(-1, -2) if integer(config, "transpose_rhs") else b
    if out.ndim == 0:
        out[...] = np.matmul(a, b)
    elif _is_one_product(a, b):
        # A stack times one matrix is one large product: BLAS sees all rows at once.
        np.matmul(a.reshape(-1, a.shape[-1]), b, out=out.reshape(-1, out.shape[-1]))
    else:
        np.matmul(a, b, out=out)


def _is_one_product(a: Array, b: Array) -> bool:
    return a.ndim > 2 and b.ndim == 2 and a.flags.c_contiguous and 0 not in (*a.shape, *b.shape)
