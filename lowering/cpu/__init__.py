"""Loops for CPUs, one file a schedule.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis, lowering,
lowering/program, lowering/kernel, lowering/loops, lowering/c/headers, lowering/cpu/stages.
"""
