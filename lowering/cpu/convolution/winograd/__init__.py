"""Convolutions of 3x3 windows by tiles of 2x2 positions.

May import dialects/types, dialects/interfaces, dialects/analysis/contractions, lowering/kernel, lowering/c/headers,
lowering/cpu, lowering/cpu/matmul, lowering/cpu/convolution/any_extents, lowering/cpu/convolution/lanes,
lowering/cpu/convolution/tilings.
"""
