"""From an FX graph to a module, with what PyTorch still does itself.

May import dialects, dialects/types, dialects/scalar, dialects/interfaces, dialects/analysis, dialects/graph,
dialects/graph/*, frontends, frontends/torch/fx, frontends/torch/operators, frontends/torch/recording.
"""
