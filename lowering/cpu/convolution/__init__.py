"""Convolutions as tiles of sums in registers: what tasks copy, sum up and store.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis,
dialects/analysis/contractions, lowering, lowering/program, lowering/kernel, lowering/loops, lowering/c/headers,
lowering/cpu, lowering/cpu/matmul, lowering/cpu/matmul/tilings, lowering/cpu/convolution/any_extents,
lowering/cpu/convolution/lanes, lowering/cpu/convolution/tilings, lowering/cpu/convolution/winograd.
"""
