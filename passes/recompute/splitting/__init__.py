"""Ops taken apart, so that less of what they read or give is kept.

May import dialects/interfaces, dialects/fused, dialects/analysis, dialects/graph/bases, dialects/graph/movement,
dialects/implementation, passes, passes/devices, passes/fusion/engine.
"""
