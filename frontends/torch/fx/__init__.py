"""What is asked of FX graphs and their values, and the handler of an overload.

May import dialects, dialects/types, dialects/scalar, dialects/interfaces, dialects/analysis, dialects/graph,
dialects/graph/*, frontends.
"""
