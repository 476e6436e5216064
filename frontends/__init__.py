"""Importers of models of other tools; here what they build modules with.

May import dialects, dialects/types, dialects/scalar, dialects/interfaces, dialects/analysis, dialects/graph,
dialects/graph/*, dialects/verify.
"""
