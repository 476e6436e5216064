"""The registry of implementations as data: offers and queries.

May import dialects/types, dialects/interfaces, dialects/fused, dialects/analysis.
"""
