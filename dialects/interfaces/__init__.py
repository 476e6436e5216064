"""What an op states about itself, and what is derived from it.

May import dialects/types, dialects/scalar.
"""

from fuse_opt.dialects.interfaces.composite_op import CompositeOp, Expansion
from fuse_opt.dialects.interfaces.op import ErrorBound, GraphBuilder, GraphOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.structured_op import FusionKind, StructuredOp
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
