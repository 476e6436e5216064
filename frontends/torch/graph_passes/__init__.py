"""Rewrites of FX graphs before the import.

May import dialects, dialects/types, dialects/scalar, dialects/interfaces, dialects/analysis, dialects/graph,
dialects/graph/*, frontends, frontends/torch/fx, frontends/torch/operators.
"""
