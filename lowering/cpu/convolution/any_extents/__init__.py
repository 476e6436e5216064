"""Convolutions of images of any extents: blocks, copies and tasks whose numbers are those of a call.

May import dialects/types, dialects/interfaces, dialects/analysis/contractions, lowering/kernel, lowering/c/headers,
lowering/cpu/matmul, lowering/cpu/matmul/tilings, lowering/cpu/convolution/lanes, lowering/cpu/convolution/tilings.
"""
