"""What code is generated for products, convolutions and attention from.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis.
"""
