"""Special functions of PyTorch by their expansions.

May import dialects, dialects/types, dialects/scalar, dialects/interfaces, dialects/analysis, dialects/graph,
dialects/graph/*, frontends, frontends/torch/fx.
"""
