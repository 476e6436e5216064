"""How kernels run: schedules, stores past the caches, launches in bulks.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis,
dialects/analysis/contractions, dialects/implementation, passes, passes/decisions, passes/devices, passes/memory.
"""
