"""Element types, encodings, sizes and index expressions.

May import no other package of ours.
"""

from fuse_opt.dialects.types.dtypes import DType, dtype_of
from fuse_opt.dialects.types.index_expr import Index, IndexExpr

__all__ = ["DType", "Index", "IndexExpr", "dtype_of"]
