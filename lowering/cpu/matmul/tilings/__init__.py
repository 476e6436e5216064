"""How products are cut into tiles, panels, blocks and tasks, and what they are computed in.

May import dialects/types, dialects/interfaces, dialects/analysis/contractions, lowering/c/headers.
"""
