"""How convolutions and gradients are cut into blocks, panels and tiles.

May import dialects/types, dialects/interfaces, dialects/analysis/contractions, lowering/cpu/matmul,
lowering/cpu/matmul/tilings.
"""
