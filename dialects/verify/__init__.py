"""Dominance and memory plans; shares no code with the analyses that planners use.

May import dialects/types, dialects/interfaces, dialects/fused, dialects/implementation.
"""
