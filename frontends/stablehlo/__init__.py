"""StableHLO as JAX prints it, read into graph ops.

May import dialects, dialects/types, dialects/scalar, dialects/interfaces, dialects/analysis, dialects/graph,
dialects/graph/*, frontends, frontends/stablehlo/*, tools/compiler.
"""

from fuse_opt.frontends.stablehlo.importer import StableHLOError, load, supported_ops

__all__ = ["StableHLOError", "load", "supported_ops"]
