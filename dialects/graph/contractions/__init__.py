"""Matrix products, einsum and convolutions.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/graph/bases, dialects/graph/elementwise,
dialects/graph/creation, dialects/graph/movement, dialects/graph/reductions, dialects/graph/windows.
"""
