"""The Python function that calls programs and PyTorch's kernels in turn.

May import dialects, dialects/types, dialects/scalar, dialects/interfaces, dialects/analysis, dialects/graph,
dialects/graph/*, frontends, frontends/torch/fx, frontends/torch/importer, frontends/torch/recording, tools/compiler,
lowering/program.
"""
