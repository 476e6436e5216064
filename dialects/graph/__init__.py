"""The `graph` dialect: the ops by family, and graph ops made of scalar expressions.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/graph/*.
"""

from fuse_opt.dialects.graph.bases.elementwise import Binary, Elementwise, Unary
from fuse_opt.dialects.graph.dialect import FAMILIES, GRAPH, records
from fuse_opt.dialects.graph.movement.views import ViewOp
from fuse_opt.dialects.graph.reductions.reductions import Reduction

__all__ = ["FAMILIES", "GRAPH", "Binary", "Elementwise", "Reduction", "Unary", "ViewOp", "records"]
