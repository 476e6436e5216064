"""Operators of com.microsoft, a handler each.

May import dialects, dialects/types, dialects/scalar, dialects/interfaces, dialects/analysis, dialects/graph,
dialects/graph/*, frontends, frontends/onnx/operators.
"""
