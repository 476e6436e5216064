"""How kernels run: schedules, stores past the caches, launches in bulks.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis, passes,
passes/devices, passes/memory.
"""
