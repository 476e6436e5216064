"""Rewrites of graph ops and kernels; here what all of them share.

May import dialects/types, dialects/interfaces, dialects/fused, dialects/analysis.
"""
