"""Overloads of aten, a handler each.

May import dialects, dialects/types, dialects/scalar, dialects/interfaces, dialects/analysis,
dialects/analysis/contractions, dialects/graph, dialects/graph/*, frontends, frontends/torch/fx,
frontends/torch/operators/special.
"""
