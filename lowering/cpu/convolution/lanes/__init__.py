"""Convolutions whose vectors are of channels, copies of these, and sums of filters side by side.

May import dialects/types, dialects/interfaces, dialects/analysis/contractions, lowering/kernel, lowering/c/headers,
lowering/cpu/matmul, lowering/cpu/convolution/tilings.
"""
