"""From a ModelProto to a module.

May import dialects, dialects/types, dialects/scalar, dialects/interfaces, dialects/analysis, dialects/graph,
dialects/graph/*, frontends, frontends/onnx/operators, frontends/onnx/microsoft.
"""
