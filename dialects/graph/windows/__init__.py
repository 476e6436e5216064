"""Sliding windows and pooling, with its gradients.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/graph/bases, dialects/graph/elementwise,
dialects/graph/creation, dialects/graph/movement, dialects/graph/reductions.
"""
