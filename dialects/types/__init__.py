"""Element types and index expressions.

May import no other package of ours.
"""
