"""Convolutions whose vectors are of channels that lie innermost, and the copy of such an input.

May import dialects/types, dialects/interfaces, dialects/analysis/contractions, lowering/kernel, lowering/c/headers,
lowering/cpu/matmul, lowering/cpu/convolution/tilings.
"""
