"""Loops for where conditions on their counters are decided, and what is gained there.

May import dialects/types, lowering, lowering/kernel, lowering/loops, lowering/loops/tails.
"""
