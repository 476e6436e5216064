"""What an op states about itself, and what is derived from it.

May import dialects/types, dialects/scalar.
"""

from fuse_opt.dialects.interfaces.op import (
    CompositeOp,
    ErrorBound,
    Expansion,
    FusionKind,
    GraphBuilder,
    GraphOp,
    OpaqueOp,
    StructuredOp,
)
from fuse_opt.dialects.types.encodings import EncodingPart, OrderAttr, PanelAttr

__all__ = [
    "CompositeOp",
    "EncodingPart",
    "ErrorBound",
    "Expansion",
    "FusionKind",
    "GraphBuilder",
    "GraphOp",
    "OpaqueOp",
    "OrderAttr",
    "PanelAttr",
    "StructuredOp",
]
