"""Normalizations, attention, rotary embedding, dropout, quantization.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/graph/bases, dialects/graph/elementwise,
dialects/graph/creation, dialects/graph/movement, dialects/graph/reductions, dialects/graph/contractions,
dialects/graph/windows.
"""
