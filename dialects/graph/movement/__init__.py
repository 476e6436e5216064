"""Views, joining, padding, slices, gathers and scatters.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/graph/bases, dialects/graph/elementwise,
dialects/graph/creation.
"""
