"""Functions of sparse tensors as programs, and optimizers on row-sparse gradients.

May import dialects, dialects/types, dialects/scalar, dialects/interfaces, dialects/analysis, dialects/graph,
dialects/graph/*, frontends, frontends/torch/fx, frontends/torch/operators, tools/compiler.
"""

from fuse_opt.frontends.torch.sparse.function import compile_sparse
from fuse_opt.frontends.torch.sparse.optimizers import SparseAdam

__all__ = ["SparseAdam", "compile_sparse"]
