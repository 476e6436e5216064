"""PyTorch: the torch.compile backend, its reports, models as text.

May import dialects, dialects/types, dialects/scalar, dialects/interfaces, dialects/analysis, dialects/graph,
dialects/graph/*, frontends, frontends/torch/*, tools/compiler.
"""

from fuse_opt.frontends.torch.backend import Options, fuse_opt
from fuse_opt.frontends.torch.export import export
from fuse_opt.frontends.torch.exported import ExportedCall, compile_exported
from fuse_opt.frontends.torch.report import GraphReport, collect_reports, last_coverage

__all__ = [
    "ExportedCall",
    "GraphReport",
    "Options",
    "collect_reports",
    "compile_exported",
    "export",
    "fuse_opt",
    "last_coverage",
]
