"""How convolutions and their gradients are cut: blocks of positions, panels, tiles of sums, tasks; all by extents alone.

May import dialects/interfaces, dialects/analysis/contractions, lowering/cpu/matmul.
"""
