"""Kernels for GPUs, one file a schedule.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis, dialects/gpu,
lowering, lowering/program, lowering/kernel, lowering/loops.
"""
