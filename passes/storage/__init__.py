"""Storage kinds: where values are made dense, and values taken apart.

May import dialects/types, dialects/interfaces, dialects/analysis, dialects/implementation, dialects/graph,
dialects/graph/sparse, passes, passes/decisions, passes/devices, passes/implementation.
"""
