"""The `graph` dialect: the ops by family, and graph ops made of scalar expressions.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/graph/*.
"""

from fuse_opt.dialects.graph.dialect import FAMILIES, GRAPH, records

__all__ = ["FAMILIES", "GRAPH", "records"]
