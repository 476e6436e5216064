"""From a kernel's loop body to SSA, for CPUs and GPUs.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis, lowering,
lowering/program.
"""
