"""The two conversions from kernels to programs of launches.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused, dialects/analysis,
dialects/analysis/contractions, dialects/gpu, dialects/implementation, lowering, lowering/program, lowering/kernel,
lowering/loops, lowering/loops/ranges, lowering/loops/tails, lowering/cpu, lowering/cpu/attention,
lowering/cpu/convolution, lowering/cpu/matmul, lowering/cpu/packed, lowering/gpu, lowering/gpu/attention,
lowering/reference/kernels.
"""
