"""StableHLO ops, a handler each, and their regions.

May import dialects, dialects/types, dialects/scalar, dialects/interfaces, dialects/analysis, dialects/graph,
dialects/graph/*, frontends.
"""
