"""ONNX models: read, run, and the backend of ONNX's own tests.

May import dialects, dialects/types, dialects/scalar, dialects/interfaces, dialects/analysis, dialects/graph,
dialects/graph/*, frontends, frontends/onnx/*, tools/compiler.
"""

from fuse_opt.frontends.onnx.model import OnnxError, OnnxModel, UnsupportedError, load, supported_operators

__all__ = ["OnnxError", "OnnxModel", "UnsupportedError", "load", "supported_operators"]
